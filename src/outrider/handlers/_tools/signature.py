"""Reads the signature of a function: parameters with types, defaults and descriptions from its docstring."""

from __future__ import annotations

import inspect
import re
import types
import typing
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from inspect import cleandoc
from types import FrameType, SimpleNamespace
from typing import Annotated, Any, Final, Union, cast, get_args, get_origin

import msgspec

from outrider.errors import OptionsError
from outrider.handlers._calls import CallContext
from outrider.redaction import preview

# Docstrings.

_GOOGLE_HEADER: Final = re.compile(
    r"(?:Args|Arguments|Params|Parameters|Keyword Args|Keyword Arguments|Other Parameters|Attributes):\s*"
)
_GOOGLE_ENTRY: Final = re.compile(r"\*{0,2}(\w+)\s*(?:\(.*?\))?\s*:(?:\s+(.*)|)")
_NUMPY_HEADER: Final = re.compile(r"(?:Other )?Parameters|Attributes")
_NUMPY_ENTRY: Final = re.compile(r"(\*{0,2}\w+(?:\s*,\s*\*{0,2}\w+)*)\s*(?::.*)?")
_UNDERLINE: Final = re.compile(r"-{3,}\s*")
_REST_PARAM: Final = re.compile(
    r":(?:param|parameter|arg|argument|key|keyword|ivar|var|attribute)\s+(?:[^:]*\s)?\*{0,2}(\w+)\s*:\s*(.*)"
)
_REST_TYPE: Final = re.compile(r":(?:type|vartype)\s+\w+\s*:")


def read_docstring(doc: str | None) -> tuple[str, dict[str, str]]:
    """The docstring without its parameters, and the text for each parameter."""
    lines = cleandoc(doc or "").splitlines()
    kept: list[str] = []
    found: list[tuple[str, list[str]]] = []
    at = 0
    while at < len(lines):
        line = lines[at]
        at += 1
        if _GOOGLE_HEADER.fullmatch(line) and (entries := _google_entries(_indented(lines, at))):
            found += entries
        elif _NUMPY_HEADER.fullmatch(line.rstrip()) and _is_underlined(lines, at - 1):
            at = _read_numpy(lines, at + 1, found)
            continue
        elif match := _REST_PARAM.match(line):
            found.append((match[1], [match[2], *_indented(lines, at)]))
        elif not _REST_TYPE.match(line):
            kept.append(line)
            continue
        at += len(_indented(lines, at))
    texts = ((name, " ".join(each.strip() for each in said if each.strip())) for name, said in found)
    rest = re.sub(r"\n{3,}", "\n\n", "\n".join(kept)).strip()
    return rest, {name: text for name, text in texts if text}


def _indented(lines: list[str], start: int) -> list[str]:
    """The indented lines from one on, with the empty ones between them."""
    end = last = start
    while end < len(lines) and (not lines[end].strip() or lines[end][0] in " \t"):
        end += 1
        if lines[end - 1].strip():
            last = end
    return lines[start:last]


def _google_entries(section: list[str]) -> list[tuple[str, list[str]]]:
    """The parameters of a section; none if it has anything else, because it is prose then."""
    entries: list[tuple[str, list[str]]] = []
    indent = min((len(line) - len(line.lstrip()) for line in section if line.strip()), default=0)
    for line in section:
        if not line.strip() or line[indent].isspace():
            if entries:
                entries[-1][1].append(line)
        elif match := _GOOGLE_ENTRY.fullmatch(line.strip()):
            entries.append((match[1], [match[2] or ""]))
        else:
            return []
    return entries


def _read_numpy(lines: list[str], at: int, found: list[tuple[str, list[str]]]) -> int:
    """Read the parameters of a section; returns where it ends."""
    while at < len(lines):
        if lines[at].strip():
            match = _NUMPY_ENTRY.fullmatch(lines[at])
            if match is None or _is_underlined(lines, at):
                break
            section = _indented(lines, at + 1)
            found += [(name.strip().lstrip("*"), section) for name in match[1].split(",")]
            at += len(section)
        at += 1
    return at


def _is_underlined(lines: list[str], at: int) -> bool:
    return len(lines) > at + 1 and _UNDERLINE.fullmatch(lines[at + 1]) is not None


# Annotations.

_LOCAL: Final = "<locals>"


def resolve(annotation: object, module: Mapping[str, object], local: Mapping[str, object]) -> object:
    """The type of an annotation. Raises NameError for an undefined name."""
    holder = SimpleNamespace(__annotations__={"it": annotation})
    hints = typing.get_type_hints(holder, dict(module), dict(local), include_extras=True)
    return hints["it"]


