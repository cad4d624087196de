"""`outrider migrate` on files and folders: what it finds there, shows, writes and leaves alone."""

from __future__ import annotations

import ast
import json
import os
import random
import stat
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from outrider.app import main
from outrider.app._flags import Code
from outrider.app._migrate import Counterpart, counterpart, examine, read_code, read_notebook, replace
from tests.app.machines import Done, Screen
from tests.cases import every_case, names_of

OLD = b"from claude_agent_sdk import query\n"
NEW = b"from outrider.compat import query\n"


@pytest.fixture(autouse=True)
def _in_a_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def migrate(capsys: pytest.CaptureFixture[str]) -> Any:
    def run(*arguments: str) -> Done:
        code = main(["migrate", *arguments])
        out, err = capsys.readouterr()
        return Done(code, out, err)

    return run


def put(name: str, content: bytes = OLD) -> Path:
    path = Path(name)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)
    return path


# The package that takes the place.


def test_the_counterpart_is_what_the_package_has() -> None:
    import outrider.compat

    there = counterpart()
    assert there[""] >= {*names_of(outrider.compat), "types", "testing", "_errors"}
    assert "MessageParseError" in there["_errors"]
    assert "HookEvent" in there["types"]


def test_modules_are_there_without_being_imported(migrate: Any) -> None:
    modules = ("types", "testing", "_errors")
    path = put("a.py", b"import claude_agent_sdk\n")
    with path.open("a") as file:
        file.writelines(f"print(claude_agent_sdk.{module}.__name__)\n" for module in modules)
    migrate("--write")
    printed = subprocess.check_output([sys.executable, str(path)], text=True)
    assert printed.split() == [f"outrider.compat.{module}" for module in modules]


# What is shown.


def test_the_changes_are_shown_and_nothing_is_written(migrate: Any) -> None:
    path = put("src/agent.py", b"# one\n" + OLD + b"\n\n\n\n\n\n\nimport claude_agent_sdk as sdk")
    put("tests/test_agent.py", b"monkeypatch.setattr('claude_agent_sdk.query', fake)\n")
    before = path.read_bytes()
    assert migrate() == (
        0,
        """\
--- src/agent.py
+++ src/agent.py
@@ -1,5 +1,5 @@
 # one
-from claude_agent_sdk import query
+from outrider.compat import query
\x20
\x20
\x20
@@ -7,4 +7,4 @@
\x20
\x20
\x20
-import claude_agent_sdk as sdk
\\ No newline at end of file
+import outrider.compat as sdk
\\ No newline at end of file

To look at:
tests/test_agent.py:1: `claude_agent_sdk` is named here and left. The module is outrider.compat, the package \
outrider. [mention]

Also:
Claude Code is not part of the package: npm install -g @anthropic-ai/claude-code.
What imports claude_agent_sdk by itself (frameworks, tracing) works after `outrider.compat.install()`.
Outrider's plugin for pytest has a simulated Claude Code. `outrider_forbid_real = true` in the configuration \
of pytest refuses to start the real one; --outrider-compat does what `install` does.

1 file, 2 imports changed; 1 place to look at. Nothing was written: --write makes the changes.
""",
        "",
    )
    assert path.read_bytes() == before


def test_a_program_can_apply_what_is_shown(migrate: Any) -> None:
    path = put("a.py", b"x = 1\n\n" + OLD + b"y = 2")
    shown = migrate().out
    subprocess.run(["git", "apply", "-p0", "-"], input=shown, text=True, check=True)
    assert path.read_bytes() == b"x = 1\n\n" + NEW + b"y = 2"


def test_it_is_drawn_at_a_terminal(tmp_path: Path) -> None:
    put("a.py", OLD + b"import claude_agent_sdk._internal.client\n")
    with Screen("migrate", cwd=tmp_path, size=(40, 60)) as screen:
        assert screen.end() == 0
        lines = screen.lines
    assert b"\x1b[32m+from outrider.compat import query" in screen.raw
    assert any(line.startswith("a.py:2: outrider.compat has no") for line in lines)
    assert max(map(len, lines)) <= 60


def test_control_characters_are_shown_and_not_obeyed(migrate: Any) -> None:
    put("a.py", OLD + b"x = '\x1b[31m'\n")
    put("b\x1b[31m.py")
    out = migrate().out
    assert "\x1b" not in out
    assert " x = '\N{REPLACEMENT CHARACTER}[31m'" in out


