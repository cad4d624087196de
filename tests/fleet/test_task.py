"""Tasks, as they are given in code and in a file."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from outrider.errors import OptionsError
from outrider.fleet import Copy, Empty, Task, Worktree, read_lines
from outrider.fleet._task import numbered
from outrider.options import Options


class Invoice(msgspec.Struct):
    total: int


FULL = Task(
    "Translate",
    id="one",
    options={"model": "haiku", "env": {"A": "1"}},
    cwd="docs",
    workspace=Copy("src", ignore=("*.pyc",), keep="failed"),
    output={"type": "object"},
    usd=0.5,
    tokens=1000,
    tool_calls=3,
    wall=60,
    memory=512 * 2**20,
    cpus=2.0,
    tags={"lang": "de"},
)


def test_a_task_survives_a_line_of_a_file() -> None:
    assert Task.from_json(msgspec.json.encode(FULL.to_json())) == FULL
    assert set(FULL.to_json()) == set(Task.__struct_fields__)
    assert Task("x").to_json() == {"prompt": "x"}


def test_a_type_is_written_as_its_schema() -> None:
    schema = Task("x", output=Invoice).to_json()["output"]
    assert isinstance(schema, dict)
    assert schema["required"] == ["total"]


def test_ids_are_made_of_the_place_and_the_content() -> None:
    ids = [task.id for _, task in numbered(["a", "a", Task("a", tags={"x": "y"}), Task("a", id="mine")])]
    assert len(set(ids)) == 4
    assert ids[3] == "mine"
    assert ids[0].startswith("000000-")
    assert [task.id for _, task in numbered(["a", "a"])] == ids[:2]


def test_lines_that_are_empty_or_comments_are_left_out() -> None:
    lines = ['"first"\n', "\n", "# a comment\n", '{"prompt": "second", "workspace": "empty"}']
    assert list(read_lines(lines)) == [Task("first"), Task("second", workspace=Empty())]
    assert list(read_lines([line.encode() for line in lines])) == list(read_lines(lines))


@pytest.mark.parametrize(
    "line, told",
    [
        ("{", "Line 7: "),
        ("[1]", "Line 7: A task must be an object"),
        ('{"prompt": 3}', "Line 7: `prompt` must be a text, not 3"),
        ('{"prompt": ""}', "Line 7: `prompt`"),
        ('{"id": "x"}', "Line 7: The task has no `prompt`"),
        ('{"prmpt": "x"}', "Line 7: A task has no field 'prmpt'. Did you mean 'prompt'?"),
        ('{"prompt": "x", "options": {"modle": 1}}', "Did you mean `model`?"),
        ('{"prompt": "x", "options": {"cwd": "a"}}', "Give it as `cwd` of the task."),
        ('{"prompt": "x", "workspace": {"kind": "cpy"}}', "Did you mean 'copy'?"),
        ('{"prompt": "x", "workspace": {"kind": "copy"}}', "`workspace` must be a whole Copy"),
        ('{"prompt": "x", "workspace": {"kind": "copy", "src": "a"}}', "a field of `workspace`"),
        ('{"prompt": "x", "workspace": 3}', "`workspace` must be a `Copy`"),
        ('{"prompt": "x", "usd": -1}', "`usd` must be a finite number over 0, not -1"),
        ('{"prompt": "x", "memory": "6 gibbons"}', "`memory`"),
        ('{"prompt": "x", "output": "int"}', "`output` must be a JSON Schema"),
        ('{"prompt": "x", "tags": {"a": 1}}', "`tags['a']`"),
        ('{"prompt": "x", "id": "a\\u0000b"}', "`id`"),
    ],
)
def test_a_bad_line_is_told_with_its_number_and_its_field(line: str, told: str) -> None:
    with pytest.raises(OptionsError) as raised:
        Task.from_json(line, number=7)
    assert "Line 7: " in str(raised.value)
    assert told in str(raised.value)


@pytest.mark.parametrize(
    "tasks, told",
    [
        (["a", 3], "`tasks[1]`: A task must be a `Task`, or a text, not 3"),
        (["a", "b", " "], "`tasks[2]`: `prompt`"),
        (["a", Task("b", options={"resume": "x"})], "`tasks[1]`: "),
    ],
)
def test_a_bad_task_is_told_with_its_place(tasks: Any, told: str) -> None:
    def check(task: Task) -> None:
        task.applied_to(Options(continue_conversation=True))

    with pytest.raises(OptionsError) as raised:
        list(numbered(tasks, check))
    assert told in str(raised.value)


def test_options_of_a_task_come_over_those_of_the_run() -> None:
    options = FULL.applied_to(Options(model="opus", max_turns=3, env={"A": "0", "B": "2"}))
    assert (options.model, options.max_turns, dict(options.env)) == ("haiku", 3, {"A": "1", "B": "2"})
    # The folder is below the workspace, which is not made yet.
    assert options.cwd is None
    assert Task("x", cwd="docs").applied_to(Options(cwd="src")).cwd == "docs"


def test_a_worktree_of_a_flag_is_refused() -> None:
    with pytest.raises(OptionsError, match="a commit, a branch or a tag"):
        Worktree("repo", ref="--upload-pack=x")
