"""What type checkers say of good and bad calls: nothing, or one short error that names the mistake."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

import pytest

ROOT = Path(__file__).parents[1]
DEADLINE = 300
LONGEST = 1_200
"""Characters in what is said of one mistake; pyright explains at length why a function does not fit."""
SHORT = 100
"""The same for an option that there is not."""

GOOD = """
from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import Annotated, Literal, TypedDict, assert_type

import anyio
import pydantic

import outrider
import outrider.sync
from outrider import HookContext, Options, PermissionRequest, Policy, Result, Session
from outrider.wire import Json
from outrider.wire.hooks import PreToolUseInput, StopInput


@dataclass
class Point:
    x: int


class Invoice(pydantic.BaseModel):
    total: float


class Row(TypedDict):
    name: str


SCHEMA: Mapping[str, object] = {"type": "object"}


async def outputs() -> None:
    assert_type(await outrider.run("x"), Result[Json])
    assert_type(await outrider.run("x", model="opus", output=None), Result[Json])
    assert_type(await outrider.run("x", output=SCHEMA), Result[Json])
    assert_type(await outrider.run("x", output={"type": "object"}), Result[Json])
    assert_type(await outrider.run("x", output=Point), Result[Point])
    assert_type(await outrider.run("x", output=Invoice), Result[Invoice])
    assert_type(await outrider.run("x", output=Row), Result[Row])
    assert_type(await outrider.run("x", output=list[int]), Result[list[int]])
    assert_type(await outrider.run("x", output=dict[str, Point]), Result[dict[str, Point]])
    await outrider.run("x", output=int | None)
    await outrider.run("x", output=Annotated[int, "positive"])
    stated: Result[Literal["a", "b"]] = await outrider.run("x", output=Literal["a", "b"])
    assert_type(stated.output, Literal["a", "b"])
    either: Result[int | str] = await outrider.run("x", output=int | str)
    assert_type(either.output, int | str)
    assert_type(outrider.sync.run("x"), Result[Json])
    assert_type(outrider.sync.run("x", output=list[int]), Result[list[int]])
    assert_type(Session(), Session[Json])
    assert_type(Session(output=Point), Session[Point])
    assert_type(outrider.sync.Session(output=Point), outrider.sync.Session[Point])
    async with outrider.stream("x", output=Point) as turn:
        assert_type(await turn.result(), Result[Point])
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(partial(outrider.run, "x"))


async def ask(request: PermissionRequest) -> bool:
    return request.tool_name == "Read"


def ask_at_once(request: PermissionRequest) -> outrider.Answer:
    return outrider.deny("no")


class Desk:
    async def ask(self, request: PermissionRequest) -> bool:
        return True

    def __call__(self, request: PermissionRequest) -> bool:
        return True

    @outrider.hook("Stop")
    def at_end(self, input: StopInput, ctx: HookContext) -> None: ...

    def look_up(self, name: str) -> str:
        return name


@outrider.hook("PreToolUse", matcher="Bash")
async def guard(input: PreToolUseInput) -> None: ...


def plain(input: PreToolUseInput) -> None: ...


async def with_context(input: StopInput, context: HookContext) -> None: ...


def add(a: int, b: int = 0) -> int:
    return a + b


@outrider.tool
async def fetch(url: str) -> str:
    return url


def functions() -> None:
    for permission in (ask, ask_at_once, Desk().ask, Desk(), Policy.of({"deny": "Bash"})):
        Options(permission=permission)
    Options(permission=lambda request: request.tool_name == "Read")
    outrider.sync.run("x", permission=ask_at_once)
    Options(on_question=lambda question: question.text, on_plan=lambda plan: True)
    Options(hooks=[guard, Desk().at_end])
    Options(hooks={"PreToolUse": [guard, plain, lambda input: None], "Stop": [with_context, print]})
    Options().with_hook("Stop", with_context)
    Options(tools=["Bash", add, fetch, Desk().look_up, lambda: 5])
"""

BAD = """
import outrider
import outrider.sync
from outrider import Options, PermissionRequest, Session


def of_nothing() -> None: ...
def of_two(request: PermissionRequest, more: str) -> None: ...
def of_text(request: str) -> None: ...
def of_three(a: object, b: object, c: object) -> None: ...


