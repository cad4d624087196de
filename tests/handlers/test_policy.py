"""A policy goes through its rules in their order; in doubt it is the stricter answer that counts."""

from __future__ import annotations

import copy
import json
import warnings
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from outrider.errors import Denied, OptionsError
from outrider.handlers import PermissionRequest, Policy, Rule, UnreachableRuleWarning, allow, deny
from outrider.options import Options
from tests.cases import every_case
from tests.handlers.deciding import Asker, Decider, can_use
from tests.handlers.hooking import Hooked, callback

pytestmark = pytest.mark.anyio

POLICY = Policy.of(
    {"deny": "Bash", "command": ["rm *", "sudo *"], "reason": "Ask the user to do that."},
    {"allow": "Bash(git *)"},
    {"ask": "Bash", "command": "npm *"},
    {"allow": ["Read", "Grep"], "path": "src/**"},
    {"allow": "mcp__github__*"},
    {"deny": "WebFetch", "domain": "evil.org"},
    {"ask": "WebFetch", "domain": "*.example.com"},
    {"deny": "WebFetch"},
)
SERIOUS = {"allow": 0, "ask": 1, "deny": 2}


def decided(policy: Policy, tool: str, /, cwd: str = "/project", **input: object) -> str:
    return policy.explain(tool, input, cwd=cwd).decision


# In order.


@pytest.mark.requirement("A10")
@every_case(
    "tool, input, decision, index",
    [
        ("Bash", {"command": "git status"}, "allow", 1),
        ("Bash", {"command": "git status; rm x"}, "deny", 0),
        ("Bash", {"command": "git status; ls"}, "ask", None),
        ("Bash", {"command": "rm x"}, "deny", 0),
        ("Bash", {"command": "npm test"}, "ask", 2),
        ("Bash", {"command": "ls"}, "ask", None),
        ("Bash", {}, "deny", 0),
        ("Bash", {"command": ["git", "status"]}, "deny", 0),
        ("Read", {"file_path": "src/a.py"}, "allow", 3),
        ("Read", {"file_path": "/project/src/a.py"}, "allow", 3),
        ("Read", {"file_path": "src/../a.py"}, "ask", None),
        ("Read", {"file_path": 5}, "ask", None),
        ("Read", {}, "ask", None),
        ("Write", {"file_path": "src/a.py"}, "ask", None),
        ("Grep", {"pattern": "x", "path": "src"}, "allow", 3),
        ("Grep", {"pattern": "x"}, "ask", None),
        ("mcp__github__search", {}, "allow", 4),
        ("mcp__gitlab__search", {}, "ask", None),
        ("WebFetch", {"url": "https://a.example.com/"}, "ask", 6),
        ("WebFetch", {"url": "https://evil.org/"}, "deny", 5),
        ("WebFetch", {"url": "https://other.org/"}, "deny", 7),
        ("WebFetch", {}, "deny", 5),
    ],
)
def test_the_first_rule_that_is_about_a_call_decides(
    tool: str, input: dict[str, Any], decision: str, index: int | None
) -> None:
    explained = POLICY.explain(tool, input, cwd="/project")
    assert (explained.decision, explained.index) == (decision, index)
    assert explained.rule == (None if index is None else POLICY.rules[index])


@pytest.mark.parametrize("default", ["allow", "ask", "deny"])
def test_what_no_rule_is_about_goes_by_the_default(default: Any) -> None:
    policy = Policy.of({"deny": "Bash"}, default=default)
    explained = policy.explain("Read")
    assert (explained.decision, explained.rule, explained.why) == (default, None, "no rule is about it")
    assert Policy.of({"deny": "Bash"}).default == "ask"


# In doubt.

COMPOUND: dict[str, Any] = {"command": "git status; ls"}


@every_case(
    "rules, decision, index",
    [
        ([{"allow": "Bash(git *)"}], "ask", None),
        ([{"deny": "Bash(git *)"}], "deny", 0),
        ([{"ask": "Bash(git *)"}], "ask", 0),
        # To ask, in doubt: stricter than what allows, and not than what denies.
        ([{"ask": "Bash(git *)"}, {"allow": "Bash"}], "ask", 0),
        ([{"ask": "Bash(git *)"}, {"deny": "Bash"}], "deny", 1),
        ([{"ask": "Bash(git *)"}, {"ask": "Bash"}], "ask", 0),
        ([{"ask": "Bash(git *)"}, {"ask": "Bash(ls *)"}, {"deny": "Bash(ls *)", "agent": "main"}], "deny", 2),
        ([{"allow": "Bash(git *)"}, {"deny": "Bash"}], "deny", 1),
        ([{"allow": "Bash"}, {"deny": "WebFetch"}], "allow", 0),
    ],
)
def test_in_doubt_the_stricter_decision_counts(
    rules: list[dict[str, Any]], decision: str, index: int | None
) -> None:
    explained = Policy(rules).explain("Bash", COMPOUND)
    assert (explained.decision, explained.index) == (decision, index)


