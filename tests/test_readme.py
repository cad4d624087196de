"""The code in the README and in `docs/` runs and prints what they say."""

from __future__ import annotations

import contextlib
import inspect
import io
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

import outrider
from outrider import errors
from outrider.options import Timeouts
from outrider.session import Requests
from outrider.wire.control import REQUESTS
from tests.cases import every_case, names_of
from tests.documented_agent import ANSWERS, documented_agent

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
EXAMPLE = re.compile(r"```python\n(.*?)```\n+```\n(.*?)```", re.DOTALL)
EXAMPLES = {
    f"{page.name} {number}": example
    for page in PAGES
    for number, example in enumerate(EXAMPLE.findall(page.read_text(encoding="utf-8")), 1)
}
TALKS = re.compile(
    r"\boutrider\.(?:sync\.)?(?:run|stream|Session)\(|\bquery\(prompt=|\bClaudeSDKClient\("
    r"|\b(?:Pool|ResilientSession|fleet\.map)\("
)
"""What shows that an example needs an agent."""

ABOUT_THE_PROGRAM = {
    # Where it is looked for, and its process.
    *("errors.md 3", "errors.md 4"),
    # They put something in the way themselves.
    *("cassettes.md 1", "cassettes.md 2"),
}
"""Examples that talk to the real program alone."""


def cases() -> Iterator[tuple[str, str]]:
    """Each example, with each agent that it can talk to."""
    for name, (code, _) in EXAMPLES.items():
        talks = bool(TALKS.search(code)) and "Simulator" not in code
        needs_program = talks and (name in ABOUT_THE_PROGRAM or "RealAgent" in code)
        if not needs_program:
            yield name, "simulated" if talks else "none"
        if talks:
            yield name, "real"


@pytest.mark.parametrize("name, agent", list(cases()))
def test_an_example_prints_what_is_shown(
    name: str, agent: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    code, shown = EXAMPLES[name]
    printed = io.StringIO()
    with contextlib.ExitStack() as stack:
        if agent != "none":
            stack.enter_context(documented_agent(tmp_path, monkeypatch, is_real=agent == "real"))
        stack.enter_context(contextlib.redirect_stdout(printed))
        exec(compile(code, name, "exec", dont_inherit=True), {"__name__": "example"})
    assert printed.getvalue() == shown


def test_the_model_has_no_answer_that_no_example_asks_for() -> None:
    written = "".join(code for code, _ in EXAMPLES.values())
    # What the agent and the model say to others.
    theirs = {"<task-notification>", "Read notes.txt to the end.", "Review src."}
    assert {prompt for prompt in ANSWERS if prompt not in written} == theirs


def test_every_name_at_the_top_is_in_an_example() -> None:
    written = "\n".join(code for code, _ in EXAMPLES.values())
    used = set(re.findall(r"\boutrider\.(\w+)", written))
    for names in re.findall(r"^from outrider import (\([^)]*\)|.+)$", written, re.MULTILINE):
        used |= set(re.findall(r"\w+", names))
    assert [name for name in names_of(outrider) if name not in used] == []


@every_case("page", PAGES, ids=lambda page: page.name)
def test_every_example_shows_what_it_prints(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    assert len(EXAMPLE.findall(text)) == text.count("```python") >= 1


@every_case("page", [*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")], ids=lambda page: page.name)
def test_every_link_leads_somewhere(page: Path) -> None:
    links = re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", page.read_text(encoding="utf-8"))
    assert [link for link in links if not (page.parent / link).exists()] == []


def test_the_tables_of_options_are_those_of_the_code() -> None:
    from scripts import options_page

    assert options_page.page() == options_page.PAGE.read_text(encoding="utf-8"), (
        "run `.venv/bin/python scripts/options_page.py`"
    )


def test_the_tables_of_control_requests_are_those_of_the_code() -> None:
    from scripts import control_page

    page = control_page.PAGE.read_text(encoding="utf-8")
    assert control_page.page() == page, "run `.venv/bin/python scripts/control_page.py`"
    asked = [name for name, _ in inspect.getmembers(Requests, inspect.iscoroutinefunction)]
    assert [name for name in asked if f"| `{name}(" not in page] == []
    # Every request is there, but for what the session sends by itself.
    assert {name for name in REQUESTS if f"<br>`{name}` |" not in page} == {"initialize", "mcp_message"}


def test_every_deadline_is_in_the_table() -> None:
    page = (ROOT / "docs" / "turns.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| ((?:`\w+`(?:, )?)+) \| (\d+|none) \|", page, re.MULTILINE)
    told = {
        name: None if seconds == "none" else float(seconds)
        for names, seconds in rows
        for name in re.findall(r"\w+", names)
    }
    assert told == {name: getattr(Timeouts(), name) for name in Timeouts.__struct_fields__}


def test_every_error_is_in_the_table() -> None:
    page = (ROOT / "docs" / "errors.md").read_text(encoding="utf-8")
    named = {name for name in errors.__all__ if f"`{name}`" in page}
    assert {*errors.__all__} - named == set()
