"""Commands made from options, for tests: with a program that is surely there, and no environment."""

from __future__ import annotations

import sys
from typing import Any

from outrider.command import Command
from outrider.launch import make_command
from outrider.options import Options

OUTPUT = ["--output-format", "stream-json", "--verbose"]
INPUT = ["--input-format", "stream-json"]
NO_SOURCES = "--setting-sources="


def command(**fields: Any) -> Command:
    fields.setdefault("cli_path", sys.executable)
    return make_command(Options(**fields), environ={})


def arguments(**fields: Any) -> list[str]:
    """The arguments that the options add to those that are always there."""
    argv = list(command(**fields).argv[1:])
    start, end = len(OUTPUT), len(argv) - len(INPUT)
    assert argv[:start] == OUTPUT
    return [argument for argument in argv[start:end] if argument != NO_SOURCES]


def files(**fields: Any) -> dict[str, bytes]:
    return {file.name: file.content for file in command(**fields).files}


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
