"""Counts how long the ways through the code are, with a profile hook and the embedded agent.

    python -m benchmarks.ways            # Outrider's, and the reference SDK's where both have the way

A way is walked a few times and many times in one process: what is called more often the second time is on it.
"""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
import tempfile
import threading
from collections import Counter
from collections.abc import Awaitable, Callable, Generator
from contextlib import contextmanager
from pathlib import Path
from types import CodeType, FrameType
from typing import Any, NamedTuple

from benchmarks import reference

FEW, MANY = 2, 12
ROOT = Path(__file__).parent.parent


class Way(NamedTuple):
    """What is on the way, for each time that it is walked."""

    files: int
    functions: int
    calls: int
    depth: int = 0
    """Frames between the user's function and the task that calls it."""


class Counting:
    """Counts the calls of functions in a package, in all threads."""

    def __init__(self, package: str, leave_out: tuple[str, ...] = ()) -> None:
        self._part = f"{os.sep}{package}{os.sep}"
        self._leave_out = tuple(f"{self._part}{each}{os.sep}" for each in leave_out)
        self.calls: Counter[CodeType] = Counter()

    def counts(self, code: CodeType) -> bool:
        return self._part in code.co_filename and not any(
            each in code.co_filename for each in self._leave_out
        )

    @contextmanager
    def on(self) -> Generator[None]:
        def note(frame: FrameType, event: str, _: object) -> None:
            if event == "call" and self.counts(frame.f_code):
                self.calls[frame.f_code] += 1

        threading.setprofile(note)
        sys.setprofile(note)
        try:
            yield
        finally:
            sys.setprofile(None)
            threading.setprofile(None)

    def depth(self) -> int:
        """How many frames of the package stand above the caller."""
        frame, found = sys._getframe(1), 0
        while frame := frame.f_back:  # type: ignore[assignment]
            found += self.counts(frame.f_code)
        return found


Walk = Callable[[int, Counting], Awaitable[int]]
"""Walks a way so many times; gives the depth of the user's function on it, or 0."""


def _walk_in_thread(walk: Walk, times: int, counting: Counting) -> int:
    """Walk in a new thread: in worker threads that are there already nothing would be counted."""
    depths: list[int] = []

    async def go() -> None:
        depths.append(await walk(times, counting))

    thread = threading.Thread(target=lambda: asyncio.run(go()))
    thread.start()
    thread.join()
    return depths[0]


async def measure(walk: Walk, package: str, *leave_out: str) -> Way:
    """Walk a few times and many times, and take what there is more of."""
    counted: list[Counting] = []
    depth = 0
    await walk(FEW, Counting(package))  # what is imported or made once is not on the way
    for times in (FEW, MANY):
        counting = Counting(package, leave_out)
        with counting.on():
            depth = _walk_in_thread(walk, times, counting)
        counted.append(counting)
    few, many = (each.calls for each in counted)
    more = {code: many[code] - few[code] for code in many if many[code] - few[code] >= MANY - FEW}
    return Way(
        len({code.co_filename for code in more}),
        len(more),
        round(sum(more.values()) / (MANY - FEW)),
        depth,
    )


# Outrider's ways.


