"""Log records that say which trace and session they belong to, and lines of JSON."""

from __future__ import annotations

import io
import json
import logging
from collections.abc import Iterator

import pytest

import outrider
from outrider.session import Session
from outrider.telemetry import JsonFormatter, LogContext
from outrider.testing import Simulator, say, use_tool
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