def test_it_can_be_read_by_programs(migrate: Any) -> None:
    put("a.py", OLD + b"import os, claude_code_sdk\n")
    code, out, err = migrate("--json")
    told = json.loads(out)
    assert (code, err, told["errors"]) == (0, "", [])
    (file,) = told["files"]
    assert file.pop("diff").startswith("--- a.py\n+++ a.py\n@@ -1,2 +1,2 @@\n-from")
    assert file == {"path": "a.py", "changes": 1, "is_written": False}
    (place,) = told["places"]
    assert place.pop("text").startswith("`claude_code_sdk` is")
    found = "claude_code_sdk"
    assert place == {"path": "a.py", "line": 2, "cell": None, "rule": "mention", "found": found}
    assert json.loads(migrate("--json", "--write").out)["files"][0]["is_written"]


# Exit codes, and what cannot be done.


def test_check_is_for_machines_that_watch(migrate: Any) -> None:
    put("a.py")
    assert migrate("--check").code == Code.FAILED
    assert migrate("--write").code == Code.OK
    assert migrate("--check") == (0, "No file in this folder imports claude_agent_sdk.\n", "")


@pytest.mark.parametrize(
    "arguments, said",
    [
        (("nowhere",), "error: nowhere: No such file or directory.\n"),
        (("/dev/null",), "error: /dev/null: Neither a file nor a folder.\n"),
        (("--check", "--write"), "error: --check changes nothing: leave it out, or --write.\n"),
    ],
    ids=["path", "device", "flags"],
)
def test_a_mistake_is_one_line(arguments: tuple[str, ...], said: str, migrate: Any) -> None:
    put("a.py")
    assert migrate(*arguments) == (Code.USAGE, "", said)
    assert Path("a.py").read_bytes() == OLD


def test_where_nothing_is_found_it_says_so(migrate: Any) -> None:
    put("src/a.py", b"import os\n")
    assert migrate("src", "src/a.py") == (0, "No file in src, src/a.py imports claude_agent_sdk.\n", "")


