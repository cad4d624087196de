"""Transition tables: what they look like, how they are followed, how they are drawn.

Knows no particular table; those stand beside the code that follows them.
"""

from __future__ import annotations

from enum import Enum
from typing import Generic, TypeVar

S = TypeVar("S", bound=Enum)
T = TypeVar("T", bound=Enum)


class Table(Generic[S, T]):
    """A state machine as data: for each state, where each signal leads. Others change nothing."""

    def __init__(self, initial: S, transitions: dict[S, dict[T, S]]) -> None:
        self.initial = initial
        self.transitions = transitions

    def next(self, state: S, signal: T) -> S:
        """The state after the signal."""
        return self.transitions[state].get(signal, state)

    def is_final(self, state: S) -> bool:
        """Whether nothing leads away from the state."""
        return not self.transitions[state]

    def diagram(self) -> str:
        """The table as a Mermaid state diagram, for the documentation."""
        lines = ["stateDiagram-v2", f"    [*] --> {self.initial.value}"]
        for state, row in self.transitions.items():
            targets: dict[S, list[str]] = {}
            for signal, target in row.items():
                targets.setdefault(target, []).append(signal.value)
            for target, signals in targets.items():
                lines.append(f"    {state.value} --> {target.value}: {', '.join(signals)}")
            if not row:
                lines.append(f"    {state.value} --> [*]")
        return "\n".join(lines)
