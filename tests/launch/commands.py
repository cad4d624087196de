"""Commands made from options, for tests: with a program that is surely there, and no environment."""

from __future__ import annotations

import sys
from typing import Any

from outrider.command import Command
from outrider.launch import Mode, make_command
from outrider.options import Options

OUTPUT = ["--output-format", "stream-json", "--verbose"]
INPUT = ["--input-format", "stream-json"]
NO_SOURCES = "--setting-sources="


def command(mode: Mode = Mode.STREAMING, prompt: str | None = None, **fields: Any) -> Command:
    fields.setdefault("cli_path", sys.executable)
    return make_command(Options(**fields), mode=mode, prompt=prompt, environ={})


def arguments(mode: Mode = Mode.STREAMING, **fields: Any) -> list[str]:
    """The arguments that the options add to those that are always there."""
    argv = list(command(mode, **fields).argv[1:])
    start, end = len(OUTPUT), len(argv) - (len(INPUT) if mode.is_streaming else 1)
    assert argv[:start] == OUTPUT
    return [argument for argument in argv[start:end] if argument != NO_SOURCES]


def files(mode: Mode = Mode.STREAMING, **fields: Any) -> dict[str, bytes]:
    return {file.name: file.content for file in command(mode, **fields).files}


def allow(*args: object) -> object:
    raise NotImplementedError


class Remote:
    """A runner to another machine that changes nothing, so that one sees what it is given."""

    is_local = False

    def wrap(self, command: Command) -> Command:
        return command


SERVERS: dict[str, Any] = {
    "local": {"command": "server", "args": ["-v"], "env": {"TOKEN": "s3cret"}},
    "web": {"type": "http", "url": "https://x.test", "headers": {"Authorization": "Bearer s3cret"}},
    "stream": {"type": "sse", "url": "https://y.test", "timeout": 5000, "alwaysLoad": True},
}
