"""`outrider approvals`: what waits for a person, and the decisions.

Does not go on with sessions: that takes the options they had, which programs know.
"""

from __future__ import annotations

import getpass
import json as _json
from datetime import UTC, datetime
from functools import partial
from typing import TYPE_CHECKING, Annotated, Final, TypeAlias

from outrider.app._flags import Code, Failed, Switches, argument, option, switch

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping

    from outrider.app._terminal import Terminal
    from outrider.approvals import Approval, Approvals
    from outrider.handlers import Answer
    from outrider.wire import Json

_Id: TypeAlias = Annotated[str, argument(help="An approval's ID, or its beginning.", metavar="ID")]
_Store: TypeAlias = Annotated[
    str | None,
    option(metavar="URL", envvar="OUTRIDER_APPROVALS", help="Where approvals are kept: a URL or a path."),
]
_By: TypeAlias = Annotated[str | None, option(metavar="NAME", help="Who decides. Default: you.")]
_Json: TypeAlias = Annotated[bool, switch("--json", help="Print JSON, one object per line.")]


def list_(
    switches: Switches,
    store: _Store = None,
    session: Annotated[
        str | None, option(metavar="ID", help="All approvals of this session, settled ones too.")
    ] = None,
    state: Annotated[str | None, option(metavar="STATE", help="Only those in this state.")] = None,
    json: _Json = False,
) -> int:
    """List what waits for a decision, and what is decided but has not continued."""

    async def show_all(approvals: Approvals, terminal: Terminal) -> None:
        from rich.text import Text

        found = await approvals.list(session_id=session, state=state)
        for each in found:
            if json:
                terminal.write_json(_as_json(each))
            else:
                _print_row(terminal, each)
        if not found and not json:
            terminal.note(Text("Nothing is waiting.", style="dim"))

    return _carry_out(store, switches, show_all)


def show(switches: Switches, id: _Id, store: _Store = None, json: _Json = False) -> int:
    """Show an approval: what the call would do, why it waits, and what became of it."""

    async def show_one(approvals: Approvals, terminal: Terminal) -> None:
        found = await _find(approvals, id)
        if json:
            terminal.write_json(_as_json(found))
        else:
            _print_whole(terminal, found)

    return _carry_out(store, switches, show_one)


def allow(
    switches: Switches,
    id: _Id,
    store: _Store = None,
    input: Annotated[str | None, option(metavar="JSON", help="Let it run with this input instead.")] = None,
    answer: Annotated[
        list[str] | None,
        option(metavar="TEXT", help="Answer a question, or several in their order. Can be repeated."),
    ] = None,
    by: _By = None,
) -> int:
    """Allow a call: it runs once, when its session continues. A question needs an --answer."""
    from outrider.handlers import allow as allowed

    if answer:
        if input is not None:
            raise Failed("Give --answer or --input, not both.", Code.USAGE)
        return _carry_out(store, switches, partial(_decide, id, answer, by))
    given: Mapping[str, Json] | None = None
    if input is not None:
        try:
            given = _json.loads(input)
        except ValueError as error:
            raise Failed(f"--input is not JSON: {error}.", Code.USAGE) from None
        if not isinstance(given, dict):
            raise Failed("--input is not a JSON object.", Code.USAGE)
    return _carry_out(store, switches, partial(_decide, id, allowed(given), by))


def deny(
    switches: Switches,
    id: _Id,
    reason: Annotated[str, argument(metavar="REASON", help="Why not; the model reads it.")],
    store: _Store = None,
    by: _By = None,
) -> int:
    """Deny a call, and tell the model why."""
    from outrider.handlers import deny as denied

    return _carry_out(store, switches, partial(_decide, id, denied(reason), by))


APPROVAL_COMMANDS: Final[dict[str, Callable[..., int]]] = {
    function.__name__.rstrip("_"): function for function in (list_, show, allow, deny)
}


# How they are carried out.


def _carry_out(
    store: str | None, switches: Switches, work: Callable[[Approvals, Terminal], Awaitable[None]]
) -> int:
    import anyio

    from outrider.app._sessions.sessions import check_is_there
    from outrider.app._terminal import Terminal
    from outrider.approvals import Approvals

    if store is None:
        raise Failed("Say where approvals are kept: --store URL, or set OUTRIDER_APPROVALS.", Code.USAGE)
    check_is_there(store)

    async def run() -> None:
        async with Approvals(store) as approvals:
            await work(approvals, Terminal(no_color=switches.no_color))

    anyio.run(run)
    return Code.OK


