"""What is done on Windows, as far as another system can show it: all but what the system itself does."""

from __future__ import annotations

import ctypes
import errno
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from outrider.command import Command, UserId, is_batch_file
from outrider.errors import AgentNotFound, CommandTooLong, FolderNotFound, LaunchError, UserNotFound
from outrider.transports._process import windows
from outrider.transports._process.spawn import check_for_windows, explain
from tests.transports.conftest import marked_processes
from tests.transports.fake_windows import ACCESS_DENIED, FakeWindows, Machine


class Started:
    """Stands for a `Popen`."""

    def __init__(self, pid: int) -> None:
        self.pid = pid


def job_with(fake: FakeWindows, *pids: int) -> windows.WindowsJob:
    job = windows.WindowsJob(fake.system())
    for pid in pids:
        started: Any = Started(pid)
        job.assign(started)
    return job


@pytest.fixture
def fake() -> FakeWindows:
    return FakeWindows(Machine(pid7=1000, pid8=200, pid9=30))


# The layouts, as the headers of the system have them for 64 bits.


@pytest.mark.skipif(ctypes.sizeof(ctypes.c_void_p) != 8, reason="the numbers are those for 64 bits")
@pytest.mark.parametrize(
    "structure, size, offsets",
    [
        (windows.BasicLimit, 64, {"LimitFlags": 16, "MinimumWorkingSetSize": 24, "SchedulingClass": 60}),
        (windows.IoCounters, 48, {"OtherTransferCount": 40}),
        (windows.ExtendedLimit, 144, {"IoInfo": 64, "ProcessMemoryLimit": 112, "PeakJobMemoryUsed": 136}),
        (windows.BasicAccounting, 48, {"TotalPageFaultCount": 32, "ActiveProcesses": 40}),
        (windows.ProcessList, 8 + 8 * 1024, {"NumberOfProcessIdsInList": 4, "ProcessIdList": 8}),
        (windows.MemoryCounters, 72, {"WorkingSetSize": 16, "PeakPagefileUsage": 64}),
    ],
)
def test_structures_have_the_layout_of_the_system(
    structure: type[ctypes.Structure], size: int, offsets: dict[str, int]
) -> None:
    assert ctypes.sizeof(structure) == size
    assert {name: getattr(structure, name).offset for name in offsets} == offsets


# The job.


def test_a_job_ends_with_its_last_handle(fake: FakeWindows) -> None:
    job = job_with(fake)
    ((handle, members),) = fake.handles.items()
    assert (fake.limits, members) == ({handle: 0x2000}, [])
    assert fake.names() == ["CreateJobObjectW", "SetInformationJobObject"]
    job.close()
    assert fake.handles == {}


def test_a_process_is_in_its_job_before_it_runs(fake: FakeWindows) -> None:
    job = job_with(fake, 7)
    assert fake.names()[2:] == ["OpenProcess", "AssignProcessToJobObject", "NtResumeProcess", "CloseHandle"]
    assert fake.machine.resumed == [7]
    assert list(fake.handles.values()) == [[7]]
    job.close()


def test_processes_are_counted_and_killed_together(fake: FakeWindows) -> None:
    job = job_with(fake, 7, 8)
    assert (job.count(), job.resident_bytes()) == (2, 1200)
    fake.machine.kill([8])
    assert (job.count(), job.resident_bytes()) == (1, 1000)
    job.terminate()
    assert (job.count(), job.resident_bytes()) == (0, 0)
    assert fake.machine.working_sets == {9: 30}
    assert len(fake.handles) == 1
    job.close()


def test_what_cannot_be_looked_at_is_not_counted(fake: FakeWindows) -> None:
    job = job_with(fake, 7)
    fake.failures = {"K32GetProcessMemoryInfo": ACCESS_DENIED}
    assert job.resident_bytes() == 0
    fake.failures = {"OpenProcess": ACCESS_DENIED}
    assert job.resident_bytes() == 0
    assert len(fake.handles) == 1
    job.close()


def test_of_more_processes_than_there_is_room_for_the_first_are_added_up() -> None:
    fake = FakeWindows(Machine(**{f"pid{number}": 1 for number in range(1, 2001)}))
    job = job_with(fake, *range(1, 2001))
    assert (job.count(), job.resident_bytes()) == (2000, 1024)
    job.close()


def test_a_job_that_was_closed_is_not_asked_any_more(fake: FakeWindows) -> None:
    job = job_with(fake, 7)
    job.close()
    assert 7 not in fake.machine.working_sets
    asked = len(fake.calls)
    job.close()
    job.terminate()
    assert (job.count(), job.resident_bytes()) == (0, 0)
    assert len(fake.calls) == asked


