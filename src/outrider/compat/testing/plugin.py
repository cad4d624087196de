"""The plugin for pytest that lets `import claude_agent_sdk` mean `outrider.compat` in a run, if asked to.

It is loaded in every run where Outrider is installed, and imports the rest only if it is used.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Final

import pytest

if TYPE_CHECKING:
    from collections.abc import Generator

_ADDED: Final = pytest.StashKey[bool]()


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("outrider", "agents in tests")
    group.addoption(
        "--outrider-compat",
        action="store_true",
        help="let `import claude_agent_sdk` mean outrider.compat in this run",
    )
    parser.addini("outrider_compat", "the same as --outrider-compat", type="bool", default=False)


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_load_initial_conftests(early_config: pytest.Config) -> Generator[None]:
    # Before a conftest or a test imports it.
    if early_config.known_args_namespace.outrider_compat or early_config.getini("outrider_compat"):
        from outrider.compat import install
        from outrider.errors import UsageError

        # Not by a run around this one, or by the program.
        early_config.stash[_ADDED] = "claude_agent_sdk" not in sys.modules
        try:
            install()
        except UsageError as error:
            raise pytest.UsageError(f"--outrider-compat: {error}") from error
    return (yield)


def pytest_unconfigure(config: pytest.Config) -> None:
    if config.stash.get(_ADDED, False):
        from outrider.compat._alias import remove_alias

        remove_alias()
