"""Print the other Python interpreters of this machine, one path a line, one for each minor version.

Not among them: the version that runs this script, versions before 3.11, pre-releases, and what cannot make an
environment.
"""

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

OLDEST = (3, 11)
NAME = re.compile(r"python(\d+)\.(\d+)")
# Run, not only looked up: a version manager's shim may stand for nothing, and some systems ship no ensurepip.
PROBE = "import ensurepip, sys; print(*sys.version_info[:2], sys.version_info.releaselevel)"
PROBE_SECONDS = 20.0


def folders() -> Iterator[Path]:
    """The folders of PATH, then pyenv's, newest version first."""
    for entry in os.environ.get("PATH", "").split(os.pathsep):
        if entry:
            yield Path(entry)
    root = Path(os.environ.get("PYENV_ROOT") or Path.home() / ".pyenv")
    versions = root.glob("versions/*/bin")
    yield from sorted(versions, key=lambda path: numbers(path.parent.name), reverse=True)


def numbers(version: str) -> list[int]:
    """The numbers in a version, so that 3.12.10 is newer than 3.12.9."""
    return [int(number) for number in re.findall(r"\d+", version)]


def candidates() -> Iterator[tuple[tuple[int, int], Path]]:
    """Each file named pythonX.Y, with the version that its name claims."""
    for folder in folders():
        try:
            paths = sorted(folder.iterdir())
        except OSError:
            continue
        for path in paths:
            if match := NAME.fullmatch(path.name):
                yield (int(match[1]), int(match[2])), path


def is_usable(path: Path, version: tuple[int, int]) -> bool:
    """Whether it runs, is a release of that version and can make environments."""
    try:
        done = subprocess.run(
            [path, "-c", PROBE],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=PROBE_SECONDS,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return False
    return done.returncode == 0 and done.stdout.split() == [*map(str, version), "final"]


def other_pythons() -> dict[tuple[int, int], Path]:
    """The first usable interpreter of each other version."""
    found: dict[tuple[int, int], Path] = {}
    for version, path in candidates():
        if version < OLDEST or version == sys.version_info[:2] or version in found:
            continue
        if is_usable(path, version):
            found[version] = path
    return found


if __name__ == "__main__":
    for _, path in sorted(other_pythons().items()):
        print(path)
