"""An option is added by editing two files at most: its declaration, and the request if it goes there.

Played in a copy of the package, with an option that becomes a flag and one that goes into `initialize`.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import outrider

ROOT = Path(__file__).parents[2]
DEADLINE = 300

MODEL = "    model: str | None = option("
PLAN = "    plan_mode_instructions: str | None = None\n"

EDITS = {
    "options/_options.py": [
        (
            "    cli_path: StrPath | None\n",
            "    cli_path: StrPath | None\n    loudness: int | None\n    nickname: str | None\n",
        ),
        (
            MODEL,
            '    loudness: int | None = option(None, whole(1, 11), Flag("--loudness"))\n'
            '    """How loud it is."""\n'
            '    nickname: str | None = option(None, text, Init("nickname"))\n'
            '    """What it is called."""\n' + MODEL,
        ),
    ],
    "wire/control/_session.py": [(PLAN, f"{PLAN}    nickname: str | None = None\n")],
}

PLAYED = """
from outrider.errors import OptionsError
from outrider.launch import make_command, make_initialize
from outrider.options import Options
from outrider.session import Session
from outrider.wire import encode
from scripts.options_page import tables

options = Session(cli_path="/bin/true", loudness=11, nickname="Nelly").options
assert "--loudness=11" in make_command(options).argv
assert b'"nickname":"Nelly"' in encode(make_initialize(options))
assert "--loudness" not in " ".join(make_command(Options(cli_path="/bin/true")).argv)
assert repr(Options(loudness=3)) == "Options(loudness=3)"
assert options.replace(loudness=5).loudness == 5
for wrong in ({"loudness": 12}, {"nickname": ""}, {"extra_args": {"loudness": "1"}}, {"lowdness": 1}):
    try:
        Options(**wrong)
    except OptionsError as error:
        assert "loudness" in str(error) or "nickname" in str(error), error
    else:
        raise AssertionError(wrong)
made = tables()
assert "| `loudness`<br>`int \\\\| None`, default `None` | How loud it is. | `--loudness` |" in made
assert "What it is called. | `nickname` in the first request |" in made
"""

TYPED = """
import outrider
import outrider.sync

async def main() -> None:
    await outrider.run("x", loudness=11, nickname="Nelly")
    async with outrider.Session(loudness=None) as session:
        session.options.replace(nickname=session.options.nickname)

outrider.sync.run("x", loudness=11)
outrider.sync.run("x", loudness="11")
"""


@pytest.mark.timeout(DEADLINE)
def test_an_option_is_added_in_two_files(tmp_path: Path) -> None:
    package = tmp_path / "outrider"
    shutil.copytree(Path(outrider.__file__).parent, package, ignore=shutil.ignore_patterns("__pycache__"))
    assert len(EDITS) == 2
    for name, edits in EDITS.items():
        source = (package / name).read_text(encoding="utf-8")
        for old, new in edits:
            assert source.count(old) == 1, old
            source = source.replace(old, new)
        (package / name).write_text(source, encoding="utf-8")
    run(tmp_path, "-c", PLAYED)
    (tmp_path / "typed.py").write_text(TYPED, encoding="utf-8")
    # The cache goes by content: after the first time all but what was edited is known.
    cache = ROOT / ".mypy_cache" / "added-option"
    said = run(tmp_path, "-m", "mypy", "--strict", f"--cache-dir={cache}", "typed.py", code=1).splitlines()
    wrong = 'Argument "loudness" to "run" has incompatible type "str"; expected "int | None"  [arg-type]'
    assert said == [f"typed.py:11: error: {wrong}", "Found 1 error in 1 file (checked 1 source file)"]


def run(folder: Path, *command: str, code: int = 0) -> str:
    """What a Python in this folder says that finds the copy there."""
    environ = {**os.environ, "PYTHONPATH": f"{folder}{os.pathsep}{ROOT}", "MYPYPATH": str(folder)}
    done = subprocess.run(
        [sys.executable, *command],
        cwd=folder,
        env=environ,
        capture_output=True,
        text=True,
        timeout=DEADLINE,
        check=False,
    )
    assert done.returncode == code, done.stdout + done.stderr
    return done.stdout
