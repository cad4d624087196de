"""Holds the tree to its limits, so that it can be taken in: modules in a folder, lines in a module.

python scripts/tree.py           # what breaks a limit; exit code 1 if anything does
python scripts/tree.py --write   # draws the tree in ARCHITECTURE.md
"""

from __future__ import annotations

import sys
from collections import Counter
from pathlib import Path
from textwrap import wrap

ROOT = Path(__file__).parents[1] / "src" / "outrider"
MOST_IN_A_FOLDER = 12
MOST_LINES = 700
# Only ever made smaller.
MOST_MODULES = 291
MOST_LINES_IN_ALL = 100_550


def modules(folder: Path) -> list[Path]:
    """The modules of a folder, without `__init__` and `__main__`, which only begin others."""
    return sorted(path for path in folder.glob("*.py") if not path.stem.startswith("__"))


def folders() -> list[Path]:
    """All folders with modules, from the top."""
    return [ROOT, *sorted(path.parent for path in ROOT.glob("*/**/__init__.py"))]


def count(path: Path) -> int:
    """The lines of a module."""
    return len(path.read_text(encoding="utf-8").splitlines())


def problems() -> list[str]:
    """What breaks a limit, a sentence each."""
    found: list[str] = []
    sizes = {path: count(path) for path in ROOT.rglob("*.py")}
    for folder in folders():
        inside = modules(folder)
        name = folder.relative_to(ROOT.parent)
        if len(inside) > MOST_IN_A_FOLDER:
            found.append(f"{name} has {len(inside)} modules, over {MOST_IN_A_FOLDER}: make a folder of some.")
        families = Counter(
            path.stem.lstrip("_").partition("_")[0] for path in inside if "_" in path.stem.lstrip("_")
        )
        for family, members in families.items():
            if members > 1:
                found.append(
                    f"{name} has {members} modules that begin with {family}_: make a folder of them."
                )
    for path, lines in sizes.items():
        if lines > MOST_LINES:
            found.append(f"{path.relative_to(ROOT.parent)} has {lines} lines, over {MOST_LINES}: split it.")
    # An empty `__init__` only says that a folder is a package.
    filled = sum(1 for lines in sizes.values() if lines)
    for what, number, most in (
        ("modules", filled, MOST_MODULES),
        ("lines", sum(sizes.values()), MOST_LINES_IN_ALL),
    ):
        if number > most:
            found.append(f"The package has {number:,} {what}, over {most:,}.")
    return found


def draw(folder: Path = ROOT, depth: int = 0) -> list[str]:
    """The tree, a line for each folder, or more."""
    names = " ".join(path.stem.lstrip("_") for path in modules(folder))
    head = f"{'  ' * depth}{folder.name.lstrip('_')}/"
    lines = [line.rstrip() for line in wrap(f"{head:<24}{names}", 118, subsequent_indent=" " * 24)]
    for below in sorted(path for path in folder.iterdir() if (path / "__init__.py").is_file()):
        lines += draw(below, depth + 1)
    return lines


if __name__ == "__main__":
    if "--write" in sys.argv:
        page = ROOT.parents[1] / "ARCHITECTURE.md"
        before, _, rest = page.read_text(encoding="utf-8").partition("```\noutrider/")
        after = rest.partition("\n```\n")[2]
        tree = "\n".join(draw())
        page.write_text(f"{before}```\n{tree}\n```\n{after}", encoding="utf-8")
    sys.exit("\n".join(problems()) or None)
