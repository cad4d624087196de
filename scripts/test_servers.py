"""Bring what tests start onto this machine: PostgreSQL and Redis for the stores, Chromium for pages.

    python scripts/test_servers.py          # say what is missing
    python scripts/test_servers.py --apt    # install it

Nothing is done where they are. With `--apt`, as root on a Debian-like system, its packages are installed, in
such a way that no server is started and no database is made. Where they cannot be had (no root, no apt-get,
no network), one line says so, and the tests that need them are skipped: that is no failure.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

# Without a network, apt-get would try for minutes.
INSTALL_SECONDS = 600.0
PATIENCE = ("-o", "Acquire::Retries=1", "-o", "Acquire::http::Timeout=20", "-o", "Acquire::https::Timeout=20")

POSTGRES_FOLDERS = ("/usr/lib/postgresql", "/usr/local/pgsql", "/opt/homebrew/opt", "/usr/local/opt")
NO_CLUSTER = Path("/etc/postgresql-common/createcluster.conf")
NO_START = Path("/usr/sbin/policy-rc.d")


def postgres_folder() -> Path | None:
    """Where the programs of the newest PostgreSQL are."""
    found = [
        program.parent
        for folder in POSTGRES_FOLDERS
        for pattern in ("*/bin/initdb", "bin/initdb")
        for program in Path(folder).glob(pattern)
        if (program.parent / "postgres").exists()
    ]
    if found:
        return max(found, key=lambda path: [int(number) for number in re.findall(r"\d+", str(path))])
    on_path = shutil.which("initdb")
    return Path(on_path).resolve().parent if on_path and shutil.which("postgres") else None


def redis_program() -> Path | None:
    """Redis, or one of those that are the same to a client."""
    on_path = shutil.which("redis-server") or shutil.which("valkey-server")
    return Path(on_path) if on_path else None


def browser_program() -> Path | None:
    """Chromium, or one that is the same to a test."""
    on_path = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
    return Path(on_path) if on_path else None


def missing() -> list[str]:
    """The packages that are not there."""
    packages = {
        "postgresql": postgres_folder(),
        "redis-server": redis_program(),
        "chromium": browser_program(),
    }
    return [package for package, found in packages.items() if found is None]


def apt_get(*arguments: str) -> str:
    """Returns why it did not work, or nothing."""
    environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive", "RUNLEVEL": "1"}
    try:
        done = subprocess.run(
            ["apt-get", "-qq", *PATIENCE, *arguments],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            env=environment,
            timeout=INSTALL_SECONDS,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return f"apt-get took longer than {INSTALL_SECONDS:g} s"
    except OSError as error:
        return f"apt-get cannot be run: {error.strerror}"
    if not done.returncode:
        return ""
    errors = [line for line in done.stdout.splitlines() if line.startswith("E:")]
    return f"apt-get failed: {errors[0] if errors else f'exit code {done.returncode}'}"


def install(packages: list[str]) -> str:
    """Install them. Returns why it did not work, or nothing."""
    if shutil.which("apt-get") is None:
        return "apt-get is missing"
    if os.geteuid() != 0:
        return "only root may install packages"
    print(f"== installing what tests start ({', '.join(packages)})", flush=True)
    made = []
    try:
        # No server of the system's is started, and no database is made for one.
        if not NO_START.exists():
            NO_START.write_text("#!/bin/sh\nexit 101\n", encoding="utf-8")
            made.append(NO_START)
            NO_START.chmod(0o755)
        if not NO_CLUSTER.exists():
            NO_CLUSTER.parent.mkdir(exist_ok=True)
            NO_CLUSTER.write_text("create_main_cluster = false\n", encoding="utf-8")
        wanted = ("install", "--yes", "--no-install-recommends", *packages)
        # The lists of packages are old, or absent, in most images.
        return apt_get(*wanted) and (apt_get("update") or apt_get(*wanted))
    except OSError as error:
        return f"{error.filename} cannot be written: {error.strerror}"
    finally:
        for path in made:
            path.unlink()


def main(*arguments: str) -> None:
    packages = missing()
    if not packages:
        return
    reason = install(packages) if "--apt" in arguments else "APT=yes installs them with apt-get"
    if reason:
        print(f"== {' and '.join(packages)}: not installed ({reason}); their tests are skipped", flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
