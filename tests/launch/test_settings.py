"""Settings and the sandbox: what is passed on as it is, what is merged, and what is refused."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from outrider.command import FOLDER
from outrider.errors import OptionsError
from outrider.launch import make_command
from outrider.options import Options, Sandbox, SandboxFilesystem, SandboxNetwork
from tests.cases import every_case
from tests.launch.commands import Remote

IN_FILE = f"--settings={FOLDER}/settings.json"


def settings(**fields: Any) -> tuple[str | None, bytes | None]:
    """The argument and the content of the file that carry the settings."""
    fields.setdefault("cli_path", sys.executable)
    made = make_command(Options(**fields), environ={})
    arguments = [argument for argument in made.argv if argument.startswith("--settings")]
    contents = [file.content for file in made.files if file.name == "settings.json"]
    assert len(arguments) <= 1
    return next(iter(arguments), None), next(iter(contents), None)


def merged(**fields: Any) -> dict[str, Any]:
    argument, content = settings(**fields)
    assert argument == IN_FILE
    assert content is not None
    found: dict[str, Any] = json.loads(content)
    return found


# Settings alone.


@pytest.mark.requirement("C4")
def test_without_settings_there_is_no_argument() -> None:
    assert settings() == (None, None)


@pytest.mark.requirement("C4")
@pytest.mark.parametrize("text", ['{"a": 1}', '  {"a":1}\n', '{"a": "é"}', "{}"])
def test_inline_settings_are_carried_as_they_are_written(text: str) -> None:
    assert settings(settings=text) == (IN_FILE, text.encode())


@pytest.mark.requirement("C4")
def test_a_mapping_is_carried_as_json() -> None:
    assert merged(settings={"permissions": {"deny": ["Read"]}}) == {"permissions": {"deny": ["Read"]}}


@pytest.mark.requirement("C4")
@pytest.mark.parametrize("start", [b"", b"\xef\xbb\xbf"], ids=["plain", "with a byte order mark"])
def test_a_file_is_passed_by_its_path(tmp_path: Path, start: bytes) -> None:
    (tmp_path / "s.json").write_bytes(start + b'{"a": 1}')
    assert settings(settings="s.json", cwd=tmp_path) == ("--settings=s.json", None)
    path = tmp_path / "s.json"
    assert settings(settings=path) == (f"--settings={path}", None)


@pytest.mark.requirement("C4")
def test_inline_settings_that_are_not_json_are_refused() -> None:
    # In the file that they are carried in, the agent would pass over them.
    with pytest.raises(OptionsError, match="not valid JSON"):
        settings(settings='{"a": }', strict_settings_merge=False)


BAD_FILES: dict[str, bytes | None] = {
    "does not exist": None,
    "not valid JSON": b'{"a": }',
    "not an object": b"[1]",
    "Invalid UTF-8|not valid JSON": b'{"a": "\xff"}',
}


def bad_file(folder: Path, content: bytes | None) -> Path:
    path = folder / "s.json"
    if content is not None:
        path.write_bytes(content)
    return path


@pytest.mark.requirement("C4")
@pytest.mark.parametrize("why", BAD_FILES)
def test_a_file_that_the_agent_would_pass_over_is_refused(tmp_path: Path, why: str) -> None:
    path = bad_file(tmp_path, BAD_FILES[why])
    with pytest.raises(OptionsError, match=why):
        settings(settings=path)


@pytest.mark.requirement("C4")
@pytest.mark.parametrize("why", BAD_FILES)
def test_or_left_to_the_agent_with_a_warning(tmp_path: Path, why: str) -> None:
    path = bad_file(tmp_path, BAD_FILES[why])
    with pytest.warns(UserWarning, match=why) as warned:
        assert settings(settings=path, strict_settings_merge=False) == (f"--settings={path}", None)
    assert len(warned) == 1


@pytest.mark.requirement("C4")
def test_a_file_on_another_machine_is_not_looked_at() -> None:
    assert settings(settings="/there/s.json", runner=Remote()) == ("--settings=/there/s.json", None)


# With a sandbox.

ENABLED = {"enabled": True, "failIfUnavailable": True}


@pytest.mark.requirement("C4")
def test_a_sandbox_alone_is_a_setting() -> None:
    assert merged(sandbox=Sandbox(enabled=True)) == {"sandbox": ENABLED}


@pytest.mark.requirement("C4")
@pytest.mark.parametrize("form", ["mapping", "text", "file", "absolute"])
def test_a_sandbox_is_merged_and_replaces_that_of_the_settings(tmp_path: Path, form: str) -> None:
    given: dict[str, Any] = {"model": "sonnet", "sandbox": {"enabled": False, "excludedCommands": ["git"]}}
    (tmp_path / "s.json").write_text("\ufeff" + json.dumps(given), encoding="utf-8")
    forms: dict[str, Any] = {
        "mapping": given,
        "text": f" {json.dumps(given)} ",
        "file": "s.json",
        "absolute": str(tmp_path / "s.json"),
    }
    found = merged(settings=forms[form], sandbox={"enabled": True}, cwd=tmp_path)
    assert found == {"model": "sonnet", "sandbox": ENABLED}


@pytest.mark.requirement("C4")
@pytest.mark.parametrize(
    "sandbox, expected",
    [
        (Sandbox(enabled=True, fail_if_unavailable=False), {"enabled": True, "failIfUnavailable": False}),
        (Sandbox(enabled=False), {"enabled": False}),
        (Sandbox(), {}),
        (
            Sandbox(
                auto_allow_bash_if_sandboxed=True,
                excluded_commands=("git",),
                allow_unsandboxed_commands=False,
                enable_weaker_nested_sandbox=True,
                network=SandboxNetwork(
                    allow_unix_sockets=("/s",),
                    allow_all_unix_sockets=False,
                    allow_local_binding=True,
                    http_proxy_port=8080,
                    socks_proxy_port=8081,
                ),
                ignore_violations={"file": ("/a",), "network": ("b",)},
            ),
            {
                "autoAllowBashIfSandboxed": True,
                "excludedCommands": ["git"],
                "allowUnsandboxedCommands": False,
                "enableWeakerNestedSandbox": True,
                "network": {
                    "allowUnixSockets": ["/s"],
                    "allowAllUnixSockets": False,
                    "allowLocalBinding": True,
                    "httpProxyPort": 8080,
                    "socksProxyPort": 8081,
                },
                "ignoreViolations": {"file": ["/a"], "network": ["b"]},
            },
        ),
        (
            Sandbox(filesystem=SandboxFilesystem(allow_write=("/a",), deny_write=("/b",), deny_read=("/c",))),
            {"filesystem": {"allowWrite": ["/a"], "denyWrite": ["/b"], "denyRead": ["/c"]}},
        ),
        (
            Sandbox(enabled=True, extra={"failIfUnavailable": False, "new": 1}),
            {
                "enabled": True,
                "failIfUnavailable": False,
                "new": 1,
            },
        ),
    ],
    ids=["not strict", "off", "empty", "all", "folders", "extra"],
)
def test_a_sandbox_is_spelled_as_the_agent_reads_it(sandbox: Sandbox, expected: dict[str, Any]) -> None:
    assert merged(sandbox=sandbox) == {"sandbox": expected}


def failing(case: str, folder: Path) -> str:
    """Settings that cannot be merged."""
    path = folder / "s.json"
    match case:
        case "bad inline JSON":
            return '{"a": }'
        case "bad JSON in a file":
            path.write_text("{nope", encoding="utf-8")
        case "a file without an object":
            path.write_text("[]", encoding="utf-8")
        case "a file that cannot be read":
            path.mkdir()
        case _:
            assert case == "a missing file"
    return str(path)


CASES = {
    "bad inline JSON": "the JSON text is not valid JSON",
    "a missing file": "does not exist",
    "a file that cannot be read": "cannot be read",
    "bad JSON in a file": "is not valid JSON",
    "a file without an object": "not an object",
}


@pytest.mark.requirement("C4")
@pytest.mark.parametrize("case", CASES)
def test_what_cannot_be_merged_is_an_error(case: str, tmp_path: Path) -> None:
    bad = failing(case, tmp_path)
    with pytest.raises(OptionsError, match=CASES[case]):
        settings(settings=bad, sandbox=Sandbox(enabled=True))


@pytest.mark.requirement("C4")
@pytest.mark.parametrize("case", CASES)
def test_or_if_not_strict_a_warning_and_the_sandbox_alone(case: str, tmp_path: Path) -> None:
    bad = failing(case, tmp_path)
    with pytest.warns(UserWarning, match=CASES[case]) as warned:
        found = merged(settings=bad, sandbox=Sandbox(enabled=True), strict_settings_merge=False)
    assert found == {"sandbox": ENABLED}
    assert len(warned) == 1


@pytest.mark.requirement("C4")
@pytest.mark.parametrize("text", ["[1]", '"text"', "12", "null"])
def test_inline_json_that_is_no_object_is_taken_for_the_name_of_a_file(text: str, tmp_path: Path) -> None:
    with pytest.raises(OptionsError, match="does not exist"):
        settings(settings=text, sandbox=Sandbox(enabled=True), cwd=tmp_path)


@pytest.mark.requirement("C4")
def test_a_file_on_another_machine_cannot_be_merged() -> None:
    fields: Any = {"settings": "/there/s.json", "sandbox": Sandbox(enabled=True), "runner": Remote()}
    with pytest.raises(OptionsError, match="where the agent runs"):
        settings(**fields)
    with pytest.warns(UserWarning, match="where the agent runs"):
        assert merged(**fields, strict_settings_merge=False) == {"sandbox": ENABLED}


def test_an_error_shows_nothing_of_the_settings() -> None:
    with pytest.raises(OptionsError) as caught:
        settings(settings='{"env": {"A": "s3cret" "B"}}')
    assert "s3cret" not in str(caught.value)


@pytest.mark.requirement("C4")
@every_case("text", ['{"env": {"A": "s3cret"}', '[{"A": "s3cret"}]', ' {"A": "s3cret"},'])
@every_case(
    "fields",
    [
        {},
        {"strict_settings_merge": False},
        {"runner": Remote()},
        {"sandbox": Sandbox(enabled=True)},
        {"sandbox": Sandbox(enabled=True), "runner": Remote()},
    ],
    ids=lambda fields: "+".join(fields) or "alone",
)
def test_json_gone_wrong_is_neither_told_nor_put_on_the_command_line(text: str, fields: Any) -> None:
    with pytest.raises(OptionsError) as caught:
        settings(settings=text, **fields)
    assert "s3cret" not in str(caught.value)


@pytest.mark.parametrize("text", ['{"mcpServers": {"A": "s3cret"', '[{"A": "s3cret"}]'])
def test_servers_gone_wrong_are_neither_told_nor_put_on_the_command_line(text: str) -> None:
    with pytest.raises(OptionsError, match="`mcp_servers` begins like JSON") as caught:
        settings(mcp_servers=text)
    assert "s3cret" not in str(caught.value)
