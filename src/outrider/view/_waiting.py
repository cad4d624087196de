"""The page of approvals: what waits, what it would do, and the decision, if deciding is switched on."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Final
from urllib.parse import parse_qs

from starlette.responses import PlainTextResponse, RedirectResponse, Response

from outrider._display import plain
from outrider._threads import run_sync
from outrider.approvals import ApprovalSettled
from outrider.errors import OptionsError, OutriderError
from outrider.handlers import allow, deny
from outrider.transcripts._entries import fields_of
from outrider.view._live import renewed, root_of
from outrider.view._pages.layout import field
from outrider.view._pages.markup import Markup, h, moment
from outrider.view._pages.tools import input_element, kind_of, output
from outrider.view._sources.transcript import items_of

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from starlette.requests import Request

    from outrider.approvals import Approval, Approvals
    from outrider.view._live import Answer, Clients, Tabs
    from outrider.wire import JsonObject

_SECONDS: Final = 1.5


class ApprovalPages:
    """The page of approvals."""

    def __init__(
        self, approvals: Approvals, clients: Clients, tabs: Callable[[], Awaitable[Tabs]], *, may_decide: bool
    ) -> None:
        self._approvals = approvals
        self._clients = clients
        self._tabs = tabs
        self._may_decide = may_decide

    def routes(self) -> dict[str, Answer]:
        decide = {"POST /approvals/{id}": self._decide}
        return {"/approvals": self._list, "/watch/approvals": self._watch, **decide}

    async def tabs(self) -> Tabs:
        try:
            waiting = len(await self._approvals.list(state="pending"))
        except OutriderError:
            # Its own page says why; the others do not need it.
            waiting = 0
        return [("Approvals", "/approvals", waiting)]

    async def _list(self, request: Request) -> Response:
        root = root_of(request)
        found = await self._approvals.list()
        cards = await run_sync(lambda: [self._card(root, approval) for approval in found])
        empty = None if cards else h("p.empty", "Nothing waits.")
        note = h("p.note", "To decide here, start it with ", h("code", "--approve"), ".")
        region = h("div", cards, empty)
        return await renewed(
            request, "Approvals", region, self._tabs, note=None if self._may_decide else note
        )

    async def _watch(self, _: Request) -> Response:
        async def signature() -> object:
            return [(each.id, each.state) for each in await self._approvals.list()]

        return self._clients.watch(signature, _SECONDS)

    def _card(self, root: str, approval: Approval) -> Markup:
        is_open = approval.state == "pending"
        kind, server, title = kind_of(approval.tool)
        head = h(
            "header",
            h("span.sign", aria_hidden="true"),
            h("b", title),
            h("span.server", server) if server else None,
            h("span", approval.state, class_=f"badge {approval.state}"),
            h("span.grow"),
            h("a", f"session {approval.session_id[:8]}", href=f"{root}/s/{approval.session_id}"),
            moment(approval.asked_at),
        )
        told = [text for text in (approval.reason, approval.cwd) if text]
        says = f": {approval.message}" if approval.message else ""
        decided = f"{approval.state} by {approval.by or 'somebody'}{says}"
        return h(
            "article",
            head,
            h("p.note", " · ".join(told)) if told else None,
            # A form shows its questions itself.
            None
            if is_open and self._may_decide and approval.kind == "question"
            else input_element(approval.tool, approval.given_input),
            self._form(root, approval) if is_open and self._may_decide else None,
            h("p.note", decided) if not is_open else None,
            h("p.note", "If nobody decides, it is denied ", moment(approval.expires_at))
            if is_open and approval.expires_at
            else None,
            class_=f"approval {kind} {approval.state}",
            id=f"a{approval.id}",
        )

    def _form(self, root: str, approval: Approval) -> Markup:
        fields: list[Markup] = []
        if approval.kind == "question":
            fields += _question_fields(approval)
        else:
            edits = [_edit_field(name, value) for name, value in approval.input.items()]
            fields.append(h("details.edit", h("summary", "Edit before it runs"), edits))
        # What was shown is what is decided about.
        shown = h("input", type="hidden", name="digest", value=approval.digest)
        says = "Answer" if approval.kind == "question" else "Allow"
        allow_it = h("button.good", says, name="decision", value="allow")
        deny_it = h("button.bad", "Deny", name="decision", value="deny")
        actions = h("div.actions", allow_it, field("message", "Why not; the model reads it"), deny_it)
        address = f"{root}/approvals/{approval.id}"
        return h("form", shown, fields, actions, method="post", action=address)

    async def _decide(self, request: Request) -> Response:
        """A decision, from the form."""
        if not self._may_decide:
            return PlainTextResponse("Nothing can be decided here: approving is not switched on.", 403)
        given = parse_qs((await request.body()).decode("utf-8", "replace"), keep_blank_values=True)
        approval = await self._approvals.get(request.path_params["id"])
        if given.get("digest") != [approval.digest]:
            raise OptionsError("This is not the call that was shown", hint="Load the page again.")
        decision = given.get("decision", [""])[0]
        try:
            if decision == "deny":
                why = given.get("message", [""])[0].strip()
                await self._approvals.decide(approval.id, deny(why or "Denied by a person."), by="viewer")
            elif decision == "allow" and approval.kind == "question":
                await self._approvals.answer(approval.id, _answers(approval, given), by="viewer")
            elif decision == "allow":
                await self._approvals.decide(approval.id, allow(_changed(approval.input, given)), by="viewer")
            else:
                raise OptionsError(f"{decision!r} is not a decision", hint="Allow it or deny it.")
        except ApprovalSettled as error:
            raise OptionsError(str(error), hint="Load the page again.") from error
        return RedirectResponse(f"{root_of(request)}/approvals", 303)


def _edit_field(name: str, value: object) -> Markup:
    """A text as it is, anything else as JSON."""
    written = _written(value)
    rows = min(written.count("\n") + 1 + (len(written) > 100), 20)
    # The first line end in one would be left out.
    area = h("textarea", Markup("\n"), written, name=f"input.{name}", rows=rows, spellcheck="false")
    return h("label", name, area)


def _written(value: object) -> str:
    """A value in a form, whose lines end as forms have it."""
    said = value if isinstance(value, str) else json.dumps(value, indent=2, ensure_ascii=False)
    return _lines(plain(said))


def _lines(words: str) -> str:
    return words.replace("\r\n", "\n").replace("\r", "\n")


def _changed(input: JsonObject, given: dict[str, list[str]]) -> JsonObject | None:
    """The input with what a person has changed; None if it is left as it was."""
    changed: JsonObject = {}
    for name, value in input.items():
        written = _lines(given.get(f"input.{name}", [_written(value)])[0])
        if written == _written(value):
            continue
        try:
            changed[name] = written if isinstance(value, str) else json.loads(written)
        except (ValueError, RecursionError) as error:
            raise OptionsError(f"{name} is not JSON: {error}", hint="Go back and correct it.") from None
    return {**input, **changed} if changed else None


def _questions(approval: Approval) -> list[JsonObject]:
    return [fields_of(each) for each in items_of(approval.input.get("questions"))]


def _question_fields(approval: Approval) -> list[Markup]:
    made: list[Markup] = []
    for number, question in enumerate(_questions(approval)):
        kind = "checkbox" if question.get("multiSelect") else "radio"
        choices: list[Markup] = []
        for each in items_of(question.get("options")):
            option = fields_of(each)
            label, says = str(option.get("label", "")), str(option.get("description", ""))
            box = h("input", type=kind, name=f"q{number}", value=label)
            said = h("span", h("b", label), h("small.note", says))
            choices.append(h("label.check", box, said))
            if isinstance(preview := option.get("preview"), str):
                choices.append(output(preview))
        own = field(f"own{number}", "Something else")
        made.append(h("fieldset", h("legend", str(question.get("question", ""))), choices, own))
    return made


def _answers(approval: Approval, given: dict[str, list[str]]) -> JsonObject:
    answers: JsonObject = {}
    for number, question in enumerate(_questions(approval)):
        chosen = [*given.get(f"q{number}", []), *filter(str.strip, given.get(f"own{number}", []))]
        if chosen:
            answers[str(question.get("question", ""))] = chosen if question.get("multiSelect") else chosen[-1]
    return answers
