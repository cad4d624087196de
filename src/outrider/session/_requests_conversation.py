"""What a session can ask about its conversation: to stop, go back or end, with which model, under which name.

Does not send prompts, and does not wait for what an interrupted turn still says.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, Literal, cast

import msgspec

from outrider.errors import UsageError
from outrider.options import ThinkingDisplay
from outrider.options._readers import choice, fault, listed, open_choice, optional, switch, text, whole
from outrider.options._servers import read_permission_mode
from outrider.session._requests_asking import UNSET, Asking, Timeout, Unset
from outrider.wire import control
from outrider.wire.choices import PermissionMode

_read_display: Final = open_choice(("summarized", "omitted", "highlights"), typos=True)


def _read_past(place: str, value: object) -> object:
    if not isinstance(value, control.PastSideQuestion):
        raise fault(place, "a `PastSideQuestion`", value, "Import it from `outrider.wire.control`.")
    return value


_read_history: Final = listed(_read_past)


class ConversationRequests(Asking):
    """The part of `Requests` that is about the conversation and the model."""

    # What runs and what waits.

    async def interrupt(
        self, *, cancel_queued: bool = False, timeout: Timeout = UNSET
    ) -> control.Interrupted:
        """Stop the running turn. Its last messages and its result still follow.

        `cancel_queued` also drops the prompts that wait for their turn. The answer tells which were dropped
        and which will still get one. Without a turn, nothing happens.
        """
        cancel = switch("`cancel_queued`", cancel_queued) or None
        return await self.request(control.Interrupt(cancel), timeout=timeout)

    async def cancel_message(self, uuid: str, *, timeout: Timeout = UNSET) -> bool:
        """Take back a prompt that waits for its turn; False if its turn has begun or nobody knows it."""
        answer = await self.request(control.CancelAsyncMessage(text("`uuid`", uuid)), timeout=timeout)
        return answer.cancelled

    async def end_session(self, reason: str | None = None, *, timeout: Timeout = UNSET) -> None:
        """Tell the agent that no more will come: it ends by itself. Close the session all the same."""
        given = None if reason is None else text("`reason`", reason)
        await self.request(control.EndSession(given), timeout=timeout)

    # How the agent works.

    async def set_permission_mode(self, mode: PermissionMode, *, timeout: Timeout = UNSET) -> str:
        """Change what the agent may do without asking; gives back the mode that is now in force.

        `bypassPermissions` is refused with the code `bypass_not_launched` unless the session was started
        with `allow_dangerously_skip_permissions`.
        """
        wanted = cast(str, read_permission_mode("`mode`", mode))
        answer = await self.request(control.SetPermissionMode(wanted), timeout=timeout)
        return answer.mode or wanted

    async def set_model(self, model: str | None = None, *, timeout: Timeout = UNSET) -> str:
        """Change the model; gives back its full name. None: the model that the session began with.

        A full name is tried out first: the agent makes a small call to the API, which can take 15 seconds. If
        that fails, the model stays as it was, and the code of the `RequestFailed` tells why: `not_found`,
        `check_rejected`, `check_server_error` or `check_unreachable`.
        """
        wanted = None if model is None else text("`model`", model)
        answer = await self.request(control.SetModel(wanted), timeout=timeout)
        # An older program does not say; "default" is its own word for what it began with.
        return answer.model or wanted or "default"

    async def set_thinking(
        self,
        *,
        max_tokens: int | Unset | None = UNSET,
        display: ThinkingDisplay | Unset | None = UNSET,
        timeout: Timeout = UNSET,
    ) -> None:
        """Change how much the model may think, and how much of it is shown.

        None: the default. Left out: as it is.
        """
        if max_tokens is UNSET and display is UNSET:
            raise UsageError("set_thinking() has nothing to change", hint="Give `max_tokens` or `display`.")
        tokens = msgspec.UNSET if max_tokens is UNSET else optional(whole(0))("`max_tokens`", max_tokens)
        shown = msgspec.UNSET if display is UNSET else optional(_read_display)("`display`", display)
        request = control.SetMaxThinkingTokens(
            cast("int | msgspec.UnsetType | None", tokens), cast("str | msgspec.UnsetType | None", shown)
        )
        await self.request(request, timeout=timeout)

    async def list_models(self, *, timeout: Timeout = UNSET) -> list[control.ModelInfo]:
        """The models that `set_model` takes."""
        return (await self.request(control.ListModels(), timeout=timeout)).models

    # Beside the conversation.

    async def ask_side_question(
        self,
        question: str,
        *,
        history: Iterable[control.PastSideQuestion] = (),
        timeout: Timeout = UNSET,
    ) -> control.SideAnswer:
        """Ask the model something that does not become part of the conversation.

        It knows the conversation so far, and `history`: earlier questions of this kind. Works during a turn.
        A model may take long to answer: give `timeout` if `timeouts.control` is not enough.
        """
        earlier = cast("tuple[control.PastSideQuestion, ...]", _read_history("`history`", list(history)))
        request = control.SideQuestion(text("`question`", question), list(earlier) or None)
        return await self.request(request, timeout=timeout)

    async def generate_title(
        self, description: str, *, persist: bool = False, timeout: Timeout = UNSET
    ) -> str | None:
        """Have the model make a title; `persist` gives it to the session. None: none could be made."""
        request = control.GenerateSessionTitle(
            text("`description`", description), switch("`persist`", persist)
        )
        return (await self.request(request, timeout=timeout)).title

    async def rename(self, title: str, *, timeout: Timeout = UNSET) -> None:
        """Give the session a title, under which lists of sessions show it."""
        await self.request(control.RenameSession(text("`title`", title)), timeout=timeout)

    async def set_color(self, color: str, *, timeout: Timeout = UNSET) -> None:
        """Change the colour of the session in a list of sessions; `default` is one."""
        await self.request(control.SetColor(text("`color`", color)), timeout=timeout)

    async def rate_message(
        self,
        uuid: str,
        sentiment: Literal["positive", "negative"],
        *,
        surface: Literal["assistant_text", "tool_use"] = "assistant_text",
        cleared: bool = False,
        timeout: Timeout = UNSET,
    ) -> None:
        """Tell the makers of the agent how the user liked a message; `cleared`: not any more."""
        request = control.MessageRated(
            text("`uuid`", uuid),
            cast(str, choice("positive", "negative")("`sentiment`", sentiment)),
            cast(str, choice("assistant_text", "tool_use")("`surface`", surface)),
            switch("`cleared`", cleared),
        )
        await self.request(request, timeout=timeout)

    async def pause_prompt_suggestions(self, paused: bool = True, *, timeout: Timeout = UNSET) -> None:
        """Stop suggestions for the next prompt; `paused=False` resumes them."""
        await self.request(control.SetPromptSuggestionsPaused(switch("`paused`", paused)), timeout=timeout)

    async def set_has_subscribers(self, has_subscribers: bool | None, *, timeout: Timeout = UNSET) -> None:
        """Tell whether anybody watches, for stream events may be held back if not. None: not known."""
        known = None if has_subscribers is None else switch("`has_subscribers`", has_subscribers)
        await self.request(control.SetHasSubscribers(known), timeout=timeout)

    # What was said.

    async def export_conversation(self, *, timeout: Timeout = UNSET) -> control.ConversationExport:
        """The conversation as a text for people, and a name for its file."""
        return await self.request(control.ExportConversation(), timeout=timeout)

    async def plan(self, *, timeout: Timeout = UNSET) -> control.PlanReport:
        """The plan that was written in plan mode."""
        return await self.request(control.GetPlan(), timeout=timeout)

    async def rewind_conversation(
        self,
        message_uuid: str,
        *,
        interrupt: bool = False,
        last_seen: str | None = None,
        timeout: Timeout = UNSET,
    ) -> control.ConversationRewound:
        """Take the conversation back to before a message of the user's. Files stay: see `rewind_files`.

        `interrupt` stops a running turn for it. `last_seen` is the newest message of the user's that the
        caller knows. Look at `rewound` in the answer: False is no exception.
        """
        request = control.RewindConversation(
            text("`message_uuid`", message_uuid),
            switch("`interrupt`", interrupt) or None,
            None if last_seen is None else text("`last_seen`", last_seen),
        )
        return await self.request(request, timeout=timeout)
