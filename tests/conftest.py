"""Set-up for all tests."""

from __future__ import annotations

import gc
import os
import re
import signal
import sys
from collections.abc import Generator
from itertools import count

import pytest
from hypothesis import HealthCheck, settings

from tests import real_program

# Time is the deadline of the whole test (pytest-timeout), never of one example: machines are noisy. The same
# examples each time: who changes something is told of what it broke, the thorough profile looks for the rest.
settings.register_profile(
    "default",
    deadline=None,
    max_examples=50,
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


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        real_program.mark(item)
    # The workers of pytest-xdist must collect the same names.
    moving = [item.nodeid for item in items if re.search(r"\bat 0x[0-9a-f]+|\bid='\d+'", item.nodeid)]
    if moving:
        raise pytest.UsageError(f"tests are named by addresses, which differ from run to run: {moving}")


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
    if next(_finished) % 50 == 0:
        _set_aside_what_stays()


_finished = count(1)


def _set_aside_what_stays() -> None:
    """Many tests collect garbage to show that nothing is left. What pytest keeps of thousands of others is
    none of it, and to look through that each time took as long as all else."""
    gc.collect()
    gc.freeze()
