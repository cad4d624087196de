"""Rules are values and plain data at once, and one that could not work is refused."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from outrider.errors import OptionsError
from outrider.handlers import Rule
from tests.cases import every_case

# As data.

DATA: list[tuple[dict[str, Any], Rule]] = [
    ({"allow": "Read"}, Rule("allow", "Read")),
    ({"deny": "*"}, Rule("deny")),
    ({"ask": ["Read", "Grep"], "path": ["a", "b/**"]}, Rule("ask", ["Read", "Grep"], path=["a", "b/**"])),
    ({"deny": "Bash", "command": "rm *"}, Rule("deny", "Bash", command="rm *")),
    ({"deny": "Bash", "command": "rm *", "reason": "No"}, Rule("deny", "Bash", command="rm *", reason="No")),
    ({"allow": "WebFetch", "domain": "*.a.org"}, Rule("allow", "WebFetch", domain="*.a.org")),
    ({"allow": "WebFetch", "url": "https://a.org/*"}, Rule("allow", "WebFetch", url="https://a.org/*")),
    ({"allow": "*", "server": "github"}, Rule("allow", server="github")),
    ({"deny": "*", "agent": "main"}, Rule("deny", agent="main")),
    (
        {"allow": "mcp__db__query", "arguments": {"table": ["a", "b_*"], "limit": "1?"}},
        Rule("allow", "mcp__db__query", arguments={"table": ["a", "b_*"], "limit": "1?"}),
    ),
]


@every_case("data, rule", DATA, ids=[repr(rule) for _, rule in DATA])
def test_a_rule_is_the_same_as_its_data(data: dict[str, Any], rule: Rule) -> None:
    assert Rule.from_data(data) == [rule]
    assert rule.to_data() == data
    assert json.loads(json.dumps(rule.to_data())) == data
    assert hash(rule) == hash(Rule.from_data(data)[0])
    assert eval(repr(rule), {"Rule": Rule}) == rule


@every_case(
    "noted, data",
    [
        ("Bash(git *)", {"allow": "Bash", "command": "git *"}),
        ("Bash(git:*)", {"allow": "Bash", "command": "git *"}),
        ("Bash(npm run test)", {"allow": "Bash", "command": "npm run test"}),
        ("Bash(echo (a))", {"allow": "Bash", "command": "echo (a)"}),
        ("Bash(*)", {"allow": "Bash"}),
        ("Bash()", {"allow": "Bash"}),
        ("Read(src/**)", {"allow": ["Read", "Grep", "Glob", "LS", "NotebookRead"], "path": "src/**"}),
        ("Grep(./src)", {"allow": ["Read", "Grep", "Glob", "LS", "NotebookRead"], "path": "src"}),
        ("Edit(/src/**)", {"allow": ["Edit", "Write", "NotebookEdit", "MultiEdit"], "path": "src/**"}),
        ("Write(//etc/**)", {"allow": ["Edit", "Write", "NotebookEdit", "MultiEdit"], "path": "/etc/**"}),
        ("Edit(~/x)", {"allow": ["Edit", "Write", "NotebookEdit", "MultiEdit"], "path": "~/x"}),
        ("LSP(src/**)", {"allow": "LSP", "path": "src/**"}),
        ("WebFetch(domain:a.org)", {"allow": "WebFetch", "domain": "a.org"}),
        ("Agent(Explore)", {"allow": "Agent", "arguments": {"subagent_type": "Explore"}}),
        ("Task(Explore)", {"allow": "Task", "arguments": {"subagent_type": "Explore"}}),
        ("Skill(pdf)", {"allow": "Skill", "arguments": {"skill": "pdf"}}),
        ("mcp__github", {"allow": "mcp__github__*"}),
        ("mcp__github__*", {"allow": "mcp__github__*"}),
        ("mcp__github__search", {"allow": "mcp__github__search"}),
    ],
)
def test_the_notation_of_the_agent_is_read(noted: str, data: dict[str, Any]) -> None:
    (rule,) = Rule.from_data({"allow": noted})
    assert rule.to_data() == data
    assert Rule("allow", noted) == rule


def test_a_list_of_tools_in_the_notation_of_the_agent_is_several_rules() -> None:
    rules = Rule.from_data({"deny": ["Read", "Bash(rm *)", "Grep", "Bash(sudo *)"], "reason": "No"})
    assert rules == [
        Rule("deny", ["Read", "Grep"], reason="No"),
        Rule("deny", "Bash", command="rm *", reason="No"),
        Rule("deny", "Bash", command="sudo *", reason="No"),
    ]


def test_conditions_beside_the_notation_of_the_agent_are_added_to_it() -> None:
    (rule,) = Rule.from_data({"allow": "Bash(git *)", "agent": "main"})
    assert rule == Rule("allow", "Bash", command="git *", agent="main")


def test_what_is_given_as_a_number_or_a_switch_is_meant_as_text() -> None:
    arguments: Any = {"n": 5, "on": True, "x": [1.5, "y"]}
    rule = Rule("allow", "mcp__a__b", arguments=arguments)
    assert rule.arguments == (("n", ("5",)), ("on", ("true",)), ("x", ("1.5", "y")))
    assert Rule.from_data(rule.to_data()) == [rule]


@pytest.mark.parametrize(
    "rule, text",
    [
        (Rule("deny", "Bash", command=["rm *", "sudo *"]), "deny Bash command 'rm *', 'sudo *'"),
        (Rule("allow", ["Read", "Grep"], path="src/**", reason="r"), "allow Read, Grep path 'src/**'"),
        (Rule("ask"), "ask *"),
        (Rule("allow", "Skill(pdf)"), "allow Skill skill 'pdf'"),
    ],
    ids=str,
)
def test_a_rule_can_be_read_aloud(rule: Rule, text: str) -> None:
    assert str(rule) == text


def test_a_rule_is_a_value() -> None:
    rule = Rule("deny", "Bash")
    with pytest.raises(AttributeError):
        rule.decision = "allow"  # type: ignore[misc]  # pyright: ignore[reportAttributeAccessIssue]
    patterns = ["a"]
    made = Rule("deny", "Read", path=patterns)
    patterns.append("b")
    assert made.path == ("a",)


# What is refused.

REFUSED: list[tuple[object, str]] = [
    ("Bash", "must be a mapping"),
    (None, "must be a mapping"),
    (["Bash"], "must be a mapping"),
    ({}, "decides nothing"),
    ({"command": "rm *"}, "decides nothing"),
    ({"allow": "Read", "deny": "Read"}, "has 'allow' and 'deny'"),
    ({"denny": "Bash"}, "Did you mean 'deny'"),
    ({"deny": "Bash", "comand": "x"}, "Did you mean 'command'"),
    ({"deny": "Bash", "when": "x"}, "unknown key: 'when'"),
    ({"deny": "Bash", 5: "x"}, "unknown key: 5"),
    ({"deny": ""}, "empty pattern"),
    ({"deny": None}, "must be the name of a tool"),
    ({"deny": []}, "must be the name of a tool"),
    ({"deny": ["Bash", 5]}, "must be a text"),
    ({"deny": "bash(rm *)"}, "Did you mean 'Bash'"),
    ({"deny": "Bash(rm *"}, "is not a rule"),
    ({"deny": "Bash)"}, "is not a rule"),
    ({"deny": "(rm *)"}, "is not a rule"),
    ({"deny": "Foo(bar)"}, "'bar' has no meaning"),
    ({"deny": "WebFetch(a.org)"}, "'a.org' has no meaning"),
    ({"deny": "Bash(rm *)", "command": "x"}, "twice"),
    ({"deny": "Skill(a)", "arguments": {"b": "c"}}, "twice"),
    ({"deny": "Bash", "command": ""}, "empty pattern"),
    ({"deny": "Bash", "command": 5}, "must be a pattern"),
    ({"deny": "Bash", "command": [5]}, "must be a pattern"),
    ({"deny": "Bash", "command": {"a": "b"}}, "must be a pattern"),
    ({"deny": "Bash", "command": "[x"}, "never closed"),
    ({"deny": "Bash", "command": "{a,b}"}, "Give a list of patterns"),
    ({"deny": "Read", "path": "a/**b"}, "next to something else"),
    ({"deny": "Read", "command": "x"}, "cannot go by `command`"),
    ({"allow": "Bash", "domain": "x"}, "cannot go by `domain`"),
    ({"deny": "WebFetch", "path": "x"}, "cannot go by `path`"),
    ({"deny": "WebSearch", "url": "https://x"}, "cannot go by `url`"),
    ({"allow": "Bash", "path": "src/**"}, "does not show which files"),
    ({"allow": ["Read", "Bash"], "path": "src/**"}, "does not show which files"),
    ({"deny": "mcp__a__b", "path": "x"}, "Say which of its `arguments`"),
    ({"deny": "WebFetch", "domain": "https://a.org"}, "not a domain"),
    ({"deny": "WebFetch", "url": "a.org"}, "is not a URL"),
    ({"deny": "X", "arguments": "a"}, "must be a mapping of names"),
    ({"deny": "X", "arguments": {"": "a"}}, "must be a mapping of names"),
    ({"deny": "X", "arguments": {"a": []}}, "must be a pattern"),
    ({"deny": "X", "arguments": {"a": None}}, "must be a pattern"),
    ({"deny": "X", "reason": ""}, "`reason` must be a text"),
    ({"deny": "X", "reason": 5}, "`reason` must be a text"),
]


@every_case("data, text", REFUSED, ids=[repr(data)[:50] for data, _ in REFUSED])
def test_a_rule_that_could_not_work_is_refused(data: object, text: str) -> None:
    with pytest.raises(OptionsError) as caught:
        Rule.from_data(data, "rule 3")
    assert text in str(caught.value)
    assert str(caught.value).startswith("rule 3") or "the decision" in str(caught.value)


def test_a_rule_made_by_hand_is_looked_at_as_well() -> None:
    make: Any = Rule
    with pytest.raises(OptionsError, match="one of 'allow', 'ask', 'deny'"):
        make("forbid", "Bash")
    with pytest.raises(OptionsError, match="Did you mean 'command'"):
        make("deny", "Bash", comand="x")
    with pytest.raises(OptionsError, match="beside other tools"):
        make("deny", ["Read", "Bash(rm *)"])


@pytest.mark.parametrize(
    "condition", [{"command": []}, {"path": ()}, {"arguments": {}}, {"domain": []}], ids=repr
)
def test_an_empty_list_of_what_is_allowed_does_not_allow_all(condition: dict[str, Any]) -> None:
    with pytest.raises(OptionsError, match="is empty") as caught:
        Rule.from_data({"allow": "*"} | condition)
    assert caught.value.hint
    with pytest.raises(OptionsError, match="is empty"):
        Rule("allow", "*", **condition)


@every_case(
    "data",
    [
        {"deny": "SomethingNew"},
        {"deny": "mcp__a__b"},
        {"deny": "*", "path": "x"},
        {"deny": "*", "command": "x"},
        {"allow": "W*", "domain": "x"},
        {"deny": "Bash", "path": "**/.env"},
        {"allow": "SomethingNew", "path": "x"},
        {"allow": "WebSearch", "domain": "x"},
    ],
    ids=repr,
)
def test_other_rules_are_accepted(data: dict[str, Any]) -> None:
    assert Rule.from_data(data)


PATTERNS = st.one_of(
    st.from_regex(r"[a-z*?/.-]{0,4}[a-z]", fullmatch=True).filter(lambda text: "**" not in text),
    st.lists(st.from_regex(r"[a-z]{1,3}", fullmatch=True), min_size=1, max_size=3, unique=True),
)


@given(
    st.sampled_from(["allow", "ask", "deny"]),
    st.sampled_from(["*", "Read", "mcp__a__*", "W*"]),
    st.dictionaries(
        st.sampled_from(["server", "agent", "reason"]), st.from_regex(r"[a-z]{1,4}", fullmatch=True)
    ),
    st.dictionaries(st.from_regex(r"[a-z]{1,4}", fullmatch=True), PATTERNS, max_size=3),
)
def test_any_rule_survives_being_written_and_read(
    decision: str, tool: str, conditions: dict[str, Any], arguments: dict[str, Any]
) -> None:
    data = {decision: tool} | conditions | ({"arguments": arguments} if arguments else {})
    (rule,) = Rule.from_data(data)
    assert Rule.from_data(json.loads(json.dumps(rule.to_data()))) == [rule]
