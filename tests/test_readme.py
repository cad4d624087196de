"""The code in the README runs and prints what the README says."""

from __future__ import annotations

import contextlib
import io
import re
from pathlib import Path

import pytest

TEXT = (Path(__file__).parents[1] / "README.md").read_text(encoding="utf-8")
EXAMPLES = re.findall(r"```python\n(.*?)```\n+```\n(.*?)```", TEXT, re.DOTALL)


@pytest.mark.parametrize("number", range(len(EXAMPLES)))
def test_an_example_prints_what_is_shown(number: int) -> None:
    code, shown = EXAMPLES[number]
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        exec(compile(code, f"README example {number}", "exec"), {"__name__": "readme"})
    assert printed.getvalue() == shown


def test_every_example_shows_what_it_prints() -> None:
    assert len(EXAMPLES) == TEXT.count("```python") >= 2
