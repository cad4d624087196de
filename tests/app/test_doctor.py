"""`outrider doctor`: what it finds, what it advises, and what it never shows."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from outrider._display import printable
from outrider.app._doctor import machine_checks, program_check
from outrider.app._flags import Code
from tests.app.machines import KINDS, Kind, machine

SECRETS = {
    "ANTHROPIC_AUTH_TOKEN": "correct-horse-battery-staple",
    "HTTPS_PROXY": "http://ada:hunter2@proxy.example:3128",
    "CLAUDE_CODE_OAUTH_TOKEN": "sk-ant-oat01-abcdefghijklmnop",
}

SOUND = {"IS_SANDBOX": "1"}
"""Some run the tests as root."""

NAMES = (
    *("Python", "packages", "configuration", "working folder", "temporary folder", "network", "limits"),
    *("Claude Code", "version", "capabilities", "authentication", "MCP servers"),
)


@pytest.mark.parametrize("kind", KINDS)
def test_all_is_well_on_a_sound_machine(kind: Kind) -> None:
    with machine(kind=kind) as here:
        code, out, err = here.run("doctor", environment=SOUND)
        assert not here.requests
    assert (code, err) == (Code.OK, "")
    assert out.endswith("\nNo problems found.\n")
    assert [name for name in NAMES if f"\nok       {name} " not in f"\n{out}"] == []
    assert "\x1b" not in out


def test_it_can_be_read_by_programs() -> None:
    with machine() as here:
        code, out, err = here.run("doctor", "--json", environment=SOUND)
    told = json.loads(out)
    assert (code, err, told["ok"]) == (Code.OK, "", True)
    assert {check["state"] for check in told["checks"]} == {"ok"}


@pytest.mark.parametrize("arguments", [(), ("--json",)], ids=["text", "json"])
def test_no_secret_is_shown(arguments: tuple[str, ...]) -> None:
    with machine() as here:
        _, out, err = here.run("doctor", *arguments, environment=SECRETS)
    shown = out + err
    assert "HTTPS_PROXY=http://***@proxy.example:3128" in shown
    assert [part for part in ("correct-horse", "hunter2", "ada:", "abcdefgh") if part in shown] == []


def test_a_program_that_is_not_there_is_a_problem() -> None:
    with machine() as here:
        code, out, _ = here.run("doctor", "--program", "/no/claude")
    assert code == Code.FAILED
    assert "problem  Claude Code      not found. Searched: /no/claude (cli_path): no such file" in out
    assert "To do: Install it with `npm install" in out
    assert "1 problem" in out.splitlines()[-1]


@pytest.mark.parametrize(
    "text, said",
    [
        (
            "#!/bin/sh\necho no licence >&2\nexit 3\n",
            "problem  start            The agent exited with code 3",
        ),
        ("#!/bin/sh\necho '1.0.0 (Claude Code)'\n", "problem  "),
    ],
    ids=["fails", "old"],
)
def test_a_program_that_does_not_start_is_a_problem(text: str, said: str) -> None:
    with machine() as here:
        program = here.folder / "program"
        program.write_text(text)
        program.chmod(0o755)
        code, out, _ = here.run("doctor", "--program", str(program))
    assert code == Code.FAILED
    assert said in out


def test_at_a_terminal_it_is_a_list_with_signs() -> None:
    with machine() as here, here.screen("doctor", size=(60, 70), environment=SOUND) as screen:
        assert screen.end() == Code.OK
        assert "✓ version" in screen.text
        assert "No problems found." in screen.text


# Without a program.


def states(environ: dict[str, str], cwd: str | None = None) -> dict[str, tuple[str, str]]:
    return {check.name: (check.state, check.text) for check in machine_checks(environ, cwd)}


def test_a_configuration_folder_that_is_not_there_yet_is_made_by_the_agent(tmp_path: Path) -> None:
    state, text = states({"CLAUDE_CONFIG_DIR": str(tmp_path / "new")})["configuration"]
    assert state == "ok"
    assert "does not exist yet" in text


@pytest.mark.parametrize("name", ["CLAUDE_CONFIG_DIR", "cwd"])
def test_a_folder_that_cannot_be_written_to_is_told(name: str, tmp_path: Path) -> None:
    # Nobody can write there, not even root.
    place = "/proc/self"
    found = states(
        {"CLAUDE_CONFIG_DIR": place if name != "cwd" else str(tmp_path)}, place if name == "cwd" else None
    )
    state, text = found["working folder" if name == "cwd" else "configuration"]
    assert state == ("warning" if name == "cwd" else "problem")
    assert "is not writable" in text


def test_a_working_folder_that_is_not_there_is_a_problem(tmp_path: Path) -> None:
    assert states({}, str(tmp_path / "none"))["working folder"][0] == "problem"


def test_certificates_that_are_not_there_are_a_problem(tmp_path: Path) -> None:
    state, text = states({"NODE_EXTRA_CA_CERTS": str(tmp_path / "none.pem")})["network"]
    assert state == "problem"
    assert "none.pem" in text


@pytest.mark.parametrize(
    "given, shown",
    [
        ("http://proxy:3128", "HTTPS_PROXY=http://proxy:3128"),
        ("http://ada:pw@proxy:3128", "HTTPS_PROXY=http://***@proxy:3128"),
        ("ada:pw@proxy:3128", "HTTPS_PROXY=***@proxy:3128"),
        ("http://ada:p@ss@proxy", "HTTPS_PROXY=http://***@proxy"),
    ],
)
def test_who_uses_a_proxy_is_not_told(given: str, shown: str) -> None:
    assert states({"https_proxy": given})["network"] == ("ok", shown)


def test_every_place_that_was_searched_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", f"{tmp_path}/one:{tmp_path}/two")
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("CLAUDE_CODE_BUNDLED_CLI", raising=False)
    search, check = program_check(None, with_places=True)
    if search.found is None:
        assert program_check(None, with_places=False)[1].text == "not found (-v lists the places)"
        assert f"{tmp_path}/one/claude (PATH): no such file" in check.text
        assert check.state == "problem"
    assert check.text == printable(check.text)
