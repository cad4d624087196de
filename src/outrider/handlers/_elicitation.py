"""Answers what MCP servers ask the user, and the dialogs of the agent itself, by the user's callbacks.

What cannot be an answer cancels the question: nothing is made up. Forms are in `_forms`.
"""

from __future__ import annotations

import logging
from time import perf_counter
from typing import TYPE_CHECKING, Final, Literal, TypeGuard, cast

from outrider.errors import Denied, OutriderError
from outrider.handlers._attempt import Attempt, attempt, outcome_of
from outrider.handlers._calling import CallContext, name_of
from outrider.handlers._forms import content_fault, form_fields
from outrider.handlers._handled import DialogHandled, ElicitationHandled
from outrider.redaction import preview, preview_value
from outrider.wire import encode
from outrider.wire._encoding import to_wire
from outrider.wire.control import DialogResult, ElicitationResult

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from outrider.handlers._forms import FormField
    from outrider.handlers._handled import Observe
    from outrider.handlers._origin import Origin
    from outrider.wire import Json, JsonObject
    from outrider.wire.control import Elicitation, RequestUserDialog

log = logging.getLogger("outrider.session")

_ACTIONS: Final = ("accept", "decline", "cancel")


def accept(content: Mapping[str, Json] | None = None) -> ElicitationResult:
    """Answer a server's question: with the form filled in, or that the page was opened."""
    return ElicitationResult(action="accept", content=None if content is None else dict(content))


def decline() -> ElicitationResult:
    """Say no to a server's question."""
    return ElicitationResult(action="decline")


def cancel() -> ElicitationResult:
    """Leave a server's question without an answer, as if its window had been closed."""
    return ElicitationResult(action="cancel")


class ElicitationRequest(CallContext):
    """An MCP server asks the user for something: to fill in a form, or to open a page.

    Return the filled-in form as a dict; True for a page that was opened, or for a form left at its defaults;
    None, False or `decline()` to say no; `cancel()` for no answer at all.
    """

    def __init__(self, ask: Elicitation, origin: Origin) -> None:
        super().__init__(origin)
        self.ask: Final = ask
        """The request as the wire has it; not to be changed."""
        self.server: Final[str] = ask.mcp_server_name
        self.message: Final[str] = ask.message
        """What the server wants, in words."""
        self.url: Final[str | None] = ask.url
        """The page to open, in the mode `url`."""
        self.mode: Final[Literal["form", "url"]] = (
            "url" if ask.mode == "url" or (ask.mode is None and ask.url is not None) else "form"
        )
        self.id: Final[str | None] = ask.elicitation_id
        """In the mode `url`: what a later `elicitation_complete` message names."""
        self.schema: Final[JsonObject | None] = ask.requested_schema
        """The JSON Schema of the form."""
        self.fields: Final[tuple[FormField, ...]] = form_fields(ask.requested_schema, ask.property_order)
        """The fields of the form, in the order of the server."""
        self.title: Final[str | None] = ask.title
        self.display_name: Final[str | None] = ask.display_name
        """The server's name for people."""
        self.description: Final[str | None] = ask.description

    def __repr__(self) -> str:
        return f"<ElicitationRequest of {self.server}: {preview(self.message, 80)}>"


class DialogRequest(CallContext):
    """The agent wants a dialog of its own shown, of a kind that `supported_dialog_kinds` names.

    Return its result, or None if it was closed without one.
    """

    def __init__(self, ask: RequestUserDialog, origin: Origin) -> None:
        super().__init__(origin, ask.tool_use_id)
        self.ask: Final = ask
        """The request as the wire has it; not to be changed."""
        self.kind: Final[str] = ask.dialog_kind
        self.payload: Final[Json] = ask.payload
        """What the dialog is about; its form depends on the kind."""

    def __repr__(self) -> str:
        return f"<DialogRequest {self.kind} {preview_value(self.payload)}>"


class NotAnAnswer(ValueError):
    """What a callback returned answers nothing; the text says what is wrong with it."""


class Elicitations:
    """Answers what MCP servers ask during one session."""

    def __init__(
        self, on_elicitation: Callable[..., object] | None, observe: Observe, timeout: float | None = None
    ) -> None:
        """`timeout`: how many seconds the callback may take. None: as long as it likes."""
        self._callback = on_elicitation
        self._observe = observe
        self._timeout = timeout

    async def answer(self, ask: Elicitation, origin: Origin) -> JsonObject:
        """The answer, as sent. Raises nothing but cancellation and what ends programs."""
        began = perf_counter()
        try:
            tried, result = await self._answered(ask, origin)
        except Exception as error:  # noqa: BLE001 - a mistake of ours, or of an object that was looked at
            tried, result = Attempt(outcome="failed", error=error), cancel()
            _log_failure(tried, "Outrider", "a server's question")
        except BaseException as error:
            self._report(ask, began, _given_up(error), cancel())
            raise
        self._report(ask, began, tried, result)
        return result.to_wire()

    async def _answered(self, ask: Elicitation, origin: Origin) -> tuple[Attempt, ElicitationResult]:
        if self._callback is None:
            return Attempt(outcome="answered"), decline()
        who, what = name_of(self._callback), f"a question of {ask.mcp_server_name}"
        request = ElicitationRequest(ask, origin)
        tried = await attempt(self._callback, request, self._timeout)
        if isinstance(tried.error, Denied):
            return Attempt(outcome="answered"), decline()
        if tried.outcome != "answered":
            _log_failure(tried, who, what)
            return tried, cancel()
        try:
            return tried, _read(tried.value, request)
        except NotAnAnswer as error:
            log.error("%s did not answer %s: cancelled, because %s", who, what, error)  # noqa: TRY400
            return Attempt(outcome="failed", error=error), cancel()

    def _report(self, ask: Elicitation, began: float, tried: Attempt, result: ElicitationResult) -> None:
        self._observe(
            ElicitationHandled(
                seconds=perf_counter() - began,
                outcome=tried.outcome,
                error=tried.error,
                server=ask.mcp_server_name,
                action=result.action,
            )
        )


