"""Defines `@tool`, which makes a tool from a function, and converts a model's arguments to the function's."""

from __future__ import annotations

import inspect
import re
import types
from collections.abc import Callable, Mapping, Sequence
from functools import partial, update_wrapper
from typing import (
    TYPE_CHECKING,
    Annotated,
    Any,
    Concatenate,
    Final,
    Generic,
    NotRequired,
    ParamSpec,
    Protocol,
    TypeAlias,
    TypedDict,
    TypeGuard,
    TypeVar,
    cast,
    overload,
)

import msgspec

from outrider.errors import OptionsError
from outrider.handlers._calls import CallContext, is_async
from outrider.handlers._tools.shape import Converter, Native, convert, make_converter
from outrider.handlers._tools.shape_errors import Definitions, ShapeError, named, native_errors, shown
from outrider.handlers._tools.signature import (
    NO_DEFAULT,
    Parameter,
    Signature,
    as_written,
    names_in_sight,
    read_signature,
)
from outrider.wire import Json, JsonObject
from outrider.wire._tolerant import is_object

if TYPE_CHECKING:
    from outrider.handlers._router import AgentLink, Origin


Bound: TypeAlias = tuple[Sequence[object], Mapping[str, object]]
"""The positional and the named arguments of a call."""

_LONGEST_NAME: Final = 100
"""Characters of an unknown name that are compared with known ones."""


class Arguments:
    """Converts the JSON object that a model sends to arguments of a function.

    JSON types must match: only a whole number is accepted as a `float`, and any number as a `Decimal`. A
    parameter whose default is None may be null. Missing arguments get the function's own default. Unknown
    arguments are rejected, unless there is a `**name` for them.

    Raises `OptionsError` for a parameter with an unsupported type, and NameError if a type names something
    that is not defined (yet).
    """

    def __init__(self, signature: Signature, place: str, schema: Mapping[str, Any] | None = None) -> None:
        self._place = place
        taken = [each for each in signature.parameters if not each.is_context]
        self._contexts: Final = tuple(
            each.name for each in signature.parameters if each.is_context and not each.is_positional
        )
        self._positional: Final = tuple(each for each in signature.parameters if each.is_positional)
        self._required: Final = tuple(each.name for each in taken if each.is_required)
        self._converters: Final = {each.name: self._converter(each) for each in taken}
        self._defaults: Final = dict(self._known_defaults(taken))
        self._extra: Final = None if signature.extra is None else self._converter(signature.extra)
        self._kind: Final = _object_type(taken, self._converters)
        self.schema: Final = (
            self._schema(taken, signature.extra) if schema is None else self._given_schema(schema)
        )
        """The JSON Schema of the object."""

    @property
    def takes_context(self) -> bool:
        return bool(self._contexts) or any(each.is_context for each in self._positional)

    def bind(self, given: JsonObject, context: CallContext | None = None) -> Bound:
        """The arguments to call the function with. Raises `ShapeError`, whose errors are for the model."""
        values = self._at_once(given) or self._one_by_one(given)
        for name in self._contexts:
            values[name] = context
        positional = tuple(
            context if each.is_context else values.pop(each.name, each.default) for each in self._positional
        )
        return positional, values

    def _at_once(self, given: JsonObject) -> dict[str, object] | None:
        """The values, found fast; None if something is wrong, or msgspec does not read all of them."""
        try:
            values = None if self._kind is None else cast("dict[str, object]", convert(given, self._kind))
        except msgspec.ValidationError:
            return None
        return values if values is not None and len(values) == len(given) else None

    def _one_by_one(self, given: JsonObject) -> dict[str, object]:
        values: dict[str, object] = {}
        errors: list[str] = []
        for name, value in given.items():
            converter = self._converters.get(name, None if name in self._contexts else self._extra)
            if converter is None:
                errors.append(self._unknown(name, given))
                continue
            try:
                values[name] = converter.convert(value, name)
            except ShapeError as error:
                errors += error.errors
                if value is None and name in self._defaults:
                    errors[-1] += f" (leave it out to get {shown(self._defaults[name])})"
        errors += [named(name, "missing") for name in self._required if name not in given]
        if errors:
            raise ShapeError(errors)
        return values

    def _unknown(self, name: str, given: JsonObject) -> str:
        # Only for an error.
        from difflib import get_close_matches

        free = [each for each in self._converters if each not in given]
        if alike := get_close_matches(name[:_LONGEST_NAME], free, n=1):
            return named(name, f"unknown; did you mean `{alike[0]}`?")
        known = ", ".join(f"`{each}`" for each in self._converters)
        return named(name, f"unknown; known are {known}" if known else "unknown; there are no parameters")

    # Made once.

    def _converter(self, parameter: Parameter) -> Converter:
        try:
            return make_converter(parameter.kind)
        except OptionsError as error:
            raise OptionsError(
                f"{self._place}: parameter `{parameter.name}`: {error.message}", hint=error.hint
            ) from error

    def _known_defaults(self, taken: list[Parameter]) -> list[tuple[str, Json]]:
        known: list[tuple[str, Json]] = []
        for each in taken:
            if each.default is not NO_DEFAULT:
                converter = self._converters[each.name]
                try:
                    default = converter.dump(each.default)
                    converter.convert(default)
                except Exception:  # noqa: BLE001 - a marker, or a class of the user
                    continue
                known.append((each.name, default))
        return known

    def _schema(self, taken: list[Parameter], extra: Parameter | None) -> JsonObject:
        definitions = Definitions()
        properties = {each.name: self._property(each, definitions) for each in taken}
        others: Json = False
        if extra is not None and self._extra is not None:
            others = definitions.hoist(self._extra.schema) or True
        schema: JsonObject = {
            "type": "object",
            "properties": properties,
            "required": list(self._required),
            "additionalProperties": others,
        }
        return {**schema, "$defs": definitions.all} if definitions.all else schema

    def _property(self, parameter: Parameter, definitions: Definitions) -> JsonObject:
        schema = definitions.hoist(self._converters[parameter.name].schema)
        if parameter.description:
            schema["description"] = parameter.description
        if parameter.name in self._defaults:
            schema["default"] = self._defaults[parameter.name]
        return schema

    def _given_schema(self, given: Mapping[str, Any]) -> JsonObject:
        schema = make_converter(given).schema
        if schema.setdefault("type", "object") != "object":
            raise OptionsError(
                f"{self._place}: the `schema` must be that of an object, not {shown(schema['type'])}",
                hint='Write `{"type": "object", "properties": {…}}`.',
            )
        properties = schema.get("properties")
        if is_object(properties):
            self._check_names(properties)
        return schema

    def _check_names(self, properties: JsonObject) -> None:
        if self._extra is None and (unknown := [name for name in properties if name not in self._converters]):
            raise OptionsError(
                f"{self._place}: the `schema` has `{unknown[0]}`, which the function does not take",
                hint="Add a parameter of that name, or `**others`.",
            )
        if missing := [name for name in self._required if name not in properties]:
            raise OptionsError(
                f"{self._place}: the `schema` does not have the parameter `{missing[0]}`",
                hint="Add it to the schema, or give it a default.",
            )


