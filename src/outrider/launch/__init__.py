"""Turns options into what has to be started: the command, the first request, and the runners around it.

Starts nothing: `outrider.transports` does.
"""

from __future__ import annotations

from outrider.launch._command import check_length, make_command, make_initialize, make_version_probe
from outrider.launch._environment import look_up_user, make_environment
from outrider.launch._program import (
    MINIMUM_AGENT_VERSION,
    AgentVersionUnknown,
    Search,
    Tried,
    Version,
    check_version,
    find_agent,
    search_agent,
)
from outrider.launch._runners import Docker, Kubectl, Local, Prefix, Ssh

__all__ = [
    "MINIMUM_AGENT_VERSION",
    "AgentVersionUnknown",
    "Docker",
    "Kubectl",
    "Local",
    "Prefix",
    "Search",
    "Ssh",
    "Tried",
    "Version",
    "check_length",
    "check_version",
    "find_agent",
    "look_up_user",
    "make_command",
    "make_environment",
    "make_initialize",
    "make_version_probe",
    "search_agent",
]
