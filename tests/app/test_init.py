"""`outrider init`: the project that it writes works as it stands, whichever parts were chosen."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tomllib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import yaml

from outrider.app import main
from outrider.app._flags import Code
from outrider.testing import RealAgent, say, use_tool
from scripts.agent_program import VERSION
from tests.real_program import require_program


def make(folder: Path, *flags: str) -> Path:
    assert main(["init", str(folder), *flags]) == Code.OK
    return folder


def contents(folder: Path) -> dict[str, str]:
    return {
        str(path.relative_to(folder)): path.read_text(encoding="utf-8")
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }


def python(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, *arguments], cwd=folder, text=True, capture_output=True, check=False
    )


FORGETFUL = """\
import outrider
import pytest
from outrider.transports import live_processes


def test_claude_code_is_not_started() -> None:
    with pytest.raises(outrider.UsageError, match="would start the real program"):
        outrider.sync.run("Hello", cli_path="/bin/true")
    assert not live_processes()
"""
"""A test without the fixture `agent`."""


def test_a_project_passes_its_own_tests_and_can_be_built(tmp_path: Path) -> None:
    folder = make(tmp_path / "Support Bot")
    (folder / "tests/test_forgetful.py").write_text(FORGETFUL)
    done = python(folder, "-m", "pytest", "-q", "-W", "error", "-p", "no:cacheprovider")
    assert re.search(r"^8 passed", done.stdout, re.MULTILINE), done.stdout + done.stderr
    done = python(folder, "-m", "ruff", "check", "--select=E,F,I,B,UP", "--line-length=100", ".")
    assert done.returncode == 0, done.stdout
    done = python(folder, "-m", "hatchling", "build", "--target=wheel")
    assert (folder / "dist/support_bot-0.1.0-py3-none-any.whl").exists(), done.stderr


@pytest.mark.parametrize("without", [(), ("service",), ("batch",), ("ci", "docker"), ("service", "batch")])
def test_parts_that_were_not_chosen_leave_no_trace(without: Sequence[str], tmp_path: Path) -> None:
    files = contents(make(tmp_path / "bot", *(f"--no-{part}" for part in without)))
    traces = {
        "service": ("bot/service.py", "tests/test_service.py", "fastapi", "uvicorn", "httpx2"),
        "batch": ("bot/batch.py", "tests/test_batch.py", "prompts.txt", "bot.batch"),
        "docker": ("Dockerfile", ".dockerignore", "docker "),
        "ci": (".github/workflows/test.yml",),
    }
    # An image has to have something to run.
    missing = {*without, "docker"} if {"service", "batch"} <= {*without} else {*without}
    everything = "\n".join([*files, *files.values()])
    for part, names in traces.items():
        for name in names:
            assert (name in everything) == (part not in missing), name
    assert not re.search(r"^%|my.agent|OUTRIDER_VERSION", everything, re.MULTILINE)
    project = tomllib.loads(files["pyproject.toml"])
    assert project["tool"]["pytest"]["ini_options"]["outrider_forbid_real"] is True


def test_the_image_has_what_it_runs(tmp_path: Path) -> None:
    # There may be no Docker here: its commands are read, and what they name is looked for.
    files = contents(make(tmp_path / "bot"))
    lines = re.sub(r"\\\n", " ", files["Dockerfile"]).splitlines()
    steps = [line.split(None, 1) for line in lines if line and not line.startswith("#")]
    kinds = {"FROM", "ARG", "RUN", "COPY", "WORKDIR", "USER", "ENV", "EXPOSE", "CMD"}
    assert {kind for kind, _ in steps} == kinds
    kept = {line[1:] for line in files[".dockerignore"].splitlines() if line.startswith("!")}
    copied = [rest.split() for kind, rest in steps if kind == "COPY" and "--from" not in rest]
    assert {name for names in copied for name in names[:-1]} == kept
    assert all((tmp_path / "bot" / name).exists() for name in kept)
    assert f"ARG CLAUDE_CODE_VERSION={VERSION}\n" in files["Dockerfile"]
    assert json.loads(steps[-1][1])[:2] == ["uvicorn", "bot.service:app"]


def test_the_workflow_is_safe(tmp_path: Path) -> None:
    folder = make(tmp_path / "bot")
    workflow: Any = yaml.safe_load((folder / ".github/workflows/test.yml").read_text())
    assert set(workflow["jobs"]) == {"test", "image"}
    zizmor = Path(sys.executable).with_name("zizmor")
    done = subprocess.run(
        [zizmor, "--offline", "--quiet", "--persona=pedantic", folder],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout


def test_an_outrider_that_is_on_no_index_is_installed_from_where_it_came(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    step = "pip install '/home/ada/my wheels/outrider.whl'"
    installed = tmp_path / "outrider-0.1.0.dist-info"
    installed.mkdir()
    (installed / "METADATA").write_text("Metadata-Version: 2.4\nName: outrider\nVersion: 0.1.0\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    make(tmp_path / "released")
    assert step not in capsys.readouterr().out
    (installed / "direct_url.json").write_text('{"url": "file:///home/ada/my%20wheels/outrider.whl"}')
    make(tmp_path / "built")
    assert step in capsys.readouterr().out


def test_nothing_is_overwritten(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "bot").mkdir()
    (tmp_path / "bot/README.md").symlink_to(tmp_path / "nowhere")
    assert main(["init", str(tmp_path / "bot")]) == Code.USAGE
    assert "README.md exists. Nothing was written; choose another folder." in capsys.readouterr().err
    assert [path.name for path in (tmp_path / "bot").iterdir()] == ["README.md"]

    make(tmp_path / "bot" / "inner")
    assert main(["init", str(tmp_path / "bot/inner")]) == Code.USAGE
    assert "exists (and 13 other files of the project)" in capsys.readouterr().err


@pytest.mark.parametrize("name", ["json", "outrider", "class", "7up", "größe", "", "../x"])
def test_a_name_that_no_package_can_have(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["init", str(tmp_path / "bot"), f"--name={name}"]) == Code.USAGE
    assert "Choose one with `--name`" in capsys.readouterr().err
    assert not (tmp_path / "bot").exists()


@pytest.mark.real
def test_a_batch_runs_with_claude_code(tmp_path: Path) -> None:
    folder = make(tmp_path / "bot", "--no-service")
    program = Path(require_program())
    with RealAgent(program=str(program)) as agent:
        for _ in range(2):
            agent.api.add(use_tool("mcp__tools__ticket", number=7), say("It is about tabs."))
        environment = {**agent.environment, "PATH": f"{program.parent}{os.pathsep}{os.environ['PATH']}"}
        done = subprocess.run(
            [sys.executable, "-m", "bot.batch", "prompts.txt", "answers.jsonl", "--concurrency=1"],
            cwd=folder,
            env=environment,
            capture_output=True,
            text=True,
            check=False,
        )
        assert "2 of 2 done" in done.stderr
        assert "Tabs are not parsed." in str(agent.api.requests[1].tool_results)
    answers = [json.loads(line) for line in (folder / "answers.jsonl").read_text().splitlines()]
    assert [answer["text"] for answer in answers] == ["It is about tabs."] * 2