def _object_type(taken: list[Parameter], converters: Mapping[str, Converter]) -> object:
    """A type for all parameters at once, which msgspec keeps ready; None if it does not read all of them."""
    kinds: dict[str, Any] = {name: each.kind for name, each in converters.items() if isinstance(each, Native)}
    if len(kinds) < len(converters):
        return None
    fields = {each.name: kinds[each.name] for each in taken if each.is_required}
    fields |= {each.name: NotRequired[kinds[each.name]] for each in taken if not each.is_required}
    return TypedDict("Arguments", fields)  # type: ignore[operator] # pyright: ignore[reportArgumentType]


_NAME: Final = re.compile(r"[A-Za-z0-9_-]{1,64}")
_BOUND_NAMES: Final = frozenset(("self", "cls", "mcs"))


_Positive: TypeAlias = Annotated[int, msgspec.Meta(ge=1)]


class Traits(msgspec.Struct, frozen=True, kw_only=True):
    """The arguments of `tool`."""

    name: str | None = None
    description: str | None = None
    title: str | None = None
    timeout: Annotated[float, msgspec.Meta(gt=0, le=1e9)] | None = None
    concurrency: _Positive | None = None
    read_only: bool | None = None
    destructive: bool | None = None
    idempotent: bool | None = None
    open_world: bool | None = None
    always_load: bool | None = None
    search_hint: str | None = None
    max_result_chars: _Positive | None = None
    schema: Mapping[str, Any] | None = None
    meta: Mapping[str, Any] | None = None


