"""Owns `check_transport`: whether a transport keeps to the contract of one.

The clauses are in `_transport_clauses`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from outrider.errors import OptionsError
from outrider.testing._contract import ContractBroken, check_clauses
from outrider.testing._transport_bench import Bench
from outrider.testing._transport_clauses import ECHOING, FAILING, STUCK

if TYPE_CHECKING:
    from outrider.testing._contract import Make
    from outrider.transports import Transport

__all__ = ["check_transport"]


async def check_transport(
    make: Make[Transport],
    *,
    failing: Make[Transport] | None = None,
    stuck: Make[Transport] | None = None,
    deadline: float = 10.0,
) -> list[str]:
    """Check a transport of yours against the contract of `Transport`; gives the clauses that were checked.

    `make` makes a new one, not connected yet, that leads to an echo: what is sent comes back as it is, and
    when the input ends, so does the output, without an error. The program `cat` is one. Two more ends, each
    of them optional, show more: `failing` says something and then fails, as a program does that exits with an
    error; `stuck` does not read, and says nothing.

        await check_transport(lambda: ProcessTransport(Command(("cat",))))

    Where a server or a task has to be there for it, `make` may give an async context manager of a transport.
    Runs on asyncio and trio; `anyio.run(check_transport, make)` runs it outside of a test. `deadline` bounds
    each clause, and so must be more than `close` takes.

    Raises `ContractBroken`, an `AssertionError`, with every clause that is not kept and what was seen.
    """
    if not deadline > 0:
        raise OptionsError(f"`deadline` is {deadline}; give a number of seconds")
    bench = Bench(make, deadline)
    async with bench.made() as transport:
        subject = type(transport).__name__
    broken = await check_clauses(ECHOING, bench, bench.told, deadline, is_first_vital=True)
    checked = [clause.text for clause in ECHOING]
    for clauses, other in ((FAILING, failing), (STUCK, stuck)):
        if other is not None:
            bench = Bench(other, deadline)
            broken += await check_clauses(clauses, bench, bench.told, deadline, is_first_vital=False)
            checked += [clause.text for clause in clauses]
    if broken:
        raise ContractBroken(subject, broken, len(checked))
    return checked
