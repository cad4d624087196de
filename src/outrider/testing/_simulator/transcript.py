"""The sessions of the simulated agent on disk, written so that the program can continue them."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path
from typing import TYPE_CHECKING, Final
from uuid import uuid4

from outrider.testing._simulator.frames import ToolCall, as_object, blocks_of, now, text_of
from outrider.transcripts import project_folder
from outrider.transcripts._disk.files import session_id_of, sessions_in
from outrider.wire import JsonObject, encode

if TYPE_CHECKING:
    from outrider.testing._simulator.run import Run


_CHAINED: Final = frozenset(["user", "assistant", "attachment", "system", "progress"])


def _read(path: Path) -> list[JsonObject]:
    """The lines of a file; those that are not objects, as a run that was killed may leave, do not count."""
    lines: list[JsonObject] = []
    for raw in path.read_bytes().split(b"\n"):
        try:
            lines.append(as_object(json.loads(raw)))
        except ValueError:
            continue
    return lines


def _last(lines: list[JsonObject], kind: str) -> JsonObject:
    found = [line for line in lines if line.get("type") == kind]
    return found[-1] if found else {}


def _chain(lines: list[JsonObject], at: str | None) -> list[JsonObject]:
    """The lines from the first to the last one, or to the one `at`: each is the parent of the next.

    Calls of one message that ran side by side, and their results, are all in it. Empty if there is no such
    line.
    """
    by_id = {str(line["uuid"]): line for line in lines}
    spoken = [str(line["uuid"]) for line in lines if line["type"] in ("user", "assistant", "system")]
    last = at or (spoken[-1] if spoken else None)
    wanted: set[str] = set()
    while last in by_id and last not in wanted:
        wanted.add(last)
        last = by_id[last].get("parentUuid")
    messages = {_message_id(by_id[uuid]) for uuid in wanted - {at}} - {None}
    beside = {uuid for uuid, line in by_id.items() if _message_id(line) in messages}
    wanted |= beside
    return [line for line in lines if line["uuid"] in wanted or line.get("sourceToolAssistantUUID") in beside]


def _message_id(line: JsonObject) -> str | None:
    return str(line["message"].get("id", line["uuid"])) if line["type"] == "assistant" else None


def _deferred(lines: list[JsonObject], chain: list[JsonObject]) -> tuple[ToolCall, str] | None:
    """The call that a session was left with, and the uuid of its line. None if there is none, if it has been
    decided since, or if another prompt came after it."""
    attachments = (as_object(line.get("attachment")) for line in lines)
    noted = {each.get("toolUseID") for each in attachments if each.get("type") == "hook_deferred_tool"}
    found: tuple[ToolCall, str] | None = None
    for line in chain:
        for block in _blocks(line):
            if block.get("type") == "tool_use" and block.get("id") in noted:
                given = as_object(block.get("input"))
                found = ToolCall(id=block["id"], name=str(block["name"]), input=given), str(line["uuid"])
            elif found is not None and block.get("tool_use_id") == found[0].id:
                found = None
        if "turnPosition" in line:
            found = None
    return found


def _messages(chain: list[JsonObject], deferred: ToolCall | None) -> list[JsonObject]:
    """The conversation of a chain as the API takes it: user and model in alternation. Results of calls that
    run side by side are in one message. A call that has no result is left out, as it was cut off; the one
    that was deferred has yet to get it."""
    answered = {block.get("tool_use_id") for line in chain for block in _blocks(line)}
    answered |= {None if deferred is None else deferred.id}
    made: list[JsonObject] = []
    for line in chain:
        role, content = line["type"], as_object(line.get("message")).get("content")
        if role == "assistant":
            content = [
                block
                for block in _blocks(line)
                if block.get("type") != "tool_use" or block.get("id") in answered
            ]
        if role not in ("user", "assistant") or not content:
            continue
        if made and made[-1]["role"] == role:
            made[-1]["content"] = [*_as_blocks(made[-1]["content"]), *_as_blocks(content)]
        else:
            made.append({"role": role, "content": content})
    return made


def _blocks(line: JsonObject) -> list[JsonObject]:
    return blocks_of(as_object(line.get("message")))


def _as_blocks(content: object) -> list[JsonObject]:
    return (
        [{"type": "text", "text": content}] if isinstance(content, str) else blocks_of({"content": content})
    )


_NOT_RESUMABLE: Final = (
    "Error: --resume requires a valid session ID or session title when used with --print. "
    "Usage: claude -p --resume <session-id|title>"
)
# The program does not continue the costs of a line that lacks one of these.
_NO_COSTS: Final[JsonObject] = {
    "totalCostUSD": 0,
    "totalAPIDuration": 0,
    "totalAPIDurationWithoutRetries": 0,
    "totalToolDuration": 0,
    "totalLinesAdded": 0,
    "totalLinesRemoved": 0,
    "totalDuration": 0,
    "modelUsage": {},
    "hasUnknownModelCost": False,
}

_APPENDING: Final = os.O_WRONLY | os.O_CREAT | os.O_APPEND


class Transcript:
    """The file of the session that runs, and those of its subagents. With `--no-session-persistence` nothing
    is written."""

    def __init__(self, run: Run) -> None:
        self._run = run
        self._session_id = ""
        self._path: Path | None = None
        self._leaf: str | None = None
        self._leaves: dict[str, str | None] = {}
        """Of subagents, by their ids."""
        self._callers: dict[str, str] = {}
        """The line of the call, by the id of the call."""
        self._prompt_id = str(uuid4())
        self._turns = 0
        self._last_prompt: str | None = None
        self._metadata: dict[str, JsonObject] = {}
        self._began = int(time.time() * 1000)
        self._unmirrored: dict[Path, list[JsonObject]] = {}
        self.deferred: ToolCall | None = None
        """The call that the session was left with, if it is resumed."""
        self.cost_so_far = 0.0
        """What the session cost before this run, once it is resumed."""

    @property
    def path(self) -> Path:
        """The session's file, in the folder where the session began."""
        return self._path or self.path_of(self._session_id or self._run.session_id)

    def path_of(self, session_id: str) -> Path:
        """Where a session of this run's folder is."""
        return project_folder(self._run.config_dir, self._run.cwd) / f"{session_id}.jsonl"

    # Beginning

    def open_new(self, session_id: str) -> None:
        """Begin a session. The file is there from the first line on. Raises `FileExistsError` with the
        program's text if there is a session of this id."""
        if self.path_of(session_id).exists():
            raise FileExistsError(f"Error: Session ID {session_id} is already in use.")
        self._begin(session_id, self.path_of(session_id), None)

    def restart(self, session_id: str) -> None:
        """Continue in a new file, as after `/clear`."""
        self._begin(session_id, self.path_of(session_id), None)
        self.cost_so_far = 0.0

    def resume(
        self, id_or_name: str, at: str | None = None, fork_as: str | None = None
    ) -> tuple[str, list[JsonObject]]:
        """Continue a session: its id (the new one of a fork) and the API messages so far. Raises
        `LookupError` with the program's text if there is none, or no message `at`."""
        path = self._find(id_or_name)
        lines = _read(path)
        kept = [
            line
            for line in lines
            if line.get("type") in _CHAINED and line.get("uuid") and not line.get("isSidechain")
        ]
        chain = _chain(kept, at)
        if at is not None and not chain:
            raise LookupError(f"No message found with message.uuid of: {at}")
        session_id = fork_as or path.stem
        place = self.path_of(session_id) if fork_as else path
        self._begin(session_id, place, str(chain[-1]["uuid"]) if chain else None)
        cost = _last(lines, "cost-state").get("totalCostUSD")
        self.cost_so_far = float(cost) if isinstance(cost, int | float) else 0.0
        if (left := _deferred(kept, chain)) is not None:
            self.deferred, self._callers[left[0].id] = left
        self._turns = sum("turnPosition" in line for line in chain)
        for line in chain if fork_as else ():
            self._write(place, {**line, "sessionId": session_id})
        return session_id, _messages(chain, self.deferred)

    def latest(self) -> str | None:
        """The session that was used last in this run's folder."""
        found = sessions_in(project_folder(self._run.config_dir, self._run.cwd))
        return max(((each.mtime_ns, each.session_id) for each in found), default=(0, None))[1]

    def _begin(self, session_id: str, path: Path, leaf: str | None) -> None:
        self._session_id, self._path, self._leaf = session_id, path, leaf
        self._leaves, self._callers, self._turns, self._last_prompt = {}, {}, 0, None

    def _find(self, id_or_name: str) -> Path:
        if not id_or_name:
            raise LookupError(_NOT_RESUMABLE)
        here = project_folder(self._run.config_dir, self._run.cwd)
        name = f"{id_or_name}.jsonl"
        if session_id_of(name) is not None:
            places = [here / name, *sorted((self._run.config_dir / "projects").glob(f"*/{name}"))]
            for path in places:
                if path.exists() and path.stat().st_size:
                    return path
            raise LookupError(f"No conversation found with session ID: {id_or_name}")
        titled = [
            path
            for path in here.glob("*.jsonl")
            if _last(_read(path), "custom-title").get("customTitle") == id_or_name
        ]
        if not titled:
            raise LookupError(
                f'{_NOT_RESUMABLE}. Provided value "{id_or_name}" is not a UUID and does not match any '
                "session title."
            )
        return max(titled, key=lambda path: path.stat().st_mtime_ns)

    # Lines

    def append_user(
        self,
        message: JsonObject,
        *,
        uuid: str,
        agent_id: str | None = None,
        tool_use_result: object = None,
        **fields: object,
    ) -> None:
        """Write a message of the user or a tool's result; `fields` are added to the line (`isMeta`, `origin`,
        `isCompactSummary`, …)."""
        line: JsonObject = {"type": "user", "message": message, "uuid": uuid, "timestamp": now()}
        source = self._source(message)
        if source is not None:
            if agent_id is None and tool_use_result is not None:
                line["toolUseResult"] = tool_use_result
            line["sourceToolAssistantUUID"] = source
        elif agent_id is None and not fields.get("isMeta"):
            self._prompt_id = str(uuid4())
            self._turns += 1
            self._last_prompt = text_of(message)
            line |= {
                "permissionMode": self._run.permission_mode,
                "promptSource": "sdk",
                "turnOrigin": "sdk",
                "turnPosition": {"promptIndex": 0, "turnIndex": self._turns},
            }
        self._append({"promptId": self._prompt_id}, {**line, **fields}, agent_id, parent=source)

    def append_assistant(
        self, message: JsonObject, *, uuid: str, agent_id: str | None = None, **fields: object
    ) -> None:
        """Write a message of the model: one block, as the `assistant` frame has it."""
        calls = [block["id"] for block in blocks_of(message) if block.get("type") == "tool_use"]
        self._callers |= dict.fromkeys(calls, uuid)
        if message.get("stop_reason") is None:
            # The frame does not know yet how the message ends; a file that is read again has to.
            message = {**message, "stop_reason": "tool_use" if calls else "end_turn"}
        line: JsonObject = {"message": message, **fields, "type": "assistant", "uuid": uuid}
        self._append({}, {**line, "timestamp": now()}, agent_id)

    def append_attachment(self, attachment: JsonObject, *, uuid: str) -> None:
        """Write what stands beside the conversation: of a deferred call, what it takes to continue it."""
        line: JsonObject = {"attachment": attachment, "type": "attachment", "uuid": uuid}
        self._append({}, {**line, "timestamp": now()}, None)

    def note(self, kind: str, **fields: object) -> None:
        """Write a line that is not part of the conversation: `queue-operation`, `tools-used`, …"""
        self._write(self.path, {"type": kind, **fields, "sessionId": self._session_id})

    def set_title(self, title: str) -> None:
        """Write the name of the session, by which it can be resumed."""
        self.note("custom-title", customTitle=title)

    def start_agent(self, agent_id: str, metadata: JsonObject) -> Path:
        """Begin the file of a subagent (`agentType`, `description`, `toolUseId`, `spawnDepth`)."""
        self._leaves[agent_id] = None
        self._describe_agent(agent_id, metadata)
        return self.agent_path(agent_id)

    def finish_agent(self, agent_id: str) -> None:
        """Write that a subagent is done."""
        if agent_id in self._metadata:
            self._describe_agent(agent_id, {**self._metadata[agent_id], "finished": True})

    def _describe_agent(self, agent_id: str, metadata: JsonObject) -> None:
        self._metadata[agent_id] = metadata
        if self._run.invocation.no_session_persistence:
            return
        path = self.agent_path(agent_id)
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.with_suffix(".meta.json").write_bytes(encode(metadata))
        except OSError:
            return
        if self._run.invocation.session_mirror:
            self._mirror(path, [{**metadata, "type": "agent_metadata"}])

    def agent_path(self, agent_id: str) -> Path:
        return self.path.with_suffix("") / "subagents" / f"agent-{agent_id}.jsonl"

    def _source(self, message: JsonObject) -> str | None:
        called = (block.get("tool_use_id") for block in blocks_of(message))
        return next((self._callers[id] for id in called if id in self._callers), None)

    def _append(
        self, first: JsonObject, line: JsonObject, agent_id: str | None, parent: str | None = None
    ) -> None:
        leaf = self._leaf if agent_id is None else self._leaves.get(agent_id)
        head: JsonObject = {
            "parentUuid": leaf if parent is None else parent,
            "isSidechain": agent_id is not None,
            **first,
        }
        if agent_id is not None:
            head["agentId"] = agent_id
            self._leaves[agent_id] = line["uuid"]
        else:
            self._leaf = line["uuid"]
        tail: JsonObject = {
            "userType": "external",
            "entrypoint": self._run.environment.get("CLAUDE_CODE_ENTRYPOINT", "sdk-cli"),
            "cwd": str(self._run.cwd),
            "sessionId": self._session_id,
            "version": self._run.version,
            "gitBranch": "HEAD",
        }
        path = self.path if agent_id is None else self.agent_path(agent_id)
        self._write(path, {**head, **line, **tail})

    def _write(self, path: Path, line: JsonObject) -> None:
        if self._run.invocation.no_session_persistence:
            return
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            number = os.open(path, _APPENDING, 0o600)
            try:
                # One call for a line: a run that is killed leaves whole lines.
                os.write(number, encode(line) + b"\n")
                # The times of the system are those of its last tick, in which two sessions may be written.
                os.utime(number, ns=(at := time.time_ns(), at))
            finally:
                os.close(number)
        except OSError:
            # As the program: a session that cannot be kept continues.
            return
        if self._run.invocation.session_mirror:
            self._unmirrored.setdefault(path, []).append(line)

    # Mirror and end

    def flush(self) -> None:
        """Write the `transcript_mirror` frames of all lines since the last time, if `--session-mirror` is
        given. Call it before each `result`."""
        unmirrored, self._unmirrored = self._unmirrored, {}
        for path, lines in unmirrored.items():
            self._mirror(path, lines)

    def _mirror(self, path: Path, entries: list[JsonObject]) -> None:
        self._run.say({"type": "transcript_mirror", "filePath": str(path), "entries": entries})

    def close(self, state: JsonObject | None = None) -> None:
        """Write what ends this run's part of the session, `state` with `totalCostUSD` and `modelUsage`."""
        if self._last_prompt is None:
            return
        self.note("last-prompt", lastPrompt=self._last_prompt, leafUuid=self._leaf)
        self.flush()
        if state is not None:
            self.note("cost-state", **{**_NO_COSTS, "startTime": self._began, **state})
            self.flush()
        self._last_prompt = None
