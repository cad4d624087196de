"""A made-up session with everything that a viewer has to show, as Claude Code writes it."""

from __future__ import annotations

import base64
import json
import os
import struct
import zlib
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from uuid import UUID

SESSION = "5b1d0c1e-8a55-4f0e-9d6f-3a7c2f4e9b10"
OTHER = "7f3e1a52-0c44-4c1f-8d0a-90e1b6f2c3d4"
AGENT = "a1f0c2d9e8b7"
INNER = "b2e1d3c0f9a8"
FOLDER = "/srv/shop"
KEY = "-srv-shop"
BEGAN = datetime(2026, 11, 17, 9, 30, tzinfo=UTC)


def picture() -> str:
    """A small PNG, in base64: a gradient."""
    width, height = 96, 48
    rows = b"".join(
        b"\0" + b"".join(bytes((40 + x * 2, 90 + y * 3, 200 - x)) for x in range(width))
        for y in range(height)
    )

    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    head = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    data = (
        b"\x89PNG\r\n\x1a\n"
        + chunk(b"IHDR", head)
        + chunk(b"IDAT", zlib.compress(rows))
        + chunk(b"IEND", b"")
    )
    return base64.b64encode(data).decode()


class Writer:
    """Writes the lines of a transcript."""

    def __init__(self, session: str = SESSION, cwd: str = FOLDER, agent: str = "") -> None:
        self.lines: list[dict[str, Any]] = []
        self.session, self.cwd, self.agent = session, cwd, agent
        self.now = BEGAN
        self.parent: str | None = None
        self.count = 0
        self.calls = 0

    def uuid(self) -> str:
        self.count += 1
        return str(UUID(int=(hash_of(self.session + self.agent) << 64) | self.count))

    def add(self, kind: str, seconds: float = 1.0, **fields: Any) -> dict[str, Any]:
        self.now += timedelta(seconds=seconds)
        uuid = self.uuid()
        line = {
            "parentUuid": self.parent,
            "isSidechain": bool(self.agent),
            "type": kind,
            "uuid": uuid,
            "timestamp": self.now.isoformat(timespec="milliseconds").replace("+00:00", "Z"),
            "cwd": self.cwd,
            "sessionId": self.session,
            "gitBranch": "checkout-totals",
            "version": "2.1.325",
            **fields,
        }
        self.parent = uuid
        self.lines.append(line)
        return line

    def note(self, kind: str, **fields: Any) -> None:
        self.lines.append({"type": kind, "sessionId": self.session, **fields})

    def prompt(self, content: Any, seconds: float = 20.0, **fields: Any) -> dict[str, Any]:
        return self.add("user", seconds, message={"role": "user", "content": content}, **fields)

    def say(
        self, *blocks: dict[str, Any], seconds: float = 4.0, context: int = 24_000, out: int = 320
    ) -> None:
        """One answer of the model: each block is a line."""
        self.calls += 1
        usage = {
            "input_tokens": 12,
            "cache_creation_input_tokens": 900,
            "cache_read_input_tokens": context,
            "output_tokens": out,
        }
        for block in blocks:
            message = {
                "id": f"msg_{self.agent}{self.calls:06}",
                "type": "message",
                "role": "assistant",
                "model": "claude-opus-5-5",
                "content": [block],
                "usage": usage,
            }
            self.add("assistant", seconds, message=message)
            seconds = 0.4

    def result(
        self, call: str, content: Any, seconds: float = 1.5, *, error: bool = False, told: Any = None
    ) -> None:
        block = {"type": "tool_result", "tool_use_id": call, "content": content, "is_error": error}
        fields = {} if told is None else {"toolUseResult": told}
        self.add("user", seconds, message={"role": "user", "content": [block]}, **fields)

    def data(self) -> bytes:
        return b"".join(json.dumps(line, separators=(",", ":")).encode() + b"\n" for line in self.lines)


def touch(path: Path, seconds: float) -> None:
    """Say when a file was used last."""
    os.utime(path, (seconds, seconds))


def hash_of(text: str) -> int:
    return zlib.crc32(text.encode()) << 24


def text(words: str) -> dict[str, Any]:
    return {"type": "text", "text": words}


def use(id: str, name: str, **input: Any) -> dict[str, Any]:
    return {"type": "tool_use", "id": id, "name": name, "input": input}


SOURCE = '''\
from decimal import ROUND_HALF_UP, Decimal

CENT = Decimal("0.01")


def total(lines, discount=0):
    """What a customer pays."""
    amount = 0.0
    for line in lines:
        amount += line.price * line.count
    return round(amount * (1 - discount), 2)
'''


