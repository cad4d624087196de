"""Runs the cases of `tests/compat/option_cases.py` on a recording child, and says what each option came to.

    python scripts/reference_options.py --write REFERENCE_PYTHON   # asks the reference package anew
    python scripts/reference_options.py --package NAME             # the effects, for one package

Arguments, the first request, variables and files are one: an effect is what the agent learns, whichever way
it comes. What is kept of the reference, in `tests/compat/reference/options.json`, are facts: of an error its
type, and those words of it that programs look for. All but `--write` needs the standard library and the
package only.
"""

from __future__ import annotations

import argparse
import ast
import asyncio
import contextlib
import importlib
import io
import json
import os
import re
import subprocess
import sys
import tempfile
import warnings
from collections.abc import Generator
from pathlib import Path
from types import ModuleType
from typing import Any

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))

from tests.compat.option_cases import Case, cases, lay_out  # noqa: E402 - the reference's interpreter knows no other way

KEPT = ROOT / "tests" / "compat" / "reference" / "options.json"
CHILD = ROOT / "tests" / "compat" / "recording_child.py"
SECONDS = 30
USUAL = "none: defaults"
"""The case that all others are compared with, to keep no more than what is special about them."""

Effects = dict[str, Any]

SWITCHES = (
    *("--allow-dangerously-skip-permissions", "--await-initialize", "--bare", "--continue"),
    *("--dangerously-skip-permissions", "--debug-to-stderr"),
    *("--exclude-dynamic-system-prompt-sections", "--fork-session", "--forward-subagent-text"),
    *("--include-hook-events", "--include-partial-messages", "--no-session-persistence", "--print"),
    *("--prompt-suggestions", "--replay-user-messages", "--session-mirror", "--strict-mcp-config"),
    *("--verbose", "--d", "--debug"),
)
"""Flags that need no value: what begins with a dash after them is not theirs."""
LISTS = (
    *(
        "--add-dir",
        "--allowedTools",
        "--betas",
        "--disallowedTools",
        "--mcp-config",
        "--plugin-dir",
        "--tools",
    ),
)
"""Flags that may be there more than once, and then all count. Of others, the last does."""
ALSO = {
    "--allowed-tools": "--allowedTools",
    "--disallowed-tools": "--disallowedTools",
}
"""Flags that mean the same as others."""
INITIALIZE = {
    "agents": "--agents",
    "appendSystemPrompt": "--append-system-prompt",
    "excludeDynamicSections": "--exclude-dynamic-system-prompt-sections",
    "forwardSubagentText": "--forward-subagent-text",
    "jsonSchema": "--json-schema",
    "promptSuggestions": "--prompt-suggestions",
    "systemPrompt": "--system-prompt",
    "systemPromptSnapshot": "--system-prompt-snapshot",
    "title": "--name",
}
"""Fields of the first request that mean the same as a flag."""
ERRORS = (
    *("CLINotFoundError", "CLIConnectionError", "ProcessError", "ClaudeSDKError"),
    *("ValueError", "TypeError", "RuntimeError"),
)
"""What people catch, the special before the general."""
WORDS = re.compile(
    "Working directory does not exist|Claude Code not found|Failed to load settings"
    "|Failed to start Claude Code|Unsupported plugin type|enable_file_checkpointing"
    "|can_use_tool callback cannot be used with permission_prompt_tool_name"
)
"""What people look for in the text of an error."""


async def effects(package: str, folder: Path, *, group: str = "") -> dict[str, Effects]:
    """What each case of a group, or of all, came to, by its name. The folder must have no links in its path.

    Changes the variables of this process meanwhile.
    """
    lay_out(folder)
    child = folder / "agent"
    # Not that of an environment, which would look for it first.
    python = getattr(sys, "_base_executable", sys.executable)
    child.write_text(f"#!{python} -IS\n{CHILD.read_text()}")
    child.chmod(0o755)
    environ = {"PATH": os.defpath, "HOME": str(folder / "home"), "LANG": "C.UTF-8", "TMPDIR": str(folder)}
    sdk = importlib.import_module(package)
    found: dict[str, Effects] = {}
    with _environment(environ):
        for name, case in cases(sdk, folder).items():
            if name.startswith(group):
                found[name] = await _Run(sdk, case, child, folder, {**environ, **case.environ}).effects()
    return found


@contextlib.contextmanager
def _environment(environ: dict[str, str]) -> Generator[None]:
    before = dict(os.environ)
    os.environ.clear()
    os.environ.update(environ)
    try:
        yield
    finally:
        os.environ.clear()
        os.environ.update(before)