class ToolPlan:
    """A function with its traits, read once for all objects that it is bound to."""

    def __init__(
        self, function: Callable[..., object], traits: Traits, *, is_method: bool | None = None
    ) -> None:
        self.function: Final = function
        self.traits: Final = traits
        self.written: Final = as_written(function)
        self.name: Final = traits.name if traits.name is not None else _name_of(function)
        self.place: Final = f"tool `{getattr(self.written, '__qualname__', self.name)}`"
        _check(self.place, function, self.name, traits)
        self._local: dict[str, object] = {}
        self._arguments: dict[bool, Arguments] = {}
        self.text = ""
        """The description in the docstring."""
        self.is_method: Final = self._looks_like_method() if is_method is None else is_method
        try:
            self._prepare(self.is_method)
        except NameError:
            # Names may be defined later, but local ones are visible only now.
            self._local = names_in_sight(getattr(self.written, "__module__", ""))
            try:
                self._prepare(self.is_method)
            except NameError:
                self._local = self._mentioned()

    def arguments(self, *, is_bound: bool) -> Arguments:
        """How its arguments are converted. Raises `OptionsError`."""
        if is_bound not in self._arguments:
            try:
                self._prepare(is_bound)
            except NameError as error:
                raise OptionsError(
                    f"{self.place}: an annotation names something undefined: {error}",
                    hint="Import it where the tool is written, and not for type checkers alone.",
                ) from error
        return self._arguments[is_bound]

    def _prepare(self, is_bound: bool) -> None:
        signature = read_signature(self.function, self.place, skips_first=is_bound, local=self._local)
        self.text = signature.description
        self._arguments[is_bound] = Arguments(signature, self.place, self.traits.schema)

    def _looks_like_method(self) -> bool:
        """Whether it is defined in a class, and its first parameter is called like `self`."""
        if not isinstance(self.function, types.FunctionType):
            return False
        holder = getattr(self.written, "__qualname__", "").rpartition(".")[0]
        first = next(iter(inspect.signature(self.function).parameters), None)
        return bool(holder) and not holder.endswith("<locals>") and first in _BOUND_NAMES

    def _mentioned(self) -> dict[str, object]:
        """The local names in annotations only: all of them would keep much alive."""
        annotations = getattr(self.written, "__annotations__", {}).values()
        mentioned = {word for each in annotations for word in re.findall(r"\w+", str(each))}
        return {name: value for name, value in self._local.items() if name in mentioned}


def _name_of(function: Callable[..., object]) -> str:
    while isinstance(function, partial):
        function = cast("partial[object]", function).func
    return str(getattr(function, "__name__", type(function).__name__))


def _check(place: str, function: Callable[..., object], name: object, traits: Traits) -> None:
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        raise OptionsError(
            f"{place}: {name!r} cannot be the name of a tool",
            hint="Give it one with `name=`: 1 to 64 letters, digits, `_` and `-`.",
        )
    inner = as_written(function)
    if inspect.isgeneratorfunction(inner) or inspect.isasyncgenfunction(inner):
        raise OptionsError(
            f"{place} is a generator, and a tool gives one result",
            hint="Return a list, or use `ctx.progress`.",
        )
    given = msgspec.structs.asdict(traits)
    try:
        convert(given, Traits)
    except msgspec.ValidationError as error:
        found = native_errors(Traits, given, "", error, convert)
        raise OptionsError(f"{place}: {'; '.join(found)}") from None


P = ParamSpec("P")
Q = ParamSpec("Q")
R = TypeVar("R")
R_co = TypeVar("R_co", covariant=True)
S = TypeVar("S")

ALWAYS_LOAD: Final = "anthropic/alwaysLoad"
"""The key of a definition that makes the model know the tool from the start, without a search."""
_SEARCH_HINT: Final = "anthropic/searchHint"
"""The key of a definition for words by which the model finds a tool that it has to search for."""
_MAX_RESULT: Final = "anthropic/maxResultSizeChars"
"""The key of a definition for how long results may be before the agent puts them into a file."""


