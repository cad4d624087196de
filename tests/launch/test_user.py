"""Which user the agent runs as, and each way in which that cannot be."""

from __future__ import annotations

import os
import pwd
import sys
from collections.abc import Callable

import pytest

from outrider.command import UserId
from outrider.errors import OptionsError, UserNotFound
from outrider.launch import look_up_user, make_command
from outrider.options import Options

ENTRY = pwd.struct_passwd(("alice", "x", 1234, 5678, "", "/home/alice", "/bin/sh"))


def raising(error: Exception) -> Callable[..., object]:
    def call(*_: object) -> object:
        raise error

    return call


@pytest.fixture(autouse=True)
def machine(monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine with one user, on which this process is root."""
    users = {"alice": ENTRY, 1234: ENTRY}
    monkeypatch.setattr(pwd, "getpwnam", users.__getitem__)
    monkeypatch.setattr(pwd, "getpwuid", users.__getitem__)
    monkeypatch.setattr(os, "getgrouplist", lambda name, gid: [gid, 27])
    monkeypatch.setattr(os, "geteuid", lambda: 0)


@pytest.mark.requirement("B5")
@pytest.mark.parametrize("user", ["alice", 1234, "1234"], ids=repr)
def test_a_user_is_known_by_name_and_by_number(user: str | int) -> None:
    assert look_up_user(user) == UserId(1234, 5678, (5678, 27), ENTRY.pw_name, ENTRY.pw_dir)


@pytest.mark.requirement("B5")
@pytest.mark.parametrize("user", [4321, "4321", "004321"], ids=repr)
def test_a_number_that_no_user_has_gets_the_group_of_that_number(user: str | int) -> None:
    assert look_up_user(user) == UserId(4321, 4321, (4321,))


@pytest.mark.requirement("B5")
@pytest.mark.parametrize(
    "user, text",
    [
        ("nobody-here", "There is no user of this name"),
        ("٣", "There is no user of this name"),
        ("", "name of the user is empty"),
        ("al\0ice", "NUL byte"),
        (-1, "A user's number is from 0 to 4294967294"),
        ("-1", "A user's number is from 0"),
        (2**32 - 1, "A user's number is from 0"),
        (str(2**32 - 1), "A user's number is from 0"),
        ("9" * 5000, "A user's number is from 0"),
        (2**64, "A user's number is from 0"),
    ],
    ids=lambda value: repr(value)[:40],
)
def test_a_user_that_cannot_be_is_refused(user: str | int, text: str) -> None:
    with pytest.raises(UserNotFound, match=text) as caught:
        look_up_user(user)
    assert caught.value.name == user
    assert "`user`" in str(caught.value)


def test_the_largest_number_is_allowed() -> None:
    assert look_up_user(2**32 - 2).uid == 2**32 - 2


def test_a_name_that_cannot_be_encoded_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()
    with pytest.raises(UserNotFound, match="cannot be encoded"):
        look_up_user("\ud800")


@pytest.mark.requirement("B5")
@pytest.mark.parametrize(
    "module, function, user",
    [(pwd, "getpwnam", "alice"), (pwd, "getpwuid", 1234), (os, "getgrouplist", "alice")],
    ids=["name", "number", "groups"],
)
def test_a_look_up_that_fails_is_told_apart(
    monkeypatch: pytest.MonkeyPatch, module: object, function: str, user: str | int
) -> None:
    monkeypatch.setattr(module, function, raising(OSError(5, "Input/output error")))
    with pytest.raises(UserNotFound, match="could not be looked up: Input/output error") as caught:
        look_up_user(user)
    assert isinstance(caught.value.__cause__, OSError)


@pytest.mark.requirement("B5")
@pytest.mark.parametrize("user", ["alice", 1234, 4321])
def test_only_root_may_become_another_user(monkeypatch: pytest.MonkeyPatch, user: str | int) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 99)
    with pytest.raises(UserNotFound, match="Only root may start the agent as another user") as caught:
        look_up_user(user)
    assert "99" in str(caught.value)


def test_everyone_may_be_themselves(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1234)
    assert look_up_user("alice").uid == 1234


@pytest.mark.requirement("B5")
def test_on_windows_there_is_no_such_option() -> None:
    with pytest.raises(OptionsError, match="no meaning on Windows"):
        look_up_user("alice", platform="win32")


def test_the_user_of_this_process_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()
    found = look_up_user(os.geteuid())
    assert found.uid == os.geteuid()
    assert found.gid in found.groups


@pytest.mark.parametrize("user", [0, "0", "00"], ids=repr)
def test_to_become_root_is_to_be_root(user: str | int) -> None:
    options = Options(cli_path=sys.executable, user=user, permission_mode="bypassPermissions")
    with pytest.raises(OptionsError, match="for root"):
        make_command(options, environ={})


def test_root_may_let_another_user_skip_permissions() -> None:
    options = Options(cli_path=sys.executable, user="alice", permission_mode="bypassPermissions")
    assert make_command(options, environ={}).user == look_up_user("alice")
