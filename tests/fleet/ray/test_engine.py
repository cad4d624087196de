"""What cannot work on a cluster is said before anything is sent there."""

from __future__ import annotations

import socket
import sys
from pathlib import Path
from typing import Any, cast

import anyio
import pytest

import outrider
from outrider import fleet
from outrider.errors import OptionsError
from outrider.fleet import ClusterNotFound, RayEngine, Restart, Shared, Task

pytest.importorskip("ray")

pytestmark = pytest.mark.anyio
ONE_LOOP = pytest.mark.parametrize("anyio_backend", ["asyncio"])


@ONE_LOOP
async def test_a_cluster_that_cannot_be_reached(monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        for engine in (RayEngine(address), RayEngine()):
            monkeypatch.setenv("RAY_ADDRESS", address)
            with anyio.fail_after(20), pytest.raises(ClusterNotFound) as caught:
                await fleet.map(["Go."], engine=engine)
            assert caught.value.address == address
            assert "ray status" in str(caught.value)


@ONE_LOOP
async def test_without_ray(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ray", cast("Any", None))
    with pytest.raises(OptionsError, match=r"pip install 'outrider\[ray\]'"):
        await RayEngine("local").open(Shared())


@pytest.mark.parametrize("anyio_backend", ["trio"])
async def test_on_trio() -> None:
    with pytest.raises(OptionsError, match="asyncio only"):
        await RayEngine("local").open(Shared())


@ONE_LOOP
@pytest.mark.parametrize(
    "shared, name",
    [
        pytest.param({"pool": object()}, "`pool`", id="pool"),
        pytest.param({"restart": Restart(resend=lambda _: True)}, "`restart.resend`", id="resend"),
    ],
)
async def test_what_is_of_this_process_alone(shared: dict[str, Any], name: str) -> None:
    with pytest.raises(OptionsError, match=name):
        await RayEngine("local").open(Shared(**shared))


@ONE_LOOP
@pytest.mark.parametrize("address", ["ray://head:10001", "head", "head:port", ""])
async def test_addresses_that_are_none(address: str) -> None:
    with pytest.raises(OptionsError, match="`address`"):
        RayEngine(address)


@ONE_LOOP
@pytest.mark.parametrize(
    "runtime_env, place",
    [
        pytest.param({"env_vars": {"API_KEY": "x"}}, "'API_KEY'", id="variable"),
        pytest.param({"pip": ["git+https://me:hunter2@host/x"]}, "`runtime_env`", id="url"),
    ],
)
async def test_secrets_in_the_environment_of_tasks(runtime_env: dict[str, Any], place: str) -> None:
    with pytest.raises(OptionsError, match=place) as caught:
        RayEngine(runtime_env=runtime_env)
    assert "hunter2" not in str(caught.value)


@ONE_LOOP
async def test_options_are_checked_before_the_start(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Those of the run, and of each task, which can be known then."""
    import ray

    monkeypatch.setattr(ray, "init", lambda **_: pytest.fail("it was started"))
    with pytest.raises(OptionsError, match="`stderr`"):
        await fleet.map(["Go."], outrider.Options(stderr=print), engine=RayEngine("local"))
    tasks: list[str | Task] = ["Go.", Task("Go.", options={"env": {"MY_TOKEN": "hunter2"}})]
    with pytest.raises(OptionsError, match=r"`tasks\[1\]`: `env` has 'MY_TOKEN'") as caught:
        await fleet.map(tasks, engine=RayEngine("local"), journal=tmp_path / "run.db")
    assert "hunter2" not in str(caught.value)
    assert b"hunter2" not in (tmp_path / "run.db").read_bytes()
