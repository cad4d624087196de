"""Servers for tests, each on a free port of this machine, in a folder of its own: PostgreSQL, Redis, S3.

One of each runs for a test process, from its first use on, and ends with it, however it ends. Tests never use
a server that was there before: what they do to one would be done to somebody's data. Does not install them:
`scripts/test_servers.py` does.
"""

from __future__ import annotations

import atexit
import os
import pwd
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from contextlib import closing, suppress
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

from scripts.test_servers import postgres_folder, redis_program

__all__ = [
    "S3",
    "Postgres",
    "Redis",
    "Server",
    "postgres",
    "redis",
    "s3",
    "started_postgres",
    "started_redis",
]

KEEPER = (sys.executable, "-I", "-S", str(Path(__file__).with_name("keeper.py")))
STARTS = 3
"""A free port may be taken by another program before the server takes it."""
SECONDS = 30.0


class Server:
    """A server that can be killed, stopped and started again."""

    name = ""
    end_by = signal.SIGKILL
    host = "127.0.0.1"

    def __init__(self) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix=f"outrider-{self.name}-"))
        self.port = 0
        self.pid = 0
        self._keeper: subprocess.Popen[bytes] | None = None
        atexit.register(self.end)

    # What a server has to say.

    owner: tuple[int, int] | None = None
    """The user and the group that it runs as, if they are others than of the tests."""

    def command(self) -> list[str]:
        raise NotImplementedError

    def is_ready(self) -> bool:
        raise NotImplementedError

    # What a test does.

    def start(self) -> None:
        """Start it, on the port that it had."""
        owner = "{}:{}".format(*self.owner) if self.owner else ""
        for _ in range(STARTS):
            port, self.port = self.port, self.port or free_port()
            self._keeper = subprocess.Popen(
                [*KEEPER, str(self.folder), str(int(self.end_by)), owner, *self.command()],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                start_new_session=True,
            )
            assert self._keeper.stdout is not None
            self.pid = int(self._keeper.stdout.readline())
            if self._wait_ready():
                return
            self.port = port
        raise RuntimeError(f"{self.name} does not start: {self.log()}")

    def _wait_ready(self) -> bool:
        assert self._keeper is not None
        until = time.monotonic() + SECONDS
        while time.monotonic() < until:
            if self.is_ready():
                return True
            if self._keeper.poll() is not None:
                return False
            # Not in a test: there is nothing else to wait for.
            time.sleep(0.01)
        return False

    def kill(self) -> None:
        """As if the machine had lost its power, but that its disk is written."""
        self._signal(signal.SIGKILL)
        assert self._keeper is not None
        self._keeper.wait(SECONDS)
        self._close_pipes()

    def stop_answering(self) -> None:
        self._signal(signal.SIGSTOP)

    def go_on(self) -> None:
        self._signal(signal.SIGCONT)

    def restart(self) -> None:
        self.kill()
        self.start()

    def end(self) -> None:
        if self._keeper is not None:
            self._close_pipes()
            self._keeper.wait(SECONDS)
        shutil.rmtree(self.folder, ignore_errors=True)

    def log(self) -> str:
        with suppress(OSError):
            return (self.folder / "log").read_text(errors="replace")[-2000:]
        return ""

    def _close_pipes(self) -> None:
        assert self._keeper is not None
        for pipe in (self._keeper.stdin, self._keeper.stdout):
            if pipe is not None:
                pipe.close()

    def _signal(self, number: signal.Signals) -> None:
        # The server itself first: it makes no new children then.
        for pid in (self.pid, *children_of(self.pid)):
            with suppress(ProcessLookupError):
                os.kill(pid, number)


class Postgres(Server):
    name = "postgres"
    # Ends at once, and leaves no shared memory behind.
    end_by = signal.SIGQUIT
    password = "made-up-word"

    def __init__(self, programs: Path) -> None:
        super().__init__()
        self.programs = programs
        if os.geteuid() == 0:
            # It refuses to run as root.
            users = {entry.pw_name: entry for entry in pwd.getpwall()}
            user = users.get("postgres") or users["nobody"]
            self.owner = user.pw_uid, user.pw_gid
            os.chown(self.folder, *self.owner)
        self._make_cluster()

    def _make_cluster(self) -> None:
        words = self.folder / "password"
        words.write_text(self.password)
        words.chmod(0o644)
        options = ["--username=outrider", "--auth=scram-sha-256", f"--pwfile={words}", "--no-sync"]
        subprocess.run(
            [
                str(self.programs / "initdb"),
                f"--pgdata={self.folder / 'data'}",
                *options,
                "--encoding=UTF8",
                "--locale=C",
            ],
            cwd=self.folder,
            user=self.owner[0] if self.owner else None,
            group=self.owner[1] if self.owner else None,
            extra_groups=[] if self.owner else None,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            check=True,
            timeout=SECONDS,
        )

    def command(self) -> list[str]:
        settings = {
            "listen_addresses": self.host,
            "port": str(self.port),
            "unix_socket_directories": "",
            "shared_buffers": "16MB",
            "max_connections": "60",
        }
        given = [word for name, value in settings.items() for word in ("-c", f"{name}={value}")]
        return [str(self.programs / "postgres"), "-D", str(self.folder / "data"), *given]

    def is_ready(self) -> bool:
        import psycopg

        try:
            psycopg.connect(self.url(), connect_timeout=2).close()
        except psycopg.OperationalError:
            return False
        return True

    def url(self, *, port: int = 0, password: str = password, database: str = "postgres") -> str:
        return f"postgresql://outrider:{password}@{self.host}:{port or self.port}/{database}"


