"""What the page on scripts says of files is what files may have."""

from __future__ import annotations

import re
from pathlib import Path

from outrider import testing
from outrider.testing import Request
from outrider.testing._script.file import _TOP, EXPECTED, KEYS, read_script

PAGE = (Path(__file__).parents[2] / "docs" / "testing-scripts.md").read_text(encoding="utf-8")


def rows(header: str) -> list[list[str]]:
    """The cells of the table that begins with this."""
    table = PAGE[PAGE.index(header) :].split("\n\n")[0]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in table.splitlines()[2:]]


def listed(text: str) -> dict[str, str]:
    return dict(re.findall(r"`(\w+)`: ([a-z ]+)", text))


def test_every_key_is_in_the_table() -> None:
    told = {
        word.strip("`"): {word.strip("`"): at, **listed(beside)}
        for word, at, beside in rows("| word | its value")
    }
    assert told == {word: dict(keys) for word, keys in KEYS.items()}
    assert tuple(key.strip("`") for key, _ in rows("| key | value")) == _TOP
    (expectation,) = re.findall(r"An expectation has one or more of (.*?)\. A pattern", PAGE, re.DOTALL)
    assert listed(expectation) == dict(EXPECTED)


def test_every_word_is_in_the_table() -> None:
    words = [re.findall(r"`(\w+)\(", word)[0] for word, _ in rows("| word | what the model")]
    assert sorted(words) == sorted(KEYS)
    assert [word for word in words if not callable(getattr(testing, word))] == []


def test_every_property_of_a_request_is_in_the_table() -> None:
    named = {name for cell, _ in rows("| of a `Request`") for name in re.findall(r"`(\w+)`", cell)}
    known = {name for name in dir(Request) if not name.startswith("_")}
    assert named == known - {"method", "path"}


def test_a_file_on_the_page_is_a_script(tmp_path: Path) -> None:
    (example,) = re.findall(r"```yaml\n(.*?)```", PAGE, re.DOTALL)
    path = tmp_path / "ticket.yaml"
    path.write_text(example, encoding="utf-8")
    assert read_script(path).remaining