def names_in_sight(module: str) -> dict[str, object]:
    """The local names in all running functions and classes of a module; inner ones win."""
    names: dict[str, object] = {}
    frame: FrameType | None = inspect.currentframe()
    while frame is not None:
        space = frame.f_globals
        if space.get("__name__") == module and frame.f_locals is not space:
            names = {**frame.f_locals, **names}
        frame = frame.f_back
    return names


def settle(kind: object) -> None:
    """Resolve the text annotations of classes that use local names or type parameters. Raises NameError for
    an undefined name."""
    for each in parts(kind):
        if not isinstance(each, type):
            continue
        own = vars(each).get("__annotations__")
        local = _local_names(each)
        if own and local:
            hints = typing.get_type_hints(each, localns=local, include_extras=True)
            own.update({name: hints[name] for name in own if name in hints})
            for name, field in getattr(each, "__dataclass_fields__", {}).items():
                field.type = hints.get(name, field.type)


def class_hints(kind: type) -> dict[str, object]:
    """The annotations of a class as types; empty if they cannot be evaluated."""
    kind = get_origin(kind) or kind
    try:
        return typing.get_type_hints(kind, localns=_local_names(kind) or None, include_extras=True)
    except Exception:  # noqa: BLE001 - code of the user is evaluated
        return {}


def _local_names(kind: type) -> dict[str, object]:
    names = names_in_sight(kind.__module__) if _LOCAL in kind.__qualname__ else {}
    return {**names, **{each.__name__: each for each in getattr(kind, "__type_params__", ())}}


def parts(kind: object) -> Iterator[object]:
    """All types and metadata in a type, itself first, each once."""
    seen: set[int] = set()
    waiting = [kind]
    # Keeps them alive, so that no two have the same identity.
    met: list[object] = []
    while waiting:
        each = waiting.pop()
        if id(each) in seen:
            continue
        seen.add(id(each))
        met.append(each)
        yield each
        waiting.extend(_inner(each))


def _inner(kind: object) -> list[object]:
    if get_origin(kind) is Annotated:
        return [*get_args(kind), *getattr(kind, "__metadata__", ())]
    inner = list(get_args(kind))
    origin = get_origin(kind)
    if origin is typing.Literal:
        return []
    if isinstance(origin, type):
        inner.append(origin)
    if (value := _alias_value(kind)) is not None:
        inner.append(value)
    if isinstance(kind, typing.NewType):
        inner.append(kind.__supertype__)
    if isinstance(kind, type) and getattr(kind, "__annotations__", None) and origin is None:
        inner.extend(class_hints(kind).values())
    return inner


def _alias_value(kind: object) -> object:
    """The type behind `type X = …`."""
    if type(kind).__name__ != "TypeAliasType":
        return None
    try:
        return getattr(kind, "__value__", None)
    except NameError:
        return None


def description_in(annotation: object) -> str | None:
    """The description in `Annotated[…, "text"]`, or in a `Meta` in its place."""
    if get_origin(annotation) is Annotated:
        metadata: tuple[object, ...] = getattr(annotation, "__metadata__", ())
        for each in reversed(metadata):
            text: object = each if isinstance(each, str) else getattr(each, "description", None)
            if isinstance(text, str) and text:
                return text
    return None


def is_described(annotation: object) -> bool:
    """Whether msgspec reads the description itself."""
    metadata: tuple[Any, ...] = getattr(annotation, "__metadata__", ())
    return any(isinstance(each, msgspec.Meta) and each.description for each in metadata)


# Signatures.

_CONTEXT_NAME: Final = "ctx"
_CONTEXTS: Final = ("ToolContext", "CallContext")
_DEEPEST: Final = 100
"""How often a function may be wrapped. A proxy that has every attribute would never end."""

NO_DEFAULT: Final = inspect.Parameter.empty


class Parameter(msgspec.Struct, frozen=True, kw_only=True):
    name: str
    kind: object
    """Its type; `Any` if it has none."""
    default: object = NO_DEFAULT
    description: str | None = None
    is_positional: bool = False
    """It cannot be passed by name."""
    is_context: bool = False
    """It gets the context of the call, not an argument of the model."""

    @property
    def is_required(self) -> bool:
        return self.default is NO_DEFAULT


class Signature(msgspec.Struct, frozen=True, kw_only=True):
    """The parameters of a function, and the rest of its docstring."""

    parameters: tuple[Parameter, ...]
    extra: Parameter | None = None
    """`**name`, for all other arguments."""
    description: str = ""


