"""Owns the look-up of the user that the agent runs as on this machine.

Does not switch to that user: the transport does, when it starts the program.
"""

from __future__ import annotations

import os
import re
import sys
from typing import TYPE_CHECKING, Final

from outrider.command import UserId
from outrider.errors import OptionsError, UserNotFound

if TYPE_CHECKING:
    from pwd import struct_passwd

__all__ = ["look_up_user"]

# The largest number of 32 bits means "leave as it is" to the system: to switch to it would switch nothing.
_NO_USER: Final = 2**32 - 1
_NUMBER: Final = re.compile(r"[+-]?[0-9]+")


def look_up_user(user: str | int, *, platform: str | None = None) -> UserId:
    """The user with its groups, by name or by number; a text of digits is a number.

    A number that no user has is allowed, as in a container: its group is the one of the same number, and it
    has no others. (To keep the group of this process would leave a program of root in root's group.)

    Raises `UserNotFound` if there is no such user, if it cannot be looked up, or if this process may not
    switch to it; `OptionsError` on Windows, where a program cannot be started as another user this way.
    """
    if (platform or sys.platform) == "win32":
        raise OptionsError("`user` has no meaning on Windows", hint="Leave it out, or run as that user.")
    number = _number(user)
    entry = _by_name(str(user)) if number is None else _by_number(user, number)
    if entry is None:
        assert number is not None
        found = UserId(number, number, (number,))
    else:
        found = UserId(entry.pw_uid, entry.pw_gid, _groups(user, entry), entry.pw_name, entry.pw_dir)
    if os.geteuid() not in (0, found.uid):
        raise UserNotFound(
            user,
            message=f"Only root may start the agent as another user, and this process runs as {os.geteuid()}",
            hint="Run as root, or leave `user` out to run as yourself.",
        )
    return found


def _number(user: str | int) -> int | None:
    if isinstance(user, str):
        if not _NUMBER.fullmatch(user):
            return None
        # Longer ones are out of range, and Python refuses to read very long ones.
        number = int(user) if len(user) <= 20 else _NO_USER
    else:
        number = user
    if not 0 <= number < _NO_USER:
        raise UserNotFound(user, message=f"A user's number is from 0 to {_NO_USER - 1}")
    return number


def _by_name(name: str) -> struct_passwd | None:
    import pwd

    if not name:
        raise UserNotFound(name, message="The name of the user is empty")
    if "\0" in name:
        raise UserNotFound(name, message="The name of the user has a NUL byte, which no name can have")
    try:
        return pwd.getpwnam(name)
    except KeyError:
        raise UserNotFound(name, message="There is no user of this name on this machine") from None
    except UnicodeError:
        raise UserNotFound(name, message="The name of the user cannot be encoded") from None
    except OSError as error:
        raise _failed(name, error) from error


def _by_number(user: str | int, number: int) -> struct_passwd | None:
    import pwd

    try:
        return pwd.getpwuid(number)
    except KeyError:
        return None
    except OSError as error:
        raise _failed(user, error) from error


def _groups(user: str | int, entry: struct_passwd) -> tuple[int, ...]:
    try:
        return tuple(os.getgrouplist(entry.pw_name, entry.pw_gid))
    except OSError as error:
        raise _failed(user, error) from error


def _failed(user: str | int, error: OSError) -> UserNotFound:
    return UserNotFound(
        user,
        message=f"The user could not be looked up: {error.strerror or error}",
        hint="Check the user database of this machine (`getent passwd`), or try again.",
    )