class _Run:
    """One case on one package."""

    def __init__(
        self, sdk: ModuleType, case: Case, child: Path, folder: Path, environ: dict[str, str]
    ) -> None:
        self.sdk = sdk
        self.case = case
        self.child = child
        self.record = child.with_name(f"{child.name}.jsonl")
        self.folder = folder
        self.environ = environ

    async def effects(self) -> Effects:
        self.record.unlink(missing_ok=True)
        found: Effects = {}
        with _environment(self.environ), warnings.catch_warnings(record=True) as warned:
            warnings.simplefilter("always")
            try:
                async with asyncio.timeout(SECONDS):
                    # Some is said on stderr, in the name of a program that is not there.
                    with contextlib.redirect_stderr(io.StringIO()):
                        await self.run()
            except Exception as error:  # noqa: BLE001 - whatever it is, it is what the case comes to
                found |= _error(error)
        told = [each.category.__name__ for each in warned if each.category.__name__.startswith("CanUse")]
        found |= {"warnings": told} if told else {}
        if self.record.exists():
            found |= _Recorded(self.record.read_text(encoding="utf-8"), self.environ).effects()
        text = json.dumps(found, ensure_ascii=False).replace(str(self.folder), "<folder>")
        normal: Effects = json.loads(text)
        return normal

    async def run(self) -> None:
        given = {"cli_path": self.child, **self.case.options}
        options = self.sdk.ClaudeAgentOptions(**given)
        before = _shown(options)
        if self.case.client is None:
            prompt = "hi" if self.case.prompt is None else self.case.prompt
            async for _ in self.sdk.query(prompt=prompt, options=options):
                pass
        else:
            client = self.sdk.ClaudeSDKClient(options)
            await client.connect(self.case.prompt)
            try:
                await self.case.client(client)
                async for _ in client.receive_response():
                    pass
            finally:
                await client.disconnect()
        if _shown(options) != before:
            raise AssertionError("the options were changed")


def _shown(options: object) -> str:
    return repr(vars(options))


def _error(error: Exception) -> Effects:
    bases = [base.__name__ for base in type(error).__mro__]
    kind = next((name for name in ERRORS if name in bases), type(error).__name__)
    words = WORDS.search(str(error))
    return {"error": kind, **({"words": words[0]} if words else {})}


class _Recorded:
    """What the child wrote down, as effects."""

    def __init__(self, text: str, environ: dict[str, str]) -> None:
        # Not by `splitlines`, for which other characters end a line, too.
        lines = [line.partition(" ") for line in text.split("\n")]
        notes = {name: ast.literal_eval(value) for name, _, value in lines if value and name != "frame"}
        self.argv: list[str] = notes["argv"]
        self.files: dict[str, str] = notes["files"]
        self.cwd: str = notes["cwd"]
        self.env: dict[str, str] = notes["env"]
        self.frames: list[Any] = [json.loads(value) for name, _, value in lines if name == "frame"]
        self.environ = environ

    def effects(self) -> Effects:
        found = self._flags()
        requests = [frame["request"] for frame in self.frames if frame["type"] == "control_request"]
        first = requests.pop(0)
        found |= self._initialize(first)
        found |= self._servers(found.pop("--mcp-config", []), first.get("sdkMcpServers", []))
        if "--max-budget-usd" in found:
            found["--max-budget-usd"] = float(found["--max-budget-usd"])
        if "--settings" in found:
            found["--settings"] = self._json(found["--settings"])
        # By the first, Outrider finds processes that its child leaves behind; the second is of macOS.
        names = sorted(
            name for name in self.env.keys() | self.environ.keys() if not name.startswith("OUTRIDER_")
        )
        changed = {name: self.env.get(name) for name in names if self.env.get(name) != self.environ.get(name)}
        if changed.get("CLAUDE_AGENT_SDK_VERSION") not in (None, "0"):
            changed["CLAUDE_AGENT_SDK_VERSION"] = "<version>"
        answers = [
            frame["response"]["response"] for frame in self.frames if frame["type"] == "control_response"
        ]
        return {
            **found,
            "cwd": "<here>" if self.cwd == str(Path.cwd()) else self.cwd,
            "env": changed,
            "prompts": [_prompt(frame) for frame in self.frames if frame["type"] == "user"],
            **({"requests": requests} if requests else {}),
            **({"answers": answers} if answers else {}),
        }

    def _flags(self) -> Effects:
        found: Effects = {}
        words = [*self.argv]
        while words:
            flag, bound, value = words.pop(0).partition("=")
            given: Any = value if bound else True
            if not bound and (flag not in SWITCHES or (words and not words[0].startswith("-"))):
                given = words.pop(0)
            flag = ALSO.get(flag, flag)
            if flag in LISTS:
                # The program takes those apart that can be taken apart.
                parts = [given] if flag in ("--add-dir", "--mcp-config", "--plugin-dir") else _parts(given)
                found[flag] = [*dict.fromkeys([*found.get(flag, []), *parts])]
            else:
                found[flag] = given
        for flag in ("--json-schema", "--agents"):
            if flag in found:
                found[flag] = self._json(found[flag])
        return found

    def _initialize(self, request: dict[str, Any]) -> Effects:
        found: Effects = {}
        for name, value in request.items():
            if name == "hooks":
                found |= _hooks(value or {})
            elif name == "systemPrompt":
                found["--system-prompt"] = "\n\n".join(value)
            elif name == "systemPromptSnapshot":
                found["--system-prompt-snapshot"] = "on" if value else "off"
            elif name not in ("subtype", "sdkMcpServers"):
                found[INITIALIZE.get(name, name)] = value
        return found

    def _servers(self, configs: list[str], own: list[str]) -> Effects:
        servers: dict[str, Any] = {}
        for config in configs:
            known = self._json(config)
            servers |= known.get("mcpServers", {})
        for server in servers.values():
            if "command" in server:
                # What has no type is of this one.
                server.setdefault("type", "stdio")
        told = [*own, *(name for name, server in servers.items() if _is_own(server))]
        outside = {name: server for name, server in servers.items() if not _is_own(server)}
        return {**({"servers": outside} if outside else {}), **({"own servers": told} if told else {})}

    def _json(self, text: str) -> Any:  # noqa: ANN401 - as JSON is
        """What the text stands for: JSON, or the file of that name."""
        content = self.files.get(text, text)
        try:
            return json.loads(content)
        except ValueError:
            return {"not JSON": content}


