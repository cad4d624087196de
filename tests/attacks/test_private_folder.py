"""The private folder of a child, with its secrets, does not outlive it: whatever the child made of it, and
whenever the host was killed."""

from __future__ import annotations

import fcntl
import os
import signal
import stat
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import anyio
import pytest

from outrider.command import FOLDER, Command, File
from outrider.errors import LaunchError
from outrider.transports import ProcessTransport
from outrider.transports._process.folder import make_folder, remove_folder
from outrider.transports._process.removal import is_name, lock, new_name, sweep
from outrider.transports._process.supervisor import supervisor
from tests.transports.conftest import DEADLINE, wait_for

COMMAND = Command(("cat",), files=(File("mcp.json", b'{"key": "sk-ant-secret"}'),))

NOBODY = 65534
is_root = os.geteuid() == 0
needs_root = pytest.mark.skipif(not is_root, reason="only root can take another user's part")


@pytest.fixture
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A temporary folder of its own, so that nothing else is swept."""
    folder = tmp_path / "tmp"
    folder.mkdir()
    folder.chmod(0o1777)
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    yield folder
    for path in folder.iterdir():
        remove_folder(path)


def make(command: Command = COMMAND) -> Path:
    return make_folder(command, lambda _: None)


def children_of(folder: Path) -> list[str]:
    return [path.name for path in folder.iterdir()]


def left_behind(folder: Path, name: str | None = None) -> Path:
    """What a host that was killed leaves: a folder that nobody holds."""
    path = folder / (name or new_name())
    path.mkdir(mode=0o700)
    (path / "mcp.json").write_bytes(b"sk-ant-secret")
    return path


# What the child makes of it.

DEEP = """
import os, sys
os.chdir(sys.argv[1])
for _ in range(3000):
    os.mkdir("d")
    os.chdir("d")
open("f", "w").close()
"""
READ_ONLY = """
import os, sys
os.chdir(sys.argv[1])
for name in "ab":
    os.makedirs(name + "/c")
    open(name + "/c/f", "w").close()
    os.chmod(name + "/c", 0o500)
    os.chmod(name, 0)
os.symlink(sys.argv[2], "link")
os.chmod(".", 0o500)
"""


@pytest.mark.anyio
@pytest.mark.parametrize("program", [DEEP, READ_ONLY], ids=["deep", "read-only"])
async def test_a_folder_is_removed_whatever_the_child_made_of_it(
    program: str, temporary: Path, tmp_path: Path
) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "kept").write_text("kept")
    argv = (sys.executable, "-I", "-S", "-c", program, FOLDER, str(outside))
    transport = ProcessTransport(Command(argv, files=COMMAND.files))
    with anyio.fail_after(DEADLINE):
        await transport.connect()
        assert await transport.wait_exited() == 0
        await transport.close()
    assert children_of(temporary) == []
    assert (outside / "kept").read_text() == "kept"


AS_NOBODY = """
import os, sys
sys.path.insert(0, sys.argv[1])
from outrider.transports._process.removal import remove_tree
os.setgid(65534), os.setuid(65534)
remove_tree(sys.argv[2])
"""


@needs_root
def test_a_user_without_rights_removes_what_is_read_only() -> None:
    """Root may do anything: what is locked up is only so for others."""
    with tempfile.TemporaryDirectory(dir="/tmp") as place:
        Path(place).chmod(0o1777)
        folder = left_behind(Path(place))
        for name in ("a", "a/b", "a/b/c"):
            (folder / name).mkdir()
        (folder / "a/b/c/f").touch()
        for path in (*folder.rglob("*"), folder):
            os.chown(path, NOBODY, NOBODY)
        for name, mode in (("a/b/c", 0o500), ("a/b", 0), ("a", 0o500), (".", 0o500)):
            (folder / name).chmod(mode)
        source = Path(__file__).parents[2] / "src"
        argv = [sys.executable, "-c", AS_NOBODY, str(source), str(folder)]
        subprocess.run(argv, check=True, timeout=DEADLINE)
        assert not folder.exists()


# When the host is killed.

KILLED = """
import os, signal, sys, tempfile
tempfile.tempdir = sys.argv[1]
from outrider.command import Command, File
from outrider.transports import ProcessTransport
from outrider.transports._process import spawn as starting
import anyio

def kill(*_):
    print(*(os.listdir(tempfile.tempdir + "/" + name) for name in os.listdir(tempfile.tempdir)), flush=True)
    os.kill(os.getpid(), signal.SIGKILL)

