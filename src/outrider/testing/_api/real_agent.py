"""`RealAgent`: Claude Code itself with a scripted model, and nothing of the user's settings."""

from __future__ import annotations

import os
import shutil
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Final, Self, Unpack

import msgspec

from outrider.command import Command
from outrider.errors import UsageError
from outrider.launch import find_agent
from outrider.options import OptionFields, Options
from outrider.testing._api.messages_api import MessagesApi
from outrider.testing._api.requests import Asked
from outrider.transports import ProcessTransport, Transport, Unreachable, intercept

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from contextlib import AbstractContextManager
    from types import TracebackType

    from outrider.testing._api.messages_api import SideKind
    from outrider.testing._script.script import Item, Scripted, ScriptSource


PROGRAM_VARIABLE: Final = "OUTRIDER_TEST_AGENT"
"""Names the program for tests, if it is not the one that is installed."""

KIT_VARIABLE: Final = "OUTRIDER_TEST_KIT"
"""Marks a program that the test kit started on purpose."""

# Port 9 is closed everywhere.
_NOWHERE: Final = "http://127.0.0.1:9"

# What a hermetic run chooses itself.
_OF_ISOLATION: Final = ("HOME", "TMPDIR", "CLAUDE_CONFIG_DIR")


def clean_environment(home: str | os.PathLike[str], *, url: str = _NOWHERE) -> dict[str, str]:
    """The environment of the agent, without the keys, settings and network of the user who runs the test.

    `url` is that of a Messages API; left out, the agent reaches none.
    """
    folder = Path(home)
    return {
        "PATH": os.environ.get("PATH", os.defpath),
        "HOME": str(folder),
        "TMPDIR": str(folder),
        "CLAUDE_CONFIG_DIR": str(folder / ".claude"),
        "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
        "DISABLE_AUTOUPDATER": "1",
        "ANTHROPIC_BASE_URL": url,
        "ANTHROPIC_API_KEY": "made-up",
        # Without it the program refuses root to switch permissions off.
        "IS_SANDBOX": "1",
        KIT_VARIABLE: "1",
    }


class RealAgent(Asked):
    """Claude Code with a scripted model, in folders of its own that are gone after the `with` block.

        with RealAgent([use_tool("Bash", command="ls"), say("done")]) as agent:
            result = await outrider.run("list", options=agent.options(permission_mode="bypassPermissions"))
            assert "ls" in agent.main_requests[1].tool_results[0]["content"]

    The program is the one given, the one that the variable `OUTRIDER_TEST_AGENT` names, or the one that is
    installed. The script and what follows it are those of `MessagesApi`. End sessions inside the block.

    Raises `AgentNotFound` if there is no program.
    """

    def __init__(
        self,
        script: ScriptSource = (),
        *,
        program: str | os.PathLike[str] | None = None,
        subagents: Iterable[Item] = (),
        otherwise: Scripted | None = None,
        side: Mapping[SideKind, Scripted] | None = None,
    ) -> None:
        self.program: str = find_agent(cli_path=program or os.environ.get(PROGRAM_VARIABLE) or None)
        self.api = MessagesApi(script, subagents=subagents, otherwise=otherwise, side=side)
        self.script, self._requests = self.api.script, self.api._requests
        self._root: Path | None = None

    def start(self) -> None:
        """Make the folders and begin to listen; `with` does it.

        Raises `UsageError` if that was done already.
        """
        self.api.start()
        try:
            # As the agent will say it: on some systems the folder for temporary files is a link.
            self._root = Path(tempfile.mkdtemp(prefix="outrider-agent-")).resolve()
            for folder in (self.folder, self.config_dir):
                folder.mkdir(parents=True)
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """End the API and remove the folders. A second time does nothing."""
        self.api.close()
        if self._root is not None:
            # An agent that is still ending may write on.
            shutil.rmtree(self._root, ignore_errors=True)

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
        self.api.__exit__(kind, error, trace)

    @property
    def folder(self) -> Path:
        """The working folder, empty at first."""
        return self._place() / "project"

    @property
    def home(self) -> Path:
        return self._place() / "home"

    @property
    def config_dir(self) -> Path:
        """Where the agent keeps its settings and sessions."""
        return self.home / ".claude"

    @property
    def environment(self) -> dict[str, str]:
        """The variables that the agent is given."""
        return clean_environment(self.home, url=self.api.url)

    def options(self, **fields: Unpack[OptionFields]) -> Options:
        """Options that start the program here; those given are added, `env` to the variables.

        Raises `OptionsError` for what cannot work.
        """
        base: OptionFields = {"cli_path": self.program, "cwd": self.folder, "env_policy": ["PATH"]}
        environment = self.environment
        if "isolation" in fields and Options(isolation=fields["isolation"]).isolation.is_hermetic:
            environment = {name: environment[name] for name in environment if name not in _OF_ISOLATION}
        merged: OptionFields = {**base, **fields, "env": {**environment, **fields.get("env", {})}}
        return Options(**merged)

    def stand_in(self, *, everywhere: bool = False) -> AbstractContextManager[None]:
        """Have every session that would start a program start this one here, as long as the block runs.

            with RealAgent([say("Hello!")]) as agent, agent.stand_in():
                assert greet() == "Hello!"          # calls outrider.run() somewhere

        With `everywhere`, this counts for all threads and tasks of the process. Sessions that are given a
        `transport`, and those with `options()` of this agent, are left as they are.
        """

        def change(transport: Transport) -> Transport:
            command = getattr(transport, "command", None)
            if not isinstance(transport, ProcessTransport | Unreachable) or not isinstance(command, Command):
                return transport
            if KIT_VARIABLE in (command.env or {}):
                return transport
            argv = (self.program, *command.argv[1:])
            cwd = command.cwd or str(self.folder)
            changed = msgspec.structs.replace(command, argv=argv, env=self.environment, cwd=cwd)
            return ProcessTransport(changed)

        return intercept(change, everywhere=everywhere)

    # For tests.

    def release(self) -> None:
        """Let all requests continue that `hang()` holds now."""
        self.api.release()

    def wait_for_hang(self, timeout: float = 30.0) -> None:
        """Block this thread until a request has come to a `hang()`.

        Raises `TimeoutError` if none does.
        """
        self.api.wait_for_hang(timeout)

    def _place(self) -> Path:
        if self._root is None:
            raise UsageError("This agent has no folders yet", hint="Enter it first: `with agent: …`")
        return self._root

    def __repr__(self) -> str:
        return f"<RealAgent {self.program} {self.api!r}>"
