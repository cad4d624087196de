"""How many tasks run at once: fixed, or as many as is good for them."""

from __future__ import annotations

from typing import Any

import pytest

from outrider.errors import OptionsError
from outrider.fleet import Adaptive
from outrider.fleet._progress import Width, read_concurrency


def round_of(width: Width, seconds: float) -> int:
    """As many tasks as may run, each of which ends after so many seconds; gives the width after that."""
    for number in [width.begin() for _ in range(width.now)]:
        width.ended(number, seconds)
    return width.now


def test_it_doubles_in_each_round_up_to_its_maximum() -> None:
    width = Width(Adaptive(1, 20, start=3))
    assert [round_of(width, 1.0) for _ in range(4)] == [6, 12, 20, 20]


def test_it_grows_by_one_in_each_round_once_something_was_in_the_way() -> None:
    width = Width(Adaptive(1, 7, start=4))
    width.limited(width.begin())
    assert [round_of(width, 1.0) for _ in range(6)] == [3, 4, 5, 6, 7, 7]


def test_it_does_not_grow_while_tasks_take_longer_than_before() -> None:
    width = Width(Adaptive(1, 16, start=2))
    assert round_of(width, 1.0) == 4
    assert [round_of(width, 2.0) for _ in range(3)] == [4, 4, 4]
    assert round_of(width, 1.1) == 5


def test_what_was_long_ago_is_no_measure() -> None:
    width = Width(Adaptive(1, 16, start=1))
    round_of(width, 1.0)
    assert [round_of(width, 5.0) for _ in range(5)] == [2, 2, 2, 3, 4]


def test_it_halves_at_a_rate_limit_once_for_all_who_meet_it() -> None:
    width = Width(Adaptive(2, 16, start=12))
    numbers = [width.begin() for _ in range(12)]
    for number in numbers:
        width.limited(number)
    assert width.now == 6
    # Those that were begun before say nothing about this width.
    for number in numbers:
        width.ended(number, 1.0)
    assert width.now == 6
    width.limited(width.begin())
    assert width.now == 3
    width.limited(width.begin())
    width.limited(width.begin())
    assert width.now == 2


def test_a_number_is_fixed() -> None:
    width = Width(read_concurrency(5))
    width.limited(width.begin())
    assert (width.now, round_of(width, 0.1)) == (5, 5)


@pytest.mark.parametrize(
    "bounds, first",
    [(Adaptive(), 4), (Adaptive(8, 16), 8), (Adaptive(1, 2), 2), (Adaptive(1, 9, start=9), 9)],
)
def test_it_begins_in_the_middle(bounds: Adaptive, first: int) -> None:
    assert Width(bounds).now == first


@pytest.mark.parametrize(
    "make, told",
    [
        (lambda: Adaptive(9, 3), "is 9, which is over the maximum of 3"),
        (lambda: Adaptive(0), "`Adaptive.minimum`"),
        (lambda: Adaptive(1, 4, start=5), "`Adaptive.start`"),
        (lambda: read_concurrency(0), "`concurrency`"),
        (lambda: read_concurrency("8"), "or an `Adaptive`"),
        (lambda: read_concurrency(True), "or an `Adaptive`, not True"),
    ],
)
def test_what_cannot_work_is_refused(make: Any, told: str) -> None:
    with pytest.raises(OptionsError) as raised:
        make()
    assert told in str(raised.value)


def test_as_many_may_run_as_fit_where_they_run() -> None:
    width = Width(Adaptive(1, 40, 40))
    width.allow(80)
    assert width.now == 80
    width.limited(width.begin())
    assert width.now == 40
    # What a limit of the account has halved does not grow with the cluster.
    width.allow(100)
    assert width.now == 40
    width.allow(20)
    assert width.now == 20