async def calls() -> None:
    await outrider.run("x", modle="sonnet")  # modle
    outrider.stream("x", modle="sonnet")  # modle
    outrider.sync.run("x", modle="sonnet")  # modle
    outrider.sync.stream("x", modle="sonnet")  # modle
    Session(modle="sonnet")  # modle
    outrider.sync.Session(modle="sonnet")  # modle
    Options(modle="sonnet")  # modle
    await outrider.run("x", max_turns="5")  # max_turns
    await outrider.run("x", Options(), until="ever")  # until
    await outrider.run("x", permission=of_nothing)  # permission
    await outrider.run("x", permission=of_two)  # permission
    await outrider.run("x", permission=of_text)  # permission
    await outrider.run("x", permission=True)  # permission
    Options(on_question=of_nothing)  # on_question
    Options(hooks={"Stop": [of_nothing]})  # of_nothing|int|Callable|\\(\\)
    Options(hooks={"Stop": [of_three]})  # of_three|Callable|c: object
    Options(hooks={"Stopp": [of_text]})  # Stopp|HookEvent
    Options(hooks=[of_text])  # event|EventHook
    Options(tools=[5])  # int
"""


class Mistake(NamedTuple):
    """What was written, and what has to be named in its error."""

    line: int
    code: str
    named: str


MISTAKES = [
    Mistake(number, *line.strip().split("  # "))
    for number, line in enumerate(BAD.splitlines(), 1)
    if "  # " in line
]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("types")
    (made / "good.py").write_text(GOOD, encoding="utf-8")
    (made / "bad.py").write_text(BAD, encoding="utf-8")
    settings = {"typeCheckingMode": "strict", "include": ["."], "reportUnusedCoroutine": False}
    (made / "pyrightconfig.json").write_text(json.dumps(settings), encoding="utf-8")
    return made


def run(*command: str, cwd: Path) -> str:
    done = subprocess.run(
        [sys.executable, "-m", *command],
        cwd=cwd,
        capture_output=True,
        text=True,
        timeout=DEADLINE,
        check=False,
    )
    assert done.returncode in {0, 1}, done.stdout + done.stderr
    return done.stdout


def by_line(errors: list[tuple[int, str]]) -> dict[int, str]:
    said: dict[int, str] = {}
    for line, text in errors:
        said[line] = f"{said[line]}\n{text}" if line in said else text
    return said


def check(good: dict[int, str], bad: dict[int, str]) -> None:
    assert good == {}
    missed = [each.code for each in MISTAKES if not re.search(each.named, bad.get(each.line, ""))]
    assert missed == []
    assert set(bad) == {each.line for each in MISTAKES}
    limits = {each.line: SHORT if each.named == "modle" else LONGEST for each in MISTAKES}
    assert {line: text for line, text in bad.items() if len(text) > limits[line]} == {}


@pytest.mark.timeout(DEADLINE)
def test_mypy_is_content_with_good_calls_and_short_about_bad_ones(folder: Path) -> None:
    # The cache is that of the project, which makes this fast where it has been checked before.
    options = ["--strict", "--output=json", f"--cache-dir={ROOT / '.mypy_cache' / 'types'}"]
    told = [json.loads(line) for line in run("mypy", *options, "good.py", "bad.py", cwd=folder).splitlines()]
    found = {
        name: by_line([(each["line"], each["message"]) for each in told if each["file"] == name])
        for name in ("good.py", "bad.py")
    }
    check(found["good.py"], found["bad.py"])


@pytest.mark.timeout(DEADLINE)
def test_pyright_is_content_with_good_calls_and_short_about_bad_ones(folder: Path) -> None:
    told = json.loads(run("pyright", "--outputjson", "--pythonpath", sys.executable, cwd=folder))
    found: dict[str, list[tuple[int, str]]] = {"good.py": [], "bad.py": []}
    for each in told["generalDiagnostics"]:
        name = Path(each["file"]).name
        found[name].append((each["range"]["start"]["line"] + 1, each["message"]))
    check(by_line(found["good.py"]), by_line(found["bad.py"]))
