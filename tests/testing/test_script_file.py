"""Scripts in files say what those in Python say, and what is wrong with them is told with its place."""

from __future__ import annotations

import inspect
import json
import re
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from outrider.errors import OptionsError
from outrider.testing import (
    Script,
    answer,
    ask_question,
    background_task,
    drop,
    exit_plan_mode,
    expect,
    fail,
    hang,
    refuse,
    say,
    structured,
    subagent,
    think,
    use_tool,
    when,
)
from outrider.testing._script.file import EXPECTED, KEYS, ItemReader, read_script
from tests.cases import every_case
from tests.testing.client import ask
from tests.testing.talking import asked, text

WORDS: dict[str, Any] = {
    "say": say,
    "think": think,
    "use_tool": use_tool,
    "answer": answer,
    "refuse": refuse,
    "fail": fail,
    "hang": hang,
    "drop": drop,
    "ask_question": ask_question,
    "exit_plan_mode": exit_plan_mode,
    "subagent": subagent,
    "background_task": background_task,
    "structured": structured,
    "expect": expect,
    "when": when,
}

ITEMS: list[tuple[str, Any]] = [
    ("Hello", say("Hello")),
    ("say: Hello", say("Hello")),
    ("say: [Hel, lo]", say("Hel", "lo")),
    (
        "{say: abcd, chunks: 2, stop_reason: s, usage: {tokens: 5}, model: m, headers: {a: b}, delay: 1}",
        say(
            "abcd",
            chunks=2,
            stop_reason="s",
            usage={"tokens": 5},
            model="m",
            headers={"a": "b"},
            delay=1,
        ),
    ),
    ("think: hm", think("hm")),
    ("{think: [h, m], then: {say: so}}", think("h", "m", then=say("so"))),
    ("use_tool: Read", use_tool("Read")),
    (
        "{use_tool: T, input: {name: x, day: 2026-01-31, deep: [1, {a: null}]}, tool_use_id: t1}",
        use_tool("T", {"name": "x", "day": "2026-01-31", "deep": [1, {"a": None}]}, tool_use_id="t1"),
    ),
    ("answer: [Both., {use_tool: A}, {use_tool: B}]", answer(say("Both."), use_tool("A"), use_tool("B"))),
    ("{answer: [{say: abcd}], chunks: 2, delay: 1}", answer(say("abcd"), chunks=2, delay=1)),
    ("refuse:", refuse()),
    ("{refuse: so far, category: bio}", refuse("so far", category="bio")),
    ("fail: 529", fail(529)),
    (
        "{fail: 400, type: t, message: m, headers: {a: b}, retry_after: 1.5, after: half}",
        fail(400, type="t", message="m", headers={"a": "b"}, retry_after=1.5, after="half"),
    ),
    ("hang:", hang()),
    ("hang: {say: late}", hang(say("late"))),
    ("hang: {fail: 500}", hang(fail(500))),
    ("drop:", drop()),
    ("drop: half", drop(after="half")),
    ("{ask_question: Which, options: [A, B]}", ask_question("Which", ["A", "B"])),
    (
        "{ask_question: Which, options: {A: first}, header: H, multiple: true}",
        ask_question("Which", {"A": "first"}, header="H", multiple=True),
    ),
    ("exit_plan_mode: The plan", exit_plan_mode("The plan")),
    ("subagent: Look.", subagent("Look.")),
    (
        "{subagent: Go., steps: [{use_tool: A}, done], type: t, background: true, description: d, model: m}",
        subagent("Go.", use_tool("A"), say("done"), type="t", background=True, description="d", model="m"),
    ),
    ("{background_task: ls, description: d, timeout: 2}", background_task("ls", description="d", timeout=2)),
    ("structured: {a: [1]}", structured({"a": [1]})),
    ("structured: [1]", structured([1])),
    (
        "expect: {prompt: p, tool_result: t, is_error: true, model: m, tools: [A]}",
        expect(prompt="p", tool_result="t", is_error=True, model="m", tools=["A"]),
    ),
    ("expect: {prompt: {pattern: ^a.b}}", expect(prompt=re.compile("^a.b"))),
    ("{when: tea, then: ready}", when("tea", say("ready"))),
    (
        "{when: {pattern: t.a}, then: [{use_tool: A}, ready], times: 2}",
        when(re.compile("t.a"), [use_tool("A"), say("ready")], times=2),
    ),
]


@pytest.mark.parametrize("written, item", ITEMS, ids=[written for written, _ in ITEMS])
@pytest.mark.parametrize("form", ["yaml", "json"])
def test_an_item_of_a_file_is_the_same_in_python(written: str, item: Any, form: str, tmp_path: Path) -> None:
    path = tmp_path / f"script.{form}"
    data = yaml.safe_load(written)
    if form == "json":
        data = json.loads(json.dumps(data, default=str))
        path.write_text(json.dumps([data]))
    else:
        path.write_text(f"- {written}\n")
    assert ItemReader().items([data], "script") == [item]
    script = read_script(path)
    assert script.remaining == (() if "when" in written else (item,))