def _is_own(server: dict[str, Any]) -> bool:
    return server.get("type") == "sdk"


def _parts(text: str) -> list[str]:
    return re.findall(r"(?:[^,( ]|\([^)]*\)?)+", text) or [""]


def _hooks(hooks: dict[str, Any]) -> Effects:
    """Each function by itself: how they are bundled, the program does not care."""
    every = {
        event: [(matcher, name) for matcher in matchers for name in matcher["hookCallbackIds"]]
        for event, matchers in hooks.items()
    }
    each = {event: found for event, found in every.items() if found}
    told = {
        event: [[matcher.get("matcher"), matcher.get("onFailure")] for matcher, _ in found]
        for event, found in each.items()
    }
    limits = {
        event: [matcher.get("timeout") for matcher, _ in found] for event, found in each.items() if found
    }
    return {"hooks": told, "hook timeouts": limits} if told else {}


def _prompt(frame: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in frame.items() if name not in ("uuid", "type")}


def reference_effects(python: str) -> dict[str, Effects]:
    """What the reference does, in an environment of its own."""
    with tempfile.TemporaryDirectory() as folder:
        done = subprocess.run(
            [Path(python).absolute(), Path(__file__).absolute(), "--package", "claude_agent_sdk"],
            cwd=folder,
            env={"HOME": folder, "PATH": os.defpath, "LANG": "C.UTF-8"},
            stdout=subprocess.PIPE,
            check=True,
        )
    answer: dict[str, Effects] = json.loads(done.stdout)
    return answer


def kept() -> dict[str, Effects]:
    """What is kept of the reference."""
    found: dict[str, Effects] = json.loads(KEPT.read_text())
    usual = found[USUAL]
    return {name: _without_none(usual | case) for name, case in found.items()}


def _keep(found: dict[str, Effects]) -> None:
    """One line for each case, with what is not as usual; null for what is usual and not there."""
    usual = found[USUAL]
    lines: list[str] = []
    for name, case in found.items():
        other = {key: case.get(key) for key in [*usual, *case] if case.get(key) != usual.get(key)}
        shown = usual if name == USUAL else other
        lines.append(f"{json.dumps(name)}: {json.dumps(shown, ensure_ascii=False)}")
    KEPT.write_text("{\n" + ",\n".join(lines) + "\n}\n")


def _without_none(case: Effects) -> Effects:
    return {name: value for name, value in case.items() if value is not None}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    what = parser.add_mutually_exclusive_group(required=True)
    what.add_argument("--package", help="print the effects of this package")
    what.add_argument(
        "--write", metavar="PYTHON", help="keep those of the reference, which this interpreter has"
    )
    parser.add_argument("--group", default="", help="cases whose names begin so")
    arguments = parser.parse_args()
    if arguments.write:
        _keep(reference_effects(arguments.write))
        return
    with tempfile.TemporaryDirectory() as folder:
        found = asyncio.run(effects(arguments.package, Path(folder).resolve(), group=arguments.group))
    print(json.dumps(found, indent=1, ensure_ascii=False))


if __name__ == "__main__":
    main()
