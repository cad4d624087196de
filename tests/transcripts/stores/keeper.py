"""Runs a server for as long as the process that asked for it lives: `keeper.py FOLDER SIGNAL OWNER COMMAND…`.

Tells the server's process id on stdout. When stdin ends, however that process ended, the server is ended with
SIGNAL and FOLDER is removed; when the server ends by itself, so does this, and FOLDER stays. OWNER is empty,
or two numbers: whom it runs as. Run with the bare interpreter.
"""

import os
import shutil
import signal
import subprocess
import sys
import threading


def main() -> None:
    folder, how, owner, *command = sys.argv[1:]
    user, _, group = owner.partition(":")
    # Ctrl-C is for the test run, which then ends this in its own way.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    with open(os.path.join(folder, "log"), "ab") as log:  # noqa: PTH118, PTH123 - it must start fast
        server = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            cwd=folder,
            user=int(user) if user else None,
            group=int(group) if group else None,
            extra_groups=[] if user else None,
        )
    os.write(1, b"%d\n" % server.pid)

    is_ending = threading.Event()

    def wait() -> None:
        server.wait()
        if not is_ending.is_set():
            os._exit(0)

    threading.Thread(target=wait, daemon=True).start()
    while os.read(0, 4096):
        pass
    is_ending.set()
    try:
        server.send_signal(int(how))
        server.wait(5)
    except subprocess.TimeoutExpired:
        server.kill()
        server.wait()
    finally:
        shutil.rmtree(folder, ignore_errors=True)
        os._exit(0)


if __name__ == "__main__":
    main()