def rich() -> Writer:
    """The session itself."""
    w = Writer()
    w.prompt(
        "The totals at the checkout are sometimes off by a cent. Find out why, and fix it with a test.", 0
    )
    w.note("file-history-snapshot", messageId="x")
    w.say(
        {
            "type": "thinking",
            "thinking": (
                "Off by a cent smells of binary floats. Let me look at how totals are made before I guess."
            ),
            "signature": "x",
        },
        text("I'll look at how totals are computed first."),
        use("t1", "Grep", pattern="def total", path="src", output_mode="content"),
        use("t2", "Read", file_path="/srv/shop/src/totals.py"),
    )
    w.result("t1", "src/totals.py:6:def total(lines, discount=0):")
    numbered = "\n".join(f"{n:>6}→{line}" for n, line in enumerate(SOURCE.splitlines(), 1))
    w.result(
        "t2",
        numbered,
        told={
            "type": "text",
            "file": {
                "filePath": "/srv/shop/src/totals.py",
                "content": SOURCE,
                "numLines": 11,
                "startLine": 1,
                "totalLines": 11,
            },
        },
    )
    w.say(
        text(
            "The cause is in `total`: it adds **binary floats**, and rounds only once, at the end.\n\n"
            "| amount | as a float | rounded |\n|---|---|---|\n| 1.005 | 1.00499999… | 1.00 |\n| "
            "2.675 | 2.67499999… | 2.67 |\n\n"
            "I'll do three things:\n\n1. compute in `Decimal`\n2. round half up, as receipts do\n3. "
            "pin it with a test"
        ),
        use(
            "t3",
            "TodoWrite",
            todos=[
                {
                    "content": "Reproduce it in a test",
                    "status": "in_progress",
                    "activeForm": "Reproducing it",
                },
                {"content": "Compute in Decimal", "status": "pending", "activeForm": "Computing"},
                {"content": "Run the whole suite", "status": "pending", "activeForm": "Running"},
            ],
        ),
        context=31_000,
    )
    w.result("t3", "Todos have been modified successfully.", 0.1)
    w.say(
        use(
            "t4",
            "Write",
            file_path="/srv/shop/tests/test_totals.py",
            content=(
                "from decimal import Decimal\n\nfrom shop.totals import total\n\n\ndef "
                'test_half_a_cent_is_rounded_up():\n    assert total([line("1.005")]) == '
                'Decimal("1.01")\n'
            ),
        ),
        seconds=6,
    )
    w.result(
        "t4",
        "File created successfully at: /srv/shop/tests/test_totals.py",
        0.2,
        told={"type": "create", "filePath": "/srv/shop/tests/test_totals.py", "structuredPatch": []},
    )
    w.say(
        use(
            "t5",
            "Bash",
            command="python -m pytest tests/test_totals.py -q 2>&1 | tail -5",
            description="Run the new test",
        ),
        seconds=2,
    )
    w.result(
        "t5",
        "Exit code 1\nFAILED tests/test_totals.py::test_half_a_cent_is_rounded_up\nE   assert 1.0 == "
        "Decimal('1.01')\n1 failed in 0.12s",
        3.2,
        error=True,
    )
    w.say(
        text("It fails as it should. Now the fix."),
        use(
            "t6",
            "Edit",
            file_path="/srv/shop/src/totals.py",
            old_string=(
                "    amount = 0.0\n    for line in lines:\n        amount += line.price * line.count\n   "
                " return round(amount * (1 - discount), 2)"
            ),
            new_string=(
                "    amount = Decimal(0)\n    for line in lines:\n        amount += Decimal(line.price) "
                "* line.count\n    return (amount * (1 - Decimal(discount))).quantize(CENT, "
                "ROUND_HALF_UP)"
            ),
        ),
        seconds=7,
        context=34_000,
        out=540,
    )
    w.result(
        "t6",
        "The file has been updated.",
        0.3,
        told={
            "filePath": "/srv/shop/src/totals.py",
            "structuredPatch": [
                {
                    "oldStart": 6,
                    "oldLines": 6,
                    "newStart": 6,
                    "newLines": 6,
                    "lines": [
                        " def total(lines, discount=0):",
                        '     """What a customer pays."""',
                        "-    amount = 0.0",
                        "+    amount = Decimal(0)",
                        "     for line in lines:",
                        "-        amount += line.price * line.count",
                        "-    return round(amount * (1 - discount), 2)",
                        "+        amount += Decimal(line.price) * line.count",
                        "+    return (amount * (1 - Decimal(discount))).quantize(CENT, ROUND_HALF_UP)",
                    ],
                }
            ],
        },
    )
    w.add(
        "system",
        1,
        subtype="api_error",
        level="error",
        error={"status": 529, "message": "Overloaded"},
        retryInMs=1800,
        retryAttempt=1,
        maxRetries=10,
    )
    w.say(use("t7", "Bash", command="python -m pytest -q", description="Run the whole suite"), seconds=4)
    w.result(
        "t7",
        "......................................\n38 passed in 4.02s",
        5.1,
        told={
            "stdout": "......................................\n38 passed in 4.02s",
            "stderr": "",
            "interrupted": False,
            "isImage": False,
        },
    )
    w.say(
        use(
            "t8",
            "Agent",
            description="Look for other float sums",
            prompt="Find every place that adds money as **floats**.",
            subagent_type="Explore",
        ),
        seconds=2,
    )
    w.result(
        "t8",
        [
            {
                "type": "text",
                "text": "Two more places add money as floats:\n\n* `src/vouchers.py`\n* `src/refunds.py`",
            }
        ],
        24,
        told={"status": "completed", "agentId": AGENT},
    )
    w.say(
        use(
            "t9",
            "AskUserQuestion",
            questions=[
                {
                    "question": "Shall I change vouchers and refunds too?",
                    "header": "Scope",
                    "multiSelect": False,
                    "options": [
                        {"label": "Both", "description": "One commit for all three"},
                        {"label": "Only refunds", "description": "Vouchers are being rewritten"},
                    ],
                }
            ],
        ),
        seconds=3,
    )
    w.result(
        "t9",
        "Your questions have been answered.",
        30,
        told={"answers": {"Shall I change vouchers and refunds too?": "Only refunds"}},
    )
    w.say(
        use(
            "t10",
            "mcp__tracker__create_issue",
            title="Vouchers add money as floats",
            labels=["bug", "money"],
            priority=2,
        ),
        seconds=3,
    )
    w.result("t10", '{"id": 412, "url": "https://tracker.example/412", "state": "open"}', 0.9)
    w.say(
        text(
            "Done. Totals are computed in `Decimal`, 38 tests pass, and #412 tracks the vouchers.\n\n"
            '```python\nassert total([line("1.005")]) == Decimal("1.01")\n```'
        ),
        seconds=4,
        context=41_000,
        out=210,
    )
    w.note("cost-state", totalCostUSD=0.4182)
    w.add(
        "system",
        400,
        subtype="compact_boundary",
        content="Conversation compacted",
        compactMetadata={"trigger": "auto", "preTokens": 154_000},
    )
    w.prompt(
        "This session is being continued. The user wants correct totals; `total` was fixed.",
        1,
        isCompactSummary=True,
    )
    w.prompt(
        [
            text("Now make the plan for refunds. This is what the page looks like:"),
            {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": picture()}},
        ],
        15,
    )
    w.say(
        use(
            "t11",
            "ExitPlanMode",
            plan=(
                "## Refunds\n\n1. `Refund.amount` becomes a `Decimal`\n2. migrate the column\n3. a test "
                "with half a cent"
            ),
        ),
        seconds=8,
        context=12_000,
    )
    w.result("t11", "User has approved your plan.", 12)
    w.say(text("I'll begin with the model."), seconds=3, context=13_000, out=40)
    w.note("ai-title", aiTitle="Fix checkout totals that are off by a cent")
    w.note("cost-state", totalCostUSD=0.5231)
    return w


def agents() -> dict[str, tuple[Writer, dict[str, Any]]]:
    """The subagents: one, and one that it started."""
    outer = Writer(agent=AGENT)
    outer.prompt("Find every place that adds money as **floats**.", 60)
    outer.say(
        text("I'll search."),
        use("s1", "Grep", pattern=r"\+= .*price"),
        use("s2", "Task", description="Check refunds", prompt="Read refunds.py", subagent_type="Explore"),
    )
    outer.result("s1", "src/vouchers.py:12\nsrc/refunds.py:40")
    outer.result("s2", "It adds floats.", 6)
    outer.say(text("Two more places add money as floats."))
    inner = Writer(agent=INNER)
    inner.prompt("Read refunds.py", 70)
    inner.say(text("It adds floats, in the deepest of the trees."))
    return {
        AGENT: (
            outer,
            {"agentType": "Explore", "description": "Look for other float sums", "toolUseId": "t8"},
        ),
        INNER: (inner, {"agentType": "Explore", "description": "Check refunds", "toolUseId": "s2"}),
    }


def write(config: Path) -> Path:
    """Put the session, and a small one of another project, into a configuration folder; gives its file."""
    folder = config / "projects" / KEY
    folder.mkdir(parents=True)
    path = folder / f"{SESSION}.jsonl"
    made = rich()
    path.write_bytes(made.data())
    touch(path, made.now.timestamp())
    inside = folder / SESSION / "subagents"
    inside.mkdir(parents=True)
    for id, (writer, told) in agents().items():
        (inside / f"agent-{id}.jsonl").write_bytes(writer.data())
        (inside / f"agent-{id}.meta.json").write_text(json.dumps(told))
    other = Writer(OTHER, "/srv/böse-straße")
    other.prompt("Übersetze die Überschriften ins Französische", 0)
    other.say(text("Voilà: « Où est la forêt ? »"))
    there = config / "projects" / "-srv-b-se-stra-e"
    there.mkdir()
    file = there / f"{OTHER}.jsonl"
    file.write_bytes(other.data())
    touch(file, other.now.timestamp() - 3 * 86400)
    return path