@pytest.mark.parametrize("default, decision", [("allow", "ask"), ("ask", "ask"), ("deny", "deny")])
def test_in_doubt_the_default_counts_only_if_it_is_stricter(default: Any, decision: str) -> None:
    policy = Policy.of({"ask": "Bash(git *)"}, default=default)
    assert decided(policy, "Bash", **COMPOUND) == decision


def test_to_ask_without_doubt_comes_before_what_follows() -> None:
    policy = Policy.of({"ask": "Bash(git *)"}, {"deny": "Bash"})
    assert decided(policy, "Bash", command="git status") == "ask"


# Single conditions.


@every_case(
    "rule, tool, input, is_meant",
    [
        ({"allow": "*"}, "AnythingAtAll", {}, True),
        ({"allow": "Web*"}, "WebSearch", {}, True),
        ({"allow": "Task"}, "Agent", {}, True),
        ({"allow": "Agent"}, "Task", {}, True),
        ({"allow": "KillShell"}, "TaskStop", {}, True),
        ({"allow": "*", "server": "github"}, "mcp__github__x", {}, True),
        ({"allow": "*", "server": "git*"}, "mcp__github__x", {}, True),
        ({"allow": "*", "server": "github"}, "Bash", {}, False),
        ({"allow": "*", "server": "a"}, "mcp__a__b__c", {}, False),
        ({"allow": "*", "server": "a*"}, "mcp__a__b__c", {}, True),
        ({"allow": "*", "agent": "main"}, "Bash", {}, True),
        ({"allow": "*", "agent": "*"}, "Bash", {}, False),
        ({"allow": "Agent(Explore)"}, "Agent", {"subagent_type": "Explore"}, True),
        ({"allow": "Agent(Explore)"}, "Agent", {"subagent_type": "Other"}, False),
        ({"allow": "Agent(Explore)"}, "Agent", {}, False),
        ({"allow": "X", "arguments": {"a": "b*"}}, "X", {"a": "bc"}, True),
        ({"allow": "X", "arguments": {"a": "b*"}}, "X", {"a": "cb"}, False),
        ({"allow": "X", "arguments": {"a": "b", "c": "d"}}, "X", {"a": "b", "c": "d"}, True),
        ({"allow": "X", "arguments": {"a": "b", "c": "d"}}, "X", {"a": "b", "c": "x"}, False),
        ({"allow": "X", "arguments": {"a": "5"}}, "X", {"a": 5}, True),
        ({"allow": "X", "arguments": {"a": "true"}}, "X", {"a": True}, True),
        ({"allow": "X", "arguments": {"a": "null"}}, "X", {"a": None}, True),
        ({"allow": "X", "arguments": {"a": "b*"}}, "X", {"a": ["b", "bc"]}, True),
        ({"allow": "X", "arguments": {"a": "b*"}}, "X", {"a": ["b", "c"]}, False),
        ({"allow": "X", "arguments": {"a": "b*"}}, "X", {"a": {"deep": ["b", {"er": "c"}]}}, False),
        ({"allow": "X", "arguments": {"a": "*"}}, "X", {"a": []}, False),
        ({"allow": "X", "arguments": {"a": "b*"}}, "X", {"a": {"rm": "b"}}, False),
        (
            {"allow": "WebSearch", "domain": "*.org"},
            "WebSearch",
            {"allowed_domains": ["a.org", "b.org"]},
            True,
        ),
        (
            {"allow": "WebSearch", "domain": "*.org"},
            "WebSearch",
            {"allowed_domains": ["a.org", "b.com"]},
            False,
        ),
        ({"allow": "WebSearch", "domain": "*.org"}, "WebSearch", {}, False),
        ({"allow": "WebFetch", "url": "https://a.org/*"}, "WebFetch", {"url": "https://a.org/x"}, True),
        ({"allow": "WebFetch", "url": "https://a.org/*"}, "WebFetch", {"url": 5}, False),
        ({"allow": "Monitor", "domain": "a.org"}, "Monitor", {"ws": {"url": "wss://a.org/x"}}, True),
        ({"allow": "Monitor", "domain": "a.org"}, "Monitor", {"command": "ls"}, False),
        ({"allow": "Monitor", "command": "ls *"}, "Monitor", {"command": "ls x"}, True),
        ({"allow": "Monitor", "command": "*"}, "Monitor", {"ws": {"url": "wss://a.org/x"}}, False),
        (
            {"allow": "Monitor", "command": "ls *"},
            "Monitor",
            {"command": "ls", "ws": {"url": "wss://a.org"}},
            False,
        ),
        ({"allow": "PowerShell", "command": "ls *"}, "PowerShell", {"command": "ls x"}, True),
        ({"allow": "*", "command": "ls *"}, "Read", {"command": "ls"}, False),
        ({"allow": "*", "path": "src/**"}, "mcp__a__b", {"path": "src/a", "file_path": "src/a"}, False),
        ({"allow": "*", "path": "src/**"}, "NotebookEdit", {"notebook_path": "src/a"}, True),
        ({"allow": "*", "path": "src/**"}, "LSP", {"filePath": "src/a"}, True),
        ({"allow": "*", "path": "src/**"}, "Bash", {"command": "cat src/a"}, False),
        ({"allow": "Glob", "path": "src/**"}, "Glob", {"pattern": "*.py", "path": "src"}, True),
        ({"allow": "Glob", "path": "src/**"}, "Glob", {"pattern": "deep/*.py", "path": "src"}, True),
        ({"allow": "Glob", "path": "src/**"}, "Glob", {"pattern": "../*.py", "path": "src"}, False),
        ({"allow": "Glob", "path": "src/**"}, "Glob", {"pattern": "x/../../*", "path": "src"}, False),
        ({"allow": "Glob", "path": "src/**"}, "Glob", {"pattern": "*/../../*", "path": "src"}, False),
        ({"allow": "Glob", "path": "src/**"}, "Glob", {"pattern": "/etc/*", "path": "src"}, False),
        ({"allow": "Glob", "path": "src/**"}, "Glob", {"pattern": "{/etc,x}/*", "path": "src"}, False),
        ({"allow": "Glob", "path": "src/**"}, "Glob", {"pattern": "@(/etc|x)/*", "path": "src"}, False),
        ({"allow": "Glob", "path": "src/**"}, "Glob", {"pattern": "deep/*/../../../*", "path": "src"}, False),
        ({"allow": "Glob", "path": "src/**"}, "Glob", {"pattern": "*.{py,js}", "path": "src"}, True),
        ({"allow": "Glob", "path": "src/**"}, "Glob", {"pattern": 5, "path": "src"}, False),
        ({"allow": "Glob", "path": "src/**"}, "Glob", {"pattern": "src/*.py"}, False),
    ],
)
def test_a_condition_holds_or_does_not(
    rule: dict[str, Any], tool: str, input: dict[str, Any], is_meant: bool
) -> None:
    policy = Policy.of(rule, default="deny")
    explained = policy.explain(tool, input, cwd="/project")
    assert (explained.decision == "allow") is is_meant, explained


