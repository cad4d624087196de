"""Programs that use Outrider and fork: `python forking_hosts.py NAME BACKEND FOLDER`. Each says what it saw.

In processes of their own, for a fork takes along all that the process has. Each ends by an alarm if it hangs.
"""

import multiprocessing
import os
import signal
import sys
import threading
import warnings
from collections.abc import Callable
from importlib.machinery import ModuleSpec
from pathlib import Path
from typing import Any

ALARM = 20
"""Seconds after which whatever hangs is ended by SIGALRM."""

_, NAME, BACKEND, PLACE = sys.argv
FOLDER = Path(PLACE)

# Python warns of forks beside threads, which is what this is about.
warnings.simplefilter("ignore", DeprecationWarning)


def forked(function: Callable[[], object]) -> str:
    """Fork; call a function in the child, which then unwinds all that the parent had begun. Says whether it
    got to its end; what it ended with is made of its `SystemExit` by task groups."""
    pid = os.fork()
    if not pid:
        signal.alarm(ALARM)
        function()
        sys.exit(7)
    code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    return "ended" if code in (1, 7) else f"code {code}"


def backend() -> dict[str, Any]:
    if BACKEND == "trio":
        return {"backend": "trio"}
    return {"backend": "asyncio", "backend_options": {"use_uvloop": BACKEND == "uvloop"}}


def nothing() -> None:
    pass


def unwinds_while_a_task_reads() -> None:
    """The child leaves the event loop, and with it two tasks: one that reads, one that waits for the end."""
    import anyio

    from outrider.command import Command
    from outrider.transports import ProcessTransport

    async def main() -> None:
        heard: list[str] = []
        transport = ProcessTransport(Command(("cat",)))
        has_heard = anyio.Event()

        async def read() -> None:
            async for message in transport.messages():
                heard.append(getattr(message, "type", ""))
                has_heard.set()

        async with transport, anyio.create_task_group() as tasks:
            tasks.start_soon(read)
            tasks.start_soon(transport.wait_exited)
            await anyio.wait_all_tasks_blocked()
            print("the child:", forked(nothing), flush=True)
            await transport.write('{"type":"still_there"}')
            await has_heard.wait()
            await transport.end_input()
        print("the parent:", *heard, transport.returncode, flush=True)

    anyio.run(main, **backend())


def unwinds_an_open_session() -> None:
    """The same with a session that is kept in a store: its lease and its agent stay with the parent."""
    import anyio

    import outrider
    from outrider.transcripts import SessionKey, SqliteStore
    from outrider.transcripts._disk.files import project_key
    from tests.session.surroundings import QUICK, make_program

    async def steal(key: SessionKey) -> None:
        try:
            await SqliteStore(FOLDER / "kept.db").acquire_lease(key, "a thief", 10)
        except outrider.errors.SessionBusy:
            print("the lease is held", flush=True)

    async def main() -> None:
        store = SqliteStore(FOLDER / "kept.db")
        options = outrider.Options(
            cli_path=make_program(FOLDER, "answers"), timeouts=QUICK, session_store=store, resume=SESSION
        )
        key: SessionKey = {"project_key": project_key(Path.cwd()), "session_id": SESSION}
        entry: Any = {"type": "user", "uuid": "1", "message": {"content": "Hello"}}
        await store.append(key, [entry])
        async with outrider.Session(options=options) as session:
            print("the child:", forked(nothing), flush=True)
            # In a loop of its own: that of asyncio does not hear of its threads after such a fork.
            thief = threading.Thread(target=anyio.run, args=(steal, key))
            thief.start()
            thief.join()
            print("the parent:", (await session.ask("Are you there?")).text, flush=True)

    anyio.run(main, **backend())


SESSION = "5e551011-0000-4000-8000-000000000002"


class Slow:
    """Has one import wait until the fork has begun."""

    def __init__(self, module: str) -> None:
        self._module = module
        self.has_begun = threading.Event()
        self.is_forking = threading.Event()

    def find_spec(self, name: str, *_: object) -> ModuleSpec | None:
        if name == self._module:
            self.has_begun.set()
            self.is_forking.wait()
        return None


def forks_while_a_thread_imports() -> None:
    """A thread uses Outrider for the first time; the child needs the very module that is being loaded."""
    import outrider
    from tests.session.surroundings import make_program

    program = make_program(FOLDER, "answers")
    # As if nothing had been used yet.
    for name in [name for name in sys.modules if name.startswith("outrider.")]:
        del sys.modules[name]
    slow = Slow(BACKEND)
    sys.meta_path.insert(0, slow)
    os.register_at_fork(before=slow.is_forking.set)

    def use() -> None:
        # In one piece: the parent and the child write at the same time, and `print` writes its end apart.
        os.write(1, f"{outrider.sync.run('Hello', cli_path=program).text}\n".encode())

    thread = threading.Thread(target=use)
    thread.start()
    slow.has_begun.wait()
    print("the child:", forked(use), flush=True)
    thread.join()


def forks_while_threads_work() -> None:
    """A server that forks workers while its own threads are at work, again and again."""
    import outrider
    from tests.session.surroundings import make_program

    program = make_program(FOLDER, "answers")
    is_over = threading.Event()
    texts: list[str] = []

    def work() -> None:
        while not is_over.is_set():
            texts.append(outrider.sync.run("Hello", cli_path=program).text)

    def serve() -> None:
        signal.alarm(ALARM)
        assert outrider.sync.run("Hello", cli_path=program).text == "done"

    threads = [threading.Thread(target=work) for _ in range(3)]
    for thread in threads:
        thread.start()
    with outrider.sync.Session(cli_path=program) as session:
        for _ in range(5):
            workers = [multiprocessing.get_context("fork").Process(target=serve) for _ in range(2)]
            for worker in workers:
                worker.start()
            for worker in workers:
                worker.join()
            print("the children:", *(worker.exitcode for worker in workers), flush=True)
        print("the parent:", session.ask("Hello").text, flush=True)
    is_over.set()
    for thread in threads:
        thread.join()
    print("its threads:", *set(texts), flush=True)


if __name__ == "__main__":
    signal.alarm(2 * ALARM)
    globals()[NAME]()
