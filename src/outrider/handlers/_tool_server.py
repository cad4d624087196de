"""Tools of this process as an MCP server that any number of sessions can use.

Does not answer requests: an endpoint does, for each session.
"""

from __future__ import annotations

import re
import threading
import weakref
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, ClassVar, Final

from outrider.errors import OptionsError
from outrider.handlers._tool import ALWAYS_LOAD, Tool, as_tool
from outrider.handlers._tool_endpoint import ToolEndpoint, ToolEntry
from outrider.options._readers import did_you_mean

if TYPE_CHECKING:
    from outrider.handlers._handled import Observe
    from outrider.handlers._origin import Link
    from outrider.wire import JsonObject

_NAME: Final = re.compile(r"[A-Za-z0-9_-]{1,64}")
_LONGEST_NAME: Final = 128
"""Of a tool, as the model's API takes it."""


class ToolServer:
    """A named set of tools. The model knows each as `mcp__<server>__<tool>`.

    Tools may be added and removed at any time and from any thread; sessions that run are told. One server may
    be used by many sessions at once.

    `instructions` are for the model: what these tools are for together. `always_load=False` saves its tokens
    if there are many tools: it does not know them from the start and has to search for them.

    Raises `OptionsError` for a name that cannot be one, for what is no tool, and for two tools of one name.
    """

    has_short_names: ClassVar[bool] = True
    """Whether rules, policies and hooks may name its tools without the server."""

    def __init__(
        self,
        name: str,
        tools: Iterable[Tool[..., object] | Callable[..., object]] = (),
        *,
        version: str = "1.0.0",
        instructions: str | None = None,
        always_load: bool = True,
    ) -> None:
        self._check_name(name)
        self.name: Final = name
        self.version: Final = version
        self.instructions: Final = instructions
        self.always_load: Final = always_load
        self._lock = threading.Lock()
        self._endpoints: weakref.WeakSet[ToolEndpoint] = weakref.WeakSet()
        # Both are replaced, never changed: whoever reads them needs no lock.
        self._entries: dict[str, ToolEntry] = {}
        self._listing: JsonObject = {"tools": []}
        self.add(*tools)

    def __repr__(self) -> str:
        return f"<ToolServer {self.name!r}: {', '.join(self._entries) or 'no tools'}>"

    @property
    def tools(self) -> tuple[Tool[..., object], ...]:
        return tuple(entry.tool for entry in self._entries.values())

    def add(self, *tools: Tool[..., object] | Callable[..., object]) -> None:
        """Offer more tools, all of these or none. Raises `OptionsError`."""
        new = [ToolEntry(as_tool(each)) for each in tools]
        with self._lock:
            entries = dict(self._entries)
            for entry in new:
                self._check(entry.tool.name, entries)
                entries[entry.tool.name] = entry
            self._replace(entries)
        self._tell()

    def remove(self, *tools: str | Tool[..., object] | Callable[..., object]) -> None:
        """Offer these tools no more, by name or as they were added, all of them or none. Calls that run go
        on. Raises `OptionsError` for one that is not there."""
        with self._lock:
            entries = dict(self._entries)
            for tool in tools:
                name = tool if isinstance(tool, str) else as_tool(tool).name
                if entries.pop(name, None) is None:
                    hint = did_you_mean(name, list(entries))
                    raise OptionsError(f"{self!r} has no tool {name!r}", hint=hint)
            self._replace(entries)
        self._tell()

    def open(self, link: Link, observe: Observe) -> ToolEndpoint:
        """Begin to serve a session."""
        endpoint = ToolEndpoint(self, link, observe)
        with self._lock:
            self._endpoints.add(endpoint)
        return endpoint

    @property
    def listing(self) -> JsonObject:
        """What `tools/list` is answered with."""
        return self._listing

    @property
    def entries(self) -> dict[str, ToolEntry]:
        """The tools by name. Not to be changed."""
        return self._entries

    def missing(self, name: str) -> JsonObject | None:
        """The result of a call of a tool that is not here; None to answer with an error of the protocol."""
        return None

    def _check_name(self, name: object) -> None:
        if not isinstance(name, str) or not _NAME.fullmatch(name):
            raise OptionsError(
                f"{name!r} cannot be the name of a server", hint="Use 1 to 64 letters, digits, `_` and `-`."
            )

    def _check(self, name: str, entries: dict[str, ToolEntry]) -> None:
        if name in entries:
            raise OptionsError(
                f"the server {self.name!r} has two tools named {name!r}",
                hint="Give one of them another name: `@tool(name=…)`.",
            )
        full = f"mcp__{self.name}__{name}"
        if len(full) > _LONGEST_NAME:
            raise OptionsError(
                f"the name {full!r} has {len(full)} characters, and models take {_LONGEST_NAME}",
                hint="Shorten the name of the tool or of its server.",
            )

    def _replace(self, entries: dict[str, ToolEntry]) -> None:
        self._listing = {"tools": [self._definition(entry.tool) for entry in entries.values()]}
        self._entries = entries

    def _definition(self, tool: Tool[..., object]) -> JsonObject:
        if not self.always_load:
            return tool.definition
        return {**tool.definition, "_meta": {ALWAYS_LOAD: True, **tool.meta}}

    def _tell(self) -> None:
        with self._lock:
            endpoints = list(self._endpoints)
        for endpoint in endpoints:
            endpoint.tell_of_change()
