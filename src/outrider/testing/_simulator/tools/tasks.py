"""Owns the list of tasks of the simulated agent: `TaskCreate`, `TaskGet`, `TaskList`, `TaskUpdate`.

Has nothing to do with what runs in the background.
"""

from __future__ import annotations

import msgspec

from outrider.testing._simulator.world import Outcome
from outrider.wire import JsonObject

__all__ = ["TaskList"]


class _Item(msgspec.Struct, kw_only=True):
    id: str
    subject: str
    description: str
    status: str = "pending"
    active_form: str | None = None
    owner: str | None = None
    blocks: list[str] = []
    blocked_by: list[str] = []
    metadata: JsonObject = {}


class TaskList:
    """The tasks of one run. The program keeps them longer; here they end with it."""

    def __init__(self) -> None:
        self._items: dict[str, _Item] = {}
        self._last = 0

    def create(self, given: JsonObject) -> Outcome:
        self._last += 1
        item = _Item(
            id=str(self._last),
            subject=given["subject"],
            description=given["description"],
            active_form=given.get("activeForm"),
            metadata=given.get("metadata") or {},
        )
        self._items[item.id] = item
        detail: JsonObject = {"id": item.id, "subject": item.subject, "description": item.description}
        text = f"Task #{item.id} created successfully: {item.subject}"
        return Outcome(content=text, detail={"task": detail})

    def get(self, given: JsonObject) -> Outcome:
        item = self._items.get(given["taskId"])
        if item is None:
            return Outcome(content="Task not found", detail={"task": None})
        lines = [f"Task #{item.id}: {item.subject}", f"Status: {item.status}"]
        lines.append(f"Description: {item.description}")
        if item.blocked_by:
            lines.append("Blocked by: " + ", ".join(f"#{id}" for id in item.blocked_by))
        if item.blocks:
            lines.append("Blocks: " + ", ".join(f"#{id}" for id in item.blocks))
        detail: JsonObject = {
            "id": item.id,
            "subject": item.subject,
            "description": item.description,
            "status": item.status,
            "blocks": list(item.blocks),
            "blockedBy": list(item.blocked_by),
        }
        return Outcome(content="\n".join(lines), detail={"task": detail})

    def show(self) -> Outcome:
        lines: list[str] = []
        details: list[JsonObject] = []
        for item in self._items.values():
            waits = [id for id in item.blocked_by if self._is_open(id)]
            line = f"#{item.id} [{item.status}] {item.subject}"
            line += f" ({item.owner})" if item.owner else ""
            line += f" [blocked by {', '.join(f'#{id}' for id in waits)}]" if waits else ""
            lines.append(line)
            detail: JsonObject = {"id": item.id, "subject": item.subject, "status": item.status}
            if item.owner:
                detail["owner"] = item.owner
            details.append({**detail, "blockedBy": waits})
        return Outcome(content="\n".join(lines) or "No tasks found", detail={"tasks": details})

    def update(self, given: JsonObject) -> Outcome:
        task_id: str = given["taskId"]
        item = self._items.get(task_id)
        detail: JsonObject
        if item is None:
            detail = {"success": False, "taskId": task_id, "updatedFields": [], "error": "Task not found"}
            return Outcome(content="Task not found", detail=detail)
        status, before = given.get("status"), item.status
        changed: list[str]
        if status == "deleted":
            del self._items[task_id]
            changed = ["deleted"]
        else:
            changed = self._change(item, given)
        detail = {"success": True, "taskId": task_id, "updatedFields": changed}
        if status is not None and status != before:
            detail["statusChange"] = {"from": before, "to": status}
        return Outcome(content=f"Updated task #{task_id} {', '.join(changed)}", detail=detail)

    def _change(self, item: _Item, given: JsonObject) -> list[str]:
        changed: list[str] = []
        for name, field in _PLAIN.items():
            if name in given and given[name] != getattr(item, field):
                setattr(item, field, given[name])
                changed.append(name)
        if metadata := given.get("metadata"):
            merged = {**item.metadata, **metadata}
            item.metadata = {key: value for key, value in merged.items() if value is not None}
            changed.append("metadata")
        for name, other in (("blocks", "blocked_by"), ("blocked_by", "blocks")):
            word = "addBlocks" if name == "blocks" else "addBlockedBy"
            mine: list[str] = getattr(item, name)
            if added := [id for id in given.get(word) or () if id not in mine]:
                mine += added
                for id in added:
                    if id in self._items:
                        theirs: list[str] = getattr(self._items[id], other)
                        theirs.append(item.id)
                changed.append("blocks" if name == "blocks" else "blockedBy")
        return changed

    def _is_open(self, task_id: str) -> bool:
        item = self._items.get(task_id)
        return item is not None and item.status != "completed"


_PLAIN = {
    "subject": "subject",
    "description": "description",
    "activeForm": "active_form",
    "status": "status",
    "owner": "owner",
}
