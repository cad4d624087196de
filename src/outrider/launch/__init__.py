"""From options to what has to be started: the command, the first request, and the runners that start it.

Starts nothing: `outrider.transports` does.
"""

from __future__ import annotations

from outrider.launch._command import make_command, make_version_probe
from outrider.launch._environment import make_environment
from outrider.launch._find import Search, Tried, find_agent, search_agent
from outrider.launch._initialize import make_initialize
from outrider.launch._limits import check_length
from outrider.launch._mode import Mode
from outrider.launch._runners import Docker, Kubectl, Local, Prefix, Ssh
from outrider.launch._user import look_up_user
from outrider.launch._version import MINIMUM_AGENT_VERSION, AgentVersionUnknown, Version, check_version

__all__ = [
    "MINIMUM_AGENT_VERSION",
    "AgentVersionUnknown",
    "Docker",
    "Kubectl",
    "Local",
    "Mode",
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
