"""What options and parts show of themselves: what was set, shortly, and no secret."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from outrider.errors import OptionsError
from outrider.options import (
    AgentDefinition,
    EnvPolicy,
    HttpServer,
    Isolation,
    Options,
    Sandbox,
    SdkServer,
    SseServer,
    StdioServer,
    Timeouts,
)
from tests.cases import every_case

SHOWN = [
    (Options(), "Options()"),
    (Options(model="opus", max_turns=3), "Options(model='opus', max_turns=3)"),
    (Options(timeouts=Timeouts()), "Options()"),
    (Options(timeouts=Timeouts(turn=5)), "Options(timeouts=Timeouts(turn=5))"),
    (Options(setting_sources=None), "Options(setting_sources=None)"),
    (Options(tools=[]), "Options(tools=[])"),
    (Options(tools=["Bash", len]), "Options(tools=['Bash', <len>])"),
    (Options(permission=print), "Options(permission=<print>)"),
    (Options(hooks={"Stop": [len]}), "Options(hooks={'Stop': [<len>]})"),
    (Options(env={"A": "b"}), "Options(env={'A': 'b'})"),
    (Options(system_prompt="x"), "Options(system_prompt=CustomPrompt(prompt='x'))"),
    (Options(isolation="hermetic"), "Options(isolation=Isolation(kind='hermetic'))"),
    (EnvPolicy.only("A"), "EnvPolicy(names=['A'])"),
    (Isolation(), "Isolation()"),
    (Sandbox(enabled=True), "Sandbox(enabled=True)"),
    (StdioServer(command="x", env={"A": "b"}), "StdioServer(command='x', env={'A': '***'})"),
    (SdkServer(name="n", instance=len), "SdkServer(name='n', instance=<len>)"),
    (
        HttpServer(url="https://me:pass@host/", headers={"X-Anything": "b"}),
        "HttpServer(url='https://me:***@host/', headers={'X-Anything': '***'})",
    ),
]


@every_case("value, text", SHOWN, ids=[str(number) for number in range(len(SHOWN))])
def test_a_value_shows_what_was_set(value: object, text: str) -> None:
    assert repr(value) == text


def test_long_texts_are_cut() -> None:
    options = Options(
        system_prompt="long " * 10000,
        append_system_prompt="more " * 10000,
        settings={"a": "much " * 10000},
        env={"A": "very " * 10000},
        agents={"a": AgentDefinition(description="d", prompt="p " * 10000)},
    )
    assert len(repr(options)) < 3000


PLACES: dict[str, Callable[[str], object]] = {
    "env": lambda secret: Options(env={"MY_API_KEY": secret}),
    "env by shape": lambda secret: Options(env={"HARMLESS": f"sk-ant-{secret}"}),
    "extra_args": lambda secret: Options(extra_args={"api-token": secret}),
    "executable_args": lambda secret: Options(executable="node", executable_args=["--api-key", secret]),
    "headers": lambda secret: Options(
        mcp_servers={"s": {"type": "http", "url": "http://h", "headers": {"X": secret}}}
    ),
    "server env": lambda secret: Options(mcp_servers={"s": {"command": "x", "env": {"PLAIN": secret}}}),
    "server args": lambda secret: Options(mcp_servers={"s": {"command": "x", "args": ["--token", secret]}}),
    "server args joined": lambda secret: StdioServer(command="x", args=(f"--token={secret}",)),
    "server url": lambda secret: SseServer(url=f"https://me:{secret}@host/path"),
    "server extra": lambda secret: HttpServer(url="http://h", extra={"oauth": {"clientSecret": secret}}),
    "settings": lambda secret: Options(settings={"env": {"AUTH_TOKEN": secret}}),
    "settings text": lambda secret: Options(settings=f'{{"env": {{"AUTH_TOKEN": "{secret}"}}}}'),
    "managed_settings": lambda secret: Options(managed_settings={"password": secret}),
    "sandbox": lambda secret: Options(sandbox={"credentials": {"password": secret}}),
    "agent": lambda secret: Options(
        agents={"a": {"description": "d", "prompt": "p", "mcpServers": [{"s": {"env": {"API_KEY": secret}}}]}}
    ),
    "prompt": lambda secret: Options(system_prompt=f"Use the token=sk-ant-{secret} for it."),
    "store": lambda secret: ANYTHING(session_store=Store(secret)),
    "store url": lambda secret: Options(session_store=f"postgresql://me:{secret}@host/agents"),
    "transport": lambda secret: Options(transport=Store(secret)),
    "settings env": lambda secret: Options(settings={"env": {"PLAIN": secret}}),
    "settings text of any name": lambda secret: Options(settings=f'{{"env": {{"PLAIN": "{secret}"}}}}'),
    "servers text": lambda secret: Options(mcp_servers=f'{{"a": {{"headers": {{"X": "{secret}"}}}}}}'),
    "server of an agent": lambda secret: Options(
        agents={"a": {"description": "d", "prompt": "p", "mcpServers": [{"s": {"env": {"PLAIN": secret}}}]}}
    ),
}

# Long enough not to occur in the rest of the text by chance.
SECRETS = st.text(
    alphabet="abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789", min_size=12, max_size=40
)


class Store:
    """An object that tells its password to everybody."""

    def __init__(self, password: str) -> None:
        self.password = password

    def __repr__(self) -> str:
        return f"Store(password={self.password})"

    async def append(self, key: object, entries: object) -> None: ...

    async def load(self, key: object) -> None: ...


@pytest.mark.parametrize("place", PLACES)
@given(secret=SECRETS)
def test_a_secret_is_never_shown(place: str, secret: str) -> None:
    assert secret not in repr(PLACES[place](secret))


ANYTHING: type[Any] = Options
"""Without what type checkers know of it: the mistakes are meant."""

MISTAKES: dict[str, Callable[[str], object]] = {
    "env": lambda secret: ANYTHING(env={"PLAIN": secret + "\0"}),
    "env bytes": lambda secret: ANYTHING(env={"PLAIN": secret.encode()}),
    "env list": lambda secret: ANYTHING(env=[f"A={secret}"]),
    "env name": lambda secret: ANYTHING(env={f"A={secret}": "x"}),
    "extra_args": lambda secret: ANYTHING(extra_args={"token": secret + "\0"}),
    "headers": lambda secret: HttpServer(url="http://h", headers={"X": secret + "\0"}),
    "server": lambda secret: ANYTHING(mcp_servers={"s": f"npx server --key {secret}"}),
    "server url": lambda secret: HttpServer(url=f"me:{secret}@host"),
    "managed_settings": lambda secret: ANYTHING(managed_settings=secret),
    "store": lambda secret: ANYTHING(session_store={"password": secret}),
    "extra_args list": lambda secret: ANYTHING(extra_args=["--token", secret]),
    "env_policy": lambda secret: ANYTHING(env_policy={"PLAIN": secret}),
    "hook": lambda secret: ANYTHING(hooks={"Stop": functools.partial(print, secret)}),
    "agents": lambda secret: ANYTHING(agents={"a": [{"env": {"PLAIN": secret}}]}),
    "server type": lambda secret: ANYTHING(mcp_servers={"s": {"type": {"PLAIN": secret}}}),
    "server command": lambda secret: ANYTHING(mcp_servers={"s": {"command": ["x", "--api-key", secret]}}),
    "server args": lambda secret: StdioServer(command="x", args=("--api-key", secret + "\0")),
    "executable_args": lambda secret: ANYTHING(executable="node", executable_args=[secret + "\0"]),
    "bytes": lambda secret: ANYTHING(model=secret.encode()),
}


@pytest.mark.parametrize("place", MISTAKES)
@given(secret=SECRETS)
def test_an_error_about_a_secret_does_not_tell_it(place: str, secret: str) -> None:
    with pytest.raises(OptionsError) as caught:
        MISTAKES[place](secret)
    assert secret not in str(caught.value)


def test_an_empty_variable_is_no_secret() -> None:
    assert repr(Options(env={"API_KEY": ""})) == "Options(env={'API_KEY': ''})"
