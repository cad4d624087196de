"""`outrider fleet` at a terminal: what is drawn while a batch runs, and what Ctrl-C does to it."""

from __future__ import annotations

import json
import os
from itertools import product
from pathlib import Path
from signal import SIGINT, SIGTERM

import pexpect
from rich.cells import cell_len
from rich.text import Text

from outrider.app._flags import Code
from outrider.app._fleet.progress import clock, line_of, picture
from outrider.app._terminal import ASCII, UNICODE, Glyphs
from outrider.fleet import Counts, Journal, Outcome, Progress, Running
from outrider.session import Usage
from outrider.testing import Gate, Request, Step, fail, hang, say
from tests.app.machines import machine
from tests.cases import every_case

NOW = 1_780_000_000.0
SHOW, HIDE = b"\x1b[?25h", b"\x1b[?25l"


def write_tasks(folder: Path, *ids: str) -> None:
    lines = (json.dumps({"prompt": f"Do {id}", "id": id}) for id in ids)
    (folder / "tasks.jsonl").write_text("\n".join(lines))


def counts(folder: Path) -> Counts:
    with Journal(folder / "tasks.journal") as journal:
        return journal.counts()


def test_a_batch_is_drawn_and_leaves_its_sum() -> None:
    gate = Gate()

    def model(request: Request) -> Step:
        return fail(400, message="No.") if "bad" in request.prompt else say("Done.", gate=gate)

    with machine(otherwise=model) as here:
        write_tasks(here.folder, "bad", "good")
        with here.child("fleet", "run", "tasks.jsonl", "-j", "1") as screen:
            screen.see("1 of 2")
            screen.see("⏺ ")
            screen.see("good")
            screen.see("✗ ")
            drawn = screen.text
            gate.open()
            assert screen.end() == Code.FAILED
            shown, raw = screen.lines, screen.raw
    assert "─  1 of 2   50 %\n0 done · 1 failed · 1 running · 0 to go\n" in drawn
    assert "✗ bad  ApiFailed: The API call failed with status 400" in drawn
    # Nothing of it is left.
    assert shown[0].startswith("! 1 of 2 tasks done · 0:")
    assert shown[1].startswith("✗ 1 ApiFailed  The API call failed with status 400")
    assert [line for line in shown[2:] if line] == [
        "To run them again: outrider fleet retry-failed tasks.journal",
        "For a report: outrider fleet report tasks.journal",
    ]
    assert max(map(len, shown)) <= 80
    assert raw.rindex(SHOW) > raw.rindex(HIDE)


def test_ctrl_c_finishes_what_runs_and_resume_does_the_rest() -> None:
    gate = Gate()
    with machine(otherwise=lambda request: say("Done.", gate=gate)) as here:
        write_tasks(here.folder, "a", "b", "c")
        with here.child("fleet", "run", "tasks.jsonl", "-j", "2") as screen:
            screen.see("2 running")
            screen.press("\x03")
            screen.see("finishing 2 tasks; Ctrl-C again stops them")
            gate.open()
            assert screen.end() == Code.INTERRUPTED
            assert "1 task left. To continue: outrider fleet resume tasks.journal" in screen.lines
        assert here.is_empty()
        assert counts(here.folder) == Counts(pending=1, done=2)
        done = here.run("fleet", "resume", "tasks.journal")
        assert (done.code, done.out.split("  ")[:3:2]) == (0, ["[3/3] done", "c"])
        assert counts(here.folder) == Counts(done=3)


def test_ctrl_c_twice_stops_it() -> None:
    with machine(otherwise=hang()) as here:
        write_tasks(here.folder, "a", "b", "c")
        with here.child("fleet", "run", "tasks.jsonl", "-j", "2") as screen:
            screen.see("2 running")
            screen.press("\x03")
            screen.see("finishing")
            screen.press("\x03")
            screen.see("stopping (Ctrl-C again leaves at once)")
            assert screen.end() == Code.INTERRUPTED
            assert "3 tasks left. To continue: outrider fleet resume tasks.journal" in screen.lines
            assert "Traceback" not in screen.text
        assert here.is_empty()
        assert counts(here.folder) == Counts(pending=1, started=2)


