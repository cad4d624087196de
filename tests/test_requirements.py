"""Every requirement has a test that carries its id."""

from __future__ import annotations

import re
from pathlib import Path

TESTS = Path(__file__).parent
ROW = re.compile(r"^\| ([A-H]\d+) \|", re.MULTILINE)
MARK = re.compile(r"""mark\.requirement\(\s*["']([A-H]\d+)["']""")


def rows() -> set[str]:
    return set(ROW.findall((TESTS / "requirements.md").read_text(encoding="utf-8")))


def marked() -> set[str]:
    files = [path for path in TESTS.rglob("test_*.py") if path.name != Path(__file__).name]
    return {row for path in files for row in MARK.findall(path.read_text(encoding="utf-8"))}


def test_the_list_of_rows_is_read() -> None:
    assert {"A1", "D5", "H2"} <= rows()
    assert len(rows()) > 40


def test_every_row_has_a_test() -> None:
    assert rows() - marked() == set()


def test_no_test_carries_an_unknown_row() -> None:
    assert marked() <= rows()