async def _find(approvals: Approvals, piece: str) -> Approval:
    if not piece:
        # The beginning of every one: a variable of the shell that is not set must not decide anything.
        raise Failed("The ID is empty. See `outrider approvals list`.", Code.USAGE)
    if "." in piece and len(piece) > 36:  # of a session's
        return await approvals.get(piece)
    found = [
        each
        for each in await approvals.list()
        if each.id.startswith(piece) or each.id.rpartition(".")[2].startswith(piece)
    ]
    if not found:
        raise Failed(f"No open approval has the ID {piece!r}. See `outrider approvals list`.", Code.USAGE)
    if len(found) > 1:
        named = ", ".join(each.id for each in found[:4])
        raise Failed(f"{len(found)} approvals have {piece!r} in their ID: {named}.", Code.USAGE)
    return found[0]


async def _decide(
    id: str, answer: Answer | list[str], by: str | None, approvals: Approvals, terminal: Terminal
) -> None:
    from rich.text import Text

    found, by = await _find(approvals, id), by or _user()
    if isinstance(answer, list):
        decided = await approvals.answer(found.id, _answers(found, answer), by=by)
    else:
        decided = await approvals.decide(found.id, answer, by=by)
    terminal.note(Text(f"{decided.state}: {_summary(decided)}", style="dim"))


def _answers(approval: Approval, given: list[str]) -> dict[str, Json]:
    from outrider.wire.tools import AskUserQuestionInput, typed_input

    asked = typed_input(approval.tool, approval.input)
    if not isinstance(asked, AskUserQuestionInput):
        raise Failed(f"{approval.id} is not a question: leave out --answer.", Code.USAGE)
    if len(given) != len(asked.questions):
        raise Failed(f"{approval.id} asks {len(asked.questions)}; --answer gives {len(given)}.", Code.USAGE)
    return {each.question: text for each, text in zip(asked.questions, given, strict=True)}


def _user() -> str:
    try:
        return getpass.getuser()
    except (OSError, KeyError):
        return ""


def _as_json(approval: Approval) -> str:
    import msgspec

    return _json.dumps(msgspec.to_builtins(approval))


_STYLES: Final = {"pending": "bold yellow", "granted": "green", "denied": "red", "unknown": "bold red"}


def _print_row(terminal: Terminal, approval: Approval) -> None:
    from rich.text import Text

    own = approval.id.rpartition(".")[2]
    if not terminal.out.is_terminal:
        asked = _time(approval.asked_at)
        terminal.write("\t".join((approval.id, approval.state, asked, _summary(approval))) + "\n")
        return
    line = Text.assemble(
        (own, "cyan"),
        "  ",
        (f"{approval.state:8}", _STYLES.get(approval.state, "dim")),
        "  ",
        (f"{_ago(approval.asked_at):>14}", "dim"),
        "  ",
        _summary(approval),
    )
    line.truncate(terminal.out.width, overflow="ellipsis")
    terminal.print(line)


def _print_whole(terminal: Terminal, approval: Approval) -> None:
    from rich.text import Text

    from outrider._display import one_line
    from outrider.app._ask import Sheet

    terminal.print(Text(_summary(approval), style="bold"))
    facts = {
        "id": approval.id,
        "state": approval.state,
        "asked": ", ".join(filter(None, (_time(approval.asked_at), approval.reason))),
        "folder": approval.cwd,
        "expires": "" if approval.expires_at is None else _time(approval.expires_at),
        "decided": "" if approval.decided_at is None else f"{_time(approval.decided_at)} {approval.by}",
        "said": approval.message,
        "outcome": approval.outcome,
    }
    for name, value in facts.items():
        if value.strip():
            terminal.print(Text.assemble((f"{name:>9}  ", "dim"), one_line(value)))
    terminal.print()
    sheet = Sheet(terminal.out, terminal.glyphs)
    sheet.input(approval.given_input)
    for row in sheet.rows:
        terminal.print(row.drawn())


def _summary(approval: Approval) -> str:
    from outrider._display import one_line
    from outrider.wire.tools import AskUserQuestionInput, typed_input

    texts = (approval.given_input.get(name) for name in ("command", "file_path", "plan", "url", "prompt"))
    about = next((text for text in texts if isinstance(text, str)), None)
    asked = typed_input(approval.tool, approval.given_input)
    if isinstance(asked, AskUserQuestionInput) and asked.questions:
        about = asked.questions[0].question
    return one_line(f"{approval.tool}  {about or _json.dumps(approval.given_input, ensure_ascii=False)}")


def _time(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).isoformat(sep=" ", timespec="seconds")


def _ago(seconds: float) -> str:
    from outrider.app._sessions.sessions import ago

    return ago(datetime.fromtimestamp(seconds, UTC), datetime.now(UTC))