@pytest.mark.parametrize(
    "function, left",
    [
        ("CreateJobObjectW", 0),
        ("SetInformationJobObject", 0),
        ("OpenProcess", 1),
        ("AssignProcessToJobObject", 1),
        ("NtResumeProcess", 1),
    ],
)
def test_a_failure_names_the_function_and_leaves_no_handle(
    fake: FakeWindows, function: str, left: int
) -> None:
    fake.failures = {function: ACCESS_DENIED}
    with pytest.raises(OSError, match=f"{function} failed"):
        job_with(fake, 7)
    assert len(fake.handles) == left  # that of the job itself, which whoever made it closes
    assert fake.machine.resumed == []


@pytest.mark.parametrize("function", ["TerminateJobObject", "QueryInformationJobObject"])
def test_a_job_that_does_not_answer_is_an_error(fake: FakeWindows, function: str) -> None:
    job = job_with(fake, 7)
    fake.failures = {function: ACCESS_DENIED}
    with pytest.raises(OSError, match=rf"{function} failed \(Windows error 5\)"):
        job.terminate() if function == "TerminateJobObject" else job.count()
    job.close()


def test_there_is_no_such_system_here() -> None:
    with pytest.raises(NotImplementedError):
        windows.this_system()


# Starting.


@pytest.mark.parametrize(
    "path",
    [
        r"C:\npm\claude.cmd",
        r"C:\npm\CLAUDE.BAT",
        r"C:\npm\claude.cmd. . ",
        r"C:\npm\claude.bat::$DATA",
        r"C:\npm\claude.cmd\...\..",
        "C:/npm/claude.cmd",
        r'"C:\npm\claude.cmd"',
        r'C:\npm\claude.c"md',
        r'C:\npm\claude.cmd" x',
        "claude.cmd",
    ],
)
def test_a_batch_file_is_refused_however_it_is_written(path: str) -> None:
    assert is_batch_file(path)
    with pytest.raises(LaunchError, match="batch file") as raised:
        check_for_windows(Command((path, "&calc")))
    assert ".exe" in raised.value.hint


@pytest.mark.parametrize("path", [r"C:\cmd\batch.command\claude.exe", "claude", r"C:\a.cmdx\claude.exe"])
def test_a_program_is_no_batch_file(path: str) -> None:
    assert not is_batch_file(path)
    check_for_windows(Command((path,)))


def test_another_user_is_refused() -> None:
    with pytest.raises(UserNotFound, match="as another user"):
        check_for_windows(Command(("claude.exe",), user=UserId(7, 7)))


@pytest.mark.parametrize(
    "number, windows_error, cwd, kind, text",
    [
        (errno.ENOENT, 2, None, AgentNotFound, "not found"),
        (errno.ENOENT, 206, None, CommandTooLong, "--text"),
        (errno.ENOTDIR, 267, "/no/such/folder", FolderNotFound, "does not exist"),
        (errno.ENOTDIR, 267, __file__, LaunchError, "is not a folder"),
        (errno.ENOEXEC, 193, None, LaunchError, "not in a form that this machine can run"),
        (errno.EINVAL, 740, None, LaunchError, "cannot be started"),
    ],
)
def test_what_windows_says_is_told_in_words(
    number: int, windows_error: int, cwd: str | None, kind: type[LaunchError], text: str
) -> None:
    says = NotADirectoryError if number == errno.ENOTDIR else OSError
    error: Any = says(number, os.strerror(number))
    error.winerror = windows_error
    explained = explain(error, Command(("claude.exe", "--text=" + "x" * 40_000), cwd=cwd))
    assert type(explained) is kind
    assert text in str(explained)


# All of it together.


@pytest.mark.parametrize("backend", ["asyncio", "trio"])
def test_children_are_run_and_ended_with_nothing_that_windows_does_not_have(
    backend: str, tmp_path: Path
) -> None:
    program = Path(__file__).with_name("as_windows.py")
    done = subprocess.run(
        [sys.executable, "-X", "dev", "-W", "error", str(program), backend],
        capture_output=True,
        text=True,
        env={**os.environ, "TMPDIR": str(tmp_path), "PYTHONPATH": ""},
        timeout=50,
        check=False,
    )
    assert (done.stderr, done.returncode) == ("", 0)
    host_id, *ended = done.stdout.split("\n")
    assert ended == ["polite 0", "ignores_everything -9", "leaves_a_shell_in_a_session -9", ""]
    assert marked_processes(f"OUTRIDER_{host_id}=") == []
    assert list(tmp_path.iterdir()) == []
