"""The errors of many sessions: no free process, lost workers, journals in use.

What happens in one session raises the errors of `outrider.errors`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from outrider.errors import Details, OutriderError, in_seconds

if TYPE_CHECKING:
    from os import PathLike
    from typing import Unpack


class QueueFull(OutriderError):
    """`limit` callers of `tenant` already wait for a process of the pool. `retryable`: some will be served
    soon."""

    hint = "Try again later, or allow more with `queue_limit` or `max_processes`."
    retryable = True

    def __init__(self, limit: int, tenant: str = "", **details: Unpack[Details]) -> None:
        super().__init__(**details)
        self.limit, self.tenant = limit, tenant
        who = f" (tenant {tenant!r})" if tenant else ""
        waiting = "1 caller already waits" if limit == 1 else f"{limit} callers already wait"
        self._what = f"{waiting} for a process of the pool{who}"
        if not limit:
            self._what = f"no process of the pool is free, and nobody may wait for one{who}"


class QueueTimedOut(OutriderError, TimeoutError):
    """No process of the pool was free for `tenant` within `timeout` seconds. `retryable`: nothing was
    started."""

    hint = "Try again later, or allow more with `queue_seconds`, `max_processes` or `max_memory`."
    retryable = True

    def __init__(self, timeout: float | None = None, tenant: str = "", **details: Unpack[Details]) -> None:
        super().__init__(**details)
        self.timeout, self.tenant = timeout, tenant
        who = f" for tenant {tenant!r}" if tenant else ""
        self._what = f"no process of the pool was free{who}{in_seconds(' within', timeout) or ' in time'}"


class PoolClosed(OutriderError):
    """The pool hands out no more processes: it is closed, or about to be."""

    hint = "Open a new pool; close one only when nobody needs it any more."
    _what = "the pool is closed"


class WorkerLost(OutriderError):
    """The `worker` that ran an attempt at a task is gone, for the `reason` given. `retryable`: another worker
    can make another attempt."""

    hint = "Make another attempt; resume its session by the id, if there is one."
    retryable = True

    def __init__(self, worker: str = "", reason: str = "", **details: Unpack[Details]) -> None:
        super().__init__(**details)
        self.worker, self.reason = worker, reason
        self._what = _because(f"the worker{f' {worker!r}' if worker else ''} is gone", reason)


class ClusterNotFound(OutriderError):
    """The cluster at `address` cannot be used, for the `reason` given: it does not answer, for example."""

    hint = "Check the address and that the cluster runs: `ray status` on one of its nodes tells."

    def __init__(self, address: str = "", reason: str = "", **details: Unpack[Details]) -> None:
        super().__init__(**details)
        self.address, self.reason = address, reason
        self._what = _because(f"the cluster{f' at {address!r}' if address else ''} cannot be used", reason)


class JournalBusy(OutriderError):
    """Another runner, the `holder`, uses the journal `path`. `retryable`: it will end."""

    hint = "Wait for it or stop it; `outrider fleet status` may look at the journal meanwhile."
    retryable = True

    def __init__(self, path: str | PathLike[str], holder: str = "", **details: Unpack[Details]) -> None:
        super().__init__(**details)
        self.path, self.holder = str(path), holder
        self._what = f"the journal {self.path!r} is in use" + (f" by {holder}" if holder else "")


class JournalInvalid(OutriderError):
    """The file or database `path` cannot be used as a journal, for the `reason` given. `retryable` tells
    whether that may pass: a full disk, a server that restarts."""

    hint = "Give the path of a journal, or a new path to begin one."

    def __init__(
        self,
        path: str | PathLike[str],
        reason: str = "",
        *,
        retryable: bool = False,
        **details: Unpack[Details],
    ) -> None:
        super().__init__(**details)
        self.path, self.reason, self.retryable = str(path), reason, retryable
        self._what = _because(f"{self.path!r} cannot be used as a journal", reason)


class WorkspaceFailed(OutriderError):
    """The folder `path` of a task could not be made or removed, for the `reason` given."""

    hint = "Check the source of the workspace, the space on the disk, and who may write there."

    def __init__(self, path: str | PathLike[str], reason: str = "", **details: Unpack[Details]) -> None:
        super().__init__(**details)
        self.path, self.reason = str(path), reason
        self._what = _because(f"the workspace {self.path!r} could not be made or removed", reason)


def _because(what: str, reason: str) -> str:
    return f"{what}: {reason}" if reason else what
