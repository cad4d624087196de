"""Programs that behave as no agent should, one function each: `python children.py NAME`.

Run with the bare interpreter, so that they start fast. Nothing of Outrider is imported here.
"""

import fcntl
import os
import resource
import signal
import subprocess
import sys
import time
from typing import NoReturn

SELF = [sys.executable, "-I", "-S", __file__]
FOREVER = 3600


def say(text: str) -> None:
    os.write(1, text.encode() + b"\n")


def ready() -> None:
    """Told to the test, so that it acts when the child is where it should be."""
    say('{"type":"ready"}')


def sleep_forever() -> NoReturn:
    while True:
        time.sleep(FOREVER)


def ignore_sigterm() -> None:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)


def polite() -> None:
    """Echoes its input and ends with it."""
    ready()
    while data := os.read(0, 65536):
        while data:
            data = data[os.write(1, data) :]


def exits_at_once() -> None:
    pass


def fails_at_once() -> None:
    os.write(2, b"cannot go on\n")
    sys.exit(3)


def exits_cleanly_when_asked() -> None:
    """Reads one line and exits with 0, whatever was asked."""
    ready()
    os.read(0, 65536)


def dies_by_signal() -> None:
    ready()
    os.kill(os.getpid(), signal.SIGKILL)


def ignores_everything() -> None:
    """Neither the end of its input nor SIGTERM moves it."""
    ignore_sigterm()
    ready()
    sleep_forever()


def ignores_sigterm_only() -> None:
    ignore_sigterm()
    polite()


def is_stopped() -> None:
    ready()
    os.kill(os.getpid(), signal.SIGSTOP)
    sleep_forever()


def never_reads() -> None:
    ready()
    sleep_forever()


def floods() -> None:
    """Writes to stdout and stderr as fast as it can, and looks at nothing else."""
    ignore_sigterm()
    ready()
    pid = os.fork()
    number, line = (2, b"%s\n") if pid == 0 else (1, b'{"type":"flood","text":"%s"}\n')
    data = line % (b"x" * 400) * 100
    while True:
        os.write(number, data)


def closes_stdout() -> None:
    ready()
    os.close(1)
    sleep_forever()


def closes_stdin() -> None:
    os.close(0)
    ready()
    sleep_forever()


def leaves_a_holder() -> None:
    """Exits while a grandchild, which ignores SIGTERM, holds its stdout."""
    grandchild = subprocess.Popen([*SELF, "ignores_everything"], stdin=subprocess.DEVNULL)
    say(f'{{"type":"grandchild","pid":{grandchild.pid}}}')
    os._exit(0)


def leaves_an_escaped_one() -> None:
    """Waits for its input to end, having started a grandchild in a session of its own, twice forked."""
    if os.fork() == 0:
        os.setsid()
        if os.fork() == 0:
            ignore_sigterm()
            say(f'{{"type":"grandchild","pid":{os.getpid()}}}')
            os.close(1)
            sleep_forever()
        os._exit(0)
    os.wait()
    polite()


def leaves_a_shell_in_a_session() -> None:
    """What the agent's shell tool does: a command in a session of its own, that goes on."""
    shell = subprocess.Popen(["sleep", str(FOREVER)], start_new_session=True, stdin=subprocess.DEVNULL)
    say(f'{{"type":"grandchild","pid":{shell.pid}}}')
    ignores_everything()


def leaves_one_without_environment() -> None:
    """A grandchild in another group of the same session, which has lost its environment."""
    pid = os.fork()
    if pid == 0:
        os.setpgid(0, 0)
        os.execve("/bin/sleep", ["sleep", str(FOREVER)], {})
    say(f'{{"type":"grandchild","pid":{pid}}}')
    polite()


def leaves_a_hidden_one() -> None:
    """What the agent's shell tool does on macOS: a session of its own, an environment that is hidden."""
    _start_a_hidden_one()
    polite()


def stays_with_a_hidden_one() -> None:
    """The same, with an agent that is still there when somebody looks for what it has started."""
    _start_a_hidden_one()
    signal.pause()


def _start_a_hidden_one() -> None:
    pid = os.fork()
    if pid == 0:
        os.setsid()
        os.execve("/bin/sleep", ["sleep", str(FOREVER)], {})
    say(f'{{"type":"grandchild","pid":{pid}}}')