@every_case("word", KEYS)
def test_every_word_and_each_of_its_keys_is_one_of_python(word: str) -> None:
    assert KEYS.keys() == WORDS.keys()
    keys = EXPECTED if word == "expect" else KEYS[word]
    known = set(inspect.signature(WORDS[word]).parameters)
    assert keys.keys() - known - {word, "input" if word == "use_tool" else ""} == set()
    # What a file can not hold, or says at the word itself.
    spared = {
        "gate",
        "checks",
        "text",
        "parts",
        "status",
        "options",
        "steps",
        "then",
        "prompt",
        "after",
        "given",
    }
    spared |= {"name", "tool", "input", "plan", "command", "value"}
    assert known - keys.keys() - spared == set()
    assert any(word in written for written, _ in ITEMS)


@pytest.mark.parametrize(
    "written, words",
    [
        ("- one\n- two\n", ["one", "two", "(end of script)"]),
        ("script: [one]\notherwise: {say: more}\n", ["one", "more", "more"]),
        ("otherwise: more\n", ["more", "more", "more"]),
        ("[]", ["(end of script)"] * 3),
    ],
)
def test_a_file_is_a_list_or_has_a_script(written: str, words: list[str], tmp_path: Path) -> None:
    path = tmp_path / "script.yml"
    path.write_text(written)
    script = read_script(path)
    assert [text(script.take(asked("hi"))) for _ in range(3)] == words


def test_a_file_has_steps_for_subagents(tmp_path: Path) -> None:
    path = tmp_path / "script.yaml"
    path.write_text("subagents:\n  - when: left\n    then: Left.\n  - Any.\n")
    script = read_script(path)
    assert [text(script.take(asked(prompt, agent=prompt))) for prompt in ("go left", "x")] == [
        "Left.",
        "Any.",
    ]


@pytest.mark.parametrize(
    "written, what",
    [
        ("- say: 5", r"script\[0\]\.say\[0\]: expected a text, got 5: put it in quotes"),
        (
            "- {sya: x}",
            r"script\[0\]: there is no word in this item, but `sya`\. Did you mean `say`\? There are `say`, ",
        ),
        ("- {}", r"script\[0\]: there is no word in this item, but nothing"),
        ("- 5", r"script\[0\]: expected a mapping, got 5"),
        (
            "- {say: x, chunk: 2}",
            r"`chunk` means nothing beside `say`\. Did you mean `chunks`\? There are `say`, `chunks`",
        ),
        ("- {say: x, chunks: two}", r"script\[0\]\.chunks: expected a whole number, got 'two'"),
        ("- {say: x, chunks: true}", "expected a whole number, got True"),
        ("- {say: x, chunks: 0}", r"script\[0\]: `chunks` is 0\. Give a number from 1 on"),
        ("- {say: x, delay: soon}", "delay: expected a number"),
        ("- {say: x, think: y}", "`say` and `think` are two items"),
        ("- {say: x, usage: 5}", "usage: expected a mapping"),
        ("- fail: 200", r"script\[0\]: `status` is 200"),
        ("- {use_tool: A, inputs: {}}", "Did you mean `input`"),
        ("- answer: [{say: a}, {fail: 500}]", r"script\[0\]\.answer\[1\]: only what is part of a message"),
        ("- answer: x", r"answer: expected a list, got 'x'"),
        ("- {ask_question: Which}", r"`options` is missing beside `ask_question`"),
        ("- {ask_question: Which, options: {A: 1}}", r"options\.A: expected a text, got 1"),
        ("- {when: x}", "`then` is missing beside `when`"),
        ("- {when: x, then: [{when: y, then: z}]}", r"There is a `when` within a `when`"),
        ("- {when: x, then: [{say: y}, {sai: z}]}", r"script\[0\]\.then\[1\]: there is no word"),
        ("- {when: {pattern: '('}, then: x}", r"when\.pattern: '\(' is not a regular expression"),
        ("- {when: {patern: x}, then: x}", "expected a text or a `pattern`"),
        (
            "- expect: {promt: x}",
            r"script\[0\]\.expect: there is no `promt` to be expected\. Did you mean `prompt`",
        ),
        ("- expect: {}", "expects nothing"),
        ("- expect: {is_error: 'yes'}", "is_error: expected true or false"),
        ("- {subagent: x, steps: [{say: 1}]}", r"script\[0\]\.steps\[0\]\.say\[0\]: expected a text"),
        ("- hang: {expect: {prompt: x}}", r"hang: only a step can stand here"),
        ("- structured: !!python/name:os.system", "is not YAML"),
        (
            "scripts: []",
            r"scripts: there is no such key\. Did you mean `script`\? There are `script`, `subagents`, ",
        ),
        ("script: x", "script: expected a list, got 'x'"),
        ("x", "script: expected a list"),
        ("subagents: [{sy: x}]", r"subagents\[0\]"),
        ("otherwise: {when: x, then: y}", "otherwise: only a step"),
        ("- structured: {? [a, b] : c}", "is not YAML: .*unhashable"),
        ("- [", "is not YAML: line 1, column 4: expected the node content"),
        ("- {use_tool: A, input: {1: a, '1': b, ? [x] : c}}", "is not YAML|expected"),
    ],
)
def test_what_is_wrong_is_told_with_the_file_and_the_place(written: str, what: str, tmp_path: Path) -> None:
    path = tmp_path / "script.yaml"
    path.write_text(written)
    with pytest.raises(OptionsError, match=what) as caught:
        read_script(path)
    assert str(path) in str(caught.value)