class Dialogs:
    """Answers the dialogs of one session's agent."""

    def __init__(
        self, on_user_dialog: Callable[..., object], observe: Observe, timeout: float | None = None
    ) -> None:
        """`timeout`: how many seconds the callback may take. None: as long as it likes."""
        self._callback = on_user_dialog
        self._observe = observe
        self._timeout = timeout

    async def answer(self, ask: RequestUserDialog, origin: Origin) -> JsonObject:
        """How the dialog ended, as sent. Raises nothing but cancellation and what ends programs."""
        began = perf_counter()
        try:
            tried, result = await self._answered(ask, origin)
        except Exception as error:  # noqa: BLE001 - a mistake of ours, or of an object that was looked at
            tried, result = Attempt(outcome="failed", error=error), DialogResult("cancelled")
            _log_failure(tried, "Outrider", "a dialog")
        except BaseException as error:
            self._report(ask, began, _given_up(error), None)
            raise
        self._report(ask, began, tried, result.result)
        return result.to_wire()

    async def _answered(self, ask: RequestUserDialog, origin: Origin) -> tuple[Attempt, DialogResult]:
        who, what = name_of(self._callback), f"a dialog {ask.dialog_kind!r}"
        tried = await attempt(self._callback, DialogRequest(ask, origin), self._timeout)
        if isinstance(tried.error, Denied):
            return Attempt(outcome="answered"), DialogResult("cancelled")
        if tried.outcome != "answered":
            _log_failure(tried, who, what)
            return tried, DialogResult("cancelled")
        try:
            return tried, _read_dialog(tried.value)
        except NotAnAnswer as error:
            log.error("%s did not answer %s: cancelled, because %s", who, what, error)  # noqa: TRY400
            return Attempt(outcome="failed", error=error), DialogResult("cancelled")

    def _report(self, ask: RequestUserDialog, began: float, tried: Attempt, result: Json) -> None:
        self._observe(
            DialogHandled(
                seconds=perf_counter() - began,
                outcome=tried.outcome,
                error=tried.error,
                tool_use_id=ask.tool_use_id,
                kind=ask.dialog_kind,
                result=result,
            )
        )


def _given_up(error: BaseException) -> Attempt:
    return Attempt(outcome=outcome_of(error), error=error)


def _log_failure(tried: Attempt, who: str, what: str) -> None:
    if tried.outcome == "timed_out":
        log.error("%s gave %s about %s: cancelled", who, tried.error, what)
    else:
        log.error("%s failed to answer %s: cancelled", who, what, exc_info=tried.error)


def _read(value: object, request: ElicitationRequest) -> ElicitationResult:
    if value is None or value is False:
        return decline()
    if value is True:
        defaults = {field.name: field.default for field in request.fields if field.default is not None}
        return _accepted(defaults or None, request)
    if isinstance(value, ElicitationResult):
        if value.action not in _ACTIONS:
            raise NotAnAnswer(f"there is no action {preview_value(value.action)}")
        return _accepted(value.content, request) if value.action == "accept" else value
    if _is_object(value):
        return _accepted(value, request)
    raise NotAnAnswer(f"{preview_value(value)} is no answer: return a dict, True, decline() or cancel()")


def _accepted(content: object, request: ElicitationRequest) -> ElicitationResult:
    if request.mode == "url":
        if content:
            raise NotAnAnswer("a page to open has no form to fill in: return True")
        return accept()
    if not _is_object(content if content is not None else {}):
        raise NotAnAnswer(f"a form is filled in with a dict, not with {preview_value(content)}")
    filled = cast("JsonObject", _as_json(content or {}))
    if fault := content_fault(filled, request.fields):
        raise NotAnAnswer(fault)
    return accept(filled)


def _read_dialog(value: object) -> DialogResult:
    if value is None:
        return DialogResult("cancelled")
    if isinstance(value, DialogResult):
        if value.behavior == "cancelled":
            return value
        value = value.result
    return DialogResult("completed", _as_json(value))


def _as_json(value: object) -> Json:
    try:
        plain: Json = to_wire(value)
        encode(plain)
    except (OutriderError, RecursionError) as error:
        raise NotAnAnswer(f"JSON cannot say {preview_value(value)}") from error
    return plain


def _is_object(value: object) -> TypeGuard[JsonObject]:
    return isinstance(value, dict)
