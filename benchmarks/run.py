"""Measures Outrider and the reference SDK on the same work, in turns, and prints a table. See README.md."""

from __future__ import annotations

import argparse
import json
import math
import os
import platform
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any, NamedTuple, Self

ROOT = Path(__file__).parent.parent
if not __package__:
    # Started as a script, Python looks for modules in this folder, whose `queue` is not Python's own.
    sys.path[0] = str(ROOT)

from benchmarks import dropin_rows, kept, reference, work  # noqa: E402 - found only now
from benchmarks.table import (  # noqa: E402 - the same
    TIMES,
    Figure,
    header,
    megabytes,
    microseconds,
    milliseconds,
    note,
    painted,
    row,
)

NAMES = (
    "stream",
    "text",
    "assistant",
    "result",
    "recording",
    "large",
    "memory",
    "delivered",
    "process",
    "session",
    "many",
    "answers",
    "telemetry",
    "dropin",
    "transcripts",
    "view",
    "appends",
    "fleet",
    "warm",
    "import",
    "ways",
)

SMALL_GOAL = 10.0
"""So many times fewer CPU seconds than the reference, for a stream event."""

IMPORT_GOAL = 0.060
"""`import outrider.wire` may take so many seconds more than starting Python does."""

START_GOAL = 0.003
"""From the start of a program to its first message, beyond a bare `subprocess.Popen`."""

FLOOD_GOAL = 8.0
"""So many times fewer CPU seconds than the reference, for messages that a program writes."""

SESSION_GOAL = 12.0
"""So many times fewer CPU seconds than the reference, for messages of a turn from end to end."""

REQUEST_GOAL = 1.5
"""The same, for control requests, one after the other."""

MANY_GOALS = {"cpu": 0.9, "wall": 2.0}
"""So many times less than the reference, for 100 sessions at once."""

GROWTH_GOAL = 1.3
"""A session may take so many times more CPU seconds when there are 300 than when there are 10."""

COLD_GOAL = 0.97
"""The real program is connected, and its first message and words are there, no later than with the reference.
All but a hundredth of it is the program's own time, and two runs of the same side differ by some percent."""

CLOSE_GOAL = 1.5
"""To close the real program may take so many times as long as the reference's `disconnect`."""

ANSWER_GOALS = {"hooks": 1.2, "tools": 8.0}
"""The same, for answers to the agent."""

STREAM_GOAL = 0.05
"""Telemetry may take so much more of the CPU time of a turn of stream events."""

TOOL_GOAL = 100e-6
"""Seconds that telemetry may add to a hook, or to a call of a tool."""

KEPT_GOALS = {"list": 10.0, "last": 10.0, "whole": 3.0}
"""The same, for sessions on disk."""

WARM_GOAL = 0.005
"""A pool hands out a session that is ready within so many seconds; its median counts."""

FIRST_MESSAGE = 'import outrider.wire; outrider.wire.Framer().feed(b\'{"type":"keep_alive"}\\n\')'
"""What an import puts off is paid here."""

HELP = (
    "import os, sys; sys.stdout = open(os.devnull, 'w'); sys.argv = ['outrider', '--help']; "
    "from outrider.app import main; main()"
)
"""What the command's first words take; the reference has no command, so its import stands beside it."""

LINEAR_GOAL = 0.5
"""A message is read at no less than this share of the speed of the next smaller one.

With time that grows with the square of the size it would be a 16th or a quarter; caches alone cost some.
"""