class Redis(Server):
    name = "redis"
    password = "made-up-word"

    def __init__(self, program: Path, *, is_cluster: bool = False) -> None:
        super().__init__()
        self.program, self.is_cluster = program, is_cluster

    def command(self) -> list[str]:
        settings = {
            "port": str(self.port),
            "bind": self.host,
            "dir": str(self.folder),
            "appendonly": "yes",
            "appendfsync": "always",
            "save": "",
            "requirepass": self.password,
        }
        if self.is_cluster:
            settings |= {"cluster-enabled": "yes", "cluster-port": str(free_port())}
        return [
            str(self.program),
            *(word for name, value in settings.items() for word in (f"--{name}", value)),
        ]

    def is_ready(self) -> bool:
        driver = import_module("redis")
        try:
            with closing(self.client()) as client:
                client.ping()
                if not self.is_cluster:
                    return True
                told: bytes = client.execute_command("CLUSTER", "INFO")
                if b"cluster_slots_assigned:0" in told:
                    client.execute_command("CLUSTER", "ADDSLOTSRANGE", "0", "16383")
                return b"cluster_state:ok" in told
        except driver.RedisError:
            return False

    def client(self) -> Any:
        return import_module("redis").Redis(port=self.port, password=self.password, socket_timeout=2)

    def url(self, *, port: int = 0, password: str = password, database: int = 0) -> str:
        return f"redis://:{password}@{self.host}:{port or self.port}/{database}"


class S3(Server):
    """Moto's server: all that is in it ends with it."""

    name = "s3"
    bucket = "outrider-tests"

    def command(self) -> list[str]:
        return [sys.executable, "-m", "moto.server", "-H", self.host, "-p", str(self.port)]

    def is_ready(self) -> bool:
        try:
            socket.create_connection((self.host, self.port), 2).close()
        except OSError:
            return False
        return True

    def start(self) -> None:
        super().start()
        self.client().create_bucket(Bucket=self.bucket)

    def client(self) -> Any:
        return import_module("boto3").client(
            "s3",
            endpoint_url=self.endpoint(),
            region_name="us-east-1",
            aws_access_key_id="made-up",
            aws_secret_access_key="made-up-word",
        )

    def endpoint(self, *, port: int = 0) -> str:
        return f"http://{self.host}:{port or self.port}"

    def url(self, *, port: int = 0, bucket: str = bucket, prefix: str = "") -> str:
        where = prefix or uuid4().hex
        return f"s3://{bucket}/{where}?endpoint={self.endpoint(port=port)}&region=us-east-1&path_style=1"


@cache
def started_postgres() -> Postgres | None:
    programs = postgres_folder()
    if programs is None:
        return None
    server = Postgres(programs)
    server.start()
    return server


@cache
def started_redis(*, is_cluster: bool = False) -> Redis | None:
    program = redis_program()
    if program is None:
        return None
    server = Redis(program, is_cluster=is_cluster)
    server.start()
    return server


@cache
def s3() -> S3:
    server = S3()
    server.start()
    return server


def postgres() -> Postgres:
    """A running PostgreSQL; skips the test if it is not installed."""
    server = started_postgres()
    if server is None:
        pytest.skip("PostgreSQL is not here: as root, `make test APT=yes` installs it")
    return server


def redis(*, is_cluster: bool = False) -> Redis:
    """A running Redis; skips the test if it is not installed."""
    server = started_redis(is_cluster=is_cluster)
    if server is None:
        pytest.skip("Redis is not here: as root, `make test APT=yes` installs it")
    return server


def free_port() -> int:
    with closing(socket.socket()) as one:
        one.bind((Server.host, 0))
        return int(one.getsockname()[1])


def children_of(pid: int) -> list[int]:
    with suppress(OSError):
        return [int(word) for word in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    return []