def read_signature(
    function: Callable[..., object], place: str, *, skips_first: bool, local: Mapping[str, object]
) -> Signature:
    """Read the parameters of a function. Errors call it `place`; `skips_first` omits the object that a method
    is bound to; `local` has names for its annotations. Raises `OptionsError` for parameters that no tool can
    have, and NameError for undefined names."""
    written = as_written(function)
    try:
        given = list(inspect.signature(function).parameters.values())
    except (ValueError, TypeError) as error:
        raise OptionsError(
            f"{place} cannot be a tool: its parameters cannot be read ({error})",
            hint="Put it into a function with annotated parameters.",
        ) from error
    around = _names_of_class(function)
    fixed = cast("partial[object]", function).keywords if isinstance(function, partial) else {}
    description, texts = read_docstring(inspect.getdoc(written))
    scope = _Scope(written, place, {**around, **local})
    parameters: list[Parameter] = []
    extra: Parameter | None = None
    for each in given[1:] if skips_first else given:
        if each.name in fixed:
            # A partial sets its value.
            continue
        where = f"{place}: parameter `{each.name}`"
        if each.kind is each.VAR_POSITIONAL:
            raise OptionsError(
                f"{where} takes any number of arguments by position, and the model gives arguments by name",
                hint=f"Take a list: `{each.name}: list[…]`.",
            )
        parameter = scope.read(each, texts.get(each.name))
        if each.kind is each.VAR_KEYWORD:
            extra = parameter
        else:
            parameters.append(parameter)
    return Signature(parameters=tuple(parameters), extra=extra, description=description)


def as_written(function: Callable[..., object]) -> Callable[..., object]:
    """The original function: inside partials, methods, decorators with `__wrapped__`, and callable
    objects."""
    inner: Any = function
    for _ in range(_DEEPEST):
        if isinstance(inner, partial):
            inner = cast("partial[object]", inner).func
        elif isinstance(inner, types.MethodType):
            inner = inner.__func__
        elif hasattr(inner, "__wrapped__"):
            inner = inner.__wrapped__
        elif not isinstance(inner, types.FunctionType) and (own := _own_call(inner)) is not None:
            inner = own
        else:
            break
    return cast("Callable[..., object]", inner)


def _names_of_class(function: object) -> dict[str, object]:
    """The names in the class of a bound method."""
    if not isinstance(function, types.MethodType):
        return {}
    holder = function.__self__ if isinstance(function.__self__, type) else type(function.__self__)
    return {name: value for each in reversed(holder.__mro__) for name, value in vars(each).items()}


def _own_call(thing: object) -> object:
    own = getattr(type(thing), "__call__", None)  # noqa: B004 - the function is wanted
    return own if isinstance(own, types.FunctionType) else None


class _Scope:
    """The names for the annotations of a function."""

    def __init__(self, written: Callable[..., object], place: str, local: Mapping[str, object]) -> None:
        self._place = place
        self._module: dict[str, object] = getattr(written, "__globals__", {})
        generic = {each.__name__: each for each in getattr(written, "__type_params__", ())}
        self._local = {**local, **generic}

    def read(self, given: inspect.Parameter, text: str | None) -> Parameter:
        kind = self._kind(given)
        is_context = _is_context(given.name, kind, is_annotated=given.annotation is not given.empty)
        description = description_in(kind) or text
        if given.default is None and not is_context:
            # Many write `x: int = None` for an optional parameter.
            kind = Union[kind, None]  # noqa: UP007 - not every form of a type knows `|`
        return Parameter(
            name=given.name,
            kind=kind,
            default=given.default,
            description=description,
            is_positional=given.kind is given.POSITIONAL_ONLY,
            is_context=is_context,
        )

    def _kind(self, given: inspect.Parameter) -> object:
        annotation = given.annotation
        if annotation is given.empty:
            return Any
        try:
            return resolve(annotation, self._module, self._local)
        except NameError:
            # Imported for type checkers only, as is good style.
            if isinstance(annotation, str) and annotation.rpartition(".")[2] in _CONTEXTS:
                return CallContext
            raise
        except Exception as error:
            raise OptionsError(
                f"{self._place}: the annotation of parameter `{given.name}` cannot be read: "
                f"{preview(str(annotation), 200)} ({type(error).__name__}: {error})",
                hint="Use a type.",
            ) from error


def _is_context(name: str, kind: object, *, is_annotated: bool) -> bool:
    if not is_annotated:
        return name == _CONTEXT_NAME
    if get_origin(kind) is Annotated:
        kind = get_args(kind)[0]
    options = get_args(kind) if get_origin(kind) in (Union, types.UnionType) else (kind,)
    return any(isinstance(each, type) and issubclass(each, CallContext) for each in options)
