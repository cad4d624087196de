"""Makes the environment of the reference SDK, when it is first needed and when its pinned version changes."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

FOLDER = Path(__file__).parent.parent / "build" / "bench" / "reference"
PIN = Path(__file__).with_name("reference.txt")


class Unavailable(Exception):
    """The reference is not here and cannot be fetched."""


def interpreter() -> Path:
    """The Python of the environment; raises `Unavailable`."""
    python = FOLDER / "bin" / "python"
    stamp = FOLDER / "installed"
    wanted = f"{PIN.read_text(encoding='utf-8')}{sys.version}\n"
    try:
        if stamp.read_text(encoding="utf-8") == wanted:
            return python
    except OSError:
        pass
    print(f"installing {PIN.read_text(encoding='utf-8').strip()} in build/bench/reference …", file=sys.stderr)
    run(sys.executable, "-m", "venv", "--clear", str(FOLDER))
    pip = (str(python), "-m", "pip", "--disable-pip-version-check", "--retries", "1")
    run(*pip, "install", "--quiet", "--requirement", str(PIN))
    stamp.write_text(wanted, encoding="utf-8")
    return python


def run(*command: str) -> None:
    """Run a program of the set-up; raises `Unavailable` with the last that it says."""
    try:
        done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
    except OSError as error:
        raise Unavailable(str(error)) from error
    if done.returncode != 0:
        said = (done.stderr or done.stdout).strip().splitlines() or ["it said nothing"]
        raise Unavailable(said[-1])


if __name__ == "__main__":
    print(interpreter())
