"""What options demand of the machine that the agent is started on; looked at when it is started.

Asks nothing itself: what there is, is passed in, so that every system can be tested on every other.
"""

from __future__ import annotations

import os.path
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Final

from outrider.errors import FolderNotFound, OptionsError

if TYPE_CHECKING:
    from outrider.options._options import Options

# What cmd.exe, and programs that are started through it, give a meaning to even inside quotes.
_SPECIAL_ON_WINDOWS: Final = frozenset('&|<>^%!"\r\n')
_OPEN_TEXTS: Final = ("resume", "session_id", "resume_session_at", "resume_drops_turn")


def check_place(
    options: Options,
    *,
    euid: int | None,
    platform: str,
    environ: Mapping[str, str],
    is_dir: Callable[[str], bool] = os.path.isdir,
    exists: Callable[[str], bool] = os.path.exists,
) -> None:
    """Raise if these options cannot work on this machine, before anything is started.

    `euid` is the effective user id of the program, None where there is none; `platform`, as in
    `sys.platform`; `environ`, what the program inherits. Raises `FolderNotFound` or `OptionsError`. What runs
    elsewhere is judged there: for a runner that is not local, only what holds everywhere is checked.
    """
    if platform == "win32":
        _check_windows(options)
    if options.runner is None or options.runner.is_local:
        _check_folder(options, is_dir, exists)
        _check_root(options, euid, environ)


def _check_windows(options: Options) -> None:
    if options.user is not None:
        raise OptionsError(
            f"`user` cannot be {options.user!r}: on Windows a program cannot be started as another user",
            hint="Leave it out, or start this process as that user.",
        )
    for name in _OPEN_TEXTS:
        value: str | None = getattr(options, name)
        if value is not None and (found := sorted(_SPECIAL_ON_WINDOWS & set(value))):
            shown = " ".join(map(repr, found))
            raise OptionsError(
                f"`{name}` contains {shown}, which Windows may take for a command: {value!r}",
                hint="Name the session or message by its UUID.",
            )


def _check_folder(options: Options, is_dir: Callable[[str], bool], exists: Callable[[str], bool]) -> None:
    if options.cwd is None or is_dir(options.cwd):
        return
    if exists(options.cwd):
        raise OptionsError(f"`cwd` must be a folder, and {options.cwd!r} is not one", hint="Give its folder.")
    is_home = options.cwd.startswith("~")
    raise FolderNotFound(options.cwd, hint="Give `Path(…).expanduser()`." if is_home else "")


def _check_root(options: Options, euid: int | None, environ: Mapping[str, str]) -> None:
    skips = options.permission_mode == "bypassPermissions" or options.allow_dangerously_skip_permissions
    if not skips or euid != 0:
        return
    seen = {**environ, **options.env}
    if seen.get("IS_SANDBOX") != "1" and not seen.get("CLAUDE_CODE_BUBBLEWRAP"):
        cause = (
            "allow_dangerously_skip_permissions"
            if options.allow_dangerously_skip_permissions
            else 'permission_mode="bypassPermissions"'
        )
        raise OptionsError(
            f"`{cause}` is refused by the agent for root, because nothing at all would hold it back",
            hint="Run it as another `user`, choose another `permission_mode` with rules as `allowed_tools`, "
            'or set `env={"IS_SANDBOX": "1"}` if this is a container that can be thrown away.',
        )