@every_case(
    "rule, tool, input",
    [
        ({"deny": "*", "server": "a"}, "mcp__a__b__c", {}),
        ({"deny": "X", "arguments": {"a": "b*"}}, "X", {"a": ["b", "c"]}),
        ({"deny": "X", "arguments": {"a": "b*"}}, "X", {"a": {"deep": {"er": "b"}}}),
        ({"deny": "WebFetch", "domain": "a.org"}, "WebFetch", {"url": "https://x@a.org/"}),
        ({"deny": "WebFetch", "url": "https://a.org/*"}, "WebFetch", {"url": None}),
        ({"deny": "*", "path": "**/.env"}, "Read", {"file_path": "/elsewhere/.env"}),
        ({"deny": "*", "path": "**/.env"}, "Read", {"file_path": None}),
        ({"deny": "*", "path": "**/.env"}, "Grep", {"pattern": "KEY"}),
        ({"deny": "*", "path": "secrets/**"}, "Grep", {"pattern": "KEY", "path": "."}),
        ({"deny": "*", "path": "secrets/**"}, "Glob", {"pattern": "secrets/*"}),
        ({"deny": "*", "path": "/etc/**"}, "Glob", {"pattern": "/etc/*"}),
        ({"deny": "*", "path": "**/.env"}, "Bash", {"command": "cat .env"}),
        ({"deny": "*", "path": "**/.env"}, "Bash", {"command": "x --file=.env"}),
        ({"deny": "*", "path": "**/.env"}, "Bash", {"command": "echo a>.env"}),
        ({"deny": "*", "path": "secrets/**"}, "Bash", {"command": 'cat "/project/secrets/key"'}),
        ({"deny": "*", "path": "secrets/**"}, "Bash", {"command": "cat src/../secrets/key"}),
        (
            {"deny": "*", "path": "secrets/**"},
            "Bash",
            {"command": "x " * 5 + " ".join(map(str, range(3000)))},
        ),
        ({"deny": "*", "command": "rm *"}, "Monitor", {"command": "rm x"}),
        ({"deny": "*", "command": "rm *"}, "Bash", {"command": None}),
        ({"deny": "*", "path": "**/.env"}, "Bash", {"command": "cat .e''nv"}),
        ({"deny": "*", "path": "**/.env"}, "Bash", {"command": r"cat .e\nv"}),
        ({"deny": "*", "path": "**/.env"}, "Bash", {"command": "curl -d @.env x"}),
        ({"deny": "*", "path": "**/.env"}, "Bash", {"command": "curl -d@.env x"}),
        ({"deny": "*", "path": "secrets/**"}, "Bash", {"command": "tar -C/project/secrets ."}),
        ({"deny": "*", "path": "secrets/**"}, "Bash", {"command": "a/" * 100_000}),
        ({"deny": "*", "path": "**/.env"}, "mcp__files__read", {"path": "/project/.env"}),
        ({"deny": "*", "path": "**/.env"}, "mcp__files__read", {"paths": ["a", "file:///project/.env"]}),
        ({"deny": "*", "path": "**/.env"}, "Glob", {"pattern": "{" * 100_000}),
        ({"deny": "*", "domain": "evil.org"}, "Monitor", {"ws": "wss://evil.org"}),
        ({"deny": "*", "server": "claude.ai Gmail"}, "mcp__claude_ai_Gmail__send", {}),
    ],
)
def test_a_part_is_enough_to_deny(rule: dict[str, Any], tool: str, input: dict[str, Any]) -> None:
    assert decided(Policy.of(rule), tool, **input) == "deny"


