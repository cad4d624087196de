"""Tools that are given as MCP lists them, with a function that takes the arguments as they come.

Makes nothing of annotations and checks nothing, neither names nor arguments: whoever uses this does.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from outrider.handlers._arguments import Arguments, Bound
from outrider.handlers._signature import Signature
from outrider.handlers._tool import Tool
from outrider.handlers._tool_plan import ToolPlan, Traits
from outrider.handlers._tool_server import ToolServer
from outrider.wire import JsonObject

if TYPE_CHECKING:
    from outrider.handlers._calling import CallContext
    from outrider.handlers._tool_endpoint import ToolEntry


class _AsGiven(Arguments):
    """Arguments that stay the object that the model gave."""

    def bind(self, given: JsonObject, context: CallContext | None = None) -> Bound:
        return (given,), {}


_AS_GIVEN: Final = _AsGiven(Signature(parameters=()), "a raw tool")


def _unplanned(**_arguments: object) -> None:
    """Stands for the function where nothing is to follow from it."""


_PLAN: Final = ToolPlan(_unplanned, Traits(name="raw"))


class RawTool(Tool[[JsonObject], object]):
    """A tool of which MCP's definition is given: `name`, `description`, `inputSchema` and what else it has.

    The function takes the arguments as one dict. It may give back anything that a tool may.
    """

    def __init__(self, definition: JsonObject, function: Callable[[JsonObject], object]) -> None:
        super().__init__(_PLAN, function, binds=False)
        self._definition: Final = definition

    @property
    def definition(self) -> JsonObject:
        """The tool as MCP lists it."""
        return self._definition

    @property
    def name(self) -> str:
        return str(self._definition["name"])

    @property
    def description(self) -> str:
        """What the model is told of it."""
        return str(self._definition.get("description", ""))

    @property
    def title(self) -> str | None:
        title: str | None = self._definition.get("title")
        return title

    @property
    def input_schema(self) -> JsonObject:
        """The JSON Schema of its arguments."""
        schema: JsonObject = self._definition["inputSchema"]
        return schema

    @property
    def annotations(self) -> JsonObject:
        """What the agent is told of its nature, as MCP spells it."""
        return dict(self._definition.get("annotations", {}))

    @property
    def meta(self) -> JsonObject:
        """The `_meta` of its definition."""
        return dict(self._definition.get("_meta", {}))

    @property
    def arguments(self) -> Arguments:
        """How its arguments are read: they are not."""
        return _AS_GIVEN


class RawToolServer(ToolServer):
    """A server of tools whose names nobody has checked; of two with one name the later counts."""

    has_short_names = False

    def _check_name(self, name: object) -> None:
        pass

    def _check(self, name: str, entries: dict[str, ToolEntry]) -> None:
        pass
