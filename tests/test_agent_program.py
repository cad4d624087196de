"""How the real program comes into a checkout, and what is said where it cannot."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from scripts.agent_program import VERSION, main, missing, program

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="the stand-in for npm is a shell script")

NPM = """#!/bin/sh
echo called >>"$(dirname "$0")/calls"
for argument in "$@"; do
  case $argument in --prefix=*) folder=${argument#--prefix=}/node_modules/.bin ;; esac
done
mkdir -p "$folder"
printf '#!/bin/sh\\n%s\\n' 'SCRIPT' >"$folder/claude"
chmod +x "$folder/claude"
"""


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("PATH", f"{tmp_path}:/nowhere")
    monkeypatch.setenv("ANTHROPIC_API_KEY", "mine")
    return tmp_path


def put_npm(machine: Path, text: str) -> None:
    (machine / "npm").write_text(text.replace("#!/bin/sh\n", "#!/bin/sh\nPATH=/usr/bin:/bin\n", 1))
    (machine / "npm").chmod(0o755)


def test_it_is_installed_once(machine: Path, capsys: pytest.CaptureFixture[str]) -> None:
    root = machine / ".agent"
    (root / "1.0.0").mkdir(parents=True)
    missing(root).write_text("once")
    # With a key of ours in its environment it would say something else.
    put_npm(machine, NPM.replace("SCRIPT", f'echo "${{ANTHROPIC_API_KEY#made-up}}{VERSION} (Claude Code)"'))
    main(root)
    assert program(root).is_file()
    assert [path.name for path in root.iterdir()] == [VERSION]
    assert capsys.readouterr().out.count("\n") == 1
    main(root)
    assert (machine / "calls").read_text() == "called\n"
    assert capsys.readouterr().out == ""


@pytest.mark.parametrize(
    "npm, reason",
    [
        (None, "npm is missing"),
        ("#!/bin/sh\necho npm error E500 >&2; echo npm error more; exit 1\n", "npm failed: npm error E500"),
        ("#!/bin/sh\nexit 3\n", "npm failed: it said nothing"),
        ("#!/no/such/shell\n", "npm cannot be run: No such file or directory"),
        (NPM.replace("SCRIPT", "echo no build >&2; exit 1"), "it does not run here: no build"),
        (NPM.replace("SCRIPT", "echo 1.0.0"), "it does not run here: 1.0.0"),
    ],
    ids=["absent", "fails", "fails silently", "broken", "no build", "another version"],
)
def test_where_it_cannot_be_had_one_line_says_why(
    machine: Path, capsys: pytest.CaptureFixture[str], npm: str | None, reason: str
) -> None:
    root = machine / ".agent"
    if npm is not None:
        put_npm(machine, npm)
    main(root)
    assert not program(root).exists()
    assert missing(root).read_text() == reason
    assert [path.name for path in root.iterdir()] == ["missing.txt"]
    last = capsys.readouterr().out.splitlines()[-1]
    assert last == f"== Claude Code is not installed ({reason}): its tests are skipped"
