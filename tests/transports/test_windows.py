"""On Windows, Outrider can be imported; to start a process is an error that says what to do."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import Final

from outrider.transports._process.processes import SWITCH

PRETEND: Final = """
import asyncio, concurrent.futures, importlib.metadata, multiprocessing, os, select, signal, subprocess, sys
import tempfile, threading, zoneinfo, anyio, anyio.lowlevel, anyio.from_thread, msgspec

# What event loops, decoders and the standard library need of this system, they have by now.
anyio.run(anyio.lowlevel.checkpoint)
msgspec.json.decode(b"1")
sys.platform = "win32"
for name in ("fcntl", "grp", "pty", "pwd", "resource", "termios", "tty"):
    sys.modules[name] = None
for module, names in {
    os: "chown eventfd fork geteuid getpgid getsid getuid killpg pidfd_open register_at_fork sysconf waitid "
    "O_CLOEXEC O_DIRECTORY O_NOFOLLOW P_PID P_PIDFD WEXITED WNOHANG WNOWAIT",
    select: "epoll poll POLLIN POLLOUT",
    signal: "pidfd_send_signal SIGALRM SIGCHLD SIGCONT SIGHUP SIGKILL SIGQUIT SIGSTOP SIGUSR1 SIGUSR2",
}.items():
    for name in names.split():
        delattr(module, name)

import outrider
for name in outrider.__all__:
    getattr(outrider, name)
from outrider.transports import Command, ProcessTransport, live_processes

async def main():
    transport = ProcessTransport(Command(("claude.exe",)))
    try:
        await transport.connect()
    except outrider.LaunchError as error:
        print(error)
    assert not transport.is_ready and not transport.is_alive and transport.bound > 0
    await transport.close()
    assert live_processes() == []

# Else it would tell of each step for which a busy machine took long.
anyio.run(main, backend_options={"debug": False})
"""


def test_outrider_can_be_imported_and_names_wsl() -> None:
    done = subprocess.run(
        [sys.executable, "-X", "dev", "-W", "error", "-c", PRETEND],
        # psutil knows better.
        env={name: value for name, value in os.environ.items() if name != SWITCH},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.stderr, done.returncode) == ("", 0)
    assert "cannot run Claude Code on Windows" in done.stdout
    assert "WSL" in done.stdout
