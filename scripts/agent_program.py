"""Bring Claude Code, in the version that the tests are written for, into the folder .agent.

It is there after the first run, and stays until the version changes or `make clean`. Where it cannot be had
(no npm, no network, no build for this machine), one line says so, and the tests that need it are skipped with
the same reason: that is no failure. The variable `OUTRIDER_TEST_AGENT` names another program for the tests.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from functools import cache
from pathlib import Path

from outrider.testing import clean_environment

PACKAGE = "@anthropic-ai/claude-code"
VERSION = "2.1.325"

ROOT = Path(__file__).resolve().parents[1] / ".agent"

OTHERS = ROOT.parent / "build" / "agents"
"""Where other versions are, a folder for each."""

PROGRAM_VARIABLE = "OUTRIDER_TEST_AGENT"

# Some 370 MB. Without a network, npm would try for minutes.
INSTALL_SECONDS = 600.0
NPM = ("install", "--no-save", "--no-package-lock", "--no-audit", "--no-fund", "--loglevel=error")
NPM_PATIENCE = ("--fetch-retries=1", "--fetch-retry-mintimeout=1000", "--fetch-timeout=60000")
PROBE_SECONDS = 30.0


class Failed(Exception):
    """A version of the program cannot be had here; says why."""


def program(root: Path = ROOT) -> Path:
    """Where the program is, if it is there."""
    other = os.environ.get(PROGRAM_VARIABLE)
    return Path(other) if other and root == ROOT else in_folder(root / VERSION)


@cache
def version() -> str:
    """The version of the program that the tests use."""
    if not os.environ.get(PROGRAM_VARIABLE):
        return VERSION
    with tempfile.TemporaryDirectory() as home:
        said = subprocess.check_output([program(), "--version"], env=clean_environment(home), text=True)
    return said.split()[0]


def in_folder(folder: Path) -> Path:
    modules = folder / "node_modules"
    # Not what npm puts beside it on Windows: batch files are not run.
    return modules / PACKAGE / "bin/claude.exe" if sys.platform == "win32" else modules / ".bin/claude"


def missing(root: Path = ROOT) -> Path:
    """A file that says why the program is not there, for the tests to tell."""
    return root / "missing.txt"


def last_line(text: str) -> str:
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return lines[-1] if lines else "it said nothing"


def npm(*arguments: str) -> str:
    """What npm prints. Raises `Failed` if it does not work."""
    path = shutil.which("npm")
    if path is None:
        raise Failed("npm is missing")
    try:
        done = subprocess.run(
            [path, *arguments, *NPM_PATIENCE],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            timeout=INSTALL_SECONDS,
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise Failed(f"npm took longer than {INSTALL_SECONDS:g} s") from None
    except OSError as error:
        raise Failed(f"npm cannot be run: {error.strerror}") from None
    if done.returncode:
        errors = [
            line for line in done.stdout.splitlines() if "error" in line and "A complete log" not in line
        ]
        raise Failed(f"npm failed: {last_line(errors[0] if errors else done.stdout)}")
    return done.stdout


def probe(folder: Path, number: str) -> None:
    """Raise `Failed` if the program does not run here: npm does not mind if there is no build for a
    machine."""
    with tempfile.TemporaryDirectory() as home:
        try:
            done = subprocess.run(
                [in_folder(folder), "--version"],
                stdin=subprocess.DEVNULL,
                capture_output=True,
                text=True,
                errors="replace",
                env=clean_environment(home),
                timeout=PROBE_SECONDS,
                check=False,
            )
        except (OSError, subprocess.TimeoutExpired) as error:
            raise Failed(f"it does not run here: {error}") from None
    if done.returncode or not done.stdout.startswith(number):
        raise Failed(f"it does not run here: {last_line(done.stderr + done.stdout)}")


def install(root: Path, number: str) -> Path:
    """Install a version into a folder of its own, unless it is there. Raises `Failed`."""
    there = in_folder(root / number)
    if there.exists():
        return there
    root.mkdir(parents=True, exist_ok=True)
    # Filled aside and put in place whole, so that no other run sees a half of it.
    aside = Path(tempfile.mkdtemp(dir=root, prefix="new-"))
    try:
        npm(*NPM, f"--prefix={aside}", f"{PACKAGE}@{number}")
        probe(aside, number)
        if not there.exists():
            # Tests may start it as another user.
            aside.chmod(0o755)
            aside.rename(root / number)
    finally:
        shutil.rmtree(aside, ignore_errors=True)
    return there


def newest() -> str:
    """The version that npm would install. Raises `Failed`."""
    return last_line(npm("view", PACKAGE, "version", "--loglevel=error"))


def main(root: Path = ROOT) -> None:
    if program(root).exists():
        return
    try:
        if shutil.which("npm"):
            told = f"Claude Code {VERSION} for the tests, 370 MB from npm; AGENT=no leaves it out"
            print(f"== installing {told}", flush=True)
        install(root, VERSION)
    except Failed as reason:
        root.mkdir(exist_ok=True)
        missing(root).write_text(str(reason), encoding="utf-8")
        print(f"== Claude Code is not installed ({reason}): its tests are skipped", flush=True)
        return
    for other in root.iterdir():
        if other.is_dir() and not other.name.startswith("new-") and other.name != VERSION:
            shutil.rmtree(other, ignore_errors=True)
    missing(root).unlink(missing_ok=True)


if __name__ == "__main__" and "--without" not in sys.argv[1:]:
    main()
