"""What is checked before a release: the packages, and what would break programs written for the last one."""

from __future__ import annotations

import subprocess
from email.message import Message
from pathlib import Path
from typing import Any

import pytest
import yaml

from scripts import api_changes
from scripts.distributions import ROOT, metadata_problems


def git(folder: Path, *arguments: str) -> None:
    who = ("-c", "user.name=Ada", "-c", "user.email=ada@example.org", "-c", "commit.gpgsign=false")
    subprocess.run(["git", *who, *arguments], cwd=folder, check=True, capture_output=True)


def test_a_change_that_breaks_programs_has_to_be_in_the_changelog(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    package = tmp_path / "src/outrider"
    package.mkdir(parents=True)
    contract = "from outrider._session import Session as Session\nfrom outrider._session import {} as {}\n"
    (package / "__init__.py").write_text(contract.format("run", "run"))
    (package / "_session.py").write_text(
        "class Session:\n"
        "    def send(self, prompt, keep=True): ...\n"
        "    def _private(self): ...\n"
        "def run(prompt): ...\n"
    )
    changelog = tmp_path / "CHANGELOG.md"
    changelog.write_text("# Changelog\n\n## Unreleased\n\n## 0.1.0\n\n- `run` and `Session.send`.\n")
    git(tmp_path, "init", "--quiet")
    git(tmp_path, "add", ".")
    git(tmp_path, "commit", "--quiet", "--message=One")
    assert api_changes.main(tmp_path) == 0
    assert "no tag of a release" in capsys.readouterr().out

    git(tmp_path, "tag", "v0.1.0")
    assert api_changes.main(tmp_path) == 0

    (package / "__init__.py").write_text(contract.format("start", "start"))
    (package / "_session.py").write_text(
        "class Session:\n    def send(self, prompt): ...\ndef start(prompt): ...\n"
    )
    assert api_changes.main(tmp_path) == 1
    reported = capsys.readouterr().err
    assert "outrider.run: public object was removed" in reported
    assert "outrider._session.Session.send: parameter was removed" in reported
    assert "_private" not in reported

    changelog.write_text("# Changelog\n\n## Unreleased\n\n- `run` is `start`; `Session.send` lost `keep`.\n")
    assert api_changes.main(tmp_path) == 0


@pytest.mark.parametrize(
    "text, problems",
    [
        ("[Turns](https://example.org/turns.md), [below](#more), `[code](x)`", []),
        (
            "[Turns](docs/turns.md)",
            ["the text for the index links to 'docs/turns.md', which is not an address"],
        ),
        ('<img src="a.svg">', ["the text for the index links to 'a.svg', which is not an address"]),
    ],
)
def test_the_text_for_the_index_has_no_link_that_leads_nowhere(text: str, problems: list[str]) -> None:
    metadata = Message()
    metadata.set_payload(f"Text\n\n{text}\n")
    assert list(metadata_problems(metadata)) == problems


def test_what_is_published_is_what_is_built() -> None:
    def job(workflow: str) -> Any:
        return yaml.safe_load((ROOT / f".github/workflows/{workflow}.yml").read_text())["jobs"]["build"]

    settings = (ROOT / "mkdocs.yml").read_text(encoding="utf-8")
    assert f"site_dir: {job('docs')['steps'][-1]['with']['path']}\n" in settings
    assert job("publish")["steps"][-1]["with"]["path"] == "dist/"
