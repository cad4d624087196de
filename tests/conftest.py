"""Set-up for all tests."""

from __future__ import annotations

import gc
import os
import re
import signal
import sys
from collections.abc import Generator
from itertools import count
from typing import Any

import pytest
from hypothesis import HealthCheck, settings

from tests import real_program

# Time is the deadline of the whole test (pytest-timeout), never of one example: machines are noisy. The same
# examples each time: who changes something is told of what it broke, the thorough profile looks for the rest.
settings.register_profile(
    "default",
    deadline=None,
    max_examples=30,
    derandomize=True,
    database=None,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.register_profile(
    "thorough", parent=settings.get_profile("default"), max_examples=5000, derandomize=False
)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "default"))


# Each worker would compile all tests anew, and each child that a test starts all of Outrider: minutes.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
sys.dont_write_bytecode = False

# Under `nohup`, and in the background of a shell, these are ignored, by children too. Some are ended by them.
signal.signal(signal.SIGINT, signal.default_int_handler)
if hasattr(signal, "SIGHUP"):
    signal.signal(signal.SIGHUP, signal.SIG_DFL)


# Where processes, tasks and loops begin and end: each case has to be seen on every event loop.
LOOPS_MATTER = ("test_abandoning", "test_background", "test_cancelling", "test_lifecycle", "test_soak")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--every-loop", action="store_true", help="run each case of each test on every event loop"
    )


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    for item in items:
        real_program.mark(item)
    # Who names tests gets them.
    is_named = config.option.keyword or any("::" in name for name in config.args)
    if not config.option.every_loop and not is_named:
        _share_among_loops(config, items)
    # The workers of pytest-xdist must collect the same names.
    moving = [item.nodeid for item in items if re.search(r"\bat 0x[0-9a-f]+|\bid='\d+'", item.nodeid)]
    if moving:
        raise pytest.UsageError(f"tests are named by addresses, which differ from run to run: {moving}")


def _share_among_loops(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Of a test with several cases, leave each to one event loop, in turn. Each test still runs on all."""
    tests: dict[str, dict[tuple[int, ...], list[pytest.Item]]] = {}
    for item in items:
        call: Any = getattr(item, "callspec", None)
        if call is None or "anyio_backend" not in call.params:
            continue
        if item.path.stem not in LOOPS_MATTER:
            # The same objects for each loop.
            others = tuple(id(value) for name, value in call.params.items() if name != "anyio_backend")
            cases = tests.setdefault(item.nodeid.partition("[")[0], {})
            cases.setdefault(others, []).append(item)
    # By name, not as they were shuffled: what is left out must not depend on chance.
    left = {
        item
        for cases in tests.values()
        if len(cases) > 1
        for number, on_loops in enumerate(
            sorted(sorted(item.nodeid for item in one) for one in cases.values())
        )
        for item in on_loops
        if item != on_loops[number % len(on_loops)]
    }
    config.hook.pytest_deselected(items=[item for item in items if item.nodeid in left])
    items[:] = [item for item in items if item.nodeid not in left]


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    real_program.running.item = item


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport() -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    # The workers of pytest-xdist cannot send a lone surrogate, and some tests log one.
    report.sections = [
        (title, text.encode("utf-8", "backslashreplace").decode("utf-8")) for title, text in report.sections
    ]
    return report


def pytest_collection() -> None:
    # All of it stays.
    gc.disable()


def pytest_collection_finish() -> None:
    gc.enable()
    _set_aside_what_stays()


def pytest_runtest_logfinish() -> None:
    if next(_finished) % 100 == 0:
        _set_aside_what_stays()


_finished = count(1)


def _set_aside_what_stays() -> None:
    """Many tests collect garbage to show that nothing is left. What pytest keeps of thousands of others is
    none of it, and to look through that each time took as long as all else."""
    gc.collect()
    gc.freeze()