def test_what_cannot_be_written_is_told_and_the_others_are_written(
    migrate: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("a/one.py", "b/two.py", "c/three.py"):
        put(name)
    # Whoever runs the tests may be one who may write everything.
    may = os.access
    monkeypatch.setattr(os, "access", lambda path, mode: "two" not in str(path) and may(path, mode))
    code, out, err = migrate("--write")
    assert (code, err) == (Code.FAILED, "error: b/two.py: Permission denied.\n")
    assert out.endswith("\n2 files, 2 imports changed. 1 file could not be written.\n")
    assert [Path(name).read_bytes() for name in ("a/one.py", "b/two.py", "c/three.py")] == [NEW, OLD, NEW]


def test_a_folder_where_nothing_can_be_made_is_told_by_the_name_of_the_file(
    migrate: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    put("a.py")

    def fails(*_: object) -> None:
        raise OSError(28, "No space left on device", "made-up-name")

    monkeypatch.setattr(os, "fsync", fails)
    assert migrate("--write")[::2] == (Code.FAILED, "error: a.py: No space left on device.\n")
    assert [path.name for path in Path().iterdir()] == ["a.py"]
    assert Path("a.py").read_bytes() == OLD


def test_what_cannot_be_read_is_told_and_the_others_are_read(
    migrate: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    put("a.py")
    put("b.py")
    opened = Path.open

    def fails(path: Path, *arguments: Any, **named: Any) -> Any:
        if path.name == "a.py":
            raise PermissionError(13, "Permission denied", str(path))
        return opened(path, *arguments, **named)

    monkeypatch.setattr(Path, "open", fails)
    code, out, err = migrate("../" + Path.cwd().name)
    assert (code, "/b.py" in out) == (Code.FAILED, True)
    assert err == f"error: ../{Path.cwd().name}/a.py: Permission denied.\n"


def test_a_file_that_somebody_else_has_changed_is_not_overwritten() -> None:
    path = put("a.py")
    file = examine(path, counterpart())
    put("a.py", OLD + b"x = 1\n")
    with pytest.raises(OSError, match="changed in the meantime"):
        replace(file)
    assert path.read_bytes() == OLD + b"x = 1\n"


def test_a_name_that_is_no_text_is_shown_as_far_as_it_is(migrate: Any) -> None:
    put("a\udcff.py")
    assert migrate().out.startswith("--- a?.py\n")
    assert json.loads(migrate("--json", "--write").out)["files"][0]["path"] == "a?.py"
    assert Path("a\udcff.py").read_bytes() == NEW


def test_a_file_without_it_is_passed_over_whatever_it_is(migrate: Any) -> None:
    put("notes.txt", b"import this\nand that\n")
    assert migrate("notes.txt").out == "No file in notes.txt imports claude_agent_sdk.\n"


# What is written.


@pytest.mark.parametrize(
    "before, after",
    [
        (OLD.replace(b"\n", b"\r\n") * 2, NEW.replace(b"\n", b"\r\n") * 2),
        (b"\xef\xbb\xbf" + OLD, b"\xef\xbb\xbf" + NEW),
        (
            b"# -*- coding: latin-1 -*-\nx = '\xe9'; import claude_agent_sdk as \xe9\n",
            b"# -*- coding: latin-1 -*-\nx = '\xe9'; import outrider.compat as \xe9\n",
        ),
        (
            b"#!/usr/bin/env python\n\x0c\n\t# x  \n" + OLD[:-1],
            b"#!/usr/bin/env python\n\x0c\n\t# x  \n" + NEW[:-1],
        ),
    ],
    ids=["crlf", "mark", "latin-1", "no end"],
)
def test_all_else_in_a_file_stays_as_it_is(before: bytes, after: bytes, migrate: Any) -> None:
    path = put("a.py", before)
    migrate("--write")
    assert path.read_bytes() == after


@pytest.mark.parametrize(
    "content, rule",
    [
        (OLD + b"x = (", "syntax"),
        (OLD + b"x = '\xff'\n", "encoding"),
        (b"# coding: nonsense\n" + OLD, "encoding"),
        (b"# coding: utf-7\nx = '+AGE-'\n" + OLD, "encoding"),
    ],
    ids=["syntax", "utf-8", "unknown", "not the only way"],
)
def test_what_cannot_be_changed_safely_is_listed_and_left(content: bytes, rule: str, migrate: Any) -> None:
    path = put("a.py", content)
    (place,) = json.loads(migrate("--write", "--json").out)["places"]
    assert place["rule"] == rule
    assert path.read_bytes() == content


def test_a_file_keeps_its_mode_and_a_link_its_target(migrate: Any) -> None:
    path = put("real/a.py")
    path.chmod(0o750)
    Path("link.py").symlink_to("real/a.py")
    assert migrate("--write", "link.py").code == 0
    assert Path("link.py").is_symlink()
    assert (path.read_bytes(), stat.S_IMODE(path.stat().st_mode)) == (NEW, 0o750)


def test_a_second_run_has_nothing_to_do(migrate: Any) -> None:
    put("a.py", b"import claude_agent_sdk, os\nx = 'claude_agent_sdk'\n")
    migrate("--write")
    before = Path("a.py").stat().st_mtime_ns, Path("a.py").read_bytes()
    out = migrate("--write").out
    assert out.splitlines()[-1] == "Nothing to change; 1 place to look at."
    assert (Path("a.py").stat().st_mtime_ns, Path("a.py").read_bytes()) == before


@settings(deadline=None, max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.binary() | st.text().map(str.encode), st.booleans())
def test_any_file_is_changed_once_and_only_if_it_imports_the_sdk(content: bytes, is_user: bool) -> None:
    path = put("a.py", content + b"\n" + OLD * is_user)
    once = examine(path, counterpart()).after
    assert is_user or once == path.read_bytes()
    assert examine(put("a.py", once), counterpart()).after == once
    try:
        ast.parse(content + b"\n" + OLD)
    except (SyntaxError, ValueError):
        assert not is_user or once == content + b"\n" + OLD
    else:
        assert not is_user or once == content + b"\n" + NEW


# Where it looks.


def test_what_is_somebody_elses_is_left_out(migrate: Any) -> None:
    put("mine/a.py")
    put("mine/env/pyvenv.cfg", b"")
    for folder in (
        "mine/env/lib",
        "mine/.git",
        "mine/node_modules/x",
        "mine/__pycache__",
        "lib/site-packages",
    ):
        put(f"{folder}/a.py")
    assert [file["path"] for file in json.loads(migrate("--json").out)["files"]] == ["mine/a.py"]


def test_links_are_not_followed(migrate: Any) -> None:
    put("outside/a.py")
    put("tree/b.py")
    Path("tree/loop").symlink_to(".")
    Path("tree/out").symlink_to("../outside")
    Path("tree/out.py").symlink_to("../outside/a.py")
    Path("tree/gone.py").symlink_to("nowhere")
    os.mkfifo("tree/pipe.py")
    files = json.loads(migrate("--json", "--write", "tree").out)["files"]
    assert [file["path"] for file in files] == ["tree/b.py"]
    assert Path("outside/a.py").read_bytes() == OLD


def test_a_file_that_is_named_twice_is_changed_once(migrate: Any) -> None:
    put("tree/a.py")
    Path("also").symlink_to("tree")
    files = json.loads(migrate("--json", "tree", "tree/a.py", "also", str(Path.cwd())).out)["files"]
    assert [file["path"] for file in files] == ["tree/a.py"]


def test_what_git_ignores_is_left_out_unless_it_is_named(migrate: Any) -> None:
    subprocess.run(["git", "init", "-q"], check=True)
    put(".gitignore", b"made/\n*_pb.py\nkept.py\n")
    for name in ("a.py", "a_pb.py", "made/b.py", "kept.py", "inner/c.py"):
        put(name)
    subprocess.run(["git", "add", "-f", "kept.py"], check=True)
    subprocess.run(["git", "init", "-q", "inner"], check=True)
    put("inner/.gitignore", b"d.py\n")
    put("inner/d.py")

    def paths(*arguments: str) -> list[str]:
        return [file["path"] for file in json.loads(migrate("--json", *arguments).out)["files"]]

    assert paths() == ["a.py", "kept.py", "inner/c.py"]
    assert paths("made") == ["made/b.py"]
    assert paths("a_pb.py") == ["a_pb.py"]


def test_without_git_all_is_looked_at(migrate: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    subprocess.run(["git", "init", "-q"], check=True)
    put(".gitignore", b"a.py\n")
    put("a.py")
    monkeypatch.setenv("PATH", "/nowhere")
    assert len(json.loads(migrate("--json").out)["files"]) == 1


def test_a_large_tree_is_looked_through(migrate: Any) -> None:
    for number in range(50):
        for name in range(20):
            put(f"package{number}/module{name}.py", b"import os\n" * 100)
    put("package7/agent.py")
    assert [file["path"] for file in json.loads(migrate("--json").out)["files"]] == ["package7/agent.py"]


# Notebooks.


def notebook(*cells: object, **fields: Any) -> str:
    made = [cell if isinstance(cell, dict) else {"cell_type": "code", "source": cell} for cell in cells]
    return json.dumps({"cells": made, "nbformat": 4}, **fields)


@pytest.mark.parametrize("indent", [None, 1, "\t"], ids=["one line", "1", "tab"])
@pytest.mark.parametrize("ends", ["", "\n", "\r\n"], ids=["none", "lf", "crlf"])
def test_a_notebook_is_changed_and_is_written_as_it_was(indent: Any, ends: str, migrate: Any) -> None:
    text = notebook(
        {"cell_type": "markdown", "source": ["import claude_agent_sdk\n"]},
        ["%pip install nothing\n", 'x = "é😀\\n"; import claude_agent_sdk as sdk\n', "await sdk.query()"],
        "from claude_agent_sdk import (\n  query,\n)\n",
        {"cell_type": "code", "source": [], "outputs": [{"text": ["import claude_agent_sdk"]}]},
        indent=indent,
    )
    text = text.replace("\n", ends or "\n")
    path = put("a.ipynb", (text + ends).encode())
    assert migrate("--write").out.splitlines()[-1] == "1 file, 2 imports changed."
    after = text.replace("import claude_agent_sdk as sdk", "import outrider.compat as sdk")
    assert path.read_bytes().decode() == after.replace("from claude_agent_sdk", "from outrider.compat") + ends


@pytest.mark.parametrize(
    "cell",
    [
        "%matplotlib inline\nimport claude_agent_sdk",
        "!pip install \\\n  x\nimport claude_agent_sdk",
        "%%time\nimport claude_agent_sdk",
        "files = !ls\nif files:\n    %cd x\nimport claude_agent_sdk",
        "x?\nimport claude_agent_sdk",
        "x = (1\n  % 2)\nimport claude_agent_sdk",
    ],
)
def test_magic_does_not_keep_a_cell_from_being_read(cell: str) -> None:
    reading = read_notebook(notebook(cell), counterpart())
    assert reading[1:] == (1, [])


@pytest.mark.parametrize(
    "cell", ["%%bash\nclaude_agent_sdk", "import claude_agent_sdk\nx = (", "?\n)claude_agent_sdk"]
)
def test_a_cell_that_python_cannot_read_is_listed_and_the_others_are_changed(cell: str) -> None:
    reading = read_notebook(notebook("x", cell, "import claude_agent_sdk"), counterpart())
    assert [(each.cell, each.rule) for each in reading.findings] == [(2, "syntax")]
    assert reading.changes == 1


def test_what_a_cell_installs_is_listed() -> None:
    reading = read_notebook(notebook("x = 1\n%pip install -q claude-agent-sdk"), counterpart())
    assert [(each.line, each.rule) for each in reading.findings] == [(2, "mention")]


@pytest.mark.parametrize("ascii", [True, False])
def test_letters_of_a_notebook_that_are_spelled_out_stay_so(ascii: bool) -> None:  # noqa: A002
    text = notebook('x = "é😀\t"; import claude_agent_sdk as é', ensure_ascii=ascii)
    assert read_notebook(text, counterpart()).after == text.replace("claude_agent_sdk", "outrider.compat")


def test_a_notebook_that_could_not_be_written_as_it_was_is_listed_and_left() -> None:
    text = notebook("import claude_agent_sdk as sdk").replace('"nbformat": 4', '"nbformat":   4')
    reading = read_notebook(text, counterpart())
    assert (reading.after, [each.rule for each in reading.findings]) == (text, ["notebook"])


@pytest.mark.parametrize(
    "text",
    ["", "claude_agent_sdk", "[]", '{"cells": {"a": 1}}', '{"cells": [1, null, {"source": 3}]}', "[" * 9999],
)
def test_what_is_not_a_notebook_is_not_changed(text: str) -> None:
    reading = read_notebook(text, counterpart())
    assert (reading.after, reading.changes) == (text, 0)
    assert [each.rule for each in reading.findings] == ["notebook"]


# Python.

THERE: Counterpart = {
    "": frozenset(
        (
            *("ClaudeAgentOptions", "ClaudeSDKClient", "CLIJSONDecodeError", "Transport", "TextBlock"),
            *(
                "create_sdk_mcp_server",
                "list_sessions",
                "query",
                "types",
                "testing",
                "_errors",
                "__version__",
            ),
        )
    ),
    "types": frozenset({"ClaudeAgentOptions", "HookEvent", "TextBlock"}),
    "testing": frozenset({"run_session_store_conformance"}),
    "_errors": frozenset({"MessageParseError"}),
}


def changed(text: str) -> str:
    return read_code(text, THERE).after


def found(text: str) -> list[tuple[int, str]]:
    return [(each.line, each.rule) for each in read_code(text, THERE).findings]


IMPORTS = {
    "import claude_agent_sdk": "import outrider.compat as claude_agent_sdk",
    "import claude_agent_sdk as sdk": "import outrider.compat as sdk",
    "import claude_agent_sdk  as\tsdk # why": "import outrider.compat  as\tsdk # why",
    "import os, claude_agent_sdk, sys": "import os, outrider.compat as claude_agent_sdk, sys",
    "import claude_agent_sdk.types": "import outrider.compat as claude_agent_sdk",
    "import claude_agent_sdk.types as t": "import outrider.compat.types as t",
    "from claude_agent_sdk import query": "from outrider.compat import query",
    "from  claude_agent_sdk  import  query": "from  outrider.compat  import  query",
    "from\\\n claude_agent_sdk import query": "from\\\n outrider.compat import query",
    "from claude_agent_sdk import query as q, TextBlock": "from outrider.compat import query as q, TextBlock",
    "from claude_agent_sdk import *": "from outrider.compat import *",
    "from claude_agent_sdk import (\n    query,  # one\n\n    TextBlock,\n)": (
        "from outrider.compat import (\n    query,  # one\n\n    TextBlock,\n)"
    ),
    "from claude_agent_sdk.types import HookEvent": "from outrider.compat.types import HookEvent",
    "from claude_agent_sdk import types": "from outrider.compat import types",
    "from claude_agent_sdk._errors import MessageParseError": (
        "from outrider.compat._errors import MessageParseError"
    ),
    "from claude_agent_sdk.testing import run_session_store_conformance": (
        "from outrider.compat.testing import run_session_store_conformance"
    ),
    # What is public is in another place.
    "from claude_agent_sdk.client import ClaudeSDKClient": "from outrider.compat import ClaudeSDKClient",
    "from claude_agent_sdk.query import query": "from outrider.compat import query",
    "from claude_agent_sdk._internal.transport import Transport as T": (
        "from outrider.compat import Transport as T"
    ),
    "from claude_agent_sdk.testing.conformance import run_session_store_conformance": (
        "from outrider.compat.testing import run_session_store_conformance"
    ),
    # Wherever they are.
    "def f():\n\tfrom claude_agent_sdk import query": "def f():\n\tfrom outrider.compat import query",
    "try:\n    import claude_agent_sdk as s\nexcept ImportError:\n    s = None": (
        "try:\n    import outrider.compat as s\nexcept ImportError:\n    s = None"
    ),
    "if TYPE_CHECKING: from claude_agent_sdk import query": (
        "if TYPE_CHECKING: from outrider.compat import query"
    ),
    "'é😀'; import claude_agent_sdk as é": "'é😀'; import outrider.compat as é",
    "x = 1\x0c\nimport claude_agent_sdk as s": "x = 1\x0c\nimport outrider.compat as s",
    "a = '''\n'''; import claude_agent_sdk as s; b = 2": "a = '''\n'''; import outrider.compat as s; b = 2",
}

LEFT = (
    "import claude_agent_sdk_extras",
    "from my.claude_agent_sdk import query",
    "from . import claude_agent_sdk",
    "from .claude_agent_sdk import query",
    "import outrider.compat as claude_agent_sdk",
    "from claude_agent_sdk._internal.query import Query",
    "import claude_agent_sdk._internal.client",
    "patch('claude_agent_sdk.client')",
    "patch('claude_agent_sdk._internal.query.Query')",
    "# import claude_agent_sdk",
    "x = 'claude_agent_sdk'",
    "print('claude_agent_sdk.query')",
    "logging.getLogger('claude_agent_sdk')",
    "mock.patch('claude_agent_sdk._internal.client.Query')",
    "mock.patch('claude_agent_sdk' '.query')",
    "import_module('claude_agent\\x5fsdk')",
    "import_module(f'claude_agent_sdk.{name}')",
    # It would give `outrider`.
    "__import__('claude_agent_sdk')",
    "__import__('claude_agent_sdk.types', fromlist=[])",
    "import claude_agent_sdk . types",
    "import claude_agent_\N{FULLWIDTH LATIN SMALL LETTER S}dk",
    "def f(x: 'claude_agent_sdk.TextBlock'): pass",
    "def broken(:\n    import claude_agent_sdk",
    "import claude_agent_sdk\0",
)


@every_case("before", IMPORTS)
def test_the_name_is_replaced_and_nothing_else(before: str) -> None:
    assert changed(before) == IMPORTS[before]
    assert read_code(before, THERE)[1:] == (1, [])


@every_case("text", LEFT)
def test_what_is_not_the_module_is_left_alone(text: str) -> None:
    assert changed(text) == text


LISTED = {
    "from claude_agent_sdk._internal.query import Query": "import",
    "import claude_agent_sdk._internal.client": "import",
    "from claude_agent_sdk.client import *": "import",
    "from claude_agent_sdk import query, Nonsense": "unknown-name",
    "from claude_agent_sdk.types import Nonsense": "unknown-name",
    "import claude_agent_sdk . types": "spelling",
    "import claude_code_sdk": "mention",
    "patch('claude_agent_sdk.query')": "mention",
    "sdk = __import__('claude_agent_sdk')": "mention",
    "TEMPLATE = '\\nfrom claude_agent_sdk import query'": "mention",
    "print('Try: pip install -U claude-agent-sdk.')": "mention",
    "x = 1  # as claude_agent_sdk does it": "mention",
    "async def f(client): await client._transport.write('x')": "private",
    "async for frame in self.client._query.receive_messages(): ...": "private",
    "if type(m).__name__ == 'SystemMessage': ...": "class-name",
    "kind = m.__class__.__name__": "class-name",
    "match type(m).__name__:\n    case 'SystemMessage': ...": "class-name",
    "HANDLERS.get(type(m).__name__)": "class-name",
    "getattr(self, f'on_{type(m).__name__}')(m)": "class-name",
    "type(m).__qualname__.endswith('Message')": "class-name",
    "getattr(client, '_transport')": "private",
    "class C(sdk.ClaudeSDKClient): x = lambda self: self._query": "private",
    "async for m in query(prompt=p): hasattr(m, 'text')": "new-attribute",
}
FINE = (
    "import claude_agent_sdk\nclaude_agent_sdk.query, claude_agent_sdk.types.HookEvent",
    "import outrider.compat as claude_agent_sdk\nclaude_agent_sdk.query",
    "from .types import Nonsense",
    "version('claude-agent-sdk-extras')",
    "my.claude_agent_sdk = 1",
    "print(f'{type(error).__name__}: {error}')",
    "self._transport = None",
    "for block in blocks: hasattr(block, 'text')",
)


@every_case("text", LISTED)
def test_what_is_left_is_listed_with_its_line(text: str) -> None:
    assert found(f"x = 1\n\n{text}") == [(3, LISTED[text])]
    (finding,) = read_code(text, THERE).findings
    assert finding.found in finding.text


@every_case("text", FINE)
def test_what_needs_no_look_is_not_listed(text: str) -> None:
    assert found(text) == []


def test_modules_that_programs_import_are_there() -> None:
    before = """import claude_agent_sdk.client as c
from claude_agent_sdk.client import ClaudeSDKClient
from claude_agent_sdk._version import __version__
from claude_agent_sdk._internal.message_parser import parse_message
from claude_agent_sdk._internal import client, query
import claude_agent_sdk._internal.message_parser
from claude_agent_sdk._internal.transport import subprocess_cli
"""
    reading = read_code(before, counterpart())
    assert (
        reading.after
        == """import outrider.compat.client as c
from outrider.compat import ClaudeSDKClient
from outrider.compat import __version__
from outrider.compat._internal.message_parser import parse_message
from outrider.compat._internal import client, query
import claude_agent_sdk._internal.message_parser
from outrider.compat._internal.transport import subprocess_cli
"""
    )
    rules = [(each.line, each.rule) for each in reading.findings]
    assert rules == [(4, "private"), (5, "private"), (6, "import"), (7, "private")]


def test_what_no_line_says_is_said_beside_the_changes(migrate: Any) -> None:
    put("agent.py")
    assert "npm install -g @anthropic-ai/claude-code" in migrate().out
    assert "outrider.compat.install()" in migrate().out
    assert "pytest" not in migrate().out
    put("test_agent.py")
    assert "outrider_forbid_real" in json.loads(migrate("--json").out)["advice"][2]
    assert "npm" not in migrate("--write").out.splitlines()[-1]
    assert "npm" not in migrate().out


def test_what_python_cannot_read_is_listed_with_its_line() -> None:
    assert found("import claude_agent_sdk\nx = (\n") == [(2, "syntax")]
    assert found("(" * 500 + ")" * 500)[0][1] == "syntax"


PIECES = st.sampled_from(
    [
        *(text for text in (*IMPORTS, *LEFT) if "*" not in text and "\0" not in text),
        "x = 1  # claude_agent_sdk",
        "'''\r\nimport claude_agent_sdk'''",
        "é = 'ü'",
        "",
        "\x0c",
    ]
)


@settings(deadline=None, max_examples=150)
@given(st.lists(PIECES, max_size=6), st.sampled_from(["\n", "\r\n", "\r"]), st.randoms(use_true_random=False))
def test_a_change_keeps_the_lines_and_the_syntax_and_is_made_once(
    pieces: list[str], end: str, random: random.Random
) -> None:
    joined = [f"{piece}; y = 2" if random.random() < 0.2 else piece for piece in pieces]
    text = "".join(piece.replace("\n", end) + end for piece in joined)
    after = changed(text)
    assert changed(after) == after
    assert after.count("\n") == text.count("\n")
    assert after.count("\r") == text.count("\r")
    try:
        ast.parse(text)
    except (SyntaxError, ValueError):
        assert after == text
    else:
        ast.parse(after)


@settings(deadline=None, max_examples=100)
@given(st.text())
def test_any_text_can_be_read(text: str) -> None:
    assert changed(text) == text