class Tool(Generic[P, R_co]):
    """A function that the agent may call, made by `tool`. It can still be called as before.

    As an attribute of a class it is bound like a method.
    """

    def __init__(
        self, plan: ToolPlan, function: Callable[P, R_co], *, is_bound: bool = False, binds: bool = True
    ) -> None:
        self._plan = plan
        self._is_bound = is_bound
        self.function: Final = function
        """The function itself."""
        self.is_async: Final = is_async(function)
        update_wrapper(self, function, updated=())
        # As in Python: functions are bound, other callable objects are not.
        self._binds = binds and isinstance(function, types.FunctionType)

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R_co:
        return self.function(*args, **kwargs)

    # A class method, which type checkers show as its function; a method; an unbound function.
    @overload
    def __get__(self: Tool[Concatenate[type[S], Q], R], instance: S | None, owner: type[S]) -> Tool[Q, R]: ...
    @overload
    def __get__(self, instance: None, owner: type | None = None) -> Tool[P, R_co]: ...
    @overload
    def __get__(self: Tool[Concatenate[S, Q], R], instance: S, owner: type | None = None) -> Tool[Q, R]: ...
    @overload
    def __get__(self, instance: object, owner: type | None = None) -> Tool[P, R_co]: ...
    def __get__(self, instance: object, owner: type | None = None) -> Tool[Any, Any]:
        if instance is None or not self._binds:
            return self
        return Tool(self._plan, types.MethodType(self.function, instance), is_bound=True)

    def __repr__(self) -> str:
        return f"<Tool {self.name!r}>"

    @property
    def name(self) -> str:
        return self._plan.name

    @property
    def definition(self) -> JsonObject:
        """The tool as MCP lists it."""
        traits, arguments = self._plan.traits, self.arguments
        hints = {
            "title": traits.title,
            "readOnlyHint": traits.read_only,
            "destructiveHint": traits.destructive,
            "idempotentHint": traits.idempotent,
            "openWorldHint": traits.open_world,
        }
        meta = {
            _MAX_RESULT: traits.max_result_chars,
            ALWAYS_LOAD: traits.always_load,
            _SEARCH_HINT: traits.search_hint,
        }
        optional = {
            "title": traits.title,
            "annotations": _without_none(hints),
            "_meta": {**_without_none(meta), **(traits.meta or {})},
        }
        return {
            "name": self.name,
            "description": self._plan.text if traits.description is None else traits.description,
            "inputSchema": arguments.schema,
            **{key: value for key, value in optional.items() if value},
        }

    @property
    def description(self) -> str:
        """The description for the model: by default the docstring without its parameters."""
        return str(self.definition.get("description", ""))

    @property
    def title(self) -> str | None:
        title: str | None = self.definition.get("title")
        return title

    @property
    def input_schema(self) -> JsonObject:
        """The JSON Schema of its arguments."""
        schema: JsonObject = self.definition["inputSchema"]
        return schema

    @property
    def annotations(self) -> JsonObject:
        """The annotations of MCP, such as `readOnlyHint`."""
        return dict(self.definition.get("annotations", {}))

    @property
    def meta(self) -> JsonObject:
        """The `_meta` of its definition."""
        return dict(self.definition.get("_meta", {}))

    @property
    def timeout(self) -> float | None:
        """Seconds that a call may take."""
        return self._plan.traits.timeout

    @property
    def concurrency(self) -> int | None:
        """How many calls may run at once."""
        return self._plan.traits.concurrency

    @property
    def arguments(self) -> Arguments:
        """How its arguments are converted. Raises `OptionsError` for an undefined name in an annotation."""
        # An unbound method shows the arguments of the bound one.
        return self._plan.arguments(is_bound=self._is_bound or (self._plan.is_method and self._binds))

    @property
    def needs_instance(self) -> bool:
        """Whether it is an unbound method."""
        return self._plan.is_method and not self._is_bound


def _without_none(fields: JsonObject) -> JsonObject:
    return {key: value for key, value in fields.items() if value is not None}


class AttachedTool(Generic[P, R_co]):
    """A class method or a static method with `@tool`: as an attribute of its class, a `Tool`."""

    def __init__(self, method: classmethod[Any, P, R_co] | staticmethod[P, R_co], traits: Traits) -> None:
        function = cast("Callable[..., R_co]", method.__func__)
        self._of_class = isinstance(method, classmethod)
        self._plan = ToolPlan(function, traits, is_method=self._of_class)

    def __get__(self, instance: object, owner: type | None = None) -> Tool[P, R_co]:
        function = cast("Callable[..., R_co]", self._plan.function)
        if not self._of_class:
            return Tool(self._plan, function, binds=False)
        holder = type(instance) if owner is None else owner
        return Tool(self._plan, types.MethodType(function, holder), is_bound=True)


class ToolDecorator(Protocol):
    """`tool` with its options: takes the function."""

    def __call__(self, function: Callable[P, R], /) -> Tool[P, R]: ...