def test_ctrl_c_once_more_does_not_wait_for_an_agent_that_hangs() -> None:
    with machine() as here:
        program = here.folder / "program"
        program.write_text("#!/bin/sh\ntrap '' INT TERM\necho began >begun\nsleep 1000\n")
        program.chmod(0o755)
        os.mkfifo(here.folder / "begun")
        write_tasks(here.folder, "a")
        with here.child("fleet", "run", "tasks.jsonl", "--program", str(program)) as screen:
            assert (here.folder / "begun").read_text() == "began\n"
            for seen in ("finishing 1 task; Ctrl-C again stops it", "stopping"):
                screen.press("\x03")
                screen.see(seen)
            screen.press("\x03")
            screen.process.expect(pexpect.EOF)
            screen.process.close()
            assert screen.process.signalstatus == SIGINT
            # If all this came before anything was drawn, nothing was hidden.
            assert screen.raw.rfind(SHOW) >= screen.raw.rfind(HIDE)
        assert here.is_empty()


def test_sigterm_stops_it_and_gives_the_terminal_back() -> None:
    with machine(otherwise=hang()) as here:
        write_tasks(here.folder, "a")
        with here.child("fleet", "run", "tasks.jsonl") as screen:
            screen.see("1 running")
            screen.process.kill(SIGTERM)
            screen.process.expect(pexpect.EOF)
            screen.process.close()
            assert screen.process.signalstatus == SIGTERM
            assert screen.raw.rindex(SHOW) > screen.raw.rindex(HIDE)
            assert "Traceback" not in screen.text
        assert here.is_empty()
        assert counts(here.folder) == Counts(started=1)


# Pictures.

PROGRESS = Progress(
    total=200,
    done=90,
    failed=8,
    over_budget=2,
    running=3,
    concurrency=4,
    cost_usd=6.71,
    tokens=1_234_567,
    rate_per_minute=41.23,
    seconds_left=273.4,
    current=(
        Running("short", 1, NOW - 5),
        Running("\x1b[2J evil\n\x07", 2, NOW - 65),
        Running("名前" * 30, 1, NOW - 3605),
    ),
)
FAILURES = [("one", "ApiFailed: the API was busy" * 20), ("task-twelve", "TurnTimedOut: too slow")]


def drawn(size: tuple[int, int], glyphs: Glyphs = UNICODE, rows: int = 0) -> list[str]:
    lines = picture(PROGRESS, FAILURES, size=size, glyphs=glyphs, rows=rows, now=NOW)
    assert all(isinstance(line, Text) for line in lines)
    return [line.plain for line in lines]


def test_a_picture_of_eighty_columns() -> None:
    lines = drawn((24, 80), rows=4)
    assert lines[0] == "━" * 30 + "─" * 31 + "  100 of 200   50 %"
    assert lines[1:3] == [
        "90 done · 8 failed · 2 over budget · 3 running · 97 to go",
        "4:33 left · 41.2 a minute · $6.71 · 1,234,567 tokens",
    ]
    assert [line[-9:].strip() for line in lines[4:7]] == ["1:00:05", "05  try 2", "0:05"]
    assert lines[5].startswith("⏺ \N{REPLACEMENT CHARACTER}[2J evil \N{REPLACEMENT CHARACTER} ")
    # There is a line for a fourth that has not begun, so that nothing moves when it does.
    assert lines[7:9] == ["", ""]
    assert lines[9].startswith("✗ one          ApiFailed: the API was busy")
    assert lines[10:] == ["✗ task-twelve  TurnTimedOut: too slow"]


@every_case("size, glyphs", product([(24, 80), (10, 40), (4, 20), (1, 10), (50, 200)], [UNICODE, ASCII]))
def test_a_picture_fits(size: tuple[int, int], glyphs: Glyphs) -> None:
    lines = drawn(size, glyphs)
    assert len(lines) <= max(size[0] - 1, 1)
    assert max(map(cell_len, lines)) <= size[1]
    if glyphs is ASCII:
        assert not set("━─⏺✗·") & set("".join(lines))


@every_case(
    "seconds, shown",
    [(0, "0:00"), (59.9, "0:59"), (65, "1:05"), (3599, "59:59"), (3661, "1:01:01"), (-3, "0:00")],
)
def test_a_clock(seconds: float, shown: str) -> None:
    assert clock(seconds) == shown


def test_a_line_for_a_log() -> None:
    outcome: Outcome[object] = Outcome(
        id="\x1b]0;t\x07",
        status="over_budget",
        duration=1.26,
        usage=Usage(cost_usd=2),
        error="No money.\nNot a cent.",
        error_kind="LimitReached",
    )
    gone = "\N{REPLACEMENT CHARACTER}"
    expected = f"over budget  {gone}]0;t{gone}  1.3 s  $2.00  LimitReached: No money."
    assert line_of(outcome, 9, 1000) == f"[   9/1000] {expected}"
    assert line_of(outcome, 9, None) == f"[9] {expected}"
