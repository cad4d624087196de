"""One prompt in a session of its own: `run` returns its result, `stream` yields its messages.
`resolve_settings` asks such a session for its settings.

Adds nothing to what sessions and turns do.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, Generic

from outrider.errors import AgentTooOld, OptionsError, UsageError
from outrider.options._validators import text
from outrider.session._result import Output, Output_co
from outrider.session._session import Session

if TYPE_CHECKING:
    from typing import Unpack

    from outrider.options import OptionFields, Options
    from outrider.session._prompts import Prompt, Prompts
    from outrider.session._result import OutputType, Result
    from outrider.session._streams.turn_state import Until
    from outrider.session._turn import Turn
    from outrider.wire.control import SettingsReport


async def run(
    prompt: Prompt | Prompts,
    options: Options | None = None,
    *,
    output: OutputType[Output] = None,
    until: Until = "idle",
    check: bool = True,
    **fields: Unpack[OptionFields],
) -> Result[Output]:
    """Run one prompt, or an iterable of them, and return its result. The agent has ended by then.

        result = await outrider.run("How many TODOs are in src?", cwd="project")

    `output` is the form that the answer must have, a type or a JSON Schema; `Result.output` has that type.

    Waits for subagents in the background, too; with `until="result"`, only for the first answer. Raises what
    `Session.connect` and `Turn.result` raise; with `check=False`, a failed turn is returned as a result with
    its `error`.
    """
    async with Session(options, output=output, **fields) as session:
        result = await session.ask(prompt, until=until, check=False)
    return result.raise_for_error() if check else result


async def go_on(
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

        result = await outrider.go_on(session_id, permission=policy, approvals=approvals)

    Give the options that the session had. If more has to be approved, `Result.pending` has it.

    Raises `SessionParked` if something is not decided yet, `UsageError` if nothing waits, `SessionBusy` if
    someone has it open; else what `run` raises.
    """
    fields["resume"] = text("`session_id`", session_id)
    session = Session(options, output=output, **fields)
    await check_decided(session.options, session_id)
    async with session:
        result = await session.go_on(until=until, check=False)
    return result.raise_for_error() if check else result


async def check_decided(options: Options, session_id: str) -> None:
    """Raise unless a session can continue: before a process is started for it."""
    from outrider.approvals import SessionParked
    from outrider.session._gate import DECIDE_FIRST

    if options.approvals is None:
        raise OptionsError("There are no `approvals` to go on with", hint="Give those that the session had.")
    found = await options.approvals.list(session_id=session_id)
    if waiting := [each.id for each in found if each.state == "pending"]:
        raise SessionParked(session_id, waiting, hint=DECIDE_FIRST)
    if not any(each.is_open for each in found):
        raise UsageError(
            f"Nothing waits in the session {session_id!r}", hint="Send a prompt: `run(…, resume=session_id)`."
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

        async with outrider.stream("Explain the build") as turn:
            async for message in turn: ...

    Leaving the block ends the agent, even in the middle of a turn. Raises what `Session.connect` raises.
    """
    return TurnContext(prompt, Session(options, output=output, **fields), until)


_OF_SETTINGS: Final = (
    *("cli_path", "bundled_path", "executable", "executable_args", "extra_args", "runner", "transport"),
    *("cwd", "project_config_root", "env", "env_policy", "isolation", "user", "timeouts"),
    *(
        "model",
        "effort",
        "setting_sources",
        "settings",
        "managed_settings",
        "strict_settings_merge",
        "sandbox",
    ),
)
"""The options that decide which settings there are, and where Claude Code is."""


_READ_ONLY: Final = "bare"
_READ_ONLY_SINCE: Final = "2.1.81"
"""The flag with which Claude Code reads all settings and carries out none, and the first version with it."""


async def resolve_settings(options: Options | None = None, **fields: Unpack[OptionFields]) -> SettingsReport:
    """The settings that a session with these options would have, merged and by source.

        report = await outrider.resolve_settings(cwd="project", setting_sources=["user", "project"])
        print(report.effective.get("model"), report.provenance.get("model"))

    Claude Code itself merges them, in a process of its own. No model is asked, and nothing that the settings
    name is run: no hook, MCP server, plugin or helper that fetches a key.

    Raises what `Session.connect` raises.
    """
    from outrider.options import Options
    from outrider.wire.control import GetSettings

    given = (options or Options()).replace(**fields)
    kept: dict[str, Any] = {name: getattr(given, name) for name in _OF_SETTINGS}
    kept["extra_args"] = {**given.extra_args, _READ_ONLY: None}
    try:
        async with Session(Options(**kept, strict_mcp_config=True)) as session:
            return await session.request(GetSettings())
    except OptionsError as error:
        if f"--{_READ_ONLY}" not in str(error):
            raise
        raise AgentTooOld("", _READ_ONLY_SINCE, message="It cannot resolve settings") from error


class TurnContext(Generic[Output_co]):
    """A turn in a session of its own, which closes with the block."""

    def __init__(self, prompt: Prompt | Prompts, session: Session[Output_co], until: Until) -> None:
        self._prompt = prompt
        self._session = session
        self._until: Until = until

    async def __aenter__(self) -> Turn[Output_co]:
        await self._session.connect()
        try:
            return await self._session.send(self._prompt, until=self._until)
        except BaseException:
            await self._session.close()
            raise

    async def __aexit__(self, *_: object) -> None:
        await self._session.close()