async def outrider_ways() -> dict[str, Way]:
    """All of them, in this process."""
    from outrider import Session, fleet, hook, run
    from outrider.testing import Simulator, say, use_tool
    from outrider.transcripts import MemoryStore, SessionStore, open_store
    from outrider.wire.hooks import PreToolUseInput
    from tests.transcripts.stores import servers

    async def runs(times: int, _: Counting) -> int:
        with Simulator([say("done")] * times, executable=True) as agent:
            options = agent.options()
            for _each in range(times):
                await run("x", options)
        return 0

    # Made before: a script is not on the way of a hook.
    steps = [use_tool("Bash", command="true") for _each in range(MANY)]

    async def hooks(times: int, counting: Counting) -> int:
        depths: list[int] = []

        @hook("PreToolUse")
        async def look(call: PreToolUseInput) -> None:
            depths.append(counting.depth())

        with Simulator([*steps[:times], say("done")], executable=True) as agent:
            options = agent.options(hooks=[look], permission_mode="bypassPermissions")
            async with Session(options.replace(env={**options.env, "IS_SANDBOX": "1"})) as session:
                await session.ask("x")
        return max(depths)

    async def turns(times: int, store: SessionStore | None) -> int:
        with Simulator([say("done")] * times, executable=True) as agent:
            async with Session(agent.options(session_store=store) if store else agent.options()) as session:
                for _each in range(times):
                    await session.ask("x")
        return 0

    async def kept(times: int, _: Counting) -> int:
        return await turns(times, MemoryStore())

    async def stored_at(url: str) -> Way:
        store = open_store(url)

        async def walk(times: int, _: Counting) -> int:
            return await turns(times, store)

        found = await measure(walk, "outrider", *aside)
        await store.close()
        return found

    def added(way: Way) -> Way:
        return Way(*(max(a - b, 0) for a, b in zip(way, plain, strict=True)))

    async def unkept(times: int, _: Counting) -> int:
        return await turns(times, None)

    async def tasks(times: int, _: Counting) -> int:
        with Simulator([say("done")] * times, executable=True) as agent:
            await fleet.map(["x"] * times, concurrency=1, options=agent.options())
        return 0

    aside = ("testing",)
    server = servers.started_postgres()
    stored = await measure(kept, "outrider", *aside)
    plain = await measure(unkept, "outrider", *aside)
    return {
        'run("x")': await measure(runs, "outrider", *aside),
        "a hook": await measure(hooks, "outrider", *aside),
        "a turn kept in memory": added(stored),
        "a turn kept in SQLite": added(await stored_at("sqlite:///ways.db")),
        **({"a turn kept in PostgreSQL": added(await stored_at(server.url()))} if server else {}),
        "a task of fleet.map": await measure(tasks, "outrider", *aside),
    }


# The reference's.


async def reference_ways(program: str, steps: str) -> dict[str, Way]:
    """Those that it has; the agent's scripts are played by the process that started this one."""
    import claude_agent_sdk as sdk  # type: ignore[import-not-found]  # pyright: ignore[reportMissingImports]

    given: Any = sdk
    environment = dict(json.loads(steps))

    async def runs(times: int, _: Counting) -> int:
        options = given.ClaudeAgentOptions(cli_path=program, env=environment)
        for _each in range(times):
            async for _message in given.query(prompt="x", options=options):
                pass
        return 0

    async def hooks(times: int, counting: Counting) -> int:
        depths: list[int] = []

        async def look(*_: object) -> dict[str, object]:
            depths.append(counting.depth())
            return {}

        options = given.ClaudeAgentOptions(
            cli_path=program,
            env=environment,
            permission_mode="bypassPermissions",
            hooks={"PreToolUse": [given.HookMatcher(hooks=[look])]},
        )
        async with given.ClaudeSDKClient(options) as client:
            await client.query(f"call {times}")
            async for _message in client.receive_response():
                pass
        return max(depths)

    name = "claude_agent_sdk"
    return {'run("x")': await measure(runs, name), "a hook": await measure(hooks, name)}


def ask_reference() -> dict[str, Way]:
    """Have the reference walk, in its own environment, with an agent of ours."""
    from outrider.testing import Simulator, say, use_tool, when

    calls = [use_tool("Bash", command="true") for _each in range(MANY)]
    script = [
        when(f"call {FEW}", [*calls[:FEW], say("done")]),
        when(f"call {MANY}", [*calls, say("done")]),
        when("x", [say("done")]),
    ]
    with Simulator(script, executable=True) as agent:
        options = agent.options()
        done = subprocess.run(
            [
                str(reference.interpreter()),
                "-m",
                "benchmarks.ways",
                "--reference",
                str(agent.executable_path),
                json.dumps({**options.env}),
            ],
            cwd=ROOT,
            capture_output=True,
            text=True,
            check=False,
            timeout=300,
        )
    if done.returncode:
        raise SystemExit(done.stderr)
    return {name: Way(*figures) for name, figures in json.loads(done.stdout).items()}


def main() -> None:
    """Print the table."""
    if sys.argv[1:2] == ["--reference"]:
        print(json.dumps(asyncio.run(reference_ways(*sys.argv[2:4]))))
        return
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        ours = asyncio.run(outrider_ways())
    os.chdir(ROOT)
    try:
        theirs = ask_reference()
    except reference.Unavailable as why:
        print(f"without the reference: {why}", file=sys.stderr)
        theirs = {}
    print(f"{'way':<30}{'files':>8}{'functions':>11}{'calls':>8}{'frames':>8}   the reference's")
    for name, way in ours.items():
        other = theirs.get(name)
        beside = "" if other is None else "  ".join(f"{each:,}" for each in other)
        print(f"{name:<30}{way.files:>8}{way.functions:>11}{way.calls:>8,}{way.depth or '':>8}   {beside}")


if __name__ == "__main__":
    main()
