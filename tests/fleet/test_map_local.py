"""Runs on the local engine, with real processes: sessions, folders, outputs and limits of each task."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import anyio
import msgspec
import pytest

from outrider.fleet import Copy, Empty, Ledger, Pool, Task, map, resume  # noqa: A004
from outrider.testing import Simulator, fail, say, use_tool
from tests.fleet.working import AT_ONCE, Works, nobody_left, until
from tests.transports.conftest import own_processes

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(120)]
ONCE = pytest.mark.parametrize("anyio_backend", ["asyncio"])


class Invoice(msgspec.Struct):
    total: int


async def test_tasks_run_in_sessions_of_their_own(tmp_path: Path) -> None:
    works, folder = Works(tmp_path / "agents"), tmp_path / "there"
    folder.mkdir()
    ledger = Ledger(tmp_path / "ledger.jsonl")
    outcomes = await map(
        [Task("one", cwd=str(folder), tags={"lang": "de"}), "act_die two", "fail429 three", "fail400 four"],
        works.options(cwd=str(tmp_path)),
        ledger=ledger,
        **AT_ONCE,
    )
    await nobody_left()
    assert [outcome.status for outcome in outcomes] == ["done", "done", "done", "failed"]
    assert [outcome.text for outcome in outcomes[:3]] == ["did one", "did act_die two", "did fail429 three"]
    assert outcomes[3].error_kind == "ApiFailed"
    asked = {entry["prompt"]: entry for entry in works.log if "prompt" in entry}
    assert asked["one"]["cwd"] == str(folder)
    assert asked["fail429 three"]["cwd"] == str(tmp_path)
    # It was lost after it had acted: the same session went on, and was not told the task again.
    assert asked["act_die two"]["said"] != "act_die two"
    sessions = {outcome.session_id for outcome in outcomes}
    assert sessions == {entry["session"] for entry in asked.values()}
    assert len(sessions) == 4
    totals = await ledger.totals(by="tag:task")
    await ledger.close()
    assert {id: used.cost_usd for id, used in totals.items()} == {
        outcome.id: pytest.approx(outcome.cost_usd) for outcome in outcomes
    }


@ONCE
async def test_each_output_has_the_type_that_was_asked_for(anyio_backend: str, tmp_path: Path) -> None:
    works, journal = Works(tmp_path / "agents"), tmp_path / "run.db"
    tasks = [
        Task('answer 1 as {"total": 7}'),
        Task('answer 2 as {"value": [1, 2]}', output=list[int]),
        Task('answer 3 as {"total": "much"}'),
        Task('answer 4 as {"any": 1}', output={"type": "object"}),
    ]
    outcomes = await map(tasks, works.options(), output=Invoice, journal=journal, **AT_ONCE)
    assert [outcome.output for outcome in outcomes[:2]] == [Invoice(7), [1, 2]]
    assert (outcomes[2].status, outcomes[2].error_kind) == ("failed", "OutputInvalid")
    own: object = outcomes[3].output
    assert own == {"any": 1}
    assert [outcome.raw_output for outcome in outcomes] == [
        {"total": 7},
        [1, 2],
        {"total": "much"},
        {"any": 1},
    ]
    # From the journal they come back as what is asked for then.
    typed = await resume(journal, works.options(), output=Invoice)
    assert typed[0].output == Invoice(7)
    assert [outcome.output for outcome in await resume(journal, works.options())][:2] == [
        {"total": 7},
        [1, 2],
    ]


@ONCE
async def test_the_time_of_a_task_begins_with_its_session(
    anyio_backend: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not with its folder, which may have to wait for those of others."""
    passed = 0.0

    class Clock:
        """An hour passes while a folder is made."""

        def __getattr__(self, name: str) -> Any:
            return getattr(anyio, name)

        def current_time(self) -> float:
            return anyio.current_time() - 3600 + passed

    def fill(self: Empty, path: Path) -> None:
        nonlocal passed
        path.mkdir()
        passed = 3600

    monkeypatch.setattr("outrider.fleet._engine.anyio", Clock())
    monkeypatch.setattr(Empty, "_fill", fill)
    works = Works(tmp_path)
    [outcome] = await map(["plain"], works.options(), workspace="empty", task_seconds=60, **AT_ONCE)
    await nobody_left()
    assert outcome.status == "done"


@ONCE
async def test_limits_of_a_task_end_it_alone(anyio_backend: str, tmp_path: Path) -> None:
    works = Works(tmp_path)
    outcomes = await map(
        [Task("hang slow"), Task("write much", tool_calls=0), Task("plain")],
        works.options(timeouts={"silence": None, "close": 1, "interrupt": 2}),
        task_seconds=1.0,
        **AT_ONCE,
    )
    await nobody_left()
    assert [outcome.status for outcome in outcomes] == ["failed", "over_budget", "done"]
    assert [outcome.error_kind for outcome in outcomes] == ["TurnTimedOut", "LimitReached", None]
    # What came until then is not lost.
    assert outcomes[0].text == "begun"
    assert "task_seconds" in (outcomes[0].error or "")