@pytest.mark.parametrize(
    "name, content, what",
    [
        ("script.json", b'["a",]', "is not JSON: .*line 1 column"),
        ("script.json", b"\xff", "is not UTF-8"),
        ("script.txt", b"", r"\.py, \.json, \.yaml, \.yml"),
        ("missing.json", None, "cannot be read: No such file"),
    ],
)
def test_a_file_that_can_not_be_read_is_told(
    name: str, content: bytes | None, what: str, tmp_path: Path
) -> None:
    path = tmp_path / name
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(OptionsError, match=what) as caught:
        read_script(path)
    assert str(path) in str(caught.value)


def test_yaml_has_to_be_installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "script.yaml"
    path.write_text("[]")
    monkeypatch.setitem(sys.modules, "yaml", None)
    with pytest.raises(OptionsError, match=r"outrider\[yaml\]"):
        read_script(path)


# Python.

FUTURE = """\
from __future__ import annotations
from dataclasses import dataclass
from outrider.testing import say

@dataclass
class Number:
    x: int

script = [say(str(Number(1).x))]
"""
HEAD = "from outrider.testing import say, use_tool, Request\n"


@pytest.mark.parametrize(
    "code, words",
    [
        ("script = [say('a'), say('b')]", ["a", "b"]),
        ("script = (say(each) for each in 'ab')", ["a", "b"]),
        ("def script():\n    return [say('a'), say('b')]", ["a", "b"]),
        ("def script(request):\n    return say(request.prompt)", ["p", "p"]),
        ("script = lambda request: say(request.prompt)", ["p", "p"]),
        ("script = []\notherwise = say('o')", ["o", "o"]),
        ("script = None", ["You said: p", "You said: p"]),
        (
            "from outrider.testing._script.script import Script\nscript = Script([say('a')])",
            ["a", "(end of script)"],
        ),
        (
            FUTURE,
            ["1", "(end of script)"],
        ),
    ],
)
def test_a_python_file_defines_its_script(code: str, words: list[str], tmp_path: Path) -> None:
    path = tmp_path / "script.py"
    path.write_text(code if code == FUTURE else HEAD + code)
    before = set(sys.modules)
    script = read_script(path)
    assert [text(script.take(asked("p"))) for _ in range(2)] == words
    assert {name for name in set(sys.modules) - before if name.startswith("outrider_script")} == set()
    assert list(tmp_path.iterdir()) == [path]


def test_a_python_file_has_steps_for_subagents(tmp_path: Path) -> None:
    path = tmp_path / "script.py"
    path.write_text(HEAD + "script = []\nsubagents = [say('s')]")
    assert text(read_script(path).take(asked("x", agent="a"))) == "s"


@pytest.mark.parametrize(
    "code, what",
    [
        ("x = 1\n1 / 0", r"script\.py, line 2: ZeroDivisionError: division by zero"),
        ("def f(:", r"script\.py, line 1: SyntaxError"),
        ("scripts = []", r"does not define `script`\. .*Its `scripts` is not it"),
        ("", "does not define `script`"),
        ("script = ['x']", "Item 1 of a script is not a step: 'x'"),
        ("script = 5", "a list of steps"),
        ("script = 'other.yaml'", "has a path as its `script`"),
        ("def script():\n    raise KeyError('k')", r"line 2: KeyError: 'k'"),
    ],
)
def test_what_is_wrong_with_a_python_file_is_told(code: str, what: str, tmp_path: Path) -> None:
    path = tmp_path / "script.py"
    path.write_text(code)
    with pytest.raises(OptionsError, match=what) as caught:
        read_script(path)
    assert str(path) in str(caught.value)


def test_an_api_plays_a_file(tmp_path: Path) -> None:
    from outrider.testing import MessagesApi

    path = tmp_path / "script.json"
    path.write_text('{"script": ["from a file"]}')
    with MessagesApi(path) as api:
        assert ask(api)[1]["content"][0]["text"] == "from a file"
    with pytest.raises(OptionsError, match="missing"):
        MessagesApi(tmp_path / "missing.json")
    assert isinstance(Script.of(str(path)), Script)


@pytest.mark.parametrize(
    "name, data, match",
    [
        ("deep.json", b"[" * 100_000, "is not JSON"),
        ("deep.yaml", b"- " * 3000, "is not YAML"),
        ("latin.json", b"\xff", r"latin\.json is not UTF-8"),
        ("leaves.py", b"\nraise SystemExit(3)", "line 2: SystemExit: 3"),
    ],
)
def test_a_file_that_breaks_its_reader_is_named(tmp_path: Path, name: str, data: bytes, match: str) -> None:
    (tmp_path / name).write_bytes(data)
    with pytest.raises(OptionsError, match=match) as caught:
        read_script(tmp_path / name)
    assert str(caught.value).count(name) == 1
