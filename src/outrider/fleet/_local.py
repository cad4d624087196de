"""Owns the engine that makes all attempts in this process, each with a child of its own.

Adds nothing to what an attempt does.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from outrider.fleet._attempting import attempt_here
from outrider.fleet._engine import Shared

if TYPE_CHECKING:
    from outrider.fleet._engine import Assignment, Attempted, Tell
    from outrider.options import Options

__all__ = ["LocalEngine"]


class LocalEngine:
    """Makes attempts here. What a task declares of memory and processors is not looked at: a `pool` with
    limits does that."""

    name: str = "local"

    def __init__(self) -> None:
        self._shared = Shared()

    def check(self, options: Options) -> None:
        pass

    async def open(self, shared: Shared) -> None:
        self._shared = shared

    async def attempt(self, work: Assignment, tell: Tell) -> Attempted:
        return await attempt_here(work, self._shared, tell)

    async def close(self) -> None:
        pass
