"""Whether work grows with the length of a text, and not with its square."""

from __future__ import annotations

from collections.abc import Callable
from time import process_time


def assert_linear(work: Callable[[str], object], text: str) -> None:
    """Four times the text may take ten times as long: sixteen times, were it quadratic.

    What takes no time is not compared: the clock is coarser than that.
    """
    quarter = text[: len(text) // 4]
    assert _seconds(work, text) < 10 * max(_seconds(work, quarter), 0.005)


def _seconds(work: Callable[[str], object], text: str) -> float:
    """The best of a few, each with a text of its own, so that nothing is remembered."""
    taken: list[float] = []
    for number in range(3):
        began = process_time()
        work(f"{text}{number}")
        taken.append(process_time() - began)
    return min(taken)
