"""Bring the agent's program, in the version that the tests are written for, into the folder .agent.

It is there after the first run, and stays until the version changes or `make clean`. Where it cannot be had
(no npm, no network, no build for this machine), one line says so, and the tests that need it are skipped with
the same reason: that is no failure.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from outrider.testing import clean_environment

PACKAGE = "@anthropic-ai/claude-code"
VERSION = "2.1.325"

ROOT = Path(__file__).resolve().parents[1] / ".agent"

# Some 370 MB. Without a network, npm would try for minutes.
INSTALL_SECONDS = 600.0
NPM = ("install", "--no-save", "--no-package-lock", "--no-audit", "--no-fund", "--loglevel=error")
NPM_PATIENCE = ("--fetch-retries=1", "--fetch-retry-mintimeout=1000", "--fetch-timeout=60000")
PROBE_SECONDS = 30.0


def program(root: Path = ROOT) -> Path:
    """Where the program is, if it is there."""
    return in_folder(root / VERSION)


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


def install(folder: Path) -> str:
    """Install into the folder. Returns why it did not work, or nothing."""
    npm = shutil.which("npm")
    if npm is None:
        return "npm is missing"
    print(f"== installing the real program for the tests ({PACKAGE} {VERSION})", flush=True)
    try:
        done = subprocess.run(
            [npm, *NPM, *NPM_PATIENCE, f"--prefix={folder}", f"{PACKAGE}@{VERSION}"],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            timeout=INSTALL_SECONDS,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return f"npm took longer than {INSTALL_SECONDS:g} s"
    except OSError as error:
        return f"npm cannot be run: {error.strerror}"
    if done.returncode:
        errors = [
            line for line in done.stdout.splitlines() if "error" in line and "A complete log" not in line
        ]
        return f"npm failed: {last_line(errors[0] if errors else done.stdout)}"
    return probe(folder)


def probe(folder: Path) -> str:
    """Why the program does not run here, or nothing: npm does not mind if there is no build for a machine."""
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
            return f"it does not run here: {error}"
    if done.returncode or not done.stdout.startswith(VERSION):
        return f"it does not run here: {last_line(done.stderr + done.stdout)}"
    return ""


def main(root: Path = ROOT) -> None:
    if program(root).exists():
        return
    root.mkdir(exist_ok=True)
    # Filled aside and put in place whole, so that no other run sees a half of it.
    aside = Path(tempfile.mkdtemp(dir=root, prefix="new-"))
    try:
        reason = install(aside)
        if not reason:
            for other in root.iterdir():
                if other.is_dir() and not other.name.startswith("new-") and other.name != VERSION:
                    shutil.rmtree(other, ignore_errors=True)
            missing(root).unlink(missing_ok=True)
            if not program(root).exists():
                # Tests may start it as another user.
                aside.chmod(0o755)
                aside.rename(root / VERSION)
    finally:
        shutil.rmtree(aside, ignore_errors=True)
    if reason:
        missing(root).write_text(reason, encoding="utf-8")
        print(f"== the real program is not here ({reason}): its tests are skipped", flush=True)


if __name__ == "__main__":
    main()
