"""Which step of a script is for which request."""

from __future__ import annotations

import re
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, cast

import pytest

from outrider.errors import OptionsError
from outrider.testing import (
    Answer,
    ExpectationFailed,
    Failure,
    Hang,
    MessagesApi,
    Request,
    Script,
    Step,
    ToolUse,
    answer,
    drop,
    exit_plan_mode,
    expect,
    fail,
    hang,
    say,
    subagent,
    use_tool,
    when,
)
from tests.cases import every_case
from tests.testing.client import ask
from tests.testing.talking import asked, called, result, said, text, user

TOOLS: dict[str, Any] = {"Bash": {}, "mcp__tools__lookup": {}, "mcp__a__same": {}, "mcp__b__same": {}}


def names(step: Step) -> list[str]:
    assert isinstance(step, Answer)
    return [block.name for block in step.blocks if isinstance(block, ToolUse)]


# The order.


def test_each_request_takes_the_next_step() -> None:
    script = Script([say("1"), say("2")])
    assert len(script.remaining) == 2
    assert [text(script.take(asked("hi"))) for _ in range(3)] == ["1", "2", "(end of script)"]
    script.add(say("3"))
    assert text(script.take(asked("hi"))) == "3"
    assert script.errors == []
    script.check()


def test_a_used_up_script_goes_on_with_the_otherwise() -> None:
    script = Script([], otherwise=lambda request: say(request.prompt))
    assert [text(script.take(asked(prompt))) for prompt in "ab"] == ["a", "b"]


def test_many_threads_take_each_step_once() -> None:
    script = Script([say(str(number)) for number in range(200)])
    with ThreadPoolExecutor(16) as pool:
        taken = list(pool.map(lambda number: text(script.take(asked("hi", session=str(number)))), range(200)))
    assert sorted(taken, key=int) == [str(number) for number in range(200)]


def test_a_function_that_waits_holds_up_no_other_request() -> None:
    is_other_done = threading.Event()

    def wait(request: Request) -> Step:
        assert is_other_done.wait(20)
        return say("waited")

    script = Script([wait, say("other")])
    first = script.reserve(asked("hi", session="s1"))
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(first)
        assert text(script.take(asked("hi", session="s2"))) == "other"
        is_other_done.set()
        assert text(waiting.result(20)) == "waited"


# What is wrong with it.


@pytest.mark.parametrize(
    "items, what",
    [
        (["hello"], r"Item 1 .*'hello'.*say\('hello'\)"),
        ([say("x"), None], "Item 2 .*None"),
        ([[say("x")]], "Item 1"),
        ("hello", "a list of steps"),
        ({"say": "x"}, "a list of steps"),
        (5, "a list of steps"),
    ],
)
def test_what_is_no_step_is_refused(items: Any, what: str) -> None:
    with pytest.raises(OptionsError, match=what):
        Script(items)


def test_a_step_that_is_none_can_not_be_added_later() -> None:
    script, item = Script([]), cast("Any", "hello")
    with pytest.raises(OptionsError, match="Item 1"):
        script.add(item)
    assert script.remaining == ()


def test_an_automatic_script_has_no_otherwise() -> None:
    with pytest.raises(OptionsError, match="automatic"):
        Script(None, otherwise=say("x"))


def _raise(request: Request) -> Step:
    raise KeyError("mine")


async def _async(request: Request) -> Step:
    return say("x")


@pytest.mark.parametrize(
    "item, kind, what",
    [
        (_raise, KeyError, "KeyError.*mine"),
        (lambda request: None, OptionsError, "returned None.*has to return a step"),
        (_async, OptionsError, "is async"),
        (expect(_raise), KeyError, "mine"),
        (when(_raise, say("x")), KeyError, "mine"),
        (use_tool("same"), OptionsError, "several tools are called 'same'.*'mcp__a__same', 'mcp__b__same'"),
    ],
    ids=[
        "raises",
        "returns nothing",
        "async",
        "check raises",
        "when raises",
        "two tools",
    ],
)
def test_a_mistake_is_kept_and_fails_the_turn(item: Any, kind: type[Exception], what: str) -> None:
    script = Script([item, say("next")])
    first, again = script.take(asked("hi", tools=TOOLS)), script.take(asked("hi", tools=TOOLS))
    assert isinstance(first, Failure)
    # The agent may ask once more, and must not get what is for the next request.
    assert (first.status, again) == (418, first)
    assert re.search(what, first.message)
    (error,) = script.errors
    assert type(error) is kind
    with pytest.raises(kind):
        script.check()
    # The step after an expectation that failed is gone with it.
    rest = "(end of script)" if item.__class__.__name__ == "Expectation" else "next"
    expected = text(script.take(asked("hi", said("x"), "on")))
    assert expected == ("The test's script is wrong: KeyError('mine')" if "When" in str(type(item)) else rest)


