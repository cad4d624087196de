"""A program that runs its children as on Windows: `python as_windows.py BACKEND`. It says which host it is.

All of Outrider believes to be there, what Windows does not have is taken away, and the job is made of a
process group. What is left unshown is the system itself.
"""

import os
import select
import shutil
import signal
import subprocess
import sys
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from typing import Any
from unittest.mock import patch

import anyio
import anyio.lowlevel
import msgspec

HERE = Path(__file__).parent
SOURCE = HERE.parents[1] / "src" / "outrider" / "transports"

sys.path.insert(0, str(HERE.parents[1]))
from tests.transports.fake_windows import FakeWindows, Machine  # noqa: E402


def load(name: str) -> Any:
    """A module by itself, on the system that this really is."""
    spec = spec_from_file_location(name, SOURCE / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


# What one of them imports is there by then, and the package that they are in is not loaded yet.
sys.modules["outrider.transports._process.processes"] = load("_processes")
tree = load("_tree")
kill, SIGKILL = os.kill, signal.SIGKILL


class RealMachine(Machine):
    """The processes of this machine; what a job holds is found by the session and the marker."""

    def __init__(self) -> None:
        super().__init__()
        self._trees: dict[int, Any] = {}

    def members(self, pids: list[int]) -> list[int]:
        return [member for pid in pids for member in self._tree(pid).members()]

    def kill(self, pids: list[int]) -> None:
        for pid in pids:
            try:
                kill(pid, SIGKILL)
            except ProcessLookupError:
                pass

    def resume(self, pid: int) -> None:
        kill(pid, signal.SIGCONT)

    def working_set(self, pid: int) -> int:
        return 1

    def _tree(self, pid: int) -> Any:
        from outrider.transports._process.watchdog import host

        if pid not in self._trees:
            number = len(self._trees) + 1
            self._trees[pid] = tree.Tree(pid, "=".join(host().marker(number)))
        return self._trees[pid]


class SuspendedPopen(subprocess.Popen[bytes]):
    def __init__(self, argv: tuple[str, ...], *, creationflags: int, **options: Any) -> None:
        assert creationflags == 0x08000004
        super().__init__(argv, start_new_session=True, **options)
        kill(self.pid, signal.SIGSTOP)


def forbidden(name: str, function: Any) -> Any:
    """The event loops and the standard library may go on; they have their own ways there."""

    def call(*arguments: Any, **options: Any) -> Any:
        caller = sys._getframe(1).f_code.co_filename
        assert str(SOURCE) not in caller, f"{caller} uses {name}"
        return function(*arguments, **options)

    return call


def pretend() -> None:
    patch.object(subprocess, "Popen", SuspendedPopen).start()
    sys.platform = "win32"
    for module, names in {
        os: "chown eventfd getpgid getuid geteuid killpg pidfd_open register_at_fork set_blocking waitid",
        select: "epoll poll",
        signal: "pidfd_send_signal",
    }.items():
        for name in names.split():
            setattr(module, name, forbidden(name, getattr(module, name)))
    del signal.SIGKILL


async def main() -> None:
    from outrider.command import FOLDER, Command, File
    from outrider.transports import ProcessTransport
    from outrider.transports._process.watchdog import host

    async def start(name: str) -> ProcessTransport:
        argv = (sys.executable, "-I", "-S", str(HERE / "children.py"), name, f"{FOLDER}/secret")
        transport = ProcessTransport(Command(argv, files=(File("secret", b"s"),)), grace=0.2)
        await transport.connect()
        await anext(transport.messages())
        return transport

    print(host().id, flush=True)
    polite = await start("polite")
    await polite.write({"type": "note", "text": "x" * 200_000})
    echo = await anext(polite.messages())
    assert len(echo.raw["text"]) == 200_000
    assert polite.resident_bytes() == 1
    await polite.close()
    print("polite", polite.returncode, flush=True)
    for name in ("ignores_everything", "leaves_a_shell_in_a_session"):
        transport = await start(name)
        await transport.close()
        print(name, transport.returncode, flush=True)
    global kept  # until the interpreter ends
    kept = [await start("ignores_everything"), await start("polite")]


if __name__ == "__main__":
    kept: list[object] = []
    # What the event loops, decoders and standard modules need of this system, they have by now.
    assert shutil is not None
    anyio.run(anyio.lowlevel.checkpoint, backend=sys.argv[1])
    msgspec.json.decode(b"1")
    pretend()

    from outrider.transports._process import windows

    fake = FakeWindows(RealMachine()).system()
    patch.object(windows, "this_system", lambda: fake).start()
    anyio.run(main, backend=sys.argv[1])
