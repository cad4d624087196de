"""The environment of the agent: inherited, told, set."""

from __future__ import annotations

import sys
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

import pytest

import outrider
from outrider.command import FOLDER, UserId
from outrider.launch import Local, Ssh, make_environment
from outrider.options import EnvPolicy, Options
from tests.cases import every_case

if TYPE_CHECKING:
    from collections.abc import Callable

TOLD = {
    "CLAUDE_CODE_ENTRYPOINT": "sdk-py",
    "CLAUDE_AGENT_SDK_VERSION": outrider.__version__,
    "CLAUDE_CODE_SDK_READS_SESSION_STATE": "1",
}


def environment(
    inherited: dict[str, str] | None = None, platform: str = "linux", **fields: Any
) -> dict[str, str]:
    return make_environment(Options(**fields), environ=inherited or {}, platform=platform)


@pytest.mark.requirement("C10")
def test_everything_is_inherited_but_what_tells_of_an_agent_around_this_process() -> None:
    around = {"CLAUDECODE": "1", "CLAUDE_AGENT_SDK_DERIVED_CLIENT_APP": "x"}
    assert environment({"PATH": "/bin", "SECRET": "x", **around}) == {"PATH": "/bin", "SECRET": "x", **TOLD}


@pytest.mark.requirement("C10")
def test_the_environment_of_this_process_is_the_default(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OUTRIDER_TEST_VARIABLE", "here")
    monkeypatch.setenv("CLAUDECODE", "1")
    made = make_environment(Options())
    assert made["OUTRIDER_TEST_VARIABLE"] == "here"
    assert "CLAUDECODE" not in made


@pytest.mark.requirement("C10")
@pytest.mark.parametrize("name", ["CLAUDECODE", "PATH", *TOLD, "PWD", "CLAUDE_AGENT_SDK_CLIENT_APP"])
def test_what_the_user_sets_wins_over_all(name: str, tmp_path: Path) -> None:
    inherited = {"CLAUDECODE": "1", "PATH": "/bin", "CLAUDE_CODE_ENTRYPOINT": "cli"}
    made = environment(inherited, env={name: "mine"}, client_app="app", cwd=tmp_path)
    assert made[name] == "mine"


@pytest.mark.requirement("C10")
def test_what_outrider_tells_wins_over_what_is_inherited() -> None:
    assert environment(dict.fromkeys(TOLD, "old")) == TOLD


@pytest.mark.requirement("C10")
@every_case(
    "fields, name, value",
    [
        ({"enable_file_checkpointing": True}, "CLAUDE_CODE_ENABLE_SDK_FILE_CHECKPOINTING", "true"),
        ({"enable_file_checkpointing": False}, "CLAUDE_CODE_ENABLE_SDK_FILE_CHECKPOINTING", None),
        ({"client_app": "app/1"}, "CLAUDE_AGENT_SDK_CLIENT_APP", "app/1"),
        ({"client_app": ""}, "CLAUDE_AGENT_SDK_CLIENT_APP", ""),
        ({}, "CLAUDE_AGENT_SDK_CLIENT_APP", None),
        ({"question_preview_format": "html"}, "CLAUDE_CODE_QUESTION_PREVIEW_FORMAT", "html"),
        ({}, "CLAUDE_CODE_QUESTION_PREVIEW_FORMAT", None),
        ({}, "PWD", None),
    ],
)
def test_an_option_becomes_a_variable(fields: dict[str, Any], name: str, value: str | None) -> None:
    assert environment(**fields) == {**TOLD, **({} if value is None else {name: value})}


def test_a_function_for_tokens_replaces_keys_that_are_inherited() -> None:
    inherited = {"ANTHROPIC_API_KEY": "k", "ANTHROPIC_AUTH_TOKEN": "t"}
    told = make_environment(Options(on_auth_refresh=print), environ=inherited)
    assert {name: told[name] for name in inherited} == dict.fromkeys(inherited, "")
    assert told["CLAUDE_CODE_OAUTH_401_WAIT_MS"] == "75000"


@pytest.mark.requirement("C10")
def test_the_working_folder_is_told_as_an_absolute_path(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert environment({"PWD": "/old"}, cwd="sub")["PWD"] == str(tmp_path / "sub")


# Which variables are inherited.

BASICS = {
    "PATH": "/bin",
    "HOME": "/home/me",
    "LANG": "C",
    "LC_ALL": "C",
    "TZ": "UTC",
    "TMPDIR": "/t",
    "TERM": "x",
}
PROXIES = {"HTTPS_PROXY": "http://p", "SSL_CERT_FILE": "/c", "NODE_EXTRA_CA_CERTS": "/d", "AWS_PROFILE": "p"}


@pytest.mark.requirement("C10")
@pytest.mark.parametrize(
    "names, inherited",
    [
        ((), {}),
        (("AWS_PROFILE",), {"AWS_PROFILE": "p"}),
        (("SSL_*", "NODE_*"), {"SSL_CERT_FILE": "/c", "NODE_EXTRA_CA_CERTS": "/d"}),
        (("*",), PROXIES),
        (("aws_profile",), {}),
    ],
    ids=repr,
)
def test_only_what_is_named_and_what_nothing_can_do_without(
    names: tuple[str, ...], inherited: dict[str, str]
) -> None:
    made = environment({**BASICS, **PROXIES, "CLAUDECODE": "1"}, env_policy=EnvPolicy.only(*names))
    assert made == {**BASICS, **inherited, **TOLD}


@pytest.mark.requirement("C10")
def test_what_is_set_needs_no_name() -> None:
    made = environment(PROXIES, env_policy=[], env={"TOKEN": "x"})
    assert made == {"TOKEN": "x", **TOLD}


@pytest.mark.requirement("B5")
def test_another_user_gets_a_home_of_its_own_unless_one_is_given() -> None:
    mine = {**BASICS, "HOME": "/root", "USER": "root"}
    user = UserId(7, 7, (), "agent", "/home/agent")
    made = make_environment(Options(), user=user, environ=mine, platform="linux")
    assert (made["HOME"], made["USER"], made["LOGNAME"]) == ("/home/agent", "agent", "agent")
    made = make_environment(Options(env={"HOME": "/srv"}), user=user, environ=mine, platform="linux")
    assert made["HOME"] == "/srv"
    made = make_environment(Options(isolation="hermetic"), user=user, environ=mine, platform="linux")
    assert made["HOME"].endswith("/home")
    assert FOLDER in made["HOME"]
    made = make_environment(Options(), user=UserId(7, 7), environ=mine, platform="linux")
    assert made["HOME"] == "/"


# Windows.


@pytest.mark.requirement("C10")
def test_on_windows_a_name_is_one_in_any_case() -> None:
    inherited = {"Path": "C:\\", "ClaudeCode": "1", "claude_code_entrypoint": "cli"}
    assert environment(inherited, "win32", env={"PATH": "D:\\"}) == {"PATH": "D:\\", **TOLD}
    assert environment({"Path": "/a"}, "linux", env={"PATH": "/b"}) == {"Path": "/a", "PATH": "/b", **TOLD}


@pytest.mark.requirement("C10")
def test_on_windows_other_variables_are_indispensable() -> None:
    inherited = {
        "SystemRoot": "C:\\Windows",
        "PathExt": ".EXE",
        "AppData": "C:\\a",
        "Other": "x",
        "Named": "y",
    }
    made = environment(inherited, "win32", env_policy=["NAMED"])
    assert made == {"SystemRoot": "C:\\Windows", "PathExt": ".EXE", "AppData": "C:\\a", "Named": "y", **TOLD}


# Elsewhere.


@pytest.mark.requirement("C10")
def test_only_what_has_to_travel_goes_to_another_machine() -> None:
    made = environment({"PATH": "/bin", "SECRET": "x"}, runner=Ssh("host"), env={"TOKEN": "y"}, cwd="/there")
    assert made == {"TOKEN": "y", **TOLD}


def test_what_is_named_travels_too() -> None:
    inherited = {"PATH": "/bin", "API_KEY": "x", "MY_A": "1", "CLAUDECODE": "1", "CLAUDE_X": "2"}
    made = environment(inherited, runner=Ssh("host"), env_policy=["API_KEY", "MY_*", "CLAUDE*"])
    assert made == {"API_KEY": "x", "MY_A": "1", "CLAUDE_X": "2", **TOLD}


@pytest.mark.requirement("C10")
def test_a_local_runner_changes_nothing() -> None:
    assert environment({"PATH": "/bin"}, runner=Local()) == environment({"PATH": "/bin"})


# Traces.


def tracing(monkeypatch: pytest.MonkeyPatch, inject: Callable[[dict[str, str]], None]) -> None:
    """Put an OpenTelemetry in place that has no more than what is used of it."""
    propagate = ModuleType("opentelemetry.propagate")
    monkeypatch.setattr(propagate, "inject", inject, raising=False)
    for name in ("opentelemetry", "opentelemetry.trace"):
        monkeypatch.setitem(sys.modules, name, ModuleType(name))
    monkeypatch.setitem(sys.modules, "opentelemetry.propagate", propagate)


STALE = {"TRACEPARENT": "old", "TRACESTATE": "old"}


@pytest.mark.requirement("C10")
def test_the_agent_goes_on_with_the_trace_of_its_caller(monkeypatch: pytest.MonkeyPatch) -> None:
    tracing(monkeypatch, lambda carrier: carrier.update(traceparent="00-a-b-01", baggage="secret=1"))
    assert environment(STALE) == {"TRACEPARENT": "00-a-b-01", **TOLD}
    assert environment(STALE, env={"TRACEPARENT": "mine"})["TRACEPARENT"] == "mine"


@pytest.mark.requirement("C10")
def test_the_state_of_a_trace_travels_too(monkeypatch: pytest.MonkeyPatch) -> None:
    tracing(monkeypatch, lambda carrier: carrier.update(traceparent="00-a-b-01", tracestate="v=1"))
    assert environment(STALE) == {"TRACEPARENT": "00-a-b-01", "TRACESTATE": "v=1", **TOLD}


def broken(carrier: dict[str, str]) -> None:
    raise RuntimeError("no propagator")


@pytest.mark.requirement("C10")
@pytest.mark.parametrize(
    "inject",
    [lambda carrier: None, lambda carrier: carrier.update(baggage="x"), broken],
    ids=["no span", "baggage alone", "broken"],
)
def test_without_a_trace_the_inherited_one_stays(
    monkeypatch: pytest.MonkeyPatch, inject: Callable[[dict[str, str]], None]
) -> None:
    tracing(monkeypatch, inject)
    assert environment(STALE) == {**STALE, **TOLD}


@pytest.mark.requirement("C10")
def test_opentelemetry_is_never_imported_for_this(monkeypatch: pytest.MonkeyPatch) -> None:
    tracing(monkeypatch, lambda carrier: carrier.update(traceparent="00-a-b-01"))
    monkeypatch.delitem(sys.modules, "opentelemetry.trace")
    assert environment() == TOLD