@overload
def tool(function: Callable[P, R], /) -> Tool[P, R]: ...
@overload
def tool(
    *,
    name: str | None = None,
    description: str | None = None,
    title: str | None = None,
    timeout: float | None = None,
    concurrency: int | None = None,
    read_only: bool | None = None,
    destructive: bool | None = None,
    idempotent: bool | None = None,
    open_world: bool | None = None,
    always_load: bool | None = None,
    search_hint: str | None = None,
    max_result_chars: int | None = None,
    schema: Mapping[str, Any] | None = None,
    meta: Mapping[str, Any] | None = None,
) -> ToolDecorator: ...
def tool(function: Any = None, /, **traits: Any) -> Any:
    """Make a tool from a function: `@tool`, or `@tool(timeout=5)`.

    The name is the function's, the description its docstring, and the schema comes from the annotations and
    the parameters in the docstring (in the style of Google, NumPy or reST; `Annotated[int, "…"]` wins).
    Arguments are checked and converted before the call. A parameter annotated with `ToolContext`, or named
    `ctx` without an annotation, gets the context of the call. Functions that are not async run in threads.

    `timeout`: seconds for one call. `concurrency`: how many calls may run at once; others wait. `read_only`,
    `destructive`, `idempotent`, `open_world`: the annotations of MCP; read-only tools may run in parallel.
    `always_load`: whether the model knows the tool from the start, or has to search for it; None: as its
    server says. `search_hint`: more words by which a search finds it. `max_result_chars`: the length from
    which Claude Code puts results into a file. `schema`: a JSON Schema to show in place of the generated one.
    `meta`: more keys of the definition's `_meta`.

    Raises `OptionsError` for anything that cannot be a tool.
    """
    made = Traits(**traits)
    if function is not None:
        return _make(function, made)

    def decorate(given: object) -> Tool[Any, Any] | AttachedTool[Any, Any]:
        return _make(given, made)

    return decorate


def as_tool(thing: object) -> Tool[..., object]:
    """The tool itself, or a tool made from a function. Raises `OptionsError` for anything else."""
    if isinstance(thing, types.MethodType) and _is_tool(thing.__func__):
        # A class method around a tool.
        thing = thing.__func__.__get__(thing.__self__)
    made = thing if _is_tool(thing) else _make(thing, Traits())
    if isinstance(made, AttachedTool):
        raise OptionsError(
            f"{thing!r} is not a tool by itself", hint="Give it as an attribute of its class: `Thing.name`."
        )
    if made.needs_instance:
        raise OptionsError(
            f"the tool `{made.name}` is a method, and there is no object to call it on",
            hint=f"Give it as an attribute of an instance: `thing.{made.name}`.",
        )
    return made


def _is_tool(thing: object) -> TypeGuard[Tool[..., object]]:
    return isinstance(thing, Tool)


def _make(given: object, traits: Traits) -> Tool[..., object] | AttachedTool[..., object]:
    if isinstance(given, (classmethod, staticmethod)):
        return AttachedTool(cast("classmethod[object, ..., object]", given), traits)
    if _is_tool(given):
        given = given.function
    if isinstance(given, type) or not callable(given):
        raise OptionsError(
            f"{given!r} cannot be a tool", hint="Decorate a function or a method, or give an object to call."
        )
    return Tool(ToolPlan(given, traits), given)


class ToolContext(CallContext):
    """The context of a tool call, which can also report progress."""

    def __init__(
        self,
        origin: Origin,
        tool_use_id: str | None = None,
        *,
        tool_name: str = "",
        server_name: str = "",
        link: AgentLink | None = None,
        progress_token: str | int | None = None,
    ) -> None:
        super().__init__(origin, tool_use_id)
        self.tool_name: Final = tool_name
        self.server_name: Final = server_name
        self._link = link
        self._progress_token = progress_token

    def progress(self, done: float, total: float | None = None, message: str | None = None) -> None:
        """Report progress. `done` grows with each report, up to `total` if that is known.

        Works from async code and from threads. Does nothing if Claude Code did not ask for progress, or the
        call or the session is over.
        """
        link = self._link
        if link is None or self._progress_token is None or self.is_cancelled:
            return
        report: JsonObject = {"progressToken": self._progress_token, "progress": done}
        if total is not None:
            report["total"] = total
        if message is not None:
            report["message"] = message
        link.post({"jsonrpc": "2.0", "method": "notifications/progress", "params": report})

    def end(self) -> None:
        """The call is over: nothing more is reported."""
        self._link = None
