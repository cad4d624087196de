"""Write the table of names in `outrider._lazy`, from the import statements that type checkers read.

A package names what it offers once: `from module import name as name`, under `if TYPE_CHECKING`.
"""

from __future__ import annotations

import ast
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
SOURCES = ROOT / "src"
TARGET = SOURCES / "outrider" / "_lazy.py"
START, END = (
    "# Written by `scripts/lazy_names.py`: run that instead of changing it.\n",
    "# End of the table.\n",
)


def packages() -> Iterator[tuple[str, ast.Module]]:
    """All modules that load their names on first use."""
    for path in sorted((SOURCES / "outrider").rglob("*.py")):
        text = path.read_text(encoding="utf-8")
        if "= lazily(__name__)" in text:
            parts = path.relative_to(SOURCES).with_suffix("").parts
            yield ".".join(part for part in parts if part != "__init__"), ast.parse(text)


def homes(package: str, tree: ast.Module) -> dict[str, list[str]]:
    """The names of a package by the module that has them, relative to the package if it is in it."""
    found: dict[str, list[str]] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module:
            names = [alias.name for alias in node.names if alias.asname == alias.name]
            inside = node.module.removeprefix(package)
            home = inside if inside != node.module else node.module
            if names:
                found.setdefault(home, []).extend(names)
    return {home: sorted(names) for home, names in sorted(found.items())}


def table() -> str:
    lines = ["NAMES: Final = {"]
    for package, tree in packages():
        words = [word for home, names in homes(package, tree).items() for word in (f"{home}:", *names)]
        text = textwrap.fill(" ".join(words), 105, break_long_words=False, break_on_hyphens=False)
        lines.append(f'"{package}": """{text}""",' if len(text) < 80 else f'"{package}": """\n{text}""",')
    return "\n".join([*lines, "}", ""])


def page() -> str:
    """The text of the module, with a table that is up to date."""
    before, _, rest = TARGET.read_text(encoding="utf-8").partition(START)
    _, _, after = rest.partition(END)
    text = f"{before}{START}{table()}{END}{after}"
    command = [sys.executable, "-m", "ruff", "format", "--quiet", f"--stdin-filename={TARGET}", "-"]
    done = subprocess.run(command, input=text, capture_output=True, encoding="utf-8", check=True)
    return done.stdout


if __name__ == "__main__":
    TARGET.write_text(page(), encoding="utf-8")
