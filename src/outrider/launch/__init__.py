"""Turns options into what has to be started: the command, the first request, and the runners around it."""

from typing import TYPE_CHECKING

from outrider._lazy import lazily

if TYPE_CHECKING:
    from outrider._version import MINIMUM_AGENT_VERSION as MINIMUM_AGENT_VERSION
    from outrider.launch._command import check_length as check_length
    from outrider.launch._command import look_up_user as look_up_user
    from outrider.launch._command import make_command as make_command
    from outrider.launch._command import make_environment as make_environment
    from outrider.launch._command import make_initialize as make_initialize
    from outrider.launch._command import make_version_probe as make_version_probe
    from outrider.launch._program import AgentVersionUnknown as AgentVersionUnknown
    from outrider.launch._program import Search as Search
    from outrider.launch._program import Tried as Tried
    from outrider.launch._program import Version as Version
    from outrider.launch._program import check_options as check_options
    from outrider.launch._program import check_version as check_version
    from outrider.launch._program import find_agent as find_agent
    from outrider.launch._program import known_version as known_version
    from outrider.launch._program import remember_version as remember_version
    from outrider.launch._program import search_agent as search_agent
    from outrider.launch._runners import Docker as Docker
    from outrider.launch._runners import Kubectl as Kubectl
    from outrider.launch._runners import Local as Local
    from outrider.launch._runners import Prefix as Prefix
    from outrider.launch._runners import Ssh as Ssh
else:
    __getattr__, __dir__, __all__ = lazily(__name__)
