"""ARCHITECTURE.md is true: the tree is the tree, and what stands on a way is there."""

from __future__ import annotations

import ast
import re
from pathlib import Path

from scripts.tree import ROOT, draw, problems

PAGE = (Path(__file__).parents[1] / "ARCHITECTURE.md").read_text(encoding="utf-8")
STEP = re.compile(r"^\d+\. `([\w/]+\.py)`: `([\w.]+)`", re.MULTILINE)


def test_the_tree_is_drawn_as_it_is() -> None:
    assert "\n".join(draw()) in PAGE, "run: python scripts/tree.py --write"


def test_the_tree_keeps_its_limits() -> None:
    assert problems() == []


def test_each_step_of_a_way_is_there() -> None:
    steps = STEP.findall(PAGE)
    assert len(steps) > 30
    assert [f"{file}: {name}" for file, name in steps if not _has(ROOT / file, name)] == []


def _has(path: Path, name: str) -> bool:
    body = ast.parse(path.read_text(encoding="utf-8")).body if path.is_file() else []
    for part in name.split("."):
        found = next((node for node in body if getattr(node, "name", None) == part), None)
        if found is None:
            return False
        body = getattr(found, "body", [])
    return True


def test_the_makefile_names_tests_that_are_there() -> None:
    root = Path(__file__).parents[1]
    named = re.findall(r"(?<![\w/])tests/[\w/]+(?:\.py)?", (root / "Makefile").read_text(encoding="utf-8"))
    assert named
    assert [path for path in named if not (root / path).exists()] == []
