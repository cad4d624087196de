"""The agent's program itself, for tests: where `make test` has put it, and how it is started with nothing of
whoever runs the tests.

Does not install it: `scripts/agent_program.py` does.
"""

from __future__ import annotations

import pytest

from scripts.agent_program import clean_environment, missing, program

__all__ = ["clean_environment", "require_program"]


def require_program() -> str:
    """The path of the program; skips the test if it is not there."""
    path = program()
    if not path.exists():
        reason = missing().read_text(encoding="utf-8") if missing().exists() else "`make test` installs it"
        pytest.skip(f"the real program is not here ({reason})")
    return str(path)
