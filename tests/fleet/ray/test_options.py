"""Options that go to workers have nothing of this process in them, and no secrets."""

from __future__ import annotations

import pickle
from typing import Any

import pytest

import outrider
from outrider.errors import OptionsError
from outrider.fleet._ray.channel import AskedFunction, AskedServer
from outrider.fleet._ray.worker import refuse_secrets_in, travelling
from outrider.handlers import Hook, Policy, ToolServer
from outrider.options import Options, SdkServer
from outrider.transcripts import MemoryStore

pytest.importorskip("ray")

TOKEN = "ghp_" + "a1" * 18


@outrider.tool
async def lookup(ticket: int) -> str:
    """Fetch a ticket."""
    return str(ticket)


@outrider.hook("PreToolUse", matcher="Bash", timeout=7, fails="open")
def guard(told: object) -> None:
    pass


def stop(told: object) -> None:
    pass


def ask_me(request: object) -> bool:
    return True


def sent(**fields: Any) -> Options:
    """The options as a worker gets them."""
    found = pickle.loads(pickle.dumps(travelling(Options(**fields))))
    assert isinstance(found, Options)
    return found


def test_values_go_as_they_are() -> None:
    options = Options(
        model="haiku",
        env={"PATH_TO_DATA": "/data", "MAX_TOKENS": "5"},
        session_store="postgresql://user@host/db",
        mcp_servers={
            "a": {"type": "http", "url": "https://a.b", "headers": {"Authorization": "Bearer ${KEY}"}}
        },
        trace="traces",
    )
    assert travelling(options) == options


@pytest.mark.parametrize(
    "name, value, place",
    [
        pytest.param("env", {"ANTHROPIC_API_KEY": "x"}, "'ANTHROPIC_API_KEY'", id="by-name"),
        pytest.param("env", {"FLAG": TOKEN}, "'FLAG'", id="by-shape"),
        pytest.param("settings", {"env": {"GITHUB_TOKEN": "abc"}}, "`settings`", id="settings"),
        pytest.param("settings", '{"apiKey": "abc"}', "`settings`", id="settings-as-text"),
        pytest.param(
            "mcp_servers",
            {"a": {"type": "http", "url": "https://a.b", "headers": {"Authorization": "Bearer abcdefgh12"}}},
            "`mcp_servers`",
            id="header",
        ),
        pytest.param("session_store", "postgresql://user:word@host/db", "`session_store`", id="url"),
        pytest.param(
            "agents",
            {"a": {"description": "d", "prompt": "p", "mcpServers": [{"x": {"env": {"MY_TOKEN": "abc"}}}]}},
            "`agents`",
            id="servers-of-subagents",
        ),
        pytest.param(
            "mcp_servers",
            {"a": {"command": "x", "env": {"MY_TOKEN": "${T:-abc}"}}},
            "`mcp_servers`",
            id="default",
        ),
    ],
)
def test_secrets_are_refused(name: str, value: Any, place: str) -> None:
    with pytest.raises(OptionsError) as caught:
        travelling(Options(**{name: value}))
    text = str(caught.value)
    assert place in text
    assert "environment of the workers" in text
    assert "abc" not in text
    assert TOKEN not in text


def test_secrets_are_refused_among_arguments() -> None:
    with pytest.raises(OptionsError, match="`executable_args`"):
        travelling(Options(executable="node", executable_args=["--api-key", "abcdefgh12"]))


def test_secrets_are_refused_in_the_environment_that_goes_with_tasks() -> None:
    with pytest.raises(OptionsError, match="'MY_TOKEN'"):
        refuse_secrets_in("`runtime_env['env_vars']`", {"MODE": "x", "MY_TOKEN": "y"})


@pytest.mark.parametrize(
    "name, value, hint",
    [
        pytest.param("transport", object(), "cli_path", id="transport"),
        pytest.param("stderr", print, "debug_file", id="stderr"),
        pytest.param("on_auth_refresh", print, "CLAUDE_CODE_OAUTH_TOKEN", id="tokens"),
        pytest.param("session_store", MemoryStore(), "Give its URL", id="session_store"),
        pytest.param("approvals", outrider.Approvals(MemoryStore()), "which is asked here", id="approvals"),
    ],
)
def test_objects_of_this_process_are_refused(name: str, value: Any, hint: str) -> None:
    with pytest.raises(OptionsError, match=f"`{name}`") as caught:
        travelling(Options(**{name: value}))
    assert hint in str(caught.value)


def test_functions_stay_and_are_asked_for() -> None:
    options = sent(permission=ask_me, on_plan=ask_me, on_question=ask_me, on_elicitation=ask_me)
    for name in ("permission", "on_plan", "on_question", "on_elicitation"):
        asked = getattr(options, name)
        assert isinstance(asked, AskedFunction)
        assert asked.name == name


def test_the_rules_of_a_policy_go_along() -> None:
    policy = sent(permission=Policy.of({"allow": "Read"}, otherwise=ask_me)).permission
    assert isinstance(policy, Policy)
    assert isinstance(policy.otherwise, AskedFunction)
    assert [str(rule) for rule in policy.rules] == [str(rule) for rule in Policy.of({"allow": "Read"}).rules]


def test_hooks_keep_what_was_said_about_them() -> None:
    hooks = sent(hooks={"PreToolUse": [guard], "Stop": [stop]}).hooks
    (before,), (after,) = hooks["PreToolUse"], hooks["Stop"]
    assert isinstance(before, Hook)
    assert isinstance(after, Hook)
    assert (before.matcher, before.timeout, before.fails) == ("Bash", 7, "open")
    assert (before.name, after.name) == ("guard", "stop")


def test_tools_become_a_server_that_is_asked() -> None:
    options = sent(tools=["Read", lookup], mcp_servers={"more": ToolServer("more", [lookup])})
    assert options.tools == ("Read",)
    assert options.allowed_tools == ("mcp__tools",)
    assert not isinstance(options.mcp_servers, str)
    for name in ("tools", "more"):
        server = options.mcp_servers[name]
        assert isinstance(server, SdkServer)
        assert isinstance(server.instance, AskedServer)
        assert server.instance.name == name


def test_tools_of_ones_own_alone_leave_all_others() -> None:
    assert sent(tools=[lookup]).tools is None
    # Whoever is asked decides about them, too.
    assert sent(tools=[lookup], permission=ask_me).allowed_tools == ()


def test_tools_that_stay_here_are_named_in_full_there() -> None:
    def deny(told: object) -> None:
        pass

    options = sent(
        tools=[lookup],
        disallowed_tools=["lookup"],
        permission=Policy.of({"deny": lookup}, {"allow": "*"}),
        hooks=[outrider.hook("PreToolUse", matcher="lookup")(deny)],
    )
    assert options.disallowed_tools == ("mcp__tools__lookup",)
    assert isinstance(options.permission, Policy)
    assert options.permission.rules[0].tools == ("mcp__tools__lookup",)
    (asked,) = options.hooks["PreToolUse"]
    assert isinstance(asked, Hook)
    assert asked.matcher == "mcp__tools__lookup"
    # A worker takes them: it knows the server, and not its tools.
    outrider.Session(options)


def test_names_are_checked_before_they_travel() -> None:
    with pytest.raises(OptionsError, match="Did you mean 'lookup'"):
        travelling(Options(tools=[lookup], disallowed_tools=["lokup"]))