@every_case(
    "rule, tool, input",
    [
        ({"deny": "*", "path": "**/.env"}, "Bash", {"command": "ls -la src"}),
        ({"deny": "*", "path": "secrets/**"}, "Grep", {"pattern": "KEY", "path": "src"}),
        ({"deny": "*", "path": "/etc/**"}, "Grep", {"pattern": "KEY"}),
        ({"deny": "*", "path": "**/.env"}, "WebFetch", {"url": "https://a.org/.env"}),
        ({"deny": "*", "path": "**/.env"}, "Bash", {"command": 5}),
        ({"deny": "*", "agent": "a1"}, "Bash", {"command": "ls"}),
        ({"deny": "*", "path": "**/.env"}, "mcp__files__read", {"path": "/project/a", "text": "a .env b"}),
        ({"deny": "*", "server": "claude.ai Gmail"}, "mcp__claude_ai_Drive__x", {}),
    ],
)
def test_what_is_not_meant_at_all_is_not_denied(
    rule: dict[str, Any], tool: str, input: dict[str, Any]
) -> None:
    assert decided(Policy.of(rule), tool, **input) == "ask"


def test_to_leave_the_sandbox_has_to_be_allowed_by_name() -> None:
    call: dict[str, Any] = {"command": "git status", "dangerouslyDisableSandbox": True}
    assert decided(Policy.of({"allow": "Bash(git *)"}), "Bash", **call) == "ask"
    assert decided(Policy.of({"deny": "Bash(git *)"}), "Bash", **call) == "deny"
    assert decided(Policy.of({"allow": "Bash"}), "Bash", **call) == "allow"
    by_name = {"allow": "Bash", "command": "git *", "arguments": {"dangerouslyDisableSandbox": "true"}}
    assert decided(Policy.of(by_name), "Bash", **call) == "allow"
    call["dangerouslyDisableSandbox"] = False
    assert decided(Policy.of({"allow": "Bash(git *)"}), "Bash", **call) == "allow"


def test_rules_can_be_for_subagents() -> None:
    policy = Policy.of({"deny": "Bash", "agent": "a1*"}, {"ask": "Bash", "agent": "*"}, {"allow": "Bash"})
    assert policy.explain("Bash", agent="a123").decision == "deny"
    assert policy.explain("Bash", agent="b123").decision == "ask"
    assert policy.explain("Bash").decision == "allow"


def test_the_server_of_a_tool_can_be_told() -> None:
    policy = Policy.of({"allow": "*", "server": "my server"}, default="deny")
    assert policy.explain("mcp__my_server__x", server="my server").decision == "allow"
    assert policy.explain("mcp__my_server__x").decision == "deny"


