"""From options to what has to be started: the command, the first request, and the runners that start it.

Starts nothing: `bridle.transports` does.
"""

from __future__ import annotations

from bridle.launch._command import make_command, make_version_probe
from bridle.launch._environment import make_environment
from bridle.launch._find import Search, Tried, find_agent, search_agent
from bridle.launch._initialize import make_initialize
from bridle.launch._limits import check_length
from bridle.launch._mode import Mode
from bridle.launch._runners import Docker, Kubectl, Local, Prefix, Ssh
from bridle.launch._user import look_up_user
from bridle.launch._version import MINIMUM_AGENT_VERSION, AgentVersionUnknown, Version, check_version

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
