"""A program with a session, to be sent a SIGHUP: `python hanging_up.py WAY WHEN HANDLER PROGRAM`.

It says the marker of its agents once it is where it should be: in a connect, or in a turn. By the way of
`another thread` it sends the signal to itself, to a thread that cannot handle it.
"""

import signal
import sys
import threading
import time
from typing import NoReturn

import anyio

import outrider
from outrider.options import Timeouts
from outrider.transports import live_processes
from outrider.transports._process.supervisor import supervisor

_, WAY, WHEN, HANDLER, PROGRAM = sys.argv
TIMEOUTS = Timeouts(close=0.2, terminate=0.2)


def leave(*_: object) -> NoReturn:
    if HANDLER == "exit":
        sys.exit(3)
    raise LookupError


def announce() -> None:
    print(f"OUTRIDER_{supervisor().id}=", flush=True)


def announce_start() -> None:
    while not live_processes():
        time.sleep(0.001)
    announce()
    if WAY == "another thread":
        signal.pthread_kill(threading.get_ident(), signal.SIGHUP)


async def main() -> None:
    async with outrider.Session(cli_path=PROGRAM, timeouts=TIMEOUTS) as session:
        turn = await session.send("Hi")
        async for _ in turn:
            announce()


def main_sync() -> None:
    with outrider.sync.Session(cli_path=PROGRAM, timeouts=TIMEOUTS) as session:
        for _ in session.send("Hi"):
            announce()


signal.signal(signal.SIGHUP, signal.SIG_DFL if HANDLER == "default" else leave)
if WHEN == "connect":
    threading.Thread(target=announce_start, daemon=True).start()
if WAY == "asyncio":
    anyio.run(main)
else:
    main_sync()
