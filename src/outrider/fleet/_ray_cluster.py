"""Owns the connection of this process to a Ray cluster, and what Ray's own errors mean for an attempt.

Does not know what the cluster is used for.
"""

from __future__ import annotations

import logging
import os
from typing import TYPE_CHECKING, Any, Final

import anyio

from outrider._threads import run_sync
from outrider.errors import OptionsError
from outrider.fleet._errors import ClusterNotFound, WorkerLost
from outrider.options._readers import fault, text
from outrider.redaction import preview

if TYPE_CHECKING:
    from outrider.errors import OutriderError

__all__ = ["address_of", "connect", "lost_by"]

_WORDS: Final = ("auto", "local")
_CLIENT: Final = "ray://"


def address_of(address: object) -> str | None:
    """An address as it is kept. Raises `OptionsError` for what is none."""
    if address is None:
        return None
    given = text("`address`", address)
    if given in _WORDS:
        return given
    if given.startswith(_CLIENT):
        raise OptionsError(
            f"`address` is {given!r}, and Ray's client is not supported",
            hint="Run on a node of the cluster, with address='auto', or give the cluster's own 'host:port'.",
        )
    host, _, port = given.rpartition(":")
    if not host or not port.isdecimal():
        raise fault("`address`", "'auto', 'local' or 'host:port'", given, "Ray's own port is 6379.")
    return given


async def connect(ray: Any, address: str | None, timeout: float) -> bool:  # noqa: ANN401 - a module
    """Connect this process, if it is not connected yet; whether it was done here.

    Raises `ClusterNotFound` within the timeout.
    """
    if ray.is_initialized():
        known = ray.get_runtime_context().gcs_address
        if address not in (None, "auto", known):
            raise OptionsError(
                f"this process is connected to the cluster at {known!r} already, not to {address!r}",
                hint="Call `ray.shutdown()` before, or leave `address` out.",
            )
        return False
    target = address or os.environ.get("RAY_ADDRESS") or None
    if target is not None and target not in _WORDS:
        # Ray itself would try for two minutes, and end the whole process a minute later.
        await _reach(address_of(target) or "", timeout)
    # It warns of what a thread other than the main one cannot do, and nobody needs.
    fields: dict[str, object] = {"log_to_driver": False, "logging_level": logging.ERROR}
    if target == "local":
        fields["include_dashboard"] = False
    try:
        await run_sync(lambda: ray.init(address=target, **fields))
    except (ConnectionError, RuntimeError, ValueError) as error:
        raise ClusterNotFound(target or "", preview(str(error))) from error
    return True


async def _reach(address: str, timeout: float) -> None:
    host, _, port = address.rpartition(":")
    try:
        with anyio.fail_after(timeout):
            stream = await anyio.connect_tcp(host.strip("[]"), int(port))
            await stream.aclose()
    except (OSError, TimeoutError) as error:
        reason = str(error) or f"no answer within {timeout:g} s"
        raise ClusterNotFound(address, reason) from error


def lost_by(error: Exception, worker: str) -> OutriderError:
    """What an error of Ray's means for the attempt whose worker this was."""
    from ray import exceptions

    told = preview(str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__)
    if isinstance(error, exceptions.RuntimeEnvSetupError):
        return OptionsError(
            f"the workers' environment could not be made: {preview(str(error))}", hint="Check `runtime_env`."
        )
    if isinstance(error, exceptions.RayTaskError) and not isinstance(error, exceptions.TaskCancelledError):
        return OptionsError(
            f"a worker cannot run Outrider: {preview(str(error).strip().splitlines()[-1])}",
            hint="Install the same version of `outrider[ray]` on all nodes, or name it in `runtime_env`.",
        )
    return WorkerLost(worker, f"{type(error).__name__}: {told}")