def test_the_first_mistake_is_raised_with_a_note_of_the_others() -> None:
    script = Script([expect(prompt="a"), say("x"), expect(prompt="b"), say("x")])
    script.take(asked("1"))
    script.take(asked("2"))
    with pytest.raises(ExpectationFailed, match="expected: a") as caught:
        script.check()
    assert "expected: b" in caught.value.__notes__[0]


# Expectations.


RESULTS = asked("go", called(), user(result("fine"), result("bad luck", id="t2", is_error=True)), tools=TOOLS)


@every_case(
    "expectation",
    [
        expect(prompt="go"),
        expect(prompt=re.compile("^g.$")),
        expect(tool_result="fine"),
        expect(tool_result="fine", is_error=False),
        expect(tool_result=re.compile("luck$"), is_error=True),
        expect(is_error=True),
        expect(is_error=False),
        expect(model="some"),
        expect(tools=["Bash", "lookup"]),
        expect(tools="lookup"),
        expect(lambda request: None, lambda request: len(request.tool_results) == 2),
    ],
)
def test_what_is_expected_lets_the_step_pass(expectation: Any) -> None:
    script = Script([expectation, expectation, say("yes")])
    assert text(script.take(RESULTS)) == "yes"
    assert script.errors == []


@pytest.mark.parametrize(
    "expectation, what",
    [
        (expect(prompt="stop"), "`prompt`.*\n  expected: stop\n  actual:   go"),
        (expect(prompt=re.compile("^o")), "expected: /\\^o/"),
        (expect(tool_result="good"), r"`tool_result`.*\n.*good\n  actual:   fine\n\(error\) bad luck"),
        (expect(tool_result="fine", is_error=True), "`is_error`.*\n  expected: True"),
        (expect(model="other"), "`model`.*\n.*other\n.*some-model"),
        (expect(tools=["Read"]), "`tools`.*\n.*Read\n.*Bash, mcp__tools__lookup"),
        (expect(lambda request: False), "says no"),
    ],
)
def test_what_is_not_as_expected_is_shown(expectation: Any, what: str) -> None:
    script = Script([expectation, say("yes")])
    step = script.take(RESULTS)
    assert isinstance(step, Failure)
    assert re.search(what, step.message)
    with pytest.raises(ExpectationFailed, match=what):
        script.check()


@pytest.mark.parametrize("expectation", [expect(tool_result="x"), expect(is_error=False)])
def test_a_result_is_expected_where_there_is_none(expectation: Any) -> None:
    script = Script([expectation])
    script.take(asked("hi"))
    with pytest.raises(ExpectationFailed, match="no results"):
        script.check()


def test_a_long_text_is_not_shown_whole() -> None:
    script = Script([expect(prompt="x")])
    script.take(asked("a" * 5000))
    with pytest.raises(ExpectationFailed, match=r"a… \(5000 characters\)") as caught:
        script.check()
    assert len(str(caught.value)) < 2500


def test_something_has_to_be_expected() -> None:
    with pytest.raises(OptionsError, match="expects nothing"):
        expect()


def test_an_expectation_at_the_end_is_for_what_follows_the_script() -> None:
    script = Script([expect(prompt="a")])
    assert text(script.take(asked("abc"))) == "(end of script)"
    assert (script.errors, script.remaining) == ([], ())


# Matching.


