"""How the version of Claude Code is read, compared and judged."""

from __future__ import annotations

import json
import sys
import warnings
from pathlib import Path
from typing import Any

import pytest

from outrider.errors import AgentTooOld
from outrider.launch import (
    MINIMUM_AGENT_VERSION,
    AgentVersionUnknown,
    Version,
    check_options,
    check_version,
    known_version,
    make_command,
    make_initialize,
)
from outrider.options import Options, PresetPrompt
from tests.cases import every_case

NONE: dict[str, str] = {}


@pytest.mark.requirement("B3")
@every_case(
    "text, numbers",
    [
        ("2.4.1", (2, 4, 1)),
        ("2.4.1-beta.1", (2, 4, 1)),
        ("2.4.1+build.7", (2, 4, 1)),
        ("2.4.1 (stable channel)", (2, 4, 1)),
        ("2.1.325 (Claude Code)\n", (2, 1, 325)),
        ("v2.4.1", (2, 4, 1)),
        ("  2.4.1", (2, 4, 1)),
        ("999999999.0.0", (999999999, 0, 0)),
        ("2.0", ()),
        ("2", ()),
        ("2.4.1.7", ()),
        ("2.4.1rc1", ()),
        ("2.4.", ()),
        ("-2.4.1", ()),
        ("invalid", ()),
        ("claude 2.4.1", ()),
        ("२.४.१", ()),
        ("9" * 5000 + ".0.0", ()),
        ("", ()),
        (None, ()),
    ],
)
def test_a_version_is_read(text: str | None, numbers: tuple[int, ...]) -> None:
    version = Version.parse(text)
    assert version.numbers == numbers
    assert version.is_known == bool(numbers)
    assert str(version) == (".".join(map(str, numbers)) or "unknown")


@pytest.mark.requirement("B3")
def test_versions_sort_by_their_numbers_and_unreadable_ones_first() -> None:
    texts = ["invalid", "0.0.0", "1.99.99", "2.0.0", "2.0.9", "2.0.10", "2.1.0", "10.0.0"]
    versions = [Version.parse(text) for text in texts]
    assert sorted(Version.parse(text) for text in reversed(texts)) == versions
    assert Version.parse("") == Version.parse("2.0") < Version.parse("0.0.0")
    assert Version.parse("2.4.1-beta.1") == Version.parse("2.4.1")
    assert hash(Version.parse("2.4.1-beta.1")) == hash(Version.parse("2.4.1"))


@pytest.mark.requirement("B3")
@pytest.mark.parametrize("text", [MINIMUM_AGENT_VERSION, "2.0.0-beta.1", "2.1.325 (Claude Code)", "10.0.0"])
def test_a_version_that_is_new_enough_passes(text: str) -> None:
    assert check_version(text, environ=NONE) == Version.parse(text)


@pytest.mark.requirement("B3")
@pytest.mark.parametrize("text", ["1.99.99", "0.2.143 (Claude Code)"])
def test_a_version_below_the_minimum_is_refused(text: str) -> None:
    with pytest.raises(AgentTooOld, match="claude update") as caught:
        check_version(text, environ=NONE)
    assert (caught.value.version, caught.value.minimum) == (text.split(maxsplit=1)[0], "2.0.0")


@pytest.mark.requirement("B3")
@pytest.mark.parametrize(
    "text, said", [("2.0", "'2.0'"), ("invalid", "'invalid'"), ("", "not say"), (None, "not say")]
)
def test_an_unknown_version_is_a_warning(text: str | None, said: str) -> None:
    with pytest.warns(AgentVersionUnknown, match=said) as caught:
        assert not check_version(text, environ=NONE).is_known
    assert len(caught) == 1
    assert caught[0].filename == __file__


@pytest.mark.requirement("B3")
@every_case("value", ["", "0", "1"])
@every_case("text", ["1.0.0", "invalid", None])
def test_the_check_can_be_skipped_by_any_value(text: str | None, value: str) -> None:
    with warnings.catch_warnings(record=True) as caught:
        check_version(text, environ={"CLAUDE_AGENT_SDK_SKIP_VERSION_CHECK": value})
    assert caught == []


