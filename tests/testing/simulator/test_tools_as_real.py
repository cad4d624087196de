"""The same calls of tools through the simulated agent and through the program: what they give is equal."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import anyio
import pytest

from outrider.testing import RealAgent, say, use_tool
from outrider.wire import UserMessage
from tests.real_program import Conversation, require_program
from tests.testing.simulator.world import World

# Half a minute of the program's time; what a conversation shows of its tools is in tests/conformance.
pytestmark = pytest.mark.skipif(
    "OUTRIDER_CONFORMANCE" not in os.environ, reason="`make conformance` plays every scene"
)

Calls = list[tuple[str, dict[str, Any]]]


class Scene(NamedTuple):
    """Calls in a folder, one after the other."""

    calls: Callable[[str], Calls]
    prepare: Callable[[Path], None] = lambda folder: None
    tools: list[str] | None = None
    disallowed: tuple[str, ...] = ()


class Given(NamedTuple):
    """What became of a call."""

    call: str
    content: object
    is_error: bool
    detail: object


def bash(*commands: str) -> Calls:
    return [("Bash", {"command": command}) for command in commands]


def texts(folder: Path) -> None:
    """Files of many kinds."""
    (folder / "sub").mkdir()
    for name, raw in {
        "a.txt": b"one\ntwo\nthree\n",
        "noend.txt": b"x\ny",
        "empty.txt": b"",
        "twice.txt": b"aa\nbb\naa\n",
        "tabs.txt": b"\tx\n a\tb\n",
        "crlf.txt": b"a\r\nb\r\n",
        "mark.txt": b"\xef\xbb\xbfmark\n",
        "wide.txt": "\ufeffhi\nyo\n".encode("utf-16-le"),
        "latin.txt": b"caf\xe9\n",
        "nul.txt": b"a\0b\n",
        "quotes.txt": "say \u201chi\u201d\n".encode(),
        "long.txt": b"".join(b"line %d\n" % number for number in range(2500)),
        "column.txt": b"w" * 3000 + b"\nshort\n",
        "big.txt": b"0123456789" * 40000,
        "x.zip": b"PK\3\4",
        "plain": b"plain\n",
        "bad.png": b"nope",
        "page.ipynb": json.dumps(
            {
                "cells": [
                    {"cell_type": "code", "id": "c1", "source": ["print(1)\n"], "outputs": [], "metadata": {}}
                ],
                "metadata": {},
                "nbformat": 4,
                "nbformat_minor": 5,
            }
        ).encode(),
    }.items():
        (folder / name).write_bytes(raw)


def tree(folder: Path) -> None:
    """A small repository. Each file is newer than the one before."""
    for index, (name, text) in enumerate(
        {
            "src/a.py": "import os\ndef foo():\n    return 1\n",
            "src/b.py": "x = 1\nFoo = 2\nfoo()\nfoo() foo\n",
            "src/deep/c.ts": "const foo = 1;\n",
            "README.md": "# foo\nbar\n",
            ".hidden/h.txt": "foo hidden\n",
            ".git/config": "foo\n",
            "node_modules/m.js": "foo\n",
            "ignored.log": "foo\n",
            ".gitignore": "*.log\n/only/\n",
            "only/x.md": "foo\n",
            "binary": "foo\0bar\n",
        }.items()
    ):
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        os.utime(path, (1_700_000_000 + index * 10, 1_700_000_000 + index * 10))


def many(folder: Path) -> None:
    for number in range(130):
        path = folder / f"f{number:03}.txt"
        path.write_text("foo\n" * 3)
        os.utime(path, (1_700_000_000 + number * 10, 1_700_000_000 + number * 10))


def read(*paths: str, **more: Any) -> Callable[[str], Calls]:
    return lambda folder: [("Read", {"file_path": f"{folder}/{path}", **more}) for path in paths]


def edit(folder: str, path: str, old: str, new: str, **more: Any) -> tuple[str, dict[str, Any]]:
    return "Edit", {"file_path": f"{folder}/{path}", "old_string": old, "new_string": new, **more}


def write(folder: str, path: str, content: str) -> tuple[str, dict[str, Any]]:
    return "Write", {"file_path": f"{folder}/{path}", "content": content}


def grep(*inputs: dict[str, Any]) -> Callable[[str], Calls]:
    return lambda folder: [("Grep", given) for given in inputs]


SCENES = {
    "commands": Scene(
        lambda folder: bash(
            "echo hi",
            "echo out; echo err >&2; exit 3",
            "true",
            "false",
            "exit 2",
            "printf 'a\\n\\n\\nb\\n\\n'",
            "printf '\\n \\n  lead'",
            "nosuchcommand",
            "kill -9 $$",
            "echo err >&2",
            "cat",
            "",
            "echo 'unterminated",
            "echo $0",
            "echo $CLAUDECODE $CLAUDE_CODE_CHILD_SESSION",
        )
    ),
    "folders of commands": Scene(
        lambda folder: bash(
            "mkdir sub",
            "cd sub && pwd",
            "pwd",
            "cd ..; false",
            "pwd",
            "cd /; pwd",
            "pwd",
            "cd /",
            "mkdir gone; cd gone; rmdir ../gone",
            "pwd",
            "export X=5; f() { echo f; }",
            "echo x=$X; f",
        )
    ),
    "files from where commands went": Scene(
        lambda folder: [
            *bash("mkdir sub; cd sub"),
            ("Write", {"file_path": "here.txt", "content": "x\n"}),
            ("Read", {"file_path": "none.txt"}),
            *bash("ls"),
        ]
    ),
    "meanings of exit codes": Scene(
        lambda folder: bash(
            "diff /etc/passwd /etc/group > /dev/null",
            "test 1 = 2",
            "echo a | grep b",
            "touch y; mv y z",
            "rm -f z",
            "touch y; ls",
        )
    ),
    "long output": Scene(
        lambda folder: bash(
            "seq 1 5000",
            "seq 1 7000",
            "seq 1 7000; exit 1",
            "seq 1 2500; exit 1",
            "printf 'y%.0s' $(seq 1 40000)",
        )
    ),
    "time limits": Scene(
        lambda folder: [
            ("Bash", {"command": "sleep 20", "timeout": 300}),
            ("Bash", {"command": "sleep 30", "timeout": 300}),
            ("Bash", {"command": "sleep 25; ls", "timeout": 300}),
            ("Bash", {"command": "echo before; sleep 30", "timeout": "1500"}),
            ("Bash", {"command": "sleep 30", "run_in_background": True}),
        ]
    ),
    "inputs that are wrong": Scene(
        lambda folder: [
            ("Bash", {}),
            ("Bash", {"command": 5}),
            ("Bash", {"command": None}),
            ("Bash", {"cmd": "x"}),
            ("Bash", {"command": "echo a", "extra": 1}),
            ("Bash", {"command": "echo a", "timeout": "abc"}),
            ("Bash", {"command": "echo a", "run_in_background": "yes"}),
            ("Read", {}),
            ("Read", {"file_path": ["a"]}),
            ("Edit", {"file_path": "a", "old_string": "x"}),
            ("Write", {"file_path": "a"}),
        ]
    ),
    "tools that are not there": Scene(
        lambda folder: [
            ("NoSuchTool", {"a": 1}),
            ("Glob", {"pattern": "*"}),
            ("Grep", {"pattern": "x"}),
            ("TaskCreate", {"subject": "s", "description": "d"}),
            ("BashOutput", {"bash_id": "x"}),
            ("TodoWrite", {"todos": []}),
        ]
    ),
    "tools that were not chosen": Scene(
        lambda folder: [
            *bash("ls"),
            ("Glob", {"pattern": "*"}),
            ("Write", {"file_path": "a", "content": "x"}),
            ("TaskStop", {"task_id": "x"}),
        ],
        tools=["Read"],
    ),
    "tools that are disallowed": Scene(
        lambda folder: [*bash("ls"), ("Glob", {"pattern": "*"})], disallowed=("Bash",)
    ),
    "reading": Scene(
        read(
            "a.txt",
            "a.txt",
            "noend.txt",
            "empty.txt",
            "sub",
            "missing.txt",
            "a.tx",
            "crlf.txt",
            "mark.txt",
            "wide.txt",
            "latin.txt",
            "nul.txt",
            "tabs.txt",
            "x.zip",
            "plain",
            "bad.png",
            "page.ipynb",
            "big.txt",
            "long.txt",
            "column.txt",
            "sub/../a.txt",
            "a.txt/b",
        ),
        prepare=texts,
    ),
    "reading parts": Scene(
        lambda folder: (
            [
                ("Read", {"file_path": f"{folder}/a.txt", **part})
                for part in (
                    {"offset": 2, "limit": 1},
                    {"offset": 10},
                    {"offset": 0},
                    {"limit": 0},
                    {"limit": "2"},
                    {"offset": "2"},
                    {"limit": 2},
                )
            ]
            + [
                ("Read", {"file_path": "a.txt"}),
                ("Read", {"file_path": ""}),
                ("Read", {"file_path": "~/none"}),
                ("Read", {"file_path": "/dev/zero"}),
            ]
        ),
        prepare=texts,
    ),
    "writing": Scene(
        lambda folder: [
            write(folder, "new.txt", "n1\nn2\n"),
            write(folder, "new.txt", "n1\nN2\n"),
            write(folder, "a.txt", "x\n"),
            write(folder, "a.txt", "x\n"),
            write(folder, "deep/er/x.txt", ""),
            write(folder, "sub", "x"),
            write(folder, "crlf.txt", "p\nq\n"),
            *bash("od -c crlf.txt", "ls -l new.txt | cut -c1-10"),
            write(folder, "latin.txt", "x"),
            write(folder, "tabs.txt", "\ty\n a\tb\n"),
            write(folder, "noend.txt", "zz"),
            ("Write", {"file_path": "relative.txt", "content": "x\n"}),
        ],
        prepare=texts,
    ),
    "editing": Scene(
        lambda folder: [
            edit(folder, "a.txt", "one", "ONE"),
            ("Read", {"file_path": f"{folder}/a.txt"}),
            edit(folder, "a.txt", "two", "TWO"),
            edit(folder, "a.txt", "zzz", "y"),
            edit(folder, "a.txt", "ONE", "ONE"),
            edit(folder, "twice.txt", "aa", "cc"),
            edit(folder, "twice.txt", "aa", "cc", replace_all=True),
            edit(folder, "twice.txt", "bb\n", ""),
            edit(folder, "missing.txt", "a", "b"),
            edit(folder, "created.txt", "", "hello\n"),
            edit(folder, "created.txt", "hello", "bye"),
            edit(folder, "created.txt", "", "again"),
            edit(folder, "empty.txt", "", "now full\n"),
            edit(folder, "sub", "a", "b"),
            ("Read", {"file_path": f"{folder}/crlf.txt"}),
            edit(folder, "crlf.txt", "a\nb", "x\ny"),
            *bash("od -c crlf.txt"),
            edit(folder, "mark.txt", "mark", "MARK"),
            *bash("od -c mark.txt"),
            edit(folder, "quotes.txt", '"hi"', '"yo"'),
            *bash("cat quotes.txt"),
            edit(folder, "latin.txt", "caf", "x"),
            ("Read", {"file_path": f"{folder}/noend.txt", "limit": 1}),
            edit(folder, "noend.txt", "y", "z"),
            edit(folder, "tabs.txt", "x", "q", replace_all="true"),
            ("Read", {"file_path": f"{folder}/long.txt"}),
            edit(folder, "long.txt", "line 1000\n", "LINE\n"),
            *bash("echo more >> a.txt"),
            edit(folder, "a.txt", "ONE", "1"),
        ],
        prepare=texts,
    ),
    "finding files": Scene(
        lambda folder: [
            ("Glob", {"pattern": pattern, **more})
            for pattern, more in [
                ("**/*.py", {}),
                ("*", {}),
                ("*.none", {}),
                ("src/*", {}),
                ("src/**", {}),
                ("*.py", {"path": f"{folder}/src"}),
                ("*.py", {"path": "src"}),
                ("*", {"path": f"{folder}/nope"}),
                ("*", {"path": f"{folder}/README.md"}),
                ("**/*.{py,ts}", {}),
                (f"{folder}/src/*.py", {}),
                ("src", {}),
                ("[ab].py", {}),
                ("?.py", {}),
            ]
        ],
        prepare=tree,
        tools=["Glob"],
    ),
    "finding many files": Scene(lambda folder: [("Glob", {"pattern": "*"})], prepare=many, tools=["Glob"]),
    "searching": Scene(
        grep(
            {"pattern": "foo"},
            {"pattern": "foo", "output_mode": "content"},
            {"pattern": "foo", "output_mode": "content", "-n": False},
            {"pattern": "foo", "output_mode": "count"},
            {"pattern": "foo", "output_mode": "content", "-i": True},
            {"pattern": "foo", "output_mode": "content", "-C": 1},
            {"pattern": "foo", "output_mode": "content", "context": 1},
            {"pattern": "foo", "output_mode": "content", "-A": 1, "-B": 0},
            {"pattern": "zzz"},
            {"pattern": "zzz", "output_mode": "content"},
            {"pattern": "zzz", "output_mode": "count"},
            {"pattern": "foo", "glob": "*.py"},
            {"pattern": "foo", "glob": "src/**"},
            {"pattern": "foo", "glob": "*.py,*.md"},
            {"pattern": "foo", "glob": "*.{py,md}", "output_mode": "count"},
            {"pattern": "foo|bar", "glob": "!*.py", "output_mode": "content"},
            {"pattern": "foo", "type": "py"},
            {"pattern": "foo", "type": "nosuch"},
            {"pattern": "foo", "head_limit": 1},
            {"pattern": "foo", "head_limit": 2, "offset": 1},
            {"pattern": "("},
            {"pattern": "foo", "path": "src/a.py", "output_mode": "content"},
            {"pattern": "foo", "path": "src/a.py", "output_mode": "content", "-C": 1},
            {"pattern": "foo", "path": "src/a.py"},
            {"pattern": "foo", "path": "src/a.py", "output_mode": "count"},
            {"pattern": "foo", "path": "src", "output_mode": "count"},
            {"pattern": "foo", "path": "nope"},
            {"pattern": "foo\\(", "output_mode": "content", "-o": True},
            {"pattern": "import.*return", "multiline": True, "output_mode": "content"},
            {"pattern": "-x"},
            {"pattern": "foo", "output_mode": "bad"},
        ),
        prepare=tree,
        tools=["Grep"],
    ),
    "finding much": Scene(
        grep(
            {"pattern": "line", "path": "long.txt", "output_mode": "content", "head_limit": 0},
            {"pattern": "line", "path": "long.txt", "output_mode": "content", "head_limit": 1100},
            {"pattern": "line", "path": "long.txt", "output_mode": "content"},
            {"pattern": "w", "path": "column.txt", "output_mode": "content"},
        ),
        prepare=texts,
        tools=["Grep"],
    ),
    "lists of tasks": Scene(
        lambda folder: [
            ("TaskList", {}),
            ("TaskCreate", {"subject": "S", "description": "D"}),
            ("TaskCreate", {"subject": "S2", "description": "D2", "activeForm": "Doing"}),
            ("TaskList", {}),
            ("TaskGet", {"taskId": "1"}),
            ("TaskGet", {"taskId": "9"}),
            ("TaskUpdate", {"taskId": "1", "status": "in_progress"}),
            ("TaskUpdate", {"taskId": "2", "addBlockedBy": ["1"]}),
            ("TaskUpdate", {"taskId": "1", "subject": "new", "description": "d"}),
            ("TaskList", {}),
            ("TaskGet", {"taskId": "1"}),
            ("TaskGet", {"taskId": "2"}),
            ("TaskUpdate", {"taskId": "1", "status": "completed"}),
            ("TaskUpdate", {"taskId": "1", "status": "completed"}),
            ("TaskUpdate", {"taskId": "9", "status": "completed"}),
            ("TaskUpdate", {"taskId": "1", "status": "nonsense"}),
            ("TaskList", {}),
            ("TaskUpdate", {"taskId": "2", "status": "deleted"}),
            ("TaskUpdate", {"taskId": "1"}),
            ("TaskList", {}),
            ("TaskStop", {"task_id": "bnope"}),
            ("TaskStop", {}),
        ],
        tools=["TaskCreate", "TaskGet", "TaskList", "TaskUpdate", "TaskStop"],
    ),
}


@pytest.fixture(params=[("asyncio", {"use_uvloop": False})], ids=["asyncio"])
def anyio_backend(request: pytest.FixtureRequest) -> object:
    # Which loop it is makes no difference to what a tool gives: other tests run on all.
    return request.param


@pytest.mark.anyio
@pytest.mark.requirement("H1")
@pytest.mark.parametrize("name", SCENES)
async def test_a_tool_gives_what_it_gives_in_the_program(name: str, tmp_path: Path) -> None:
    scene = SCENES[name]
    with anyio.fail_after(90):
        expected = await in_the_program(scene)
    given = await simulated(scene, tmp_path)
    assert [one for one in given if one not in expected] == [one for one in expected if one not in given]
    assert given == expected


async def in_the_program(scene: Scene) -> list[Given]:
    calls: Calls = []
    script = [lambda _, index=index: use_tool(*calls[index]) for index in range(len(scene.calls("/")))]
    with RealAgent([*script, say("done")], program=require_program()) as agent:
        scene.prepare(agent.folder)
        calls += scene.calls(str(agent.folder))
        options = agent.options(
            permission_mode="bypassPermissions", disallowed_tools=scene.disallowed, tools=scene.tools
        )
        async with Conversation(options) as conversation:
            await conversation.turn("go")
            messages = [event for event in conversation.received if isinstance(event, UserMessage)]
        results = [request.tool_results[0] for request in agent.api.main_requests[1 : len(calls) + 1]]
        root = agent.folder.parent
        return [
            normal(root, call, result["content"], bool(result.get("is_error")), message.tool_use_result)
            for call, result, message in zip(calls, results, messages, strict=True)
        ]


async def simulated(scene: Scene, root: Path) -> list[Given]:
    world = World(root, tools=scene.tools and tuple(scene.tools), disallowed_tools=scene.disallowed)
    scene.prepare(world.cwd)
    calls = scene.calls(str(world.cwd))
    async with world.running():
        outcomes = [await world.use(name, **given) for name, given in calls]
    return [
        normal(world.cwd.parent, call, outcome.content, outcome.is_error, outcome.detail)
        for call, outcome in zip(calls, outcomes, strict=True)
    ]


def normal(
    root: Path, call: tuple[str, dict[str, Any]], content: object, is_error: bool, detail: object
) -> Given:
    """What can be compared: no names of folders and tasks, no times, and no order where there is none."""
    text = json.dumps([call, content, detail]).replace(str(root), "ROOT")
    # The program keeps output and results elsewhere.
    text = re.sub(r"ROOT/home/[^ \"\\]*?/(tasks|tool-results)/(?:b\w{8}|toolu_\w+)\b", r"KEPT/\1/ID", text)
    text = re.sub(r"(ID: |\"backgroundTaskId\": \")b\w{8}\b", r"\1ID", text)
    text = re.sub(r'"durationMs": \d+', '"durationMs": 0', text)
    called, content, detail = json.loads(text)
    if call[0] == "Grep":
        content, detail = unordered(content), unordered(detail)
    return Given(f"{called[0]} {called[1]}", content, is_error, detail)


def unordered(value: object) -> object:
    """Lines in the order of the alphabet: the program searches files side by side."""
    match value:
        case str():
            return "\n".join(sorted(value.split("\n")))
        case dict():
            return {key: unordered(item) for key, item in value.items()}
        case _:
            return value