def test_a_turn_is_played_by_the_first_that_matches() -> None:
    script = Script(
        [
            say("in order"),
            when("tea", [use_tool("Bash"), say("tea is ready")]),
            when(re.compile(r"t.a"), say("pattern")),
            when(lambda request: request.model == "other", say("function")),
        ]
    )
    assert len(script.remaining) == 1
    for _ in range(2):
        assert names(script.take(asked("make tea"))) == ["Bash"]
        assert text(script.take(asked("make tea", called(), user(result())))) == "tea is ready"
        assert text(script.take(asked("make tea", called(), user(result("again"))))) == "(end of script)"
    assert text(script.take(asked("toa"))) == "pattern"
    assert text(script.take(asked("x", model="other"))) == "function"
    assert text(script.take(asked("x"))) == "in order"


def test_a_result_with_the_words_of_a_prompt_matches_nothing() -> None:
    script = Script([when("tea", say("matched")), say("1"), say("2")])
    script.take(asked("go"))
    assert text(script.take(asked("go", called(), user(result("tea"))))) == "2"


def test_another_turn_leaves_the_steps_of_the_one_before() -> None:
    script = Script([when("tea", [use_tool("Bash"), say("never")]), say("juice")])
    script.take(asked("tea"))
    assert text(script.take(asked(user("tea\n", "[Request interrupted by user]\n", "go on")))) == "juice"


@pytest.mark.parametrize("step", [fail(529), drop(), hang(say("late"))])
def test_a_turn_that_is_tried_again_goes_on_with_its_steps(step: Step) -> None:
    script = Script([when("tea", [step, say("at last")])])
    assert script.take(asked("tea")) == step
    assert text(script.take(asked("tea"))) == "at last"
    # The same prompt in a conversation that has gone on is another turn.
    assert script.take(asked("tea", said("at last"), "tea")) == step


def test_a_prompt_may_match_only_so_often() -> None:
    script = Script([when("tea", say("once"), times=1), when("tea", say("always"))])
    assert [text(script.take(asked("tea"))) for _ in range(3)] == ["once", "always", "always"]


def test_sessions_do_not_share_their_turns() -> None:
    script = Script([when("tea", [say("1"), say("2")])])
    steps = [script.take(asked("tea", session=session)) for session in ("s1", "s2")]
    assert [text(step) for step in steps] == ["1", "1"]


@pytest.mark.parametrize(
    "make, what",
    [
        (lambda: when("x", []), "no steps"),
        (lambda: when("x", cast("Any", "text")), "a list of steps"),
        (lambda: when("x", [cast("Any", "text")]), r"Item 1 .*say\('text'\)"),
        (lambda: subagent("x", cast("Any", "text")), "Item 1"),
        (lambda: when("x", [when("y", say("z"))]), "within"),
        (lambda: when("x", say("y"), times=0), "times"),
    ],
)
def test_a_when_or_a_subagent_that_means_nothing_is_refused(make: Any, what: str) -> None:
    with pytest.raises(OptionsError, match=what):
        make()


# Tools.


def test_a_short_name_is_resolved_by_the_tools_that_are_offered() -> None:
    script = Script(
        [answer(use_tool("lookup"), use_tool("Bash"), use_tool("unknown")), hang(use_tool("lookup"))]
    )
    request = asked("hi", tools=TOOLS)
    # What is not offered is called as it is written: agents have tools that they do not show.
    assert names(script.take(request)) == ["mcp__tools__lookup", "Bash", "unknown"]
    held = script.take(request)
    assert isinstance(held, Hang)
    assert names(held.then or say("")) == ["mcp__tools__lookup"]


def test_a_plan_is_written_where_the_agent_looks_for_it() -> None:
    note = {
        "role": "system",
        "content": "You should create your plan at /home/me/.claude/plans/a-b.md using Write.",
    }
    script = Script([exit_plan_mode("the plan"), exit_plan_mode("the plan")])
    first, second = script.take(asked("plan", note)), script.take(asked("plan"))
    assert isinstance(first, Answer)
    write, leave = first.blocks
    assert write == ToolUse("Write", {"file_path": "/home/me/.claude/plans/a-b.md", "content": "the plan"})
    assert isinstance(leave, ToolUse)
    assert (leave.name, leave.input) == ("ExitPlanMode", {"plan": "the plan"})
    assert names(second) == ["ExitPlanMode"]


# Subagents.