starting.spawn = kill
command = Command(("cat",), files=(File("mcp.json", b"sk-ant-secret"),))
anyio.run(ProcessTransport(command).connect)
"""


def test_a_host_killed_before_its_child_was_started_leaves_no_folder(temporary: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", KILLED, str(temporary)], check=False, timeout=DEADLINE, capture_output=True
    )
    assert (done.returncode, done.stdout) == (-signal.SIGKILL, b"['mcp.json']\n"), done.stderr
    wait_for(lambda: not list(temporary.iterdir()))


def test_the_watchdog_is_told_before_there_is_a_folder(temporary: Path) -> None:
    told: list[str] = []

    def expect(path: str) -> None:
        assert list(temporary.iterdir()) == []
        told.append(path)

    folder = make_folder(COMMAND, expect)
    assert told == [str(folder)]
    remove_folder(folder)


@pytest.mark.anyio
async def test_a_start_that_fails_leaves_neither_a_folder_nor_a_note(temporary: Path) -> None:
    known = dict(supervisor().watchdog._known)
    with pytest.raises(LaunchError):
        await ProcessTransport(Command(("/no/such/program",), files=COMMAND.files)).connect()
    assert children_of(temporary) == []
    assert supervisor().watchdog._known == known


# What the next host finds.

NEXT = """
import sys, tempfile
tempfile.tempdir = sys.argv[1]
from outrider.transports._process.supervisor import supervisor
supervisor().watchdog.start()
sys.stdin.read()
"""


def test_the_next_host_removes_what_was_left(temporary: Path) -> None:
    left, used = left_behind(temporary), make()
    old = left_behind(temporary, f"outrider-{os.getpid()}-abcd_123")
    (left / "deep").mkdir()
    process = subprocess.Popen([sys.executable, "-c", NEXT, str(temporary)], stdin=subprocess.PIPE)
    try:
        wait_for(lambda: not left.exists())
    finally:
        process.communicate()
    # One that is in use, and one that an earlier version made and may be using.
    assert (used / "mcp.json").exists()
    assert (old / "mcp.json").exists()


def test_a_folder_in_use_is_known_by_its_lock_and_not_by_a_number(temporary: Path) -> None:
    """In a container, the number in its name is that of nobody, or of somebody else."""
    used = temporary / f"outrider-{2**22 + 1}-{'0' * 16}"
    used.mkdir()
    number = lock(str(used))
    sweep(str(temporary))
    assert used.exists()
    os.close(number)
    sweep(str(temporary))
    assert not used.exists()


def test_a_forked_worker_does_not_keep_a_folder(temporary: Path) -> None:
    folder = make()
    reading, writing = os.pipe()
    worker = os.fork()
    if not worker:
        os.close(writing)
        os.read(reading, 1)
        os._exit(0)
    try:
        os.close(reading)
        number = os.open(folder, os.O_RDONLY)
        with pytest.raises(BlockingIOError):
            fcntl.flock(number, fcntl.LOCK_EX | fcntl.LOCK_NB)
        remove_folder(folder)
        fcntl.flock(number, fcntl.LOCK_EX | fcntl.LOCK_NB)
        os.close(number)
    finally:
        os.close(writing)
        os.waitpid(worker, 0)


def test_links_with_such_a_name_are_not_followed(temporary: Path, tmp_path: Path) -> None:
    precious = left_behind(tmp_path, "precious")
    (temporary / new_name()).symlink_to(precious)
    (temporary / new_name()).symlink_to("/nowhere")
    (temporary / new_name()).write_text("a file")
    sweep(str(temporary))
    assert (precious / "mcp.json").exists()
    assert len(list(temporary.iterdir())) == 3


@needs_root
def test_what_another_user_planted_is_not_touched(temporary: Path, tmp_path: Path) -> None:
    planted = left_behind(temporary)
    for path in (planted / "mcp.json", planted):
        os.chown(path, NOBODY, NOBODY)
    sweep(str(temporary))
    assert (planted / "mcp.json").exists()
    sweep(str(tmp_path / "none"))


@pytest.mark.parametrize(
    "name, is_ours",
    [
        (f"outrider-1-{'a' * 16}", True),
        (f"outrider-1-{'g' * 16}", False),
        (f"outrider-1-{'a' * 8}", False),
        (f"outrider-x-{'a' * 16}", False),
        ("outrider-fleet-abcdefgh", False),
        (f"xoutrider-1-{'a' * 16}", False),
        (f"1-{'a' * 16}", False),
    ],
)
def test_only_names_of_private_folders_are_looked_at(name: str, is_ours: bool) -> None:
    assert is_name(name) is is_ours


def test_a_folder_that_was_swept_while_it_was_made_is_made_again(
    temporary: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between making it and locking it, another host may take it for an old one."""
    from outrider.transports._process import folder as _folder

    swept: list[str] = []

    def swept_first(path: str) -> int:
        if not swept:
            swept.append(path)
            sweep(str(temporary))
        return lock(path)

    monkeypatch.setattr(_folder, "lock", swept_first)
    folder = make()
    assert str(folder) not in swept
    assert [path.name for path in temporary.iterdir()] == [folder.name]
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    remove_folder(folder)
