"""What several users in one process share: one set of connections for each address.

A store, a ledger or a journal has a `Share` of a `Resource`. The first one that needs it makes it, and the
last one that lets go of it closes it. What is idle for long is closed before. Does not know what it is.
"""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from contextlib import suppress
from threading import Event, Lock, Thread
from typing import TYPE_CHECKING, Final, Generic, Protocol, TypeVar
from weakref import WeakSet, WeakValueDictionary

from outrider._threads import start_thread
from outrider.errors import LaunchError

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable

IDLE_SECONDS: Final = 60.0
"""How long a connection may be idle before it is closed."""


class Resource(ABC):
    """Connections to one address. Several threads use it at once."""

    def __init__(self) -> None:
        self.users: Final[WeakSet[Share[Resource]]] = WeakSet()
        _state.made.add(self)

    @property
    @abstractmethod
    def has_idle(self) -> bool:
        """Whether anything is open that nobody uses."""

    @abstractmethod
    def close_idle(self, seconds: float) -> None:
        """Close what nobody has used for so long."""

    @abstractmethod
    def close(self) -> None:
        """Close what is idle, and the rest when it is not in use any more."""

    def before_fork(self) -> None:  # noqa: B027 - most have nothing to do
        """Called in a process that is about to be forked."""

    def after_fork(self) -> None:  # noqa: B027 - as above
        """Called in the parent process after a fork."""

    def forget(self) -> None:  # noqa: B027 - as above
        """Called in the child process after a fork, which makes resources of its own: to close these would
        disturb the parent."""


_R_co = TypeVar("_R_co", bound=Resource, covariant=True)


class Share(Generic[_R_co]):
    """One user's part of a resource. It is got by the first use, and again by one after it was let go."""

    def __init__(self, key: Hashable, make: Callable[[], _R_co]) -> None:
        """Those with the same key share what the first of them makes. `make` must not wait for anything."""
        self.key: Final = key
        self._make = make
        self._resource: _R_co | None = None

    def get(self) -> _R_co:
        resource = self._resource
        return self._take() if resource is None else resource

    def let_go(self) -> None:
        """The last one closes it. One that is dropped lets go, too."""
        with _state.lock:
            resource, self._resource = self._resource, None
            if resource is None:
                return
            resource.users.discard(self)
            if resource.users:
                return
            if _state.resources.get(self.key) is resource:
                del _state.resources[self.key]
        resource.close()
        _state.is_less.set()

    def forget(self) -> None:
        self._resource = None

    def _take(self) -> _R_co:
        with _state.lock:
            if self._resource is None:
                found = _state.resources.get(self.key)
                made = self._make() if found is None else found
                _state.resources[self.key] = made
                made.users.add(self)
                # The key says which kind it is.
                self._resource = made  # type: ignore[assignment]  # pyright: ignore[reportAttributeAccessIssue]
            assert self._resource is not None
            return self._resource


# Idle connections.


def close_later() -> None:
    """See to it that what is idle from now on is closed in time."""
    if _state.sweeper is None:
        with _state.lock, suppress(LaunchError):
            if _state.sweeper is None:
                _state.sweeper = start_thread(_sweep, name="outrider-idle-connections")


def _sweep() -> None:
    while True:
        _state.is_less.wait(IDLE_SECONDS / 2)
        _state.is_less.clear()
        close_idle(IDLE_SECONDS)
        with _state.lock:
            # First: who makes something idle after the look has to see that nobody will close it.
            sweeper, _state.sweeper = _state.sweeper, None
            if not any(resource.has_idle for resource in _state.resources.values()):
                return
            _state.sweeper = sweeper


def close_idle(seconds: float) -> None:
    """Close what was not used for so long, of all resources."""
    with _state.lock:
        resources = list(_state.resources.values())
    for resource in resources:
        resource.close_idle(seconds)


# Forks.


class Forked(Protocol):
    """What has to know that it is in a new process."""

    def _begin_in_child(self) -> None: ...


class _State:
    """All that there is in this process."""

    def __init__(self) -> None:
        self.lock = Lock()
        self.resources: WeakValueDictionary[Hashable, Resource] = WeakValueDictionary()
        self.made: WeakSet[Resource] = WeakSet()
        """Also those that nobody shares any more, which may be in use."""
        self.forked: WeakSet[Forked] = WeakSet()
        self.sweeper: Thread | None = None
        self.is_less = Event()
        """Wakes the sweeper, which may have nothing left to do."""
        self._told: tuple[Resource, ...] = ()
        self._inherited: list[Resource] = []
        """Kept: what is dropped in a child would tell of connections that were not closed."""

    def before_fork(self) -> None:
        # Held until the fork is over: one at a time, and nothing is made meanwhile.
        self.lock.acquire()
        self._told = tuple(self.made)
        for resource in self._told:
            resource.before_fork()

    def after_in_parent(self) -> None:
        try:
            for resource in self._told:
                resource.after_fork()
        finally:
            self._told = ()
            self.lock.release()

    def after_in_child(self) -> None:
        self.lock = Lock()
        self.sweeper, self.is_less = None, Event()
        self.resources, self.made = WeakValueDictionary(), WeakSet()
        for resource in self._told:
            for share in list(resource.users):
                share.forget()
            resource.forget()
        self._inherited += self._told
        self._told = ()
        for one in list(self.forked):
            one._begin_in_child()  # pyright: ignore[reportPrivateUsage]


_state = _State()


def tell_of_forks(one: Forked) -> None:
    """Have it told if this process is a new one."""
    with _state.lock:
        _state.forked.add(one)


if hasattr(os, "register_at_fork"):
    os.register_at_fork(
        before=_state.before_fork,
        after_in_parent=_state.after_in_parent,
        after_in_child=_state.after_in_child,
    )
