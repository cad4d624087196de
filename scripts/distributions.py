"""Build the wheel and the sdist into dist/, and check them as they would reach the index.

The wheel has the package alone, with its types; the sdist has all that the tests need. In the text for the
index, every link and picture has an address.
"""

from __future__ import annotations

import email
import re
import shutil
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from collections.abc import Iterator
from email.message import Message
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
WHEEL_LIMIT = 1_500_000
SDIST_LIMIT = 6_000_000
IN_SDIST = ("src/outrider/py.typed", "tests/conftest.py", "docs/services.md", "Makefile", "constraints.txt")
NOT_IN_SDIST = (".agent", ".cache", ".ci", ".git", ".venv", "build", "dist")
LINK = re.compile(r"\]\(([^)\s]+)|\b(?:src|srcset|href)=\"([^\"]+)|^\[[^\]\n]+\]:\s*(\S+)", re.MULTILINE)
CODE = re.compile(r"```.*?```|`[^`\n]*`", re.DOTALL)


def build(folder: Path) -> tuple[Path, Path]:
    """Build both into an empty folder."""
    shutil.rmtree(folder, ignore_errors=True)
    done = subprocess.run(
        [sys.executable, "-m", "hatchling", "build", "--directory", str(folder)],
        cwd=ROOT,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    if done.returncode:
        sys.exit(f"hatchling failed:\n{done.stdout}")
    return next(folder.glob("*.whl")), next(folder.glob("*.tar.gz"))


def wheel_problems(path: Path) -> Iterator[str]:
    with zipfile.ZipFile(path) as wheel:
        names = wheel.namelist()
        metadata = email.message_from_bytes(wheel.read(next(n for n in names if n.endswith("/METADATA"))))
    info = f"{'-'.join(path.name.split('-')[:2])}.dist-info"
    if strangers := [name for name in names if name.split("/")[0] not in ("outrider", info)]:
        yield f"{path.name} has {strangers[0]}, which is not in the package"
    sources = (path for path in (ROOT / "src/outrider").rglob("*") if "__pycache__" not in path.parts)
    wanted = [str(path.relative_to(ROOT / "src")) for path in sources if path.is_file()]
    for name in (*wanted, f"{info}/licenses/LICENSE", f"{info}/entry_points.txt"):
        if name not in names:
            yield f"{path.name} lacks {name}"
    if path.stat().st_size > WHEEL_LIMIT:
        yield f"{path.name} has {path.stat().st_size:,} bytes, more than {WHEEL_LIMIT:,}"
    yield from metadata_problems(metadata)


def metadata_problems(metadata: Message) -> Iterator[str]:
    text = CODE.sub("", str(metadata.get_payload()))
    targets = ["".join(groups) for groups in LINK.findall(text)]
    if relative := [each for each in targets if not each.startswith(("https://", "#"))]:
        yield f"the text for the index links to {relative[0]!r}, which is not an address"
    config = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    # Without the host: GitHub serves pictures from another one.
    home = config["project"]["urls"]["Homepage"].removeprefix("https://github.com")
    for each in config["tool"]["hatch"]["metadata"]["hooks"]["fancy-pypi-readme"]["substitutions"]:
        if f"{home}/" not in each["replacement"]:
            yield f"pyproject.toml turns links of the README into {each['replacement']!r}, not into {home}"


def sdist_problems(path: Path) -> Iterator[str]:
    with tarfile.open(path) as sdist:
        names = {name.partition("/")[2] for name in sdist.getnames()}
    for name in IN_SDIST:
        if name not in names:
            yield f"{path.name} lacks {name}"
    if strangers := sorted(name for name in names if name.split("/")[0] in NOT_IN_SDIST):
        yield f"{path.name} has {strangers[0]}"
    if path.stat().st_size > SDIST_LIMIT:
        yield f"{path.name} has {path.stat().st_size:,} bytes, more than {SDIST_LIMIT:,}"


def main() -> int:
    wheel, sdist = build(ROOT / "dist")
    problems = [*wheel_problems(wheel), *sdist_problems(sdist)]
    for problem in problems:
        print(f"error: {problem}", file=sys.stderr)
    if not problems:
        print(f"{wheel.name} ({wheel.stat().st_size:,} bytes), {sdist.name} ({sdist.stat().st_size:,} bytes)")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