def test_relative_paths_begin_at_the_folder_that_is_given(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    policy = Policy.of({"allow": "Read", "path": "src/**"})
    path = {"file_path": str(tmp_path / "src" / "a")}
    assert policy.explain("Read", path, cwd=tmp_path).decision == "allow"
    assert policy.explain("Read", path, cwd="/elsewhere").decision == "ask"
    monkeypatch.chdir(tmp_path)
    assert policy.explain("Read", path).decision == "allow"
    assert policy.explain("Read", {"file_path": "src/a"}).decision == "allow"


# Explained.


def test_an_explanation_shows_every_rule_that_was_looked_at() -> None:
    explained = POLICY.explain("Bash", {"command": "npm test"}, cwd="/project")
    assert [(each.index, each.matched) for each in explained.considered] == [
        (0, False),
        (1, False),
        (2, True),
    ]
    assert str(explained).splitlines() == [
        "ask: Bash {'command': 'npm test'}",
        "  1. deny Bash command 'rm *', 'sudo *': no, no command in it matches",
        "  2. allow Bash command 'git *': no, no command in it matches",
        "  3. ask Bash command 'npm *': yes, 'npm test' matches",
        "  by rule 3 (ask Bash command 'npm *'): 'npm test' matches",
    ]


def test_an_explanation_says_why_a_rule_was_passed_over() -> None:
    lines = str(POLICY.explain("Read", {"file_path": "x.py"}, cwd="/project"))
    assert "1. deny Bash command 'rm *', 'sudo *': no, it is for Bash" in lines
    assert "4. allow Read, Grep path 'src/**': no, its path 'x.py' does not fit 'src/**'" in lines
    assert lines.endswith("by default: no rule is about it")
    not_plain = str(POLICY.explain("Bash", {"command": "git a; git b"}))
    assert "2. allow Bash command 'git *': no, 'git a' is in it; it has more than one command" in not_plain


def test_an_explanation_hides_secrets() -> None:
    shown = str(POLICY.explain("X", {"env": "ANTHROPIC_API_KEY=sk-ant-api03-abcdefghijklmnop"}))
    assert "abcdefghijklmnop" not in shown


# As a value.


def test_a_policy_is_a_value() -> None:
    same = Policy.from_data(POLICY.to_data())
    assert (same, hash(same)) == (POLICY, hash(POLICY))
    assert same is not POLICY
    assert Policy.of({"allow": "Read"}) != Policy.of({"allow": "Read"}, default="deny")
    assert Policy.of({"allow": "Read"}) != Policy.of({"allow": "Read"}, otherwise=print)
    assert copy.copy(POLICY) == POLICY
    with pytest.raises(AttributeError):
        POLICY.default = "allow"  # type: ignore[misc]  # pyright: ignore[reportAttributeAccessIssue]


def test_a_policy_is_plain_data_at_will() -> None:
    data = json.loads(json.dumps(POLICY.to_data()))
    assert Policy.from_data(data) == POLICY
    assert Policy.from_data(data["rules"]) == POLICY
    assert Policy.from_data({"rules": [{"allow": "Read"}], "default": "deny"}).default == "deny"
    assert Policy.from_data([{"allow": "Read"}], otherwise=print).otherwise is print


def test_a_policy_is_shown_as_it_could_be_written() -> None:
    policy = Policy.of({"deny": "Bash(rm *)"}, {"allow": "Read"}, default="deny")
    assert repr(policy) == "Policy.of({'deny': 'Bash', 'command': 'rm *'}, {'allow': 'Read'}, default='deny')"
    assert eval(repr(policy), {"Policy": Policy}) == policy
    assert repr(Policy.of({"allow": "Read"}, otherwise=print)) == "Policy.of({'allow': 'Read'}, otherwise=…)"


def test_rules_may_be_given_in_either_form() -> None:
    assert Policy([Rule("allow", "Read"), {"deny": "Bash"}]) == Policy.of(
        {"allow": "Read"}, Rule("deny", "Bash")
    )


def test_changing_what_it_was_made_of_changes_no_policy() -> None:
    rules: list[Any] = [{"allow": "Read", "path": ["a"]}]
    policy = Policy(rules)
    rules[0]["path"].append("b")
    rules.append({"allow": "*"})
    assert policy == Policy.of({"allow": "Read", "path": "a"})


@every_case(
    "make, text",
    [
        (lambda: Policy([]), "has no rules"),
        (Policy.of, "has no rules"),
        (lambda: Policy.from_data({}), "has no rules"),
        (lambda: Policy.from_data({"rules": []}), "has no rules"),
        (lambda: Policy.from_data({"ruels": []}), "Did you mean 'rules'"),
        (lambda: Policy.from_data({"rules": [{"allow": "Read"}], "x": 1}), "unknown key: 'x'"),
        (lambda: Policy.from_data("Read"), "must be a list of rules"),
        (lambda: Policy.from_data(5), "must be a list of rules"),
        (lambda: Policy.from_data(None), "must be a list of rules"),
        (lambda: Policy.of({"allow": "Read"}, {"deny": "Bash)"}), "^rule 2: `deny` is not a rule"),
        (
            lambda: Policy.from_data({"rules": [{"allow": "Read"}], "default": "no"}),
            "`default` must be one of",
        ),
        (lambda: Policy.of({"allow": "Read"}, otherwise="me"), "`otherwise` must be a function"),  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
        (lambda: Policy({"allow": "Read"}), "must be a list of rules"),  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
        (lambda: Policy(Rule("allow", "Read")), "must be a list of rules"),  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    ],
    ids=range(14),
)
def test_what_is_no_policy_is_refused(make: Any, text: str) -> None:
    with pytest.raises(OptionsError, match=text):
        make()


@pytest.mark.parametrize(
    "first, second",
    [
        ({"allow": "*"}, {"deny": "Bash(rm *)"}),
        ({"allow": "Bash"}, {"deny": "Bash"}),
        ({"allow": "Bash"}, {"deny": "Bash(rm *)"}),
        ({"allow": "mcp__*"}, {"deny": "mcp__a__b"}),
        ({"allow": ["Read", "Bash"]}, {"deny": "Bash"}),
        ({"allow": "Bash(git *)"}, {"deny": "Bash(git *)"}),
        ({"ask": "*"}, {"allow": "*"}),
    ],
    ids=repr,
)
def test_a_rule_that_is_never_reached_is_warned_of(first: Any, second: Any) -> None:
    with pytest.warns(UnreachableRuleWarning, match="is never reached") as caught:
        Policy.of(first, second)
    assert [warning.filename for warning in caught] == [__file__]


@pytest.mark.parametrize(
    "first, second",
    [
        ({"deny": "Bash(rm *)"}, {"allow": "*"}),
        ({"allow": "Bash"}, {"deny": "*"}),
        ({"allow": "Bash"}, {"deny": ["Bash", "Read"]}),
        ({"allow": "Bash(git *)"}, {"deny": "Bash"}),
        ({"allow": "Bash(git *)"}, {"deny": "Bash(git push *)"}),
        ({"allow": "mcp__a__b"}, {"deny": "mcp__*"}),
    ],
    ids=repr,
)
def test_a_rule_that_can_be_reached_is_not_warned_of(first: Any, second: Any) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        Policy.of(first, second)


# As a permission callback.


async def test_a_policy_answers_the_agent() -> None:
    decider = Decider(POLICY)
    assert (await decider.answer("Bash", {"command": "git status"}))["behavior"] == "allow"
    denied = await decider.answer("Bash", {"command": "rm x"})
    assert denied == {"behavior": "deny", "message": "Ask the user to do that."}
    other = await decider.answer("WebFetch", {"url": "https://other.org/"})
    assert other == {"behavior": "deny", "message": "The policy does not allow this use of WebFetch."}
    asked = await decider.answer("Bash", {"command": "npm test"})
    assert asked == {
        "behavior": "deny",
        "message": "Nobody can be asked about this here, so it is not allowed.",
    }
    assert [report.reason for report in decider.reports] == [
        "Policy allowed it: by rule 2 (allow Bash command 'git *')",
        "Policy denied it: by rule 1 (deny Bash command 'rm *', 'sudo *')",
        "Policy denied it: by rule 8 (deny WebFetch)",
        "Policy denied it: by rule 3 (ask Bash command 'npm *'), and there is nobody to ask",
    ]


@every_case(
    "value, wire, reason",
    [
        (True, "allow", "Policy allowed it: someone was asked by default"),
        (False, "deny", "Policy denied it: someone was asked by default"),
        (deny("Too late"), "deny", "Policy denied it: someone was asked by default: Too late"),
        (allow(reason="fine"), "allow", "Policy allowed it: someone was asked by default: fine"),
        (allow(notice="by Ann"), "allow", "Policy allowed it: by Ann"),
        ({"behavior": "allow"}, "allow", "Policy allowed it"),
        (
            None,
            "deny",
            "Policy gave no valid decision: None is not a decision: return allow() or deny('why')",
        ),
    ],
    ids=range(7),
)
@every_case("is_async", [False, True])
async def test_what_is_to_be_asked_goes_to_the_callback(
    value: object, wire: str, reason: str, is_async: bool
) -> None:
    asked: list[PermissionRequest] = []

    def answers(request: PermissionRequest) -> object:
        asked.append(request)
        return value

    async def answers_later(request: PermissionRequest) -> object:
        return answers(request)

    someone: Any = answers_later if is_async else answers
    someone.__qualname__ = "someone"
    decider = Decider(Policy.of({"deny": "WebFetch"}, otherwise=someone))
    assert (await decider.answer("Bash"))["behavior"] == wire
    assert decider.report.reason == reason
    assert asked[0].tool_name == "Bash"
    assert (await decider.answer("WebFetch", {"url": "https://a.org"}))["behavior"] == "deny"
    assert len(asked) == 1


@pytest.mark.parametrize("error", [ValueError("1234"), Denied("No")], ids=["fails", "denies"])
async def test_a_callback_that_raises_denies_behind_a_policy_too(error: Exception) -> None:
    def raises(_: object) -> object:
        raise error

    answer = await Decider(Policy.of({"ask": "*"}, otherwise=raises)).answer()
    assert answer["behavior"] == "deny"
    assert "1234" not in answer["message"]


async def test_a_request_changed_in_place_behind_a_policy_is_not_allowed() -> None:
    def changes(request: PermissionRequest) -> bool:
        request.tool_input["command"] = "pwd"
        return True

    assert (await Decider(Policy.of({"ask": "*"}, otherwise=changes)).answer())["behavior"] == "deny"


async def test_a_policy_sees_what_the_agent_asked_and_not_what_was_made_of_it() -> None:
    policy = Policy.of(
        {"deny": "*", "path": "/etc/**"}, {"allow": "mcp__a__*", "server": "a"}, {"allow": "Bash"}
    )
    decider = Decider(policy)
    blocked = await decider.answer("Bash", {"command": "x"}, blocked_path="/etc/hosts")
    assert blocked["behavior"] == "deny"
    assert (await decider.answer("Bash", {"command": "x"}, blocked_path="/usr"))["behavior"] == "allow"
    for server, behavior in (("a", "allow"), ("a__b", "deny")):
        told = {"name": server, "source": "dynamic"}
        assert (await decider.answer("mcp__a__b__c", {}, mcp_server=told))["behavior"] == behavior


async def test_a_policy_knows_the_folder_and_the_machine_of_its_session(tmp_path: Path) -> None:
    (tmp_path / "src").mkdir()
    (tmp_path / "src" / "out").symlink_to("/etc")
    policy = Policy.of({"allow": "Read", "path": "src/**"})
    permissions = Decider(policy).permissions

    class Far:
        is_local = False

    ask = can_use("Read", {"file_path": str(tmp_path / "src" / "out" / "passwd")})
    here = await permissions.answer(ask, Asker(str(tmp_path)))
    far = await permissions.answer(ask, Asker(str(tmp_path), runner=Far()))
    elsewhere = await permissions.answer(ask, Asker("/elsewhere"))
    assert [answer["behavior"] for answer in (here, far, elsewhere)] == ["deny", "allow", "deny"]


async def test_an_agent_that_goes_elsewhere_does_not_take_the_policy_along() -> None:
    policy = Policy.of(
        {"deny": "Read", "path": "secrets/**"}, {"allow": "Read", "path": "src/**"}, {"ask": "Read"}
    )
    permissions = Decider(policy).permissions
    gone = Asker("/project/deep", began="/project")
    for path, behavior in (("secrets/key", "deny"), ("src/a", "allow"), ("deep/src/a", "deny")):
        answer = await permissions.answer(can_use("Read", {"file_path": f"/project/{path}"}), gone)
        assert answer["behavior"] == behavior
    for path, is_denied in (("secrets/key", True), ("src/a", False)):
        told = {"tool_name": "Read", "tool_input": {"file_path": f"/project/{path}"}, "cwd": "/project/deep"}
        wire = await guarded(policy.guard(), Asker("/project", began="/project"), **told)
        assert ("hookSpecificOutput" in wire) is is_denied


async def test_a_policy_that_cannot_know_the_folder_denies() -> None:
    origin = Asker()
    origin.session = None
    answer = await Decider(Policy.of({"allow": "*"})).permissions.answer(can_use(), origin)
    assert answer["behavior"] == "deny"


def test_a_policy_is_an_option() -> None:
    options = Options(permission=POLICY)
    assert options.permission is POLICY
    assert options == Options(permission=POLICY)
    assert "Policy.of({'deny': 'Bash'" in repr(options)


# As a guard.


async def guarded(guard: object, origin: Asker, **fields: Any) -> Any:
    """What a guard says to a call."""
    hooks = Hooked({"PreToolUse": [guard]}).hooks
    (registration,) = hooks.registrations()["PreToolUse"]
    return await hooks.answer(callback("PreToolUse", registration.hook_callback_ids[0], **fields), origin)


@every_case(
    "strict, command, decision",
    [
        (False, "rm x", "deny"),
        (False, "git status", None),
        (False, "npm test", None),
        (False, "ls", None),
        (True, "rm x", "deny"),
        (True, "git status", None),
        (True, "npm test", "ask"),
        (True, "ls", "ask"),
    ],
)
async def test_a_guard_applies_a_policy_to_every_call(
    strict: bool, command: str, decision: str | None
) -> None:
    wire = await guarded(POLICY.guard(strict=strict), Asker(), tool_input={"command": command})
    assert wire.get("hookSpecificOutput", {}).get("permissionDecision") == decision
    if decision == "deny":
        assert wire["hookSpecificOutput"]["permissionDecisionReason"] == "Ask the user to do that."


async def test_a_guard_knows_the_kind_of_a_subagent() -> None:
    policy = Policy.of({"deny": "Bash", "agent": "Explore"}, {"deny": "Bash", "agent": "a2"})
    for agent, kind, denied in (("a1", "Explore", True), ("a2", "Plan", True), ("a3", "Plan", False)):
        wire = await guarded(policy.guard(), Asker(), agent_id=agent, agent_type=kind)
        assert ("hookSpecificOutput" in wire) is denied


async def test_a_guard_that_fails_refuses() -> None:
    origin = Asker()
    origin.session = None
    wire = await guarded(POLICY.guard(), origin)
    assert wire["hookSpecificOutput"]["permissionDecision"] == "deny"
    assert POLICY.guard().fails == "closed"


# Whatever the rules.

RULES = st.sampled_from(
    [
        {"allow": "Bash(git *)"},
        {"allow": "Bash"},
        {"allow": "*"},
        {"ask": "Bash(git *)"},
        {"ask": "Bash(rm *)"},
        {"ask": "*", "path": "src/**"},
        {"deny": "Bash(rm *)"},
        {"deny": "Bash"},
        {"deny": "*", "path": "**/.env"},
        {"allow": "Read", "path": "src/**"},
        {"allow": "WebFetch", "domain": "a.org"},
        {"deny": "WebFetch", "domain": "*.org"},
    ]
)
CALLS = st.one_of(
    st.tuples(
        st.just("Bash"),
        st.fixed_dictionaries(
            {"command": st.text(st.sampled_from("git rm ls;&|'\"$()`.env src/\n"), max_size=25)}
        ),
    ),
    st.tuples(
        st.sampled_from(["Read", "Grep", "Glob"]),
        st.dictionaries(
            st.sampled_from(["file_path", "path", "pattern"]),
            st.text(st.sampled_from("src/.env*~"), max_size=12),
        ),
    ),
    st.tuples(
        st.just("WebFetch"),
        st.fixed_dictionaries({"url": st.text(st.sampled_from("https://a.orgb@\\"), max_size=25)}),
    ),
)


@pytest.mark.requirement("A10")
@given(
    rules=st.lists(RULES, min_size=1, max_size=5),
    denies=RULES,
    call=CALLS,
    default=st.sampled_from(list(SERIOUS)),
)
def test_a_rule_that_denies_in_front_never_permits_more(
    rules: list[dict[str, Any]], denies: dict[str, Any], call: tuple[str, dict[str, Any]], default: Any
) -> None:
    conditions = {key: value for key, value in denies.items() if key not in SERIOUS}
    (tool,) = [value for key, value in denies.items() if key in SERIOUS]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UnreachableRuleWarning)
        before = Policy(rules, default=default)
        after = Policy([{"deny": tool} | conditions, *rules], default=default)
    was, became = (each.explain(*call, cwd="/project").decision for each in (before, after))
    assert SERIOUS[became] >= SERIOUS[was]


@given(rules=st.lists(RULES, min_size=1, max_size=5), call=CALLS)
def test_an_explanation_is_what_is_decided(rules: list[dict[str, Any]], call: tuple[str, Any]) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UnreachableRuleWarning)
        policy = Policy(rules)
    explained = policy.explain(*call, cwd="/project")
    if explained.index is None:
        assert len(explained.considered) == len(policy.rules)
        assert explained.decision == policy.default
    else:
        assert policy.rules[explained.index].decision == explained.decision
        assert explained.considered[explained.index].matched
    assert str(explained).count("\n") == len(explained.considered) + 1
