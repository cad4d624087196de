"""Owns versions of the agent's program: how they are read and compared, and the oldest that Outrider drives.

Does not ask the program: its first answer tells the version.
"""

from __future__ import annotations

import os
import re
import warnings
from typing import TYPE_CHECKING, Final

import msgspec

from outrider._version import MINIMUM_AGENT_VERSION
from outrider.errors import AgentTooOld
from outrider.redaction import preview

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["MINIMUM_AGENT_VERSION", "SKIP_VARIABLE", "AgentVersionUnknown", "Version", "check_version"]

SKIP_VARIABLE: Final = "CLAUDE_AGENT_SDK_SKIP_VERSION_CHECK"
"""If this variable is set, even to nothing, no version is refused or warned about."""

# What may follow is a pre-release, a build, or words after a space: `2.4.1-beta.1`, `2.4.1 (Claude Code)`.
_FORM = re.compile(r"\s*v?([0-9]{1,9})\.([0-9]{1,9})\.([0-9]{1,9})(?=[-+\s]|\Z)")


class AgentVersionUnknown(UserWarning):
    """The agent's program does not tell its version, or in a form that cannot be read: it may be too old."""


class Version(msgspec.Struct, frozen=True, order=True):
    """A version, as its numbers; none of them if it could not be read. Such a one sorts before all others."""

    numbers: tuple[int, ...] = ()

    @classmethod
    def parse(cls, text: str | None) -> Version:
        """The version at the start of a text. A pre-release counts as the version that it leads to."""
        match = _FORM.match(text or "")
        return cls(tuple(map(int, match.groups()))) if match else cls()

    @property
    def is_known(self) -> bool:
        return bool(self.numbers)

    def __str__(self) -> str:
        return ".".join(map(str, self.numbers)) or "unknown"


def check_version(text: str | None, *, environ: Mapping[str, str] | None = None) -> Version:
    """The version in what the program says about itself, once it is known to be new enough.

    Raises `AgentTooOld` below `MINIMUM_AGENT_VERSION`; warns with `AgentVersionUnknown` if it cannot be read.
    Neither happens if the variable `CLAUDE_AGENT_SDK_SKIP_VERSION_CHECK` is set to anything.
    """
    version = Version.parse(text)
    if SKIP_VARIABLE in (os.environ if environ is None else environ):
        return version
    if not version.is_known:
        said = f"says it is of version {preview(text)!r}" if text else "does not say its version"
        warnings.warn(
            f"The agent's program {said}; Outrider needs {MINIMUM_AGENT_VERSION} or later. "
            f"Update it with `claude update`, or set {SKIP_VARIABLE}.",
            AgentVersionUnknown,
            stacklevel=2,
        )
    elif version < Version.parse(MINIMUM_AGENT_VERSION):
        raise AgentTooOld(str(version), MINIMUM_AGENT_VERSION)
    return version
