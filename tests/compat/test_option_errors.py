"""Options that cannot work are refused with the errors and the words of the reference SDK."""

from __future__ import annotations

import dataclasses
import re
import sys
import warnings
from collections.abc import Awaitable, Callable, Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import anyio
import pytest

from outrider.compat import (
    CanUseToolShadowedWarning,
    ClaudeAgentOptions,
    ClaudeSDKClient,
    ClaudeSDKError,
    CLIConnectionError,
    CLINotFoundError,
    HookJSONOutput,
    HookMatcher,
    InMemorySessionStore,
    PermissionResultAllow,
    query,
)
from outrider.compat._internal.transport.subprocess_cli import SubprocessCLITransport
from outrider.compat._options import translated_options
from outrider.compat._reading import opened
from scripts.reference_options import CHILD

pytestmark = [
    pytest.mark.anyio,
    pytest.mark.skipif(sys.platform == "win32", reason="the recording child begins with `#!`"),
]


@pytest.fixture(params=["asyncio", "trio"])
def anyio_backend(request: pytest.FixtureRequest) -> object:
    return request.param


@pytest.fixture
def child(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A program that answers, and writes down that it was started."""
    monkeypatch.setenv("HOME", str(tmp_path))
    program = tmp_path / "agent"
    program.write_text(f"#!{sys.executable} -IS\n{CHILD.read_text()}")
    program.chmod(0o755)
    return program


def _was_started(child: Path) -> bool:
    return child.with_name("agent.jsonl").exists()


async def _by_query(options: ClaudeAgentOptions) -> None:
    with anyio.fail_after(20):
        async for _ in query(prompt="hi", options=options):
            pass


async def _by_client(options: ClaudeAgentOptions) -> None:
    with anyio.fail_after(20):
        async with ClaudeSDKClient(options):
            pass


Use = Callable[[ClaudeAgentOptions], Awaitable[None]]
both = pytest.mark.parametrize("use", [_by_query, _by_client])


async def _allow(*_: object) -> PermissionResultAllow:
    return PermissionResultAllow()


async def _nothing(*_: object) -> HookJSONOutput:
    return {}


# What each is refused with.


@pytest.mark.parametrize(
    "skills, kind, words",
    [
        ("pdf", TypeError, r"must be a list of skill names.*Did you mean \['pdf'\]\?"),
        (("pdf",), TypeError, "must be a list of skill names"),
        ({"pdf"}, TypeError, "must be a list of skill names"),
        ([1], TypeError, "must be strings"),
        ([None], TypeError, "must be strings"),
        ([""], ValueError, "non-empty"),
        (["  "], ValueError, "non-empty"),
        (["a\ud800"], ValueError, "Invalid skill name.*surrogate"),
        ([" pdf"], ValueError, "Invalid skill name.*whitespace"),
        (["pdf\n"], ValueError, "Invalid skill name"),
        (["a(b"], ValueError, "Invalid skill name"),
        (["a)"], ValueError, "Invalid skill name"),
        (["a,b"], ValueError, "Invalid skill name"),
        (["a\x00b"], ValueError, "Invalid skill name"),
        (["a\x7fb"], ValueError, "Invalid skill name"),
        (["a\x85b"], ValueError, "Invalid skill name"),
        (["a\ufeffb"], ValueError, "Invalid skill name"),
        (["*"], ValueError, 'use skills="all"'),
        (["plugin:*"], ValueError, "wildcard-suffix"),
        (["my *"], ValueError, "wildcard-suffix"),
        (["/pdf"], ValueError, "may not start with"),
        (["a\\\\b"], ValueError, "consecutive backslashes"),
        (["a\\"], ValueError, "unpaired backslash"),
        (["fine", "*"], ValueError, 'use skills="all"'),
    ],
    ids=ascii,
)
@pytest.mark.parametrize("anyio_backend", ["asyncio"])
async def test_skills_that_cannot_be(child: Path, skills: Any, kind: type[Exception], words: str) -> None:
    with pytest.raises(kind, match=f"(?s){words}"):
        await _by_client(ClaudeAgentOptions(cli_path=child, skills=skills))
    assert not _was_started(child)


@pytest.mark.parametrize("name", ["pdf", "my:plugin", "with blank", "a\\b", "a*b", "日本", "a'b\"c"])
async def test_skills_that_can(name: str) -> None:
    assert translated_options(ClaudeAgentOptions(skills=[name])).skills == (name,)


@both
async def test_a_callback_and_a_tool_cannot_both_decide(child: Path, use: Use) -> None:
    options = ClaudeAgentOptions(cli_path=child, can_use_tool=_allow, permission_prompt_tool_name="mcp__a__b")
    with pytest.raises(
        ValueError, match="can_use_tool callback cannot be used with permission_prompt_tool_name"
    ):
        await use(options)
    assert not _was_started(child)


@both
async def test_a_plugin_of_another_kind_is_refused(child: Path, use: Use) -> None:
    plugins: Any = [{"type": "remote", "path": "x"}]
    with pytest.raises(ValueError, match="Unsupported plugin type: remote"):
        await use(ClaudeAgentOptions(cli_path=child, plugins=plugins))
    assert not _was_started(child)


@both
async def test_a_store_keeps_no_copies_of_files(child: Path, use: Use) -> None:
    store = InMemorySessionStore()
    options = ClaudeAgentOptions(cli_path=child, session_store=store, enable_file_checkpointing=True)
    with pytest.raises(ValueError, match="enable_file_checkpointing"):
        await use(options)
    assert not _was_started(child)


class _Unlisted:
    """A store that cannot say what it has."""

    async def append(self, key: Any, entries: Any) -> None: ...

    async def load(self, key: Any) -> None: ...


@both
async def test_the_latest_session_is_found_by_a_store_that_lists_them(child: Path, use: Use) -> None:
    store: Any = _Unlisted()
    with pytest.raises(ValueError, match="list_sessions"):
        await use(ClaudeAgentOptions(cli_path=child, session_store=store, continue_conversation=True))
    assert not _was_started(child)


@both
async def test_a_folder_that_is_missing_is_named(child: Path, tmp_path: Path, use: Use) -> None:
    nowhere = tmp_path / "nowhere"
    with pytest.raises(CLIConnectionError, match=f"Working directory does not exist: {nowhere}"):
        await use(ClaudeAgentOptions(cli_path=child, cwd=nowhere))
    assert not _was_started(child)


@both
async def test_a_folder_that_is_a_file_is_refused(child: Path, use: Use) -> None:
    with pytest.raises(CLIConnectionError, match="Failed to start Claude Code"):
        await use(ClaudeAgentOptions(cli_path=child, cwd=child))
    assert not _was_started(child)


@both
async def test_a_program_that_is_missing_is_not_found(tmp_path: Path, use: Use) -> None:
    nowhere = tmp_path / "nowhere"
    with pytest.raises(CLINotFoundError, match=f"Claude Code not found at: {nowhere}"):
        await use(ClaudeAgentOptions(cli_path=nowhere))


async def test_to_make_a_client_looks_for_nothing(tmp_path: Path) -> None:
    ClaudeSDKClient(ClaudeAgentOptions(cli_path=tmp_path / "nowhere", cwd=tmp_path / "nowhere"))


@both
@pytest.mark.parametrize("settings", ["nowhere.json", "broken.json", "{oops}", "list.json"])
async def test_settings_that_a_sandbox_cannot_be_added_to_are_refused(
    child: Path, tmp_path: Path, use: Use, settings: str
) -> None:
    (tmp_path / "broken.json").write_text("{oops")
    (tmp_path / "list.json").write_text("[]")
    options = ClaudeAgentOptions(cli_path=child, cwd=tmp_path, settings=settings, sandbox={"enabled": True})
    with pytest.raises(CLIConnectionError, match="Failed to load settings"):
        await use(options)
    assert not _was_started(child)


# Hooks that must block.


def own(options: ClaudeAgentOptions) -> SubprocessCLITransport:
    return SubprocessCLITransport(prompt="", options=options)


@pytest.mark.parametrize("on_failure", ["block", "continue", None])
async def test_a_hook_that_blocks_needs_a_program_that_says_it_can(child: Path, on_failure: Any) -> None:
    hooks: Any = {"PreToolUse": [HookMatcher(hooks=[_nothing], on_failure=on_failure)]}
    older = ClaudeAgentOptions(
        cli_path=child, hooks=hooks, env={"CHILD_WITHOUT": "hook_on_failure_supported"}
    )
    newer = dataclasses.replace(older, env={})
    with anyio.fail_after(20):
        if on_failure == "block":
            with pytest.raises(CLIConnectionError, match="on_failure"):
                await opened(older, own(older))
        else:
            await (await opened(older, own(older))).close()
        await (await opened(newer, own(newer))).close()


# Going on with nothing.


async def test_without_a_session_in_the_store_a_new_one_begins(child: Path) -> None:
    options = ClaudeAgentOptions(
        cli_path=child, session_store=InMemorySessionStore(), continue_conversation=True, fork_session=True
    )
    with anyio.fail_after(20):
        session = await opened(options, own(options))
        await session.close()
    assert _was_started(child)


# Callbacks that are not asked.


@contextmanager
def _told() -> Generator[list[str]]:
    told: list[str] = []
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        yield told
    told += [str(each.message) for each in found if each.category is CanUseToolShadowedWarning]


@both
@pytest.mark.parametrize(
    "options, words",
    [
        ({"allowed_tools": ["Read", "Bash(ls)", "Write(*)", "Read"]}, "will not be invoked for: Read, Write"),
        ({"allowed_tools": ["Glob()"]}, "will not be invoked for: Glob"),
        ({"skills": "all"}, "will not be invoked for: Skill"),
        ({"permission_mode": "bypassPermissions", "allowed_tools": ["Read"]}, "bypassPermissions"),
        ({"permission_mode": "acceptEdits"}, None),
        ({"allowed_tools": ["Bash(ls:*)"], "skills": ["pdf"]}, None),
        ({}, None),
    ],
    ids=str,
)
async def test_a_callback_that_is_not_asked_is_told_of_once_for_each_connection(
    child: Path, use: Use, options: dict[str, Any], words: str | None
) -> None:
    env = {"IS_SANDBOX": "1"}
    with _told() as silent:
        made = ClaudeAgentOptions(cli_path=child, can_use_tool=_allow, env=env, **options)
        made = dataclasses.replace(made, model="opus")
        client = ClaudeSDKClient(made)
    assert not silent
    before = repr((made.allowed_tools, client.options.skills))
    for _ in range(2):
        with _told() as told:
            await use(made)
        assert len(told) == bool(words)
        assert words is None or words in told[0]
    assert repr((made.allowed_tools, client.options.skills)) == before


async def test_what_no_callback_is_asked_about_needs_no_word(child: Path) -> None:
    with _told() as told:
        await _by_client(ClaudeAgentOptions(cli_path=child, allowed_tools=["Read"]))
    assert not told


# What is no value of an option at all.


_NO_FUNCTION: Any = 5


class _Odd:
    pass


_ODD: list[Any] = [
    *(5, -1, 0.5, True, "text", "", b"bytes", "\0", "\ud800", float("nan")),
    *([], [5], [None], ["a", 5], [[]], ["\0"], ("a",), {"a"}),
    *({}, {"a": 5}, {5: 5}, {"type": 5}, {"a": None}, {"a": ["\ud800"]}, {"a": [{}]}),
    *(_Odd, _Odd(), print),
]
_WORDS = {"skills": "Skill|skill", "plugins": "plugin"}
_OPTIONS = [field.name for field in dataclasses.fields(ClaudeAgentOptions)]


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", _OPTIONS)
def test_what_is_no_value_is_refused_by_the_name_of_its_option(name: str) -> None:
    refused: dict[str, str] = {}
    for value in _ODD:
        try:
            translated_options(ClaudeAgentOptions(**{name: value}))
        except (ValueError, TypeError, ClaudeSDKError) as error:
            refused[ascii(value)] = str(error)
    unnamed = {value: text for value, text in refused.items() if not re.search(_WORDS.get(name, name), text)}
    assert not unnamed


_CANNOT: list[tuple[str, Any]] = [
    ("hooks", {"PreToolUse": [{"matcher": "Bash", "hooks": []}]}),
    ("hooks", {"PreToolUse": [HookMatcher(hooks=[_NO_FUNCTION])]}),
    ("hooks", {"PreToolUse": [_nothing]}),
    ("hooks", {"PreToolUse": HookMatcher(hooks=[_nothing])}),
    ("can_use_tool", "allow"),
    ("agents", {"a": 5}),
    ("agents", {"a": {"description": "A"}}),
    ("mcp_servers", {"a": {"command": 5}}),
    ("mcp_servers", {"a": 5}),
    ("system_prompt", {"type": "unknown"}),
    ("system_prompt", {"type": "custom"}),
    ("thinking", {"type": "enabled", "budget_tokens": "many"}),
    ("output_format", {"type": "json_schema", "schema": "text"}),
    ("env", {"A": 1}),
    ("extra_args", {"output-format": "json"}),
    ("extra_args", {"--model": "opus"}),
    ("extra_args", {5: None}),
    ("task_budget", {"total": "many"}),
    ("sandbox", {"enabled": "yes"}),
    ("settings", {"a": _Odd()}),
]


@pytest.mark.parametrize(
    "name, value", _CANNOT, ids=[f"{name}-{number}" for number, (name, _) in enumerate(_CANNOT)]
)
async def test_what_cannot_work_is_refused_before_anything_is_started(
    child: Path, name: str, value: Any
) -> None:
    given: dict[str, Any] = {name: value}
    options = dataclasses.replace(ClaudeAgentOptions(cli_path=child), **given)
    with pytest.raises((ValueError, TypeError), match=name):
        await _by_query(options)
    assert not _was_started(child)
