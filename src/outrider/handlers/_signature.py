"""What a function takes: its parameters with their types, defaults and descriptions.

Does not know JSON. Reads plain and async functions, bound methods, partials and objects that can be called.
"""

from __future__ import annotations

import inspect
import types
from collections.abc import Callable, Mapping
from functools import partial
from typing import Annotated, Any, Final, Union, cast, get_args, get_origin

import msgspec

from outrider.errors import OptionsError
from outrider.handlers._calling import CallContext
from outrider.handlers._docstring import read_docstring
from outrider.handlers._hints import description_in, resolve
from outrider.redaction import preview

_CONTEXT_NAME: Final = "ctx"
_CONTEXTS: Final = ("ToolContext", "CallContext")
_DEEPEST: Final = 100
"""How often a function may be wrapped. What is wrapped more often answers to any name, as proxies do."""

NO_DEFAULT: Final = inspect.Parameter.empty


class Parameter(msgspec.Struct, frozen=True, kw_only=True):
    """One parameter of a function."""

    name: str
    kind: object
    """Its type; `Any` if it has none."""
    default: object = NO_DEFAULT
    description: str | None = None
    is_positional: bool = False
    """It cannot be given by name."""
    is_context: bool = False
    """It is not for the model: it gets the context of the call."""

    @property
    def is_required(self) -> bool:
        return self.default is NO_DEFAULT


class Signature(msgspec.Struct, frozen=True, kw_only=True):
    """What a function takes, and what its docstring says apart from that."""

    parameters: tuple[Parameter, ...]
    extra: Parameter | None = None
    """Takes what no other does: `**name`."""
    description: str = ""


def read_signature(
    function: Callable[..., object], place: str, *, skips_first: bool, local: Mapping[str, object]
) -> Signature:
    """What a function takes. `place` is how errors call it, `skips_first` leaves out what a method is bound
    to, and `local` has names that its annotations may use.

    Raises `OptionsError` for what no tool can take, and NameError for an annotation that mentions what is not
    there (yet).
    """
    written = as_written(function)
    try:
        given = list(inspect.signature(function).parameters.values())
    except (ValueError, TypeError) as error:
        raise OptionsError(
            f"{place} cannot be a tool: what it takes cannot be found out ({error})",
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
            # It has its value, which is no business of the model.
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
    """The function that somebody wrote: inside partials, methods, decorators that keep what they wrap, and
    objects that can be called."""
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
    """Where the names in a function's annotations are looked up."""

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
            # What many write who mean that it may be left out.
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
            # Imported for type checkers alone, as is good style.
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
