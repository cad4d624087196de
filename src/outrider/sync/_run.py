"""`run`, `go_on`, `stream` and `resolve_settings`, without `await`.

Written by `scripts/sync_surface.py`: run that instead of changing it.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Generic, Unpack, cast

from outrider.options import OptionFields, Options
from outrider.session import _run
from outrider.session._prompts import Prompt, Prompts
from outrider.session._result import Output, Output_co, OutputType, Result
from outrider.session._streams.turn_state import Until
from outrider.sync._portal import Wrapper, portal, wrap
from outrider.sync._surface import Turn
from outrider.wire.control import SettingsReport


class TurnContext(Wrapper, Generic[Output_co]):
    """A turn in a session of its own, which closes with the block."""

    _async: _run.TurnContext[Output_co]

    def __enter__(self) -> Turn[Output_co]:
        return cast("Turn[Output_co]", self._wrap(Turn, self._enter(self._async)))

    def __exit__(self, *_: object) -> None:
        self._wait(self._async.__aexit__, *_)


def run(
    prompt: Prompt | Prompts,
    options: Options | None = None,
    *,
    output: OutputType[Output] = None,
    until: Until = "idle",
    check: bool = True,
    **fields: Unpack[OptionFields],
) -> Result[Output]:
    """Run one prompt, or an iterable of them, and return its result. The agent has ended by then.

        result = outrider.sync.run("How many TODOs are in src?", cwd="project")

    `output` is the form that the answer must have, a type or a JSON Schema; `Result.output` has that type.

    Waits for subagents in the background, too; with `until="result"`, only for the first answer. Raises what
    `Session.connect` and `Turn.result` raise; with `check=False`, a failed turn is returned as a result with
    its `error`.
    """
    loop = portal()
    return loop.call(
        cast("Callable[..., Awaitable[Result[Output]]]", _run.run),
        prompt,
        options,
        output=output,
        until=until,
        check=check,
        **fields,
    )


def go_on(
    session_id: str,
    /,
    options: Options | None = None,
    *,
    output: OutputType[Output] = None,
    until: Until = "idle",
    check: bool = True,
    **fields: Unpack[OptionFields],
) -> Result[Output]:
    """Continue with a session that waited for approvals, in a process of its own, and return the result.

        result = outrider.sync.go_on(session_id, permission=policy, approvals=approvals)

    Give the options that the session had. If more has to be approved, `Result.pending` has it.

    Raises `SessionParked` if something is not decided yet, `UsageError` if nothing waits, `SessionBusy` if
    someone has it open; else what `run` raises.
    """
    loop = portal()
    return loop.call(
        cast("Callable[..., Awaitable[Result[Output]]]", _run.go_on),
        session_id,
        options,
        output=output,
        until=until,
        check=check,
        **fields,
    )


def stream(
    prompt: Prompt | Prompts,
    options: Options | None = None,
    *,
    output: OutputType[Output] = None,
    until: Until = "idle",
    **fields: Unpack[OptionFields],
) -> TurnContext[Output]:
    """Run one prompt and read its messages as they come.

        with outrider.sync.stream("Explain the build") as turn:
            for message in turn: ...

    Leaving the block ends the agent, even in the middle of a turn. Raises what `Session.connect` raises.
    """
    loop = portal()
    return cast(
        "TurnContext[Output]",
        wrap(
            TurnContext,
            loop.read(
                cast("Callable[..., object]", _run.stream),
                prompt,
                options,
                output=output,
                until=until,
                **fields,
            ),
            loop,
        ),
    )


def resolve_settings(options: Options | None = None, **fields: Unpack[OptionFields]) -> SettingsReport:
    """The settings that a session with these options would have, merged and by source.

        report = outrider.sync.resolve_settings(cwd="project", setting_sources=["user", "project"])
        print(report.effective.get("model"), report.provenance.get("model"))

    Claude Code itself merges them, in a process of its own. No model is asked, and nothing that the settings
    name is run: no hook, MCP server, plugin or helper that fetches a key.

    Raises what `Session.connect` raises.
    """
    loop = portal()
    return loop.call(
        cast("Callable[..., Awaitable[SettingsReport]]", _run.resolve_settings), options, **fields
    )
