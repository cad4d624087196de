"""Owns what becomes of the result of an MCP tool: the blocks for the model, and the detail of the frame.

Calls nothing.
"""

from __future__ import annotations

import base64
import binascii
import json
import mimetypes
import secrets
import time
from pathlib import Path
from typing import Final, cast

from outrider.testing._simulator._world import Outcome
from outrider.wire import JsonObject

__all__ = ["outcome_of"]

_ENDINGS: Final = {"audio/wav": ".wav", "image/jpeg": ".jpg", "application/octet-stream": ".bin"}


def outcome_of(result: JsonObject, *, tool: str, server: str, folder: Path) -> Outcome:
    """What the program makes of a result. `folder` is where it keeps what a model cannot read."""
    blocks = cast("list[JsonObject]", result.get("content") or [])
    if result.get("isError") is True:
        texts = [str(block.get("text", "")) for block in blocks if block.get("type") == "text"]
        text = "\n".join(texts) or "Unknown error"
        return Outcome(content=text, is_error=True, detail=f"Error: {text}")
    made = _Made(server, folder)
    for block in blocks:
        made.add(block)
    structured = cast("JsonObject | None", result.get("structuredContent"))
    meta = cast("JsonObject | None", result.get("_meta"))
    content: str | list[JsonObject] = made.plain
    detail: object = made.blocks
    if structured is not None:
        text = json.dumps(structured, ensure_ascii=False, separators=(",", ":"))
        # In the place of all texts; pictures stay.
        content = [*made.pictures, {"type": "text", "text": text}] if made.pictures else text
        detail = content
    elif not any(block.get("text") != "" for block in made.plain):
        content = f"({tool} completed with no output)"
    more: JsonObject = {"_meta": meta, "structuredContent": structured, "resourceLinks": made.links or None}
    more = {name: value for name, value in more.items() if value is not None}
    return Outcome(
        content=content,
        detail={"content": detail, **more} if more else detail,
        structured_content=structured,
        meta=meta,
    )


class _Made:
    """The blocks of one result."""

    def __init__(self, server: str, folder: Path) -> None:
        self._server, self._folder = server, folder
        self.blocks: list[JsonObject] = []
        self.links: list[JsonObject] = []
        self.pictures: list[JsonObject] = []
        """Those of the blocks that are images, and where they were saved."""

    @property
    def plain(self) -> list[JsonObject]:
        return [{name: block[name] for name in block if name != "_meta"} for block in self.blocks]

    def add(self, block: JsonObject) -> None:
        match block.get("type"):
            case "text":
                self.blocks.append(_kept(block, "type", "text", "_meta"))
            case "image":
                self._add_image(str(block.get("mimeType", "image/png")), str(block.get("data", "")))
            case "audio":
                kind = str(block.get("mimeType", "audio/wav"))
                self._add_binary(f"[Audio from {self._server}]", kind, str(block.get("data", "")))
            case "resource":
                self._add_resource(cast("JsonObject", block.get("resource") or {}))
            case "resource_link":
                about = f" ({block['description']})" if block.get("description") else ""
                self._add_text(f"[Resource link: {block.get('name')}] {block.get('uri')}{about}")
                self.links.append(_kept(block, "uri", "name", "title", "description", "mimeType"))
            case _:
                pass

    def _add_text(self, text: str) -> None:
        self.blocks.append({"type": "text", "text": text})

    def _add_resource(self, resource: JsonObject) -> None:
        label = f"[Resource from {self._server} at {resource.get('uri')}]"
        if "blob" not in resource:
            self._add_text(f"{label} {resource.get('text', '')}")
            return
        kind = str(resource.get("mimeType", "application/octet-stream"))
        if kind.startswith("image/"):
            self._add_text(f"{label} ")
            self._add_image(kind, str(resource["blob"]))
        else:
            self._add_binary(label, kind, str(resource["blob"]))

    def _add_image(self, kind: str, data: str) -> None:
        self.blocks.append({"type": "image", "source": {"type": "base64", "media_type": kind, "data": data}})
        path, _ = self._keep(kind, data)
        self._add_text(f"[Image: source: {path}]")
        self.pictures += self.blocks[-2:]

    def _add_binary(self, label: str, kind: str, data: str) -> None:
        path, size = self._keep(kind, data)
        self._add_text(f"{label} Binary content ({kind}, {size} bytes) saved to {path}")

    def _keep(self, kind: str, data: str) -> tuple[Path, int]:
        try:
            raw = base64.b64decode(data)
        except (binascii.Error, ValueError):
            raw = b""
        ending = _ENDINGS.get(kind) or mimetypes.guess_extension(kind) or ".bin"
        name = f"mcp-{self._server}-blob-{int(time.time() * 1000)}-{secrets.token_hex(3)}{ending}"
        self._folder.mkdir(parents=True, exist_ok=True)
        path = self._folder / name
        path.write_bytes(raw)
        return path, len(raw)


def _kept(block: JsonObject, *names: str) -> JsonObject:
    return {name: block[name] for name in names if name in block}
