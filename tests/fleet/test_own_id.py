"""A prompt under an id of the caller's own: started once, and continued after that, by whatever queue."""

from __future__ import annotations

import re
import signal
import sys
from pathlib import Path
from types import ModuleType
from typing import Any
from uuid import uuid4

import anyio
import pytest

from outrider.errors import OptionsError
from outrider.fleet import resume_or_start, session_id_for
from tests.documented_agent import documented_agent
from tests.fleet.working import AT_ONCE, Works, nobody_left, until
from tests.transcripts.stores import servers

PAGE = Path(__file__).parents[2] / "docs" / "queues.md"


@pytest.mark.anyio
async def test_a_call_that_was_cut_off_is_continued_by_the_next(tmp_path: Path) -> None:
    works = Works(tmp_path)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(lambda: resume_or_start("order 7", "wait 1", works.options(), **AT_ONCE))
        await until(lambda: len(works.prompts) == 1)
        tasks.cancel_scope.cancel()
    await nobody_left()
    works.go()
    again = await resume_or_start("order 7", "wait 1", works.options(), **AT_ONCE)
    other = await resume_or_start("order 8", "do 2", works.options(), **AT_ONCE)
    assert (again.text, other.text) == ("did wait 1", "did do 2")
    assert again.session_id == session_id_for("order 7") != other.session_id
    first, second, third = [entry["said"] for entry in works.log if "prompt" in entry]
    assert (first, third) == ("wait 1", "do 2")
    assert second.startswith("You were cut off")


def test_the_id_of_a_session_is_a_uuid_or_made_from_the_text() -> None:
    given = str(uuid4())
    assert session_id_for(given) == given
    assert session_id_for("a") == session_id_for("a") != session_id_for("b")
    bad: Any
    for bad in ("", 7):
        with pytest.raises(OptionsError, match="`id`"):
            session_id_for(bad)


@pytest.mark.anyio
@pytest.mark.parametrize("anyio_backend", ["asyncio"])
async def test_what_chooses_another_session_is_refused(anyio_backend: str) -> None:
    with pytest.raises(OptionsError, match="chooses the session"):
        await resume_or_start("a", "b", resume="c")


def test_the_job_of_the_page_runs_in_a_worker_of_rq(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rq: Any = pytest.importorskip("rq")
    connection = servers.redis().client()
    (code,) = re.findall(r"```\n(import anyio\n.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    module = ModuleType("jobs_of_the_page")
    monkeypatch.setitem(sys.modules, module.__name__, module)
    exec(compile(code, "queues.md", "exec"), module.__dict__)
    queue = rq.Queue(uuid4().hex, connection=connection)
    job = queue.enqueue(f"{module.__name__}.ask", "My name is Ada.", retry=rq.Retry(max=3))
    with documented_agent(tmp_path, monkeypatch, is_real=False):
        # It takes over signals, and does not give them back.
        before = {each: signal.getsignal(each) for each in (signal.SIGINT, signal.SIGTERM)}
        try:
            rq.SimpleWorker([queue], connection=connection).work(burst=True, logging_level="ERROR")
        finally:
            for each, handler in before.items():
                signal.signal(each, handler)
    assert job.return_value() == "Hello, Ada."
    connection.close()
