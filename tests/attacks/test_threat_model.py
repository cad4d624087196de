"""The threat model and the attacks are about the same things."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "security.md").read_text(encoding="utf-8")
NAMED = set(re.findall(r"`((?:tests/[\w/]+/)?test_\w+\.py|tests/[\w/]+)`", PAGE))


def test_every_test_that_the_page_names_is_there() -> None:
    missing = {
        name for name in NAMED if not ((ROOT / name).exists() or (ROOT / "tests/attacks" / name).exists())
    }
    assert missing == set()


def test_the_page_names_every_attack() -> None:
    here = {path.name for path in Path(__file__).parent.glob("test_*.py")} - {Path(__file__).name}
    assert here <= NAMED