def test_the_variable_of_this_process_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CLAUDE_AGENT_SDK_SKIP_VERSION_CHECK", raising=False)
    with pytest.raises(AgentTooOld):
        check_version("1.0.0")
    monkeypatch.setenv("CLAUDE_AGENT_SDK_SKIP_VERSION_CHECK", "")
    assert check_version("1.0.0") == Version((1, 0, 0))


def put(path: Path, text: str = "", *, link: Path | None = None) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    path.chmod(0o755)
    if link is None:
        return path
    link.symlink_to(path)
    return link


def test_an_installation_tells_its_version_before_it_is_started(tmp_path: Path) -> None:
    npm = tmp_path / "node_modules" / "@anthropic-ai" / "claude-code"
    for name in ("cli.js", "bin/claude.exe"):
        link = put(npm / name, link=tmp_path / f"{Path(name).stem}-of-npm")
        put(npm / "package.json", json.dumps({"name": "@anthropic-ai/claude-code", "version": "2.0.77"}))
        assert known_version(Options(cli_path=link)) == Version((2, 0, 77))
    installed = put(tmp_path / "share" / "versions" / "2.1.220", link=tmp_path / "installed")
    assert known_version(Options(cli_path=installed)) == Version((2, 1, 220))


@every_case("package", ["", "{", '{"name": "another", "version": "2.0.0"}', '{"version": 2}', "[]"])
def test_the_version_of_any_other_program_is_not_guessed(package: str, tmp_path: Path) -> None:
    put(tmp_path / "package.json", package)
    assert not known_version(Options(cli_path=put(tmp_path / "claude"))).is_known
    assert not known_version(Options(cli_path=tmp_path / "absent")).is_known


PROMPTS: dict[str, tuple[dict[str, Any], list[str]]] = {
    "unset": ({}, ["--system-prompt="]),
    "empty": ({"system_prompt": ""}, ["--system-prompt="]),
    "text": ({"system_prompt": "Hi"}, ["--system-prompt-file=Hi"]),
    "texts": ({"system_prompt": ["Hi", "Ho"]}, ["--system-prompt-file=Hi\n\nHo"]),
    "its own": ({"system_prompt": PresetPrompt()}, []),
    "more": ({"system_prompt": PresetPrompt(append="More")}, ["--append-system-prompt=More"]),
    "both": (
        {"system_prompt": "Hi", "append_system_prompt": "More"},
        ["--system-prompt-file=Hi", "--append-system-prompt=More"],
    ),
}


@every_case("case", PROMPTS)
def test_an_old_version_gets_the_system_prompt_by_flags(case: str) -> None:
    fields, expected = PROMPTS[case]
    options, version = Options(cli_path=sys.executable, **fields), Version((2, 0, 0))
    command = make_command(options, version=version, environ={})
    texts = {f"\0folder/{file.name}": file.content.decode() for file in command.files}
    said = [flag.partition("=") for flag in command.argv if "prompt" in flag]
    assert [f"{name}={texts.get(value, value)}" for name, _, value in said] == expected
    request = make_initialize(options, version)
    assert (request.system_prompt, request.append_system_prompt) == (None, None)


def test_options_that_a_version_lacks_are_named_with_the_one_that_has_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv("CLAUDE_AGENT_SDK_SKIP_VERSION_CHECK", raising=False)
    options = Options(effort="low", max_budget_usd=1, resume="x", system_prompt=["a", "b"])
    check_options(options, Version())
    check_options(options, Version((2, 1, 325)))
    with pytest.raises(AgentTooOld, match="leave the option out") as caught:
        check_options(options, Version((2, 0, 0)))
    assert caught.value.options == ("effort", "max_budget_usd")
    assert Version((2, 0, 77)) < Version.parse(caught.value.minimum) < Version((2, 1, 100))
    monkeypatch.setenv("CLAUDE_AGENT_SDK_SKIP_VERSION_CHECK", "")
    check_options(options, Version((2, 0, 0)))
