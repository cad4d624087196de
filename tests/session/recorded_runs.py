"""The runs of the real program, as the session's parts see them: messages, and lines on stderr."""

from __future__ import annotations

from functools import cache
from typing import cast, get_args

from outrider.wire import Message, ResultMessage, decode
from tests import tapes

_MESSAGES = get_args(Message)


@cache
def messages_of(name: str, number: int = 0) -> tuple[Message, ...]:
    """The messages of one run. Shared by all tests: not to be changed."""
    run = list(tapes.runs(name))[number]
    sent = (record for record in run if record.direction == "cli->host" and isinstance(record.frame, dict))
    frames = (decode(record.line) for record in sent)
    return tuple(cast(Message, frame) for frame in frames if isinstance(frame, _MESSAGES))


def results_of(name: str, number: int = 0) -> list[ResultMessage]:
    return [message for message in messages_of(name, number) if isinstance(message, ResultMessage)]


def turns_of(name: str, number: int = 0) -> list[tuple[Message, ...]]:
    """The messages up to each result of a run."""
    turns: list[tuple[Message, ...]] = []
    turn: list[Message] = []
    for message in messages_of(name, number):
        turn.append(message)
        if isinstance(message, ResultMessage):
            turns.append(tuple(turn))
            turn = []
    return turns


def stderr_of(name: str, number: int = 0) -> str:
    run = list(tapes.runs(name))[number]
    return "\n".join(record.text or "" for record in run if record.direction == "stderr")


def all_runs() -> list[tuple[str, int]]:
    """Every run in which the program ended a turn."""
    return [
        (name, number)
        for name in tapes.NAMES
        for number, run in enumerate(tapes.runs(name))
        if any(
            record.direction == "cli->host"
            and isinstance(record.frame, dict)
            and record.frame.get("type") == "result"
            for record in run
        )
    ]