def test_a_subagent_is_told_by_its_prompt() -> None:
    both = answer(subagent("Look left.", say("l1"), say("l2")), subagent("Look right.", say("r1")))
    script = Script([both, say("main")], subagents=[when("up", say("u")), say("any")])
    script.take(asked("go"))
    right = [text(script.take(asked("Look right.", agent="r"))) for _ in range(2)]
    left = [text(script.take(asked("Look left.", agent="l"))) for _ in range(3)]
    assert (left, right) == (["l1", "l2", "subagent done"], ["r1", "subagent done"])
    # Those that nobody has given steps.
    others = [
        text(script.take(asked(prompt, agent=prompt))) for prompt in ("Look up.", "Look down.", "Look in.")
    ]
    assert others == ["u", "any", "subagent done"]
    assert text(script.take(asked("go", called(), user(result())))) == "main"


def test_two_subagents_with_one_prompt_have_steps_of_their_own() -> None:
    script = Script([answer(subagent("Look.", say("1")), subagent("Look.", say("2")))])
    script.take(asked("go"))
    assert [text(script.take(asked("Look.", agent=agent))) for agent in "ab"] == ["1", "2"]


def test_an_agent_may_add_to_the_prompt_of_a_subagent() -> None:
    script = Script([subagent("Look.", say("found"))])
    script.take(asked("go"))
    assert text(script.take(asked("You are a scout. Look. Be quick.", agent="a"))) == "found"


def test_a_subagent_may_start_another() -> None:
    script = Script([subagent("Outer.", subagent("Inner.", say("inner")), say("outer"))])
    script.take(asked("go"))
    assert names(script.take(asked("Outer.", agent="o"))) == ["Agent"]
    assert text(script.take(asked("Inner.", agent="i"))) == "inner"
    assert text(script.take(asked("Outer.", called(), user(result()), agent="o"))) == "outer"


# Where it comes from.


def test_a_script_is_what_it_is_made_of(tmp_path: Path) -> None:
    script = Script([say("x")])
    assert Script.of(script) is script
    assert len(Script.of([say("x"), say("y")]).remaining) == 2
    assert text(Script.of(None).take(asked("hi"))) == "You said: hi"
    path = tmp_path / "script.json"
    path.write_text('["from a file"]')
    for source in (path, str(path)):
        assert text(Script.of(source).take(asked("hi"))) == "from a file"


def test_a_whole_script_takes_subagents_and_no_otherwise() -> None:
    script = Script([])
    assert Script.of(script, subagents=[say("s")]) is script
    assert text(script.take(asked("hi", agent="a"))) == "s"
    with pytest.raises(OptionsError, match="otherwise"):
        Script.of(script, otherwise=say("x"))


def test_an_api_plays_a_script_that_is_shared() -> None:
    script = Script([say("1"), say("2"), expect(prompt="x"), say("3")])
    for number in "12":
        with MessagesApi(script) as api:
            assert ask(api)[1]["content"][0]["text"] == number
    assert "remaining=2" in repr(script)
    with pytest.raises(ExpectationFailed), MessagesApi(script) as api:
        assert ask(api)[0] == 418


@every_case("raised", [SystemExit(3), pytest.fail.Exception("not so"), ZeroDivisionError()])
@every_case("where", ["function", "expect", "when"])
def test_whatever_a_function_raises_is_told(raised: BaseException, where: str) -> None:
    def fails(request: Request) -> Step:
        raise raised

    items: dict[str, list[Any]] = {
        "function": [fails],
        "expect": [expect(fails), say("x")],
        "when": [when(fails, say("x"))],
    }
    script = Script(items[where])
    assert isinstance(script.take(asked("go")), Failure)
    assert script.errors == [raised]
    with pytest.raises(type(raised)):
        script.check()


def test_what_cannot_be_expected_is_refused() -> None:
    given: Any = "Who"
    with pytest.raises(OptionsError, match="prompt='Who'"):
        expect(given)
    given = 5
    with pytest.raises(OptionsError, match="`model` is 5"):
        expect(model=given)
    with pytest.raises(OptionsError, match="`prompt` is 5"):
        when(given, say("x"))


@pytest.mark.parametrize("otherwise", ["text", expect(prompt="x"), 5], ids=["text", "expect", "number"])
def test_what_follows_a_script_is_a_step(otherwise: Any) -> None:
    with pytest.raises(OptionsError, match="`otherwise` is"):
        Script([], otherwise=otherwise)