@ONCE
@pytest.mark.parametrize("is_journalled", [True, False], ids=["journal", "plain"])
async def test_folders_are_made_kept_and_removed(
    anyio_backend: str, is_journalled: bool, tmp_path: Path
) -> None:
    works, source = Works(tmp_path / "agents"), tmp_path / "source"
    (source / "sub").mkdir(parents=True)
    (source / "sub" / "given.txt").write_text("given")
    journal = tmp_path / "run.db" if is_journalled else None
    outcomes = await map(
        [
            "write gone",
            Task("write kept", workspace=Copy(str(source), keep="always"), cwd="sub", id="a/b"),
            Task("fail400 kept", workspace=Empty(keep="failed")),
            Task("write gone too", workspace=Empty(keep="failed")),
        ],
        works.options(),
        workspace=Copy(str(source)),
        journal=journal,
        **AT_ONCE,
    )
    assert [outcome.workspace is not None for outcome in outcomes] == [False, True, True, False]
    kept = [Path(outcome.workspace) for outcome in outcomes if outcome.workspace is not None]
    assert sorted(path.name for path in (kept[0] / "sub").iterdir()) == ["given.txt", "written.txt"]
    assert sorted(kept[0].parent.iterdir()) == sorted(kept)
    assert (kept[0].parent == tmp_path / "run.db.workspaces") is is_journalled
    assert [path.name for path in source.iterdir()] == ["sub"]
    Empty().remove(kept[0])
    Empty().remove(kept[1])
    kept[0].parent.rmdir()


@ONCE
@pytest.mark.parametrize("is_journalled", [True, False], ids=["journal", "plain"])
async def test_a_folder_is_gone_on_in_or_gone_after_a_stop(
    anyio_backend: str, is_journalled: bool, tmp_path: Path
) -> None:
    works, journal = Works(tmp_path / "agents"), tmp_path / "run.db"
    async with map(
        ["wait here"],
        works.options(),
        workspace=Empty(),
        journal=journal if is_journalled else None,
        **AT_ONCE,
    ):
        await until(lambda: len(works.prompts) == 1)
        folder = Path(works.log[-1]["cwd"])
        (folder / "half.txt").touch()
    assert folder.is_dir() is is_journalled  # noqa: ASYNC240 - a moment
    if is_journalled:
        works.go()
        (outcome,) = await resume(journal, works.options(), workspace=Empty(keep="always"), **AT_ONCE)
        assert (outcome.status, outcome.workspace) == ("done", str(folder))
        assert (folder / "half.txt").exists()


@ONCE
async def test_tasks_wait_for_the_processes_of_a_pool_and_give_them_back(
    anyio_backend: str, tmp_path: Path
) -> None:
    works, journal = Works(tmp_path / "agents"), tmp_path / "run.db"
    async with Pool(works.options(), warm=0, max_processes=1) as pool:
        tasks = ["write a", "act_die b", "fail400 c", "wait d"]
        async with map(
            tasks, works.options(), pool=pool, concurrency=4, workspace=Empty(), journal=journal, **AT_ONCE
        ):
            await until(lambda: "wait d" in works.prompts)
            assert len(own_processes()) == 1
        # What was stopped gave its process back.
        works.go()
        outcomes = await resume(journal, works.options(), pool=pool, workspace=Empty(), **AT_ONCE)
        assert pool.stats().misses == len([entry for entry in works.log if "start" in entry])
    await nobody_left()
    assert [outcome.status for outcome in outcomes] == ["done", "done", "failed", "done"]
    assert len({outcome.session_id for outcome in outcomes}) == 4
    assert not (tmp_path / "run.db.workspaces").exists()


@ONCE
async def test_what_cannot_be_started_fails_its_task(anyio_backend: str, tmp_path: Path) -> None:
    works = Works(tmp_path / "agents")
    outcomes = await map(
        [
            Task("one", cwd=str(tmp_path / "nowhere")),
            Task("two", workspace=Copy(str(tmp_path / "nothing"))),
            "three",
        ],
        works.options(),
        **AT_ONCE,
    )
    assert [outcome.error_kind for outcome in outcomes] == ["FolderNotFound", "WorkspaceFailed", None]


@ONCE
async def test_the_simulated_agent_is_resumed_by_its_transcript(anyio_backend: str, tmp_path: Path) -> None:
    journal = tmp_path / "run.db"
    steps: list[Any] = [use_tool("Bash", command="echo worked"), fail(529), say("and done")]
    with Simulator(steps, executable=True, folder=tmp_path) as agent:
        outcomes = await map(["work"], agent.options(), journal=journal, **AT_ONCE)
        assert [(outcome.status, outcome.text) for outcome in outcomes] == [("done", "and done")]
        assert len(agent.requests) >= 3
    with anyio.fail_after(30):
        await nobody_left()
