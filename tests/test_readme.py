"""The code in the README and in `docs/` runs and prints what they say."""

from __future__ import annotations

import contextlib
import io
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
EXAMPLE = re.compile(r"```python\n(.*?)```\n+```\n(.*?)```", re.DOTALL)
EXAMPLES = {
    f"{page.name} {number}": example
    for page in PAGES
    for number, example in enumerate(EXAMPLE.findall(page.read_text(encoding="utf-8")), 1)
}


@pytest.mark.parametrize("name", EXAMPLES)
def test_an_example_prints_what_is_shown(name: str) -> None:
    code, shown = EXAMPLES[name]
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        exec(compile(code, name, "exec"), {"__name__": "example"})
    assert printed.getvalue() == shown


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_example_shows_what_it_prints(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    assert len(EXAMPLE.findall(text)) == text.count("```python") >= 1


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_link_leads_somewhere(page: Path) -> None:
    links = re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", page.read_text(encoding="utf-8"))
    assert [link for link in links if not (page.parent / link).exists()] == []


def test_the_tables_of_options_are_those_of_the_code() -> None:
    from scripts import options_page

    assert options_page.page() == options_page.PAGE.read_text(encoding="utf-8"), (
        "run `.venv/bin/python scripts/options_page.py`"
    )
