"""What keeps the configuration of this machine away from the agent: its folders, variables and switches.

Which variables of this process it gets, and which settings files count, is decided elsewhere.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from outrider.command import FOLDER
from outrider.launch._spelling import absolute, runs_here

if TYPE_CHECKING:
    from outrider.options import Isolation, Options

FOLDERS: Final = ("config", "home", "tmp")
"""What a hermetic run has of its own."""

_HOME_VARIABLES: Final = {False: ("HOME",), True: ("HOME", "USERPROFILE", "APPDATA", "LOCALAPPDATA")}
# The agent's sockets and task files follow `CLAUDE_CODE_TMPDIR`, its children the others.
_TEMPORARY_VARIABLES: Final = {
    False: ("TMPDIR", "CLAUDE_CODE_TMPDIR"),
    True: ("TEMP", "TMP", "CLAUDE_CODE_TMPDIR"),
}


def isolation_folders(isolation: Isolation) -> tuple[str, ...]:
    """The empty folders that a command needs."""
    if not isolation.is_hermetic:
        return ()
    return FOLDERS if isolation.config_dir is None else FOLDERS[1:]


def isolation_variables(options: Options, *, platform: str) -> dict[str, str]:
    """The variables that carry out `isolation`.

    Tried with the program (2.1.325): with these, without setting sources and with a strict MCP configuration,
    it reads no settings, memory, hooks, agents, skills, commands or servers of the user or the project, and
    writes nothing outside its private folder and its working folder. Policies that an administrator has set
    for the machine still count, as does the machine's git configuration. `--bare` and `--safe-mode` would
    do more than that: they take tools away, or change how it signs in.
    """
    isolation = options.isolation
    variables: dict[str, str] = {}
    if isolation.config_dir is not None:
        is_here = runs_here(options.runner)
        variables["CLAUDE_CONFIG_DIR"] = absolute(isolation.config_dir) if is_here else isolation.config_dir
    if not isolation.is_hermetic:
        return variables
    is_windows = platform == "win32"
    variables.setdefault("CLAUDE_CONFIG_DIR", f"{FOLDER}/config")
    variables |= dict.fromkeys(_HOME_VARIABLES[is_windows], f"{FOLDER}/home")
    variables |= dict.fromkeys(_TEMPORARY_VARIABLES[is_windows], f"{FOLDER}/tmp")
    variables["CLAUDE_CODE_DISABLE_AUTO_MEMORY"] = "1"
    variables["CLAUDE_CODE_DISABLE_CLAUDE_MDS"] = "1"
    return variables
