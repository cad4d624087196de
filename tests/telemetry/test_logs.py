"""Log records that say which trace and session they belong to, and lines of JSON."""

from __future__ import annotations

import io
import json
import logging
from collections.abc import Iterator
from typing import Any

import pytest

import outrider
from outrider.session import Session
from outrider.telemetry import JsonFormatter, LogContext
from outrider.testing import Simulator, say, use_tool
from tests.cases import every_case
from tests.telemetry.recorder import Recorder

pytestmark = pytest.mark.anyio


@pytest.fixture
def written() -> Iterator[io.StringIO]:
    stream = io.StringIO()
    handler = logging.StreamHandler(stream)
    handler.addFilter(LogContext())
    handler.setFormatter(JsonFormatter())
    root = logging.getLogger()
    root.addHandler(handler)
    yield stream
    root.removeHandler(handler)


async def test_records_of_tools_and_of_outrider_say_where_they_belong(
    recorder: Recorder, written: io.StringIO
) -> None:
    @outrider.tool
    async def look_up(key: str) -> str:
        """Look something up."""
        logging.getLogger("mine").warning(
            "looking up %s", key, extra={"attempt": 1, "headers": {"x-api-key": key}}
        )
        raise ValueError("password=hunter22")

    agent = Simulator([use_tool("look_up", key="sk-ant-api03-0123456789abcdefghij"), say("done")])
    async with Session(transport=agent, tools=[look_up], telemetry=recorder.telemetry) as session:
        result = await session.ask("go")
    logging.getLogger("mine").warning("outside")
    mine, failed, outside = map(json.loads, written.getvalue().splitlines())
    call = recorder.span("execute_tool mcp__tools__look_up").get_span_context()
    ids = {
        "trace_id": f"{call.trace_id:032x}",
        "span_id": f"{call.span_id:016x}",
        "session_id": result.session_id,
    }
    assert mine.pop("timestamp").endswith("+00:00")
    assert mine == {
        "level": "WARNING",
        "logger": "mine",
        "message": "looking up sk-ant-***",
        "attempt": 1,
        "headers": {"x-api-key": "sk-ant-***"},
        **ids,
    }
    assert failed["logger"] == "outrider.session"
    assert {name: failed[name] for name in ids} == ids
    assert "ValueError" in failed["exception"]
    assert "hunter22" not in failed["exception"]
    assert set(outside) == {"timestamp", "level", "logger", "message"}


class Nameless:
    def __str__(self) -> str:
        raise ValueError("no")


def deep(levels: int) -> list[Any]:
    made: list[Any] = []
    for _ in range(levels):
        made = [made]
    return made


LOOP: list[Any] = []
LOOP.append(LOOP)


@every_case(
    "value, shown",
    [
        (LOOP, "[[...]]"),
        (deep(100_000), "<list>"),
        (float("nan"), "nan"),
        ({"figures": [float("inf")]}, "{'figures': [inf]}"),
        ({(1, 2): 3}, "{(1, 2): 3}"),
        (Nameless(), "<Nameless>"),
        ("half \ud83d", "half ?"),
        ({"one"}, "{'one'}"),
        ({"at": [1, None, True]}, {"at": [1, None, True]}),
    ],
)
def test_whatever_is_logged_is_a_line_of_json(value: Any, shown: Any) -> None:
    record = logging.makeLogRecord({"msg": "x", "extra_field": value})
    line = JsonFormatter().format(record)
    line.encode()
    assert "\n" not in line

    def refuse(constant: str) -> None:
        raise ValueError(constant)

    assert json.loads(line, parse_constant=refuse)["extra_field"] == shown


def test_what_is_no_json_is_masked_too() -> None:
    record = logging.makeLogRecord({"msg": "x", "headers": {"x-api-key": "hunter22", "loop": LOOP}})
    assert "hunter22" not in JsonFormatter().format(record)


def test_extra_does_not_replace_what_every_line_has() -> None:
    record = logging.makeLogRecord({"msg": "x", "levelname": "INFO", "level": 7, "timestamp": "never"})
    shown = json.loads(JsonFormatter().format(record))
    assert (shown["level"], shown["extra_level"], shown["extra_timestamp"]) == ("INFO", 7, "never")
    assert shown["timestamp"] != "never"