def leaves_a_daemon() -> None:
    """A process that is nobody's: twice forked, in a session of its own, with no environment.

    It is started once the host has marked this one: on a busy machine that may take the host a while."""
    while sys.platform == "linux" and resource.getrlimit(resource.RLIMIT_RTTIME)[0] == resource.RLIM_INFINITY:
        time.sleep(0.001)
    reading, writing = os.pipe()
    if os.fork() == 0:
        os.setsid()
        if os.fork() == 0:
            os.write(writing, str(os.getpid()).encode())
            for number in range(3):
                os.close(number)
            os.execve("/bin/sleep", ["sleep", str(FOREVER)], {})
        os._exit(0)
    os.wait()
    say(f'{{"type":"grandchild","pid":{os.read(reading, 100).decode()}}}')
    polite()


def leaves_one_in_its_group() -> None:
    """Ends with its input; a grandchild in its group, which ignores SIGTERM, does not."""
    grandchild = subprocess.Popen([*SELF, "ignores_everything"], stdin=subprocess.DEVNULL)
    say(f'{{"type":"grandchild","pid":{grandchild.pid}}}')
    polite()


def leaves_one_that_forks_on_and_on() -> None:
    """A grandchild that ignores SIGTERM, starts another in a session of its own, and ends, again and again.

    The file is locked while there is one.
    """
    reading, writing = os.pipe()
    if os.fork() == 0:
        ignore_sigterm()
        fcntl.flock(os.open(sys.argv[2], os.O_RDWR | os.O_CREAT), fcntl.LOCK_EX)
        os.closerange(0, 3)
        os.close(writing)
        until = time.monotonic() + 20
        while time.monotonic() < until:
            # Much faster, and it is chance whether a busy machine sees one that still runs.
            time.sleep(0.02)
            os.setsid()
            if os.fork():
                os._exit(0)
        os._exit(0)
    os.close(writing)
    os.read(reading, 1)
    polite()


def reads_slowly() -> None:
    """Four kilobytes at a time, and not before it is told to by a signal."""
    signal.signal(signal.SIGUSR1, lambda *_: None)
    ready()
    while os.read(0, 4096):
        signal.pause()


def writes_late() -> None:
    """Says 70 KB after its input has ended."""
    ready()
    while os.read(0, 65536):
        pass
    for number in range(700):
        say(f'{{"type":"late","number":{number},"text":"{"x" * 80}"}}')


def counts() -> None:
    """Says so many numbers and exits."""
    for number in range(int(sys.argv[2])):
        say(f'{{"type":"count","number":{number},"text":"{"x" * 50}"}}')


def writes_half_a_line() -> None:
    ready()
    os.write(1, b'{"type":"half","text":"and then')
    os.kill(os.getpid(), signal.SIGKILL)


def saves_when_its_input_ends() -> None:
    """Writes a file in its last moments, as the agent writes its transcript."""
    ready()
    while os.read(0, 65536):
        pass
    time.sleep(0.1)
    with open(sys.argv[2], "w") as file:  # noqa: PTH123
        file.write("all of it")


def fills_stderr() -> None:
    """Writes far more to stderr than a pipe holds before it says anything."""
    for _ in range(100):
        os.write(2, b"x" * 9_999 + b"\n")
    polite()


def reports() -> None:
    """Says what it was given: arguments, environment, working folder, user, and its files."""
    import json
    from pathlib import Path

    files = {}
    for argument in sys.argv[2:]:
        path = Path(argument.partition("=")[2] or argument)
        if path.is_file():
            status = path.stat()
            files[str(path)] = {
                "text": path.read_text(),
                "mode": status.st_mode & 0o777,
                "uid": status.st_uid,
            }
    facts = {"argv": sys.argv[2:], "env": dict(os.environ), "cwd": str(Path.cwd()), "uid": os.getuid()}
    say(json.dumps({"type": "report", **facts, "files": files}))
    polite()


def writes_to_stderr() -> None:
    """Each argument is written to stderr as it is; then it waits for its input to end."""
    for argument in sys.argv[2:]:
        os.write(2, os.fsencode(argument))
    polite()


if __name__ == "__main__":
    globals()[sys.argv[1]]()
