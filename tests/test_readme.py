"""The code in the README and in `docs/` runs and prints what they say."""

from __future__ import annotations

import contextlib
import inspect
import io
import logging
import re
from collections.abc import Generator, Iterator
from pathlib import Path
from typing import Any

import pytest

import outrider
from outrider import errors
from outrider.compat._alias import remove_alias
from outrider.options import Timeouts
from outrider.session import Requests
from outrider.wire.control import REQUESTS
from scripts.agent_program import VERSION, version
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
    r"\boutrider\.(?:sync\.)?(?:run|stream|Session|resolve_settings)\(|\bquery\(prompt=|\bClaudeSDKClient\("
    r"|\b(?:Pool|ResilientSession|fleet\.map|resume_or_start)\("
)
"""What shows that an example needs an agent."""

ABOUT_THE_PROGRAM = {
    # Where it is looked for, and its process.
    *("errors.md 3", "errors.md 4"),
    # How it merges settings.
    "settings.md 3",
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


@contextlib.contextmanager
def process_as_it_was() -> Generator[None]:
    """Examples set up logs and telemetry for the whole process, as programs do."""
    log = logging.getLogger("outrider")
    level, handlers = log.level, log.handlers[:]
    try:
        yield
    finally:
        outrider.telemetry.uninstrument()
        log.setLevel(level)
        log.handlers[:] = handlers


@pytest.mark.parametrize("name, agent", list(cases()))
def test_an_example_prints_what_is_shown(
    name: str, agent: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    code, shown = EXAMPLES[name]
    printed = io.StringIO()
    names: dict[str, Any] = {"__name__": "example"}
    with contextlib.ExitStack() as stack:
        stack.callback(remove_alias)
        if agent != "none":
            stack.enter_context(documented_agent(tmp_path, monkeypatch, is_real=agent == "real"))
        stack.enter_context(contextlib.redirect_stdout(printed))
        stack.enter_context(process_as_it_was())
        exec(compile(code, name, "exec", dont_inherit=True), names)
        if "provider" in names:
            # Of telemetry: an exporter has a thread.
            names["provider"].shutdown()
    # Another version of Claude Code may be tried, which says its own.
    assert printed.getvalue().replace(version(), VERSION) == shown


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


def test_every_link_leads_somewhere_and_every_page_is_on_the_site() -> None:
    from scripts.documentation import links

    assert links.problems() == []


def test_the_tables_of_messages_are_those_of_the_code() -> None:
    from scripts import messages_page

    page = messages_page.PAGE.read_text(encoding="utf-8")
    assert messages_page.page() == page, "run `.venv/bin/python -m scripts.messages_page`"


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
    picture = (ROOT / "docs" / "pictures" / "turn.svg").read_text(encoding="utf-8")
    drawn = re.findall(r">(\w+)</text>\s*<text[^>]*>(\d+) s", picture)
    assert len(drawn) == 6
    assert {name: float(seconds) for name, seconds in drawn} == {name: told[name] for name, _ in drawn}


def test_the_picture_of_a_session_has_its_states() -> None:
    picture = (ROOT / "docs" / "pictures" / "session.svg").read_text(encoding="utf-8")
    assert re.findall(r">([A-Z]+)</text>", picture) == [state.name for state in outrider.SessionState]


def test_the_picture_of_the_layers_has_those_that_there_are() -> None:
    picture = (ROOT / "docs" / "pictures" / "layers.svg").read_text(encoding="utf-8")
    drawn = set(re.findall(r'class="name"[^>]*>(\w+)</text>', picture))
    packages = {path.parent.name for path in (ROOT / "src" / "outrider").glob("*/__init__.py")}
    # The command is drawn under its name.
    assert drawn == {*packages, "errors"} - {"app"}


def test_the_version_of_claude_code_that_pages_install_is_the_tested_one() -> None:
    named = {
        version
        for page in PAGES
        for version in re.findall(r"claude-code@([\d.]+)", page.read_text(encoding="utf-8"))
    }
    assert named == {VERSION}


def test_every_error_is_in_the_table() -> None:
    page = (ROOT / "docs" / "errors.md").read_text(encoding="utf-8")
    named = {name for name in errors.__all__ if f"`{name}`" in page}
    assert {*errors.__all__} - named == set()
