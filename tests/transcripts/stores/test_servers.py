"""The servers of the tests end with the process that started them, and none of theirs is anybody else's."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from scripts import test_servers as installing
from tests.transcripts.stores import servers

STARTER = """
import sys, time
sys.path.insert(0, {root!r})
from tests.transcripts.stores import servers
server = servers.redis()
print(server.pid, server.folder, flush=True)
{then}
"""


@pytest.mark.parametrize(
    "then", ["import os, signal; os.kill(os.getpid(), signal.SIGKILL)", "os._exit(1)", ""]
)
def test_a_server_ends_with_the_process_that_started_it(then: str, pytestconfig: pytest.Config) -> None:
    servers.redis()
    code = STARTER.format(
        root=str(pytestconfig.rootpath), then=then.replace("os._exit", "import os; os._exit")
    )
    # Whoever keeps the server has the same stderr: this comes back when it has ended, too.
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=False, timeout=30
    )
    pid, folder = done.stdout.split()
    assert not Path(f"/proc/{pid}").exists()
    assert not Path(folder).exists()


def test_what_is_installed_is_not_installed_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(installing, "missing", list)
    monkeypatch.setattr(installing, "install", lambda packages: pytest.fail(f"installs {packages}"))
    installing.main()


def test_where_nothing_can_be_installed_one_line_says_so(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    monkeypatch.setattr(installing, "missing", lambda: ["postgresql", "redis-server"])
    monkeypatch.setenv("PATH", str(tmp_path))
    installing.main("--apt")
    assert capsys.readouterr().out == (
        "== postgresql and redis-server: not installed (apt-get is missing); their tests are skipped\n"
    )


def test_nothing_is_installed_unasked(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(installing, "missing", lambda: ["redis-server"])
    monkeypatch.setattr(installing, "install", lambda packages: pytest.fail(f"installs {packages}"))
    installing.main()
    assert "APT=yes installs them" in capsys.readouterr().out


def test_servers_are_installed_without_being_started(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """With another apt-get, which fails the first time, as it does without lists of packages."""
    no_start, no_cluster = tmp_path / "policy-rc.d", tmp_path / "etc/createcluster.conf"
    program, calls = tmp_path / "apt-get", tmp_path / "calls"
    program.write_text(
        f"""#!/bin/sh
        echo "$@" >> {calls}
        test -x {no_start} && grep -q 'create_main_cluster = false' {no_cluster} || exit 9
        grep -q update {calls} || {{ echo 'E: no such package'; exit 100; }}
        """
    )
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    monkeypatch.setattr(installing, "missing", lambda: ["redis-server"])
    monkeypatch.setattr(installing, "NO_START", no_start)
    monkeypatch.setattr(installing, "NO_CLUSTER", no_cluster)
    monkeypatch.setattr("os.geteuid", lambda: 0)
    installing.main("--apt")
    assert capsys.readouterr().out == "== installing what tests start (redis-server)\n"
    verbs = [line.rpartition("=20 ")[2] for line in calls.read_text().splitlines()]
    wanted = "install --yes --no-install-recommends redis-server"
    assert verbs == [wanted, "update", wanted]
    assert not no_start.exists()


def test_the_programs_are_found_where_debian_has_them() -> None:
    folder = installing.postgres_folder()
    if folder is None:
        pytest.skip("PostgreSQL is not here: as root, `make test APT=yes` installs it")
    told = subprocess.run([folder / "postgres", "--version"], capture_output=True, text=True, check=True)
    assert "PostgreSQL" in told.stdout


def test_where_a_server_is_missing_one_line_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(servers, "started_postgres", lambda: None)
    monkeypatch.setattr(servers, "started_redis", lambda **_: None)
    for get, name in ((servers.postgres, "PostgreSQL"), (servers.redis, "Redis")):
        with pytest.raises(
            pytest.skip.Exception, match=f"{name} is not here: as root, `make test APT=yes` installs it"
        ):
            get()


def test_no_test_empties_a_database_or_asks_for_one_that_was_there(pytestconfig: pytest.Config) -> None:
    words = [
        "".join(word)
        for word in (("flush", "db"), ("flush", "all"), ("DROP ", "DATABASE"), ("REDIS", "_URL"))
    ]
    for path in (pytestconfig.rootpath / "tests").rglob("*.py"):
        text = path.read_text(encoding="utf-8").lower()
        assert not [word for word in words if word.lower() in text], path
