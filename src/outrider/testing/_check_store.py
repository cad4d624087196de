"""Owns `check_store`: whether a session store keeps to the contract of one.

The clauses are in `_store_clauses` and `_store_strict_clauses`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, TypeVar

from outrider.errors import OptionsError
from outrider.testing._contract import Clauses, ContractBroken, check_clauses
from outrider.testing._store_bench import ANOTHER, Bench, make_key
from outrider.testing._store_clauses import CLAUSES
from outrider.testing._store_strict_clauses import STRICT_CLAUSES
from outrider.transcripts import offers

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping
    from contextlib import AbstractAsyncContextManager

    from outrider.testing._contract import Make
    from outrider.transcripts import SessionKey, SessionStore

__all__ = ["ALL_CLAUSES", "check_store"]

S = TypeVar("S", bound="SessionStore")

ALL_CLAUSES: Final[Mapping[tuple[str, ...], Clauses[Bench]]] = {**CLAUSES, **STRICT_CLAUSES}


async def check_store(
    make: Make[S],
    *,
    again: Callable[[S], S | Awaitable[S] | AbstractAsyncContextManager[S]] | None = None,
    deadline: float = 30.0,
) -> list[str]:
    """Check a store of yours against the contract of `SessionStore`; gives the clauses that were checked.

        await check_store(MemoryStore)

    `make` makes a store, anew for each clause; it need not be empty, because all keys are new ones. It may be
    asynchronous, or give an async context manager of a store, where something has to be put away afterwards:
    what is stored here is not removed. Methods that are optional, and not there, are not checked.

    Some clauses are about two objects on the same data, as two processes have them. If `make` makes an empty
    store each time, give `again`, which is called with a store and makes another one on its data:

        await check_store(MemoryStore, again=MemoryStore)

    Without it, and if what one store of `make` gets is not in the next, these are left out.

    Runs on asyncio and trio; `anyio.run(check_store, make)` runs it outside of a test. `deadline` bounds each
    clause.

    Raises `ContractBroken`, an `AssertionError`, with every clause that is not kept and what was seen.
    """
    if not deadline > 0:
        raise OptionsError(f"`deadline` is {deadline}; give a number of seconds")
    bench = Bench(make, again)
    async with bench.made() as store:
        subject = type(store).__name__
        has = {method for method in _PROBES if await _is_there(store, method)}
    # Not before the rest is known to be there: others need not be ready for a second one.
    if "append_batch" in has and await bench.can_make_two():
        has.add(ANOTHER)
    clauses: Clauses[Bench] = Clauses(
        clause for needed, all_of_it in ALL_CLAUSES.items() if has.issuperset(needed) for clause in all_of_it
    )
    broken = await check_clauses(clauses, bench, bench.told, deadline, is_first_vital=True)
    if broken:
        raise ContractBroken(subject, broken, len(clauses))
    return [clause.text for clause in clauses]


async def _is_there(store: SessionStore, method: str) -> bool:
    """Whether an optional method can be used: it may be inherited from another contract's text."""
    if not offers(store, method):
        return False
    try:
        await _PROBES[method](store, make_key())
    except NotImplementedError:
        return False
    except Exception:  # noqa: BLE001 - it is there; what is wrong with it is seen later
        return True
    return True


_PROBES: Final[Mapping[str, Callable[[SessionStore, SessionKey], Awaitable[object]]]] = {
    "list_sessions": lambda store, key: store.list_sessions(key["project_key"]),
    "list_session_summaries": lambda store, key: store.list_session_summaries(key["project_key"]),
    "delete": lambda store, key: store.delete(key),
    "list_subkeys": lambda store, key: store.list_subkeys(key),
    "append_batch": lambda store, key: store.append_batch(key, [], "a batch"),
    "list_projects": lambda store, key: store.list_projects(),
    "find_session": lambda store, key: store.find_session(key["session_id"]),
    "acquire_lease": lambda store, key: store.acquire_lease(key, "check_store", 0.1),
    "renew_lease": lambda store, key: store.renew_lease(key, "no lease", 0.1),
    "release_lease": lambda store, key: store.release_lease(key, "no lease"),
}
"""The optional methods, and how to see whether they are there."""
