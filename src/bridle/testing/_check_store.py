"""Owns `check_store`: whether a session store keeps to the contract of one.

The clauses are in `_store_clauses`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from bridle.errors import OptionsError
from bridle.testing._contract import Clauses, ContractBroken, check_clauses
from bridle.testing._store_bench import Bench, make_key
from bridle.testing._store_clauses import CLAUSES
from bridle.transcripts import offers

if TYPE_CHECKING:
    from bridle.testing._contract import Make
    from bridle.transcripts import SessionStore

__all__ = ["check_store"]

_OPTIONAL: Final = ("list_sessions", "list_session_summaries", "delete", "list_subkeys")


async def check_store(make: Make[SessionStore], *, deadline: float = 30.0) -> list[str]:
    """Check a store of yours against the contract of `SessionStore`; gives the clauses that were checked.

        await check_store(MemoryStore)

    `make` makes a store, anew for each clause; it need not be empty, because all keys are new ones. It may be
    asynchronous, or give an async context manager of a store, where something has to be put away afterwards:
    what is stored here is not removed. Methods that are optional, and not there, are not checked.

    Runs on asyncio and trio; `anyio.run(check_store, make)` runs it outside of a test. `deadline` bounds each
    clause.

    Raises `ContractBroken`, an `AssertionError`, with every clause that is not kept and what was seen.
    """
    if not deadline > 0:
        raise OptionsError(f"`deadline` is {deadline}; give a number of seconds")
    bench = Bench(make)
    async with bench.made() as store:
        subject = type(store).__name__
        has = {method for method in _OPTIONAL if await _is_there(store, method)}
    clauses: Clauses[Bench] = Clauses(
        clause for needed, all_of_it in CLAUSES.items() if has.issuperset(needed) for clause in all_of_it
    )
    broken = await check_clauses(clauses, bench, bench.told, deadline, is_first_vital=True)
    if broken:
        raise ContractBroken(subject, broken, len(clauses))
    return [clause.text for clause in clauses]


async def _is_there(store: SessionStore, method: str) -> bool:
    """Whether an optional method can be used: it may be inherited from another contract's text."""
    if not offers(store, method):
        return False
    key = make_key()
    argument = key["project_key"] if method.startswith("list_session") else key
    try:
        await getattr(store, method)(argument)
    except NotImplementedError:
        return False
    except Exception:  # noqa: BLE001 - it is there; what is wrong with it is seen later
        return True
    return True
