"""A machine to reach, for tests of runners: stand-ins for the clients and the agent, and a shell of choice.

Nothing of it leaves this machine.
"""

from __future__ import annotations

import contextlib
import shutil
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

from outrider.command import Command

__all__ = ["Far", "make_far"]

# What the real clients do with their arguments, and no more.
SSH = """
import getopt, os, subprocess, sys
options, (host, *words) = getopt.getopt(sys.argv[1:], "Tl:p:i:o:")
sys.exit(subprocess.call([os.environ["LOGIN_SHELL"], "-c", " ".join(words)]) % 256)
"""
DOCKER = """
import argparse, os, sys
kind, *rest = sys.argv[1:]
parser = argparse.ArgumentParser()
parser.add_argument("-i", action="store_true", required=True)
for option in ("--workdir", "--user", "--volume", "--entrypoint"):
    parser.add_argument(option)
parser.add_argument("--rm", action="store_true", required=kind == "run")
parser.add_argument("where")
parser.add_argument("words", nargs=argparse.REMAINDER)
known = parser.parse_args(rest)
os.chdir(known.workdir or "/")
words = [known.entrypoint, *known.words] if known.entrypoint else known.words
os.execvp(words[0], words)
"""
KUBECTL = """
import os, sys
words = sys.argv[sys.argv.index("--") + 1:]
os.execvp(words[0], words)
"""

AGENT = """
import json, os, signal, sys
def text(raw): return raw.decode("latin-1")
arguments = list(map(os.fsencode, sys.argv[1:]))
files = {text(a): [text(open(a, "rb").read()), os.stat(a).st_mode] for a in arguments if os.path.isfile(a)}
folders = {text(a): os.stat(a).st_mode for a in arguments if os.path.isdir(a)}
if "stubborn" in sys.argv: signal.signal(signal.SIGTERM, signal.SIG_IGN)
report = dict(argv=list(map(text, arguments)), files=files, folders=folders, cwd=os.getcwd(), pid=os.getpid(),
              parent=os.getppid(), env={text(k): text(v) for k, v in os.environb.items()})
print(json.dumps(report), flush=True)
if "closes" in sys.argv: sys.stdout.close(); os.close(1)
if "stays" in sys.argv:
    while True: signal.pause()
echoed = sys.stdin.buffer.read()
if "closes" not in sys.argv: sys.stdout.buffer.write(echoed)
sys.exit(int(os.environ.get("CODE", "0")))
"""


class Far(NamedTuple):
    """A machine to reach, with a shell of its own."""

    folder: Path
    agent: str
    env: dict[str, str]
    mark: str
    children: list[subprocess.Popen[bytes]]

    def start(self, command: Command) -> subprocess.Popen[bytes]:
        """Start it as a transport does, and write what comes first."""
        child = subprocess.Popen(
            command.argv,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=self.env if command.env is None else {**self.env, **command.env},
            start_new_session=True,
        )
        self.children.append(child)
        assert child.stdin is not None
        child.stdin.write(command.preamble)
        child.stdin.flush()
        return child

    def processes(self) -> list[int]:
        """Those that were started on this machine and still run."""
        found: list[int] = []
        for place in Path("/proc").glob("[0-9]*"):
            with contextlib.suppress(OSError):
                dead = (place / "stat").read_text().rpartition(")")[2].split()[0] == "Z"
                if not dead and self.mark.encode() in (place / "environ").read_bytes():
                    found.append(int(place.name))
        return found

    def private_folders(self) -> list[Path]:
        return list((self.folder / "tmp").iterdir())


def make_far(folder: Path, shell: str, mark: str) -> Far:
    programs = folder / "programs"
    for name in ("programs", "tmp", "home/work"):
        (folder / name).mkdir(parents=True)
    (programs / "sh").symlink_to(str(shutil.which(shell)))
    # The watcher looks once a second; here it is in a hurry.
    scripts = {"sleep": f"#!/bin/sh\nexec {shutil.which('sleep')} 0.02\n"}
    for name, source in {"ssh": SSH, "docker": DOCKER, "kubectl": KUBECTL, "agent": AGENT}.items():
        scripts[name] = f"#!{sys.executable} -IS\n{source}"
    for name, script in scripts.items():
        (programs / name).write_text(script)
        (programs / name).chmod(0o755)
    env = {
        "PATH": f"{programs}:/usr/bin:/bin",
        "HOME": str(folder / "home"),
        "TMPDIR": str(folder / "tmp"),
        "LOGIN_SHELL": shell,
        "KEPT": "kept",
        "FAR_SIDE_TEST": mark,
    }
    return Far(folder, str(programs / "agent"), env, mark, [])
