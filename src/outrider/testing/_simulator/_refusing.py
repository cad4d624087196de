"""Owns what the program does when its model refuses: it goes on once, then with another model, then gives up.

Does not ask the model.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from outrider.testing._simulator._catalogue import displayed
from outrider.testing._simulator._failing import ApiError
from outrider.wire import JsonObject

if TYPE_CHECKING:
    from outrider.testing._simulator._run import Run
    from outrider.testing._simulator._talk import Talk

__all__ = ["Refusals"]

_STOPPED: Final = (
    "Your response above was stopped by a safeguard. Go on in another way, or say what you cannot do."
)
_OTHER_MODELS: Final = {"cyber": "claude-opus-4-8"}
"""What goes on, by what was refused."""
_OTHER_MODEL: Final = "claude-opus-5"


class Refusals:
    """The refusals of one conversation."""

    def __init__(self, run: Run, talk: Talk) -> None:
        self._run, self._talk = run, talk
        self._count = 0

    def take(self, body: JsonObject, request_id: str, prompt_uuid: str | None) -> None:
        """Take a message that is a refusal: the conversation goes on. Raises `ApiError` if it cannot."""
        talk = self._talk
        details: JsonObject = body.get("stop_details") or {}
        facts: JsonObject = {
            "request_id": request_id,
            "api_refusal_category": details.get("category"),
            "api_refusal_explanation": details.get("explanation"),
            "refused_user_message_uuid": prompt_uuid,
        }
        self._count += 1
        talk.safety_stops += 1
        shown = displayed(talk.model)
        if self._count == 1 and body["content"]:
            text = f"{shown}'s safeguards stopped the response above · continuing once with that noted"
            self._run.say({"type": "system", "subtype": "informational", "content": text, "level": "notice"})
            talk.tell_model(_STOPPED, refused_message_id=body["id"])
            return
        other = _OTHER_MODELS.get(str(details.get("category")), _OTHER_MODEL)
        if self._count <= 2 and talk.model not in (*_OTHER_MODELS.values(), other):
            self._fall_back(other, facts)
            return
        self._give_up(body, details, facts)

    def _fall_back(self, other: str, facts: JsonObject) -> None:
        talk = self._talk
        self._count = 2
        shown = displayed(talk.model)
        self._run.say(
            {
                "type": "system",
                "subtype": "model_refusal_fallback",
                "trigger": "refusal",
                "direction": "retry",
                "scope": "session",
                "original_model": talk.model,
                "fallback_model": other,
                **facts,
                "retracted_message_uuids": talk.retract(),
                "content": f"{shown}'s safeguards flagged this session; {displayed(other)} goes on.",
            }
        )
        talk.model = other

    def _give_up(self, body: JsonObject, details: JsonObject, facts: JsonObject) -> None:
        talk = self._talk
        told: JsonObject = {"type": "system", "subtype": "model_refusal_no_fallback"}
        self._run.say(told | {"original_model": talk.model, **facts, "content": ""})
        text = f"{displayed(talk.model)}'s safeguards flagged this message. Change it, or use another model."
        error = ApiError(f"API Error: {text}", error="invalid_request", request_id=str(facts["request_id"]))
        error.stop_details = {
            "type": "refusal",
            "category": details.get("category"),
            "explanation": details.get("explanation"),
        }
        error.refused_message_id = body["id"]
        raise error