class Child:
    """A side's process: imports once, then makes a pass whenever it is asked to."""

    def __init__(self, python: Path | str, module: str) -> None:
        self._process = subprocess.Popen(
            [python, "-m", module], cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        self.facts: dict[str, str] = self._answer()

    def order(self, do: str, file: Path, pass_name: str = "messages", count: int = 0) -> dict[str, Any]:
        assert self._process.stdin is not None
        order = {"do": do, "file": str(file), "pass": pass_name, "count": count}
        self._process.stdin.write(json.dumps(order) + "\n")
        self._process.stdin.flush()
        return self._answer()

    def _answer(self) -> dict[str, Any]:
        assert self._process.stdout is not None
        if line := self._process.stdout.readline():
            answer: dict[str, Any] = json.loads(line)
            return answer
        raise SystemExit(f"a side stopped with exit code {self._process.wait()}; what it said is above")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.communicate()


class Bench:
    """One run: both sides, the files, and the figures so far."""

    def __init__(self, theirs: Path | None, folder: Path, *, quick: bool) -> None:
        self._sides = {"ours": (sys.executable, "benchmarks.side_outrider", "outrider.wire")}
        if theirs is not None:
            self._sides["theirs"] = (str(theirs), "benchmarks.side_reference", "claude_agent_sdk")
        self._folder = folder
        self._quick = quick
        self._small_rounds, self._large_rounds = (5, 3) if quick else (21, 7)
        self._children: dict[str, Child] = {}
        self.figures: list[Figure] = []
        self.delivered: dict[str, dict[str, int]] = {}

    def start(self, stack: ExitStack) -> dict[str, dict[str, str]]:
        for side, (python, module, _) in self._sides.items():
            self._children[side] = stack.enter_context(Child(python, module))
        return {side: child.facts for side, child in self._children.items()}

    @property
    def title(self) -> str:
        return "reference" if "theirs" in self._sides else "no reference"

    def run(self, wanted: frozenset[str]) -> Iterator[str]:
        """Measure what is wanted; gives lines to print as they are known."""
        small = [piece for piece in work.small(quick=self._quick) if piece.name in wanted]
        if small:
            yield header(f"CPU time of a message, best of {self._small_rounds}", self.title)
            for piece in small:
                yield row(self._small(piece), microseconds)
            yield ""
        if "large" in wanted:
            yield header("CPU time of one large message", self.title)
            yield from self._large()
            yield ""
        if "memory" in wanted:
            yield from self._memory()
        if "delivered" in wanted:
            yield from self._delivered()
        if "process" in wanted:
            yield from self._processes()
        if "session" in wanted:
            yield from self._sessions()
        if "many" in wanted:
            yield from self._many()
        if "answers" in wanted:
            yield from self._answers()
        if "telemetry" in wanted:
            yield from self._telemetry()
        if "dropin" in wanted:
            yield from self._dropin()
        if "transcripts" in wanted:
            yield from self._transcripts()
        if "view" in wanted:
            yield from self._view()
        if "appends" in wanted:
            yield from self._appends()
        if "fleet" in wanted:
            yield from self._fleet()
        if "warm" in wanted:
            yield from self._warm()
        if "import" in wanted:
            yield header("import, wall time beyond bare Python", self.title)
            yield from self._imports()
            yield ""

    def _add(self, figure: Figure) -> Figure:
        self.figures.append(figure)
        return figure

    def _best(self, piece: work.Work, rounds: int) -> tuple[dict[str, float], Path, int]:
        """Each side's best time for a pass; they take turns, since a shared machine is now fast, now slow."""
        path, count = piece.write(self._folder)
        best: dict[str, float] = {}
        delivered: dict[str, int] = {}
        for _ in range(rounds):
            for side, child in self._children.items():
                answer = child.order("time", path, piece.pass_name)
                best[side] = min(answer["seconds"], best.get(side, answer["seconds"]))
                delivered[side] = answer["delivered"]
        if len(set(delivered.values())) > 1:
            raise SystemExit(f"{piece.name}: the sides did not do the same work: {delivered}")
        return best, path, count

    def _small(self, piece: work.Work) -> Figure:
        best, path, count = self._best(piece, self._small_rounds)
        path.unlink()
        ours, theirs = best["ours"] / count, best["theirs"] / count if "theirs" in best else None
        figure = Figure(piece.name, piece.title, "seconds", ours, theirs)
        if piece.name == "stream":
            figure = _at_least(SMALL_GOAL, figure)
        return self._add(figure)

    def _large(self) -> Iterator[str]:
        speeds: dict[str, list[float]] = {side: [] for side in self._children}
        for size in (1, 16) if self._quick else (1, 16, 64):
            piece = work.large(size)
            best, path, _ = self._best(piece, self._large_rounds)
            for side, seconds in best.items():
                speeds[side].append(path.stat().st_size / 1e6 / seconds)
            path.unlink()
            ours = speeds["ours"]
            goal = ("", None) if size == 1 else ("linear", ours[-1] >= LINEAR_GOAL * ours[-2])
            yield row(
                self._add(
                    Figure(f"large-{size}", piece.title, "seconds", best["ours"], best.get("theirs"), *goal)
                ),
                milliseconds,
            )
        for side, rates in speeds.items():
            rate = ", ".join(f"{rate:,.0f}" for rate in rates)
            yield note(f"{self._children[side].facts['name']}: {rate} MB/s")

    def _memory(self) -> Iterator[str]:
        piece = work.large(16 if self._quick else 64)
        path, _ = piece.write(self._folder)
        peaks: dict[str, int] = {}
        for side, (python, module, _) in self._sides.items():
            # A process of its own: the peak is that of its whole life.
            with Child(python, module) as child:
                if (peak := child.order("peak", path)["peak_bytes"]) is not None:
                    peaks[side] = peak
        path.unlink()
        if peaks:
            yield header("peak memory of the process", self.title)
            figure = Figure("memory", piece.title, "bytes", peaks["ours"], peaks.get("theirs"))
            yield row(self._add(figure), megabytes)
            yield ""

    def _delivered(self) -> Iterator[str]:
        piece = work.Work("delivered", "all recordings", work.every_recording)
        path, lines = piece.write(self._folder)
        self.delivered = {side: child.order("tally", path) for side, child in self._children.items()}
        path.unlink()
        yield painted(f"messages delivered, of {lines:,} frames in all recordings", "bold")
        for side, seen in self.delivered.items():
            missing = {
                kind: count - seen.get(kind, 0)
                for kind, count in self.delivered["ours"].items()
                if count > seen.get(kind, 0)
            }
            text = ", ".join(f"{count} {kind}" for kind, count in missing.items())
            name = self._children[side].facts["name"]
            yield f"  {name}: {sum(seen.values()):,}" + (f"; without {text}" if text else "")
        yield ""

    def _processes(self) -> Iterator[str]:
        yield header("a program, wall time (median)", self.title)
        program = work.greeter(self._folder)
        times: dict[str, list[dict[str, float]]] = {side: [] for side in self._children}
        bare: list[float] = []
        for number in range(11 if self._quick else 101):
            for side, child in self._children.items():
                answer = child.order("start", program)
                # The first one starts what is started once: a watchdog here, threads there.
                if number:
                    times[side].append(answer)
            bare.append(_bare_start(program))
        for key, title in (("first", "from its start to its first message"), ("close", "close")):
            ours, theirs = (
                statistics.median(answer[key] for answer in times[side]) if side in times else None
                for side in ("ours", "theirs")
            )
            assert ours is not None
            goal: tuple[str, bool | None] = ("", None)
            if key == "first":
                beyond = ours - statistics.median(bare)
                goal = (f"< {START_GOAL * 1e3:.0f} ms beyond bare", beyond < START_GOAL)
            yield row(
                self._add(Figure(f"process-{key}", title, "seconds", ours, theirs, *goal)), milliseconds
            )
        yield note(f"bare subprocess.Popen, to the first line: {milliseconds(statistics.median(bare))}")
        yield ""
        yield header("messages from a program, CPU time", self.title)
        share = 5 if self._quick else 1
        events = work.Work("flood", "", lambda: work.stream_events(100_000 // share))
        for title, piece, pass_name in (
            ("100,000 stream events, in batches", events, "batches"),
            ("the same, one by one", events, "messages"),
            ("a line of 64 MB", work.large(64 // share), "messages"),
        ):
            yield row(self._flood(title, piece, pass_name), milliseconds)
        yield ""

    def _flood(self, title: str, piece: work.Work, pass_name: str) -> Figure:
        path, count = piece.write(self._folder)
        program = work.flooder(self._folder, path)
        best: dict[str, float] = {}
        for _ in range(3 if self._quick else 7):
            for side, child in self._children.items():
                seconds = child.order("flood", program, pass_name, count)["seconds"]
                best[side] = min(seconds, best.get(side, seconds))
        path.unlink()
        name = f"process-{piece.name}-{pass_name}"
        figure = Figure(name, title, "seconds", best["ours"], best.get("theirs"))
        if pass_name == "batches":
            figure = _at_least(FLOOD_GOAL, figure)
        return self._add(figure)

    def _sessions(self) -> Iterator[str]:
        share, rounds = (5, 3) if self._quick else (1, 7)
        events = 100_000 // share
        turn, _ = work.Work("turn", "", lambda: work.stream_events(events)).write(self._folder)
        short, _ = work.Work("short", "", lambda: work.stream_events(100)).write(self._folder)
        yield header("sessions, CPU time", self.title)
        program, unnamed = work.agent(self._folder, turn), work.agent(self._folder, turn, unnamed=True)
        title = f"{events:,} messages of a turn, one by one"
        yield from self._session(title, program, "loop", events, rounds, SESSION_GOAL)
        title = "the same, prompts not named"
        yield from self._session(title, unnamed, "loop", events, rounds, SESSION_GOAL)
        yield from self._session("the same, in batches", program, "batches", events, rounds)
        program = work.agent(self._folder, short)
        yield from self._session("1,000 control requests", program, "requests", 1000, rounds, REQUEST_GOAL)
        turn.unlink()
        short.unlink()
        yield ""

    def _many(self) -> Iterator[str]:
        """Sessions at once: what one of them takes, and whether it takes more when there are more."""
        few, usual, most = (10, 100, 150) if self._quick else (10, 100, 300)
        short, _ = work.Work("short", "", lambda: work.stream_events(100)).write(self._folder)
        program = work.light_agent(self._folder, short)
        yield header("sessions at once, a turn each", self.title)
        costs: dict[int, float] = {}
        for count in (few, usual, most):
            best = self._best_session(program, "many", count, 7 if count < most else 3)
            costs[count] = best["ours"]["cpu"] / count
            for key, title in (("cpu", f"CPU of one of {count}"), ("wall", "  wall time of all")):
                share = count if key == "cpu" else 1
                theirs = best["theirs"][key] / share if "theirs" in best else None
                figure = Figure(f"many-{count}-{key}", title, "seconds", best["ours"][key] / share, theirs)
                if count == usual:
                    figure = _at_least(MANY_GOALS[key], figure)
                elif count == most and key == "cpu":
                    is_met = costs[most] <= GROWTH_GOAL * costs[few]
                    goal = f"≤ {GROWTH_GOAL:g}{TIMES} of that with {few}"
                    figure = replace(figure, goal=goal, is_met=is_met)
                yield row(self._add(figure), milliseconds)
            if count == usual:
                yield from self._bare(program, count, {side: took["wall"] for side, took in best.items()})
        held = {side: child.order("held", program, count=few) for side, child in self._children.items()}
        for key, most_held in (("descriptors", 4), ("threads", 0)):
            theirs = held["theirs"][key] if "theirs" in held else None
            is_met = held["ours"][key] <= most_held
            figure = Figure(
                f"many-{key}", f"{key} of one", "", held["ours"][key], theirs, f"≤ {most_held}", is_met
            )
            yield row(self._add(figure), lambda number: f"{number:g}")
        short.unlink()
        yield ""

    def _bare(self, program: Path, count: int, wall: dict[str, float]) -> Iterator[str]:
        """What the programs take with no library at all, and what is left of the wall time for the sides."""
        bare = min(_bare_sessions(program, count) for _ in range(7))
        title = "  the programs alone, `Popen`"
        yield row(self._add(Figure(f"many-{count}-bare", title, "seconds", bare, bare)), milliseconds)
        theirs = wall["theirs"] - bare if "theirs" in wall else None
        figure = Figure(
            f"many-{count}-beyond", "  what the sessions add", "seconds", wall["ours"] - bare, theirs
        )
        yield row(self._add(figure), milliseconds)

    def _answers(self) -> Iterator[str]:
        count, rounds = (1000, 3) if self._quick else (5000, 7)
        nothing, _ = work.Work("nothing", "", list).write(self._folder)
        program = work.agent(self._folder, nothing)
        yield header("answers to the agent, CPU time", self.title)
        for what, name in (("hooks", "hooks"), ("calls of a tool", "tools")):
            title = f"{count:,} {what}, one after the other"
            yield from self._session(title, program, name, count, rounds, ANSWER_GOALS[name])
        title = "50 calls at once of a tool that takes 50 ms"
        yield from self._session(title, program, "parallel", 50, rounds)
        nothing.unlink()
        yield ""

    def _telemetry(self) -> Iterator[str]:
        # Imported here: nothing else needs it.
        try:
            from benchmarks import telemetry_rows
        except ModuleNotFoundError as error:
            if not str(error.name).startswith("opentelemetry"):
                raise
            yield note("OpenTelemetry is not installed, so telemetry is left out")
            return
        yield header("with telemetry, CPU time", "without")
        for one in telemetry_rows.measure(self._folder, quick=self._quick):
            added = (one.on - one.off) / one.number
            goal, is_met = f"+{added * 1e6:.1f} µs each, ≤ {TOOL_GOAL * 1e6:.0f}", added <= TOOL_GOAL
            if one.name == "stream":
                goal, is_met = f"≤ +{STREAM_GOAL:.0%}", one.on <= one.off * (1 + STREAM_GOAL)
            figure = Figure(f"telemetry-{one.name}", one.title, "seconds", one.on, one.off, goal, is_met)
            yield row(self._add(figure), milliseconds)
        yield ""

    def _dropin(self) -> Iterator[str]:
        yield header("a program for the reference, CPU time", self.title)
        pythons = {side: str(python) for side, (python, *_) in self._sides.items()}
        for one in dropin_rows.measure(self._folder, pythons, quick=self._quick):
            figure = Figure(
                f"dropin-{one.name}", one.title, one.unit, one.best["ours"], one.best.get("theirs")
            )
            if one.goal is not None:
                figure = _at_least(one.goal, figure)
            yield row(self._add(figure), megabytes if one.unit == "bytes" else milliseconds)
        names = "query, ClaudeSDKClient, ClaudeAgentOptions, tool, AssistantMessage"
        packages = {
            side: (python, f"from {dropin_rows.PACKAGES[side]} import {names}")
            for side, python in pythons.items()
        }
        wall = dict.fromkeys(packages, math.inf)
        for _ in range(6 if self._quick else 15):
            for side, command in packages.items():
                wall[side] = min(wall[side], _cost(*command).wall)
        title = "import of what it uses (wall, all of it)"
        yield row(
            self._add(
                _at_least(4.0, Figure("dropin-import", title, "seconds", wall["ours"], wall.get("theirs")))
            ),
            milliseconds,
        )
        peaks = {side: _peak(*command) for side, command in packages.items()}
        if (peak := peaks["ours"]) is not None:
            figure = Figure("dropin-memory", "peak memory after that", "bytes", peak, peaks.get("theirs"))
            yield row(self._add(figure), megabytes)
        yield ""

    def _transcripts(self) -> Iterator[str]:
        sessions, megabytes, rounds = (200, 10, 3) if self._quick else (2000, 50, 7)
        shelf = kept.shelf(self._folder / "shelf", sessions=sessions)
        long = kept.long_one(self._folder / "long", megabytes=megabytes)
        yield header("sessions on disk, CPU time", self.title)
        for folder, name, title in (
            (shelf, "list", f"the last 10 of {sessions:,} sessions"),
            (long, "whole", f"all messages of {megabytes} MB"),
            (long, "texts", "the same, and their text is read"),
            (long, "last", "the last 10 of these messages"),
        ):
            best: dict[str, float] = {}
            delivered: set[int] = set()
            for _ in range(rounds):
                for side, child in self._children.items():
                    answer = child.order("kept", folder, name)
                    best[side] = min(answer["seconds"], best.get(side, answer["seconds"]))
                    delivered.add(answer["delivered"])
            if len(delivered) > 1:
                raise SystemExit(f"{name}: the sides did not do the same work: {delivered}")
            figure = Figure(f"transcripts-{name}", title, "seconds", best["ours"], best.get("theirs"))
            if (least := KEPT_GOALS.get(name)) is not None:
                figure = _at_least(least, figure)
            yield row(self._add(figure), milliseconds)
        shutil.rmtree(shelf)
        shutil.rmtree(long)
        yield ""

    def _view(self) -> Iterator[str]:
        # Imported here: nothing else needs it.
        from benchmarks import view_rows

        yield header("the viewer, wall time of a page", "a small one")
        for one in view_rows.measure(self._folder, quick=self._quick):
            spelled = megabytes if one.unit == "bytes" else milliseconds
            goal, is_met = f"< {spelled(one.goal).strip()}", one.much < one.goal
            yield row(
                self._add(Figure(one.name, one.title, one.unit, one.much, one.little, goal, is_met)), spelled
            )
        yield ""

    def _appends(self) -> Iterator[str]:
        # Imported here: the drivers of databases are not needed for anything else.
        from benchmarks import store_memory, stores

        yield header("appends to a store, wall time of one", "bare driver")
        rates: list[str] = []
        for one in stores.measure(self._folder, quick=self._quick):
            many = "entries" if one.size > 1 else "entry"
            title = f"{one.store}, {one.size} {many} of 2 KB"
            name = f"appends-{one.store.lower()}-{one.size}"
            yield row(self._add(Figure(name, title, "seconds", one.ours, one.bare)), microseconds)
            rates.append(f"{1 / one.ours:,.0f}")
        yield note(f"appends a second: {', '.join(rates)}; the bare driver makes an INSERT of each entry")
        yield ""
        yield header("a long session in a store, memory at its peak", "its size")
        for peak in store_memory.measure(self._folder, quick=self._quick):
            figure = Figure(f"memory-{peak.way}", store_memory.WAYS[peak.way], "bytes", peak.bytes, peak.size)
            yield row(self._add(figure), megabytes)
        yield ""

    def _fleet(self) -> Iterator[str]:
        # Imported here: nothing else needs it.
        from benchmarks import fleet_rows

        yield header("tasks of a fleet, time of one", "bare gather")
        for one in fleet_rows.measure(self._folder, quick=self._quick):
            for key in ("cpu", "wall"):
                title = f"{one.title}, CPU" if key == "cpu" else "  wall time of that"
                ours, bare = getattr(one.ours, key), getattr(one.bare, key)
                yield row(
                    self._add(Figure(f"fleet-{one.name}-{key}", title, "seconds", ours, bare)), milliseconds
                )
        yield note("CPU time of this process; the agents, and the workers of Ray, are others")
        if not fleet_rows.has_ray:
            yield note("Ray is not installed, so it is left out: pip install 'outrider[ray]'")
        yield ""

    def _warm(self) -> Iterator[str]:
        from benchmarks import warm_rows

        yield header("the real program, wall time", self.title)
        pythons = {side: str(python) for side, (python, *_) in self._sides.items()}
        medians: list[str] = []
        for one in warm_rows.measure(pythons, quick=self._quick):
            figure = Figure(one.name, one.title, "seconds", one.ours, one.theirs)
            if one.name.startswith("cold-"):
                figure = _at_least(COLD_GOAL, figure)
            if one.name == "cold-close" and one.theirs is not None:
                is_met = one.ours <= CLOSE_GOAL * one.theirs
                figure = replace(figure, goal=f"≤ {CLOSE_GOAL:g}{TIMES} as long", is_met=is_met)
            if one.name == "warm-acquire":
                goal = f"< {WARM_GOAL * 1e3:.0f} ms"
                figure = replace(figure, goal=goal, is_met=one.median < WARM_GOAL)
            yield row(self._add(figure), milliseconds)
            medians.append(milliseconds(one.median))
        if medians:
            yield note(f"medians of Outrider: {', '.join(medians)}; the reference has no pool")
        else:
            yield note("the real program is not here, so it is left out: `make agent` installs it")
        yield ""

    def _session(
        self, title: str, program: Path, pass_name: str, count: int, rounds: int, least: float | None = None
    ) -> Iterator[str]:
        best = self._best_session(program, pass_name, count, rounds)
        for key in ("cpu", "wall"):
            theirs = best["theirs"][key] if "theirs" in best else None
            named = title if key == "cpu" else "  wall time of that"
            name = "unnamed" if program.name.startswith("unnamed") else pass_name
            figure = Figure(f"session-{name}-{key}", named, "seconds", best["ours"][key], theirs)
            if least is not None and key == "cpu":
                figure = _at_least(least, figure)
            yield row(self._add(figure), milliseconds)

    def _best_session(
        self, program: Path, pass_name: str, count: int, rounds: int
    ) -> dict[str, dict[str, float]]:
        best: dict[str, dict[str, float]] = {}
        for _ in range(rounds):
            for side, child in self._children.items():
                answer = child.order("session", program, pass_name, count)
                known = best.setdefault(side, answer)
                best[side] = {key: min(answer[key], known[key]) for key in answer}
        return best

    def _imports(self) -> Iterator[str]:
        commands = {side: (python, f"import {package}") for side, (python, _, package) in self._sides.items()}
        commands["root"] = (sys.executable, "import outrider")
        commands["session"] = (sys.executable, "from outrider import Options, Session, run")
        commands["first"] = (sys.executable, FIRST_MESSAGE)
        commands["help"] = (sys.executable, HELP)
        commands |= {f"bare {side}": (python, "") for side, (python, *_) in self._sides.items()}
        costs: dict[str, list[Cost]] = {key: [] for key in commands}
        for number in range(6 if self._quick else 21):
            for key, command in commands.items():
                cost = _cost(*command)
                # The first one compiles and warms the disk cache.
                if number:
                    costs[key].append(cost)
        wall = {key: statistics.median(cost.wall for cost in runs) for key, runs in costs.items()}
        cpu = {key: min(cost.cpu for cost in runs) for key, runs in costs.items()}
        theirs = wall["theirs"] - wall["bare theirs"] if "theirs" in wall else None
        for title, key in (
            ("import outrider", "root"),
            ("the same, with `run` and `Session`", "session"),
            ("import outrider.wire", "ours"),
            ("the same, and decode one frame", "first"),
        ):
            ours = max(wall[key] - wall["bare ours"], 0.0)
            goal: tuple[str, bool | None] = ("", None)
            if key == "ours":
                goal = (f"< {IMPORT_GOAL * 1e3:.0f} ms", ours < IMPORT_GOAL)
            elif key == "root":
                goal = (f"≥ 6{TIMES}", None if theirs is None else theirs >= 6 * ours)
            figure = Figure(f"import-{key}", title, "seconds", ours, theirs, *goal)
            yield row(self._add(figure), milliseconds)
        their_cpu = cpu["theirs"] - cpu["bare theirs"] if "theirs" in cpu else None
        figure = Figure(
            "import-cpu", "CPU time of that", "seconds", cpu["first"] - cpu["bare ours"], their_cpu
        )
        yield row(self._add(figure), milliseconds)
        ours = max(wall["help"] - wall["bare ours"], 0.0)
        yield row(
            self._add(Figure("import-help", "`outrider --help`", "seconds", ours, theirs)), milliseconds
        )
        peaks = {key: _peak(*command) for key, command in commands.items() if key != "help"}
        if (peak := peaks["session"]) is not None:
            their_peak = peaks.get("theirs")
            is_met = None if their_peak is None else their_peak >= 2 * peak
            title = "peak memory with `run` and `Session`"
            figure = Figure("import-memory", title, "bytes", peak, their_peak, f"≥ 2{TIMES}", is_met)
            yield row(self._add(figure), megabytes)
        bare = peaks["bare ours"]
        held = "" if bare is None else f" and {megabytes(bare)}"
        yield note(f"bare Python: {milliseconds(wall['bare ours'])}{held}")
        yield note(f"slowest in outrider.wire: {_slowest()}")


def _at_least(least: float, figure: Figure) -> Figure:
    """The figure with a goal for its ratio."""
    is_met = None if figure.ratio is None else figure.ratio >= least
    return replace(figure, goal=f"≥ {least:g}{TIMES}", is_met=is_met)


def _bare_start(program: Path) -> float:
    begin = time.perf_counter()
    with subprocess.Popen([program], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.readline()
        return time.perf_counter() - begin


def _bare_sessions(program: Path, count: int) -> float:
    """What so many programs take at once, with nothing but pipes: no session can take less."""
    request, prompt = b'{"type":"control_request","request_id":"1"}\n', b'{"type":"user","uuid":"1"}\n'
    begin = time.perf_counter()
    processes = [
        subprocess.Popen([program], stdin=subprocess.PIPE, stdout=subprocess.PIPE) for _ in range(count)
    ]
    for process in processes:
        assert process.stdin is not None
        process.stdin.write(request + prompt)
        process.stdin.close()
    for process in processes:
        assert process.stdout is not None
        process.stdout.read()
        process.stdout.close()
        process.wait()
    return time.perf_counter() - begin


class Cost(NamedTuple):
    """What a process took from start to end, in seconds."""

    wall: float
    cpu: float


def _cost(python: str, statement: str) -> Cost:
    begin = time.perf_counter()
    # Isolated: neither this folder nor the variables of the user's Python play a part.
    process = subprocess.Popen([python, "-I", "-c", statement], stdin=subprocess.DEVNULL)
    _, status, usage = os.wait4(process.pid, 0)
    wall = time.perf_counter() - begin
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise SystemExit(f"{python} -c {statement!r} failed; what it said is above")
    return Cost(wall, usage.ru_utime + usage.ru_stime)


def _peak(python: str, statement: str) -> int | None:
    show = f"{statement}\ntry: print(open('/proc/self/status').read())\nexcept OSError: pass"
    done = subprocess.run([python, "-I", "-c", show], check=True, capture_output=True, text=True)
    found = re.search(r"^VmHWM:\s+(\d+) kB", done.stdout, re.MULTILINE)
    return int(found[1]) * 1024 if found else None


def _slowest() -> str:
    """The modules that cost the most by themselves, of those that bare Python does not import."""
    bare = {name for name, _ in _import_times("")}
    costs = [(cost, name) for name, cost in _import_times(FIRST_MESSAGE) if name not in bare]
    return ", ".join(f"{name} {milliseconds(cost / 1e6)}" for cost, name in sorted(costs, reverse=True)[:3])


def _import_times(statement: str) -> Iterator[tuple[str, int]]:
    command = [sys.executable, "-I", "-X", "importtime", "-c", statement]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    for found in re.finditer(r"^import time:\s+(\d+) \|\s+\d+ \|\s*(\S+)$", done.stderr, re.MULTILINE):
        yield found[2], int(found[1])


def machine() -> str:
    return f"{platform.system()} {platform.machine()}, {os.cpu_count()} cores"


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Measure Outrider and the reference SDK on the same work.")
    parser.add_argument("--quick", action="store_true", help="less data and fewer rounds; for a first look")
    parser.add_argument("--only", action="append", choices=NAMES, help="measure this; may be repeated")
    parser.add_argument("--json", type=Path, metavar="FILE", help="save the figures, in seconds and bytes")
    parser.add_argument("--alone", action="store_true", help="without the reference")
    parser.add_argument(
        "--reference", type=Path, metavar="PYTHON", help="an interpreter that has the reference installed"
    )
    return parser.parse_args()


def reference_python(options: argparse.Namespace) -> Path | None:
    if options.alone or options.reference is not None:
        return options.reference if not options.alone else None
    try:
        return reference.interpreter()
    except reference.Unavailable as error:
        print(f"The reference cannot be installed, so Outrider runs alone: {error}", file=sys.stderr)
        return None


def main() -> None:
    options = arguments()
    theirs = reference_python(options)
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="outrider-bench-")))
        bench = Bench(theirs, folder, quick=options.quick)
        facts = bench.start(stack)
        for side in facts.values():
            print(
                painted(f"{side['name']} {side['version']}", "bold"), f"on Python {side['python']}", end=" · "
            )
        print(machine())
        if (load := os.getloadavg()[0]) > 0.75 * (os.cpu_count() or 1):
            print(
                note(f"The machine is busy (load {load:.1f}): figures and ratios will vary from run to run.")
            )
        print()
        for line in bench.run(frozenset(options.only or NAMES)):
            print(line, flush=True)
    if not options.only or "ways" in options.only:
        print()
        subprocess.run([sys.executable, "-m", "benchmarks.ways"], cwd=ROOT, check=True)
    if options.json is not None:
        saved = {
            "machine": machine(),
            "sides": facts,
            "quick": options.quick,
            "figures": [{**asdict(figure), "ratio": figure.ratio} for figure in bench.figures],
            "delivered": bench.delivered,
        }
        options.json.write_text(json.dumps(saved, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
