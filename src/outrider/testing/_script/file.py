"""Scripts in files: YAML and JSON, with the same words as in Python, and Python itself."""

from __future__ import annotations

import difflib
import inspect
import itertools
import json
import os
import re
import sys
import traceback
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any, Final, cast

import msgspec

from outrider.errors import OptionsError, OutriderError
from outrider.testing._script.script import (
    Match,
    Script,
    ask_question,
    background_task,
    exit_plan_mode,
    expect,
    structured,
    subagent,
    when,
)
from outrider.testing._script.steps import (
    Answer,
    Drop,
    Failure,
    Hang,
    answer,
    drop,
    fail,
    hang,
    refuse,
    say,
    think,
    use_tool,
)

if TYPE_CHECKING:
    from outrider.testing._script.script import Item, Scripted, ScriptSource
    from outrider.testing._script.steps import Step


_MESSAGE: Final = {
    "chunks": "whole number",
    "stop_reason": "text",
    "usage": "mapping",
    "model": "text",
    "headers": "mapping",
    "delay": "number",
}

KEYS: Final[Mapping[str, Mapping[str, str]]] = {
    "say": {"say": "text or texts", **_MESSAGE},
    "think": {"think": "text or texts", "then": "message"},
    "use_tool": {"use_tool": "text", "input": "mapping", "tool_use_id": "text", "tool_result": "text"},
    "answer": {"answer": "messages", **_MESSAGE},
    "refuse": {"refuse": "text or nothing", "category": "text"},
    "fail": {
        "fail": "whole number",
        "type": "text",
        "message": "text",
        "headers": "mapping",
        "retry_after": "number",
        "after": "text",
    },
    "hang": {"hang": "step or nothing"},
    "drop": {"drop": "text or nothing"},
    "ask_question": {
        "ask_question": "text",
        "options": "texts or mapping",
        "header": "text",
        "multiple": "true or false",
    },
    "exit_plan_mode": {"exit_plan_mode": "text"},
    "subagent": {
        "subagent": "text",
        "steps": "items",
        "type": "text",
        "background": "true or false",
        "description": "text",
        "model": "text",
    },
    "background_task": {"background_task": "text", "description": "text", "timeout": "number"},
    "structured": {"structured": "value"},
    "expect": {"expect": "expectation"},
    "when": {"when": "text or pattern", "then": "items", "times": "whole number"},
}
"""The words, and for each what may stand beside it and at it."""

EXPECTED: Final[Mapping[str, str]] = {
    "prompt": "text or pattern",
    "tool_result": "text or pattern",
    "is_error": "true or false",
    "model": "text or pattern",
    "tools": "texts",
}
"""The keys that `expect` may have."""

_NEEDED: Final = {"ask_question": "options", "when": "then"}


class Misplaced(Exception):
    """A file has something in the wrong place."""

    def __init__(self, place: str, what: str, near: Iterable[str] = (), allowed: Iterable[str] = ()) -> None:
        super().__init__(place, what)
        self.place, self.what = place, what
        guess = [f"Did you mean `{name}`?" for name in near]
        names = ", ".join(f"`{name}`" for name in allowed)
        self.hint = " ".join([*guess, f"There are {names}." if names else ""]).strip()


class ItemReader:
    """Makes items of a script from what a file has in their place."""

    def __init__(self) -> None:
        self._readers: Mapping[str, Callable[[object, str], object]] = {
            "text": _text_of,
            "text or nothing": lambda value, place: None if value is None else _text_of(value, place),
            "text or texts": lambda value, place: _texts(_as_list(value), place),
            "texts": _texts,
            "texts or mapping": _texts_or_mapping,
            "text or pattern": _match,
            "number": lambda value, place: _typed(value, place, (int, float), "a number"),
            "whole number": lambda value, place: _typed(value, place, (int,), "a whole number"),
            "true or false": lambda value, place: _typed(value, place, (bool,), "true or false"),
            "mapping": _mapping,
            "value": _plain,
            "items": lambda value, place: self.items(_as_list(value), place),
            "message": self._message,
            "messages": lambda value, place: [
                self._message(each, f"{place}[{at}]") for at, each in enumerate(_list(value, place))
            ],
            "step or nothing": lambda value, place: None if value is None else self.step(value, place),
            "expectation": self._expectation,
        }

    @staticmethod
    def is_item(value: object) -> bool:
        """Whether it is one item: it has a word in it."""
        return isinstance(value, dict) and any(key in KEYS for key in cast("dict[object, object]", value))

    def items(self, value: object, place: str) -> list[Item]:
        return [self.item(each, f"{place}[{at}]") for at, each in enumerate(_list(value, place))]

    def step(self, value: object, place: str) -> Step:
        item = self.item(value, place)
        if not isinstance(item, Answer | Failure | Hang | Drop):
            raise Misplaced(place, "only a step can stand here", allowed=_steps())
        return item

    def _message(self, value: object, place: str) -> Answer:
        item = self.item(value, place)
        if not isinstance(item, Answer):
            names = [word for word in _steps() if word not in ("fail", "hang", "drop")]
            raise Misplaced(place, "only what is part of a message can stand here", allowed=names)
        return item

    def item(self, value: object, place: str) -> Item:
        """Raises `Misplaced`."""
        if isinstance(value, str):
            return say(value)
        given = _mapping(value, place)
        words = [key for key in given if key in KEYS]
        # `model` and others are keys beside a word; a word itself may be one, too.
        if not words:
            found = ", ".join(f"`{key}`" for key in given) or "nothing"
            near = [name for key in given for name in difflib.get_close_matches(key, KEYS, 1, 0.6)]
            raise Misplaced(place, f"there is no word in this item, but {found}", near[:1], KEYS)
        if len(words) > 1:
            both = " and ".join(f"`{word}`" for word in words)
            raise Misplaced(place, f"{both} are two items: write each with a dash of its own")
        word = words[0]
        keys = KEYS[word]
        for key in given:
            if key not in keys:
                near = difflib.get_close_matches(key, keys, 1, 0.5)
                raise Misplaced(place, f"`{key}` means nothing beside `{word}`", near, keys)
        if (needed := _NEEDED.get(word)) is not None and needed not in given:
            raise Misplaced(place, f"`{needed}` is missing beside `{word}`", allowed=keys)
        read = {key: self._readers[keys[key]](given[key], f"{place}.{key}") for key in given}
        try:
            return _made(word, read.pop(word), read)
        except OptionsError as error:
            misplaced = Misplaced(place, error.message)
            misplaced.hint = error.hint
            raise misplaced from error

    def _expectation(self, value: object, place: str) -> dict[str, object]:
        given = _mapping(value, place)
        for key in given:
            if key not in EXPECTED:
                near = difflib.get_close_matches(key, EXPECTED, 1, 0.5)
                raise Misplaced(place, f"there is no `{key}` to be expected", near, EXPECTED)
        return {key: self._readers[EXPECTED[key]](given[key], f"{place}.{key}") for key in given}


def _made(word: str, main: Any, others: dict[str, Any]) -> Item:  # noqa: ANN401 - the readers see to the types
    """The item: the value of the word, and the keys beside it."""
    match word:
        case "say":
            return say(*main, **others)
        case "think":
            return think(*main, **others)
        case "use_tool":
            return use_tool(main, others.pop("input", None), **others)
        case "answer":
            return answer(*main, **others)
        case "refuse":
            return refuse(main or "", **others)
        case "fail":
            return fail(main, **others)
        case "hang":
            return hang(main)
        case "drop":
            return drop(after=main)
        case "subagent":
            return subagent(main, *others.pop("steps", ()), **others)
        case "expect":
            return expect(**main)
        case "when":
            return when(main, **others)
        case _:
            plain: Mapping[str, Callable[..., Answer]] = {
                "ask_question": ask_question,
                "exit_plan_mode": exit_plan_mode,
                "background_task": background_task,
                "structured": structured,
            }
            return plain[word](main, **others)


def _steps() -> list[str]:
    return [word for word in KEYS if word not in ("expect", "when")]


def _typed(value: object, place: str, kinds: tuple[type, ...], expected: str) -> object:
    if not isinstance(value, kinds) or (isinstance(value, bool) and bool not in kinds):
        raise Misplaced(place, f"expected {expected}, got {value!r:.80}")
    return value


def _text_of(value: object, place: str) -> str:
    if not isinstance(value, str):
        quotes = "" if isinstance(value, list | dict) or value is None else ": put it in quotes"
        raise Misplaced(place, f"expected a text, got {value!r:.80}{quotes}")
    return value


def _list(value: object, place: str) -> list[object]:
    if not isinstance(value, list):
        raise Misplaced(place, f"expected a list, got {value!r:.80}")
    return cast("list[object]", value)


def _as_list(value: object) -> list[object]:
    return cast("list[object]", value) if isinstance(value, list) else [value]


def _texts(value: object, place: str) -> list[str]:
    return [_text_of(each, f"{place}[{at}]") for at, each in enumerate(_list(value, place))]


def _texts_or_mapping(value: object, place: str) -> list[str] | dict[str, str]:
    if not isinstance(value, dict):
        return _texts(value, place)
    given = _mapping(cast("object", value), place)
    return {label: _text_of(text, f"{place}.{label}") for label, text in given.items()}


def _mapping(value: object, place: str) -> dict[str, object]:
    if not isinstance(value, dict):
        raise Misplaced(place, f"expected a mapping, got {value!r:.80}")
    plain = cast("dict[object, object]", _plain(cast("object", value), place))
    return {str(key): each for key, each in plain.items()}


def _plain(value: object, place: str) -> object:
    """YAML has dates and other values that JSON has not."""
    try:
        return cast("object", msgspec.to_builtins(value, str_keys=True))
    except (TypeError, ValueError) as error:
        raise Misplaced(place, f"expected what JSON can have: {error}") from error


def _match(value: object, place: str) -> Match:
    if not isinstance(value, dict):
        return _text_of(value, place)
    given = cast("dict[object, object]", value)
    if list(given) != ["pattern"]:
        raise Misplaced(place, f"expected a text or a `pattern`, got {value!r:.80}")
    pattern = _text_of(given["pattern"], f"{place}.pattern")
    try:
        return re.compile(pattern)
    except re.error as error:
        raise Misplaced(f"{place}.pattern", f"{pattern!r} is not a regular expression: {error}") from error


_TOP: Final = ("script", "subagents", "otherwise")
_numbers = itertools.count(1)


def read_script(path: str | os.PathLike[str]) -> Script:
    """The script of a file. Raises `OptionsError` if there is none, or it is not as it should be; says
    where."""
    file = Path(path)
    readers: Mapping[str, Callable[[Path], Script]] = {
        ".py": _of_python,
        ".json": lambda file: _of_data(file, _json(file)),
        ".yaml": lambda file: _of_data(file, _yaml(file)),
        ".yml": lambda file: _of_data(file, _yaml(file)),
    }
    reader = readers.get(file.suffix.lower())
    if reader is None:
        hint = f"Its name has to end with {', '.join(readers)}."
        raise OptionsError(f"{file} is not known to be a script", hint=hint)
    return reader(file)


def _text(file: Path) -> str:
    try:
        return file.read_text(encoding="utf-8-sig")
    except UnicodeDecodeError as error:
        raise OptionsError(f"{file} is not UTF-8: {error}", hint="Save it in that encoding.") from error
    except OSError as error:
        hint = "Give the path of a file that can be read."
        raise OptionsError(f"The script {file} cannot be read: {error.strerror}", hint=hint) from error


def _json(file: Path) -> object:
    text = _text(file)
    try:
        return cast("object", json.loads(text))
    except (ValueError, RecursionError) as error:
        raise OptionsError(f"{file} is not JSON: {error}", hint="Correct it there.") from error


def _yaml(file: Path) -> object:
    try:
        import yaml
    except ImportError as error:
        hint = "Install it with `pip install 'outrider[yaml]'`, or write the script in JSON or Python."
        raise OptionsError(f"{file} is YAML, which PyYAML is needed for", hint=hint) from error
    text = _text(file)
    try:
        return cast("object", yaml.safe_load(text))
    except (yaml.YAMLError, RecursionError) as error:
        problem = " ".join(str(error).split())
        if isinstance(error, yaml.MarkedYAMLError) and error.problem_mark is not None:
            mark = error.problem_mark
            problem = f"line {mark.line + 1}, column {mark.column + 1}: {error.problem}"
        raise OptionsError(f"{file} is not YAML: {problem}", hint="Correct it there.") from error


def _of_data(file: Path, data: object) -> Script:
    top: dict[str, object] = {"script": data}
    if isinstance(data, dict) and not ItemReader.is_item(cast("object", data)):
        top = cast("dict[str, object]", data)
    reader = ItemReader()
    try:
        for key in top:
            if key not in _TOP:
                near = difflib.get_close_matches(str(key), _TOP, 1, 0.5)
                raise Misplaced(str(key), "there is no such key", near, _TOP)
        otherwise = top.get("otherwise")
        return Script(
            reader.items(top.get("script") if "script" in top else [], "script"),
            subagents=reader.items(top.get("subagents", []), "subagents"),
            otherwise=None if otherwise is None else reader.step(otherwise, "otherwise"),
        )
    except Misplaced as error:
        raise OptionsError(f"{file}, {error.place}: {error.what}", hint=error.hint) from error


def _of_python(file: Path) -> Script:
    code = _text(file)
    # Dataclasses and others look for the module of a class by its name.
    module = ModuleType(f"outrider_script_{next(_numbers)}")
    module.__file__ = str(file)
    sys.modules[module.__name__] = module
    try:
        exec(compile(code, str(file), "exec", dont_inherit=True), vars(module))
        return _of_module(file, vars(module))
    except (Exception, SystemExit) as error:
        if isinstance(error, OutriderError) and str(file) in str(error):
            raise
        lines = [
            frame.lineno for frame in traceback.extract_tb(error.__traceback__) if frame.filename == str(file)
        ]
        line = error.lineno if isinstance(error, SyntaxError) else lines[-1] if lines else None
        where = f"{file}, line {line}" if line else str(file)
        raise OptionsError(f"{where}: {type(error).__name__}: {error}", hint="Correct it there.") from error
    finally:
        del sys.modules[module.__name__]


def _of_module(file: Path, names: Mapping[str, object]) -> Script:
    if "script" not in names:
        near = difflib.get_close_matches("script", names, 1, 0.7)
        instead = f" Its `{near[0]}` is not it." if near else ""
        hint = f"Set `script` to a list of steps, or define a function of that name.{instead}"
        raise OptionsError(f"{file} does not define `script`", hint=hint)
    source = names["script"]
    subagents = cast("Iterable[Item]", names.get("subagents", ()))
    otherwise = cast("Scripted | None", names.get("otherwise"))
    if callable(source):
        if _takes_request(source):
            # Such a function answers everything.
            source, otherwise = [], cast("Scripted", source)
        else:
            source = cast("Callable[[], object]", source)()
    if isinstance(source, str | os.PathLike):
        raise OptionsError(f"{file} has a path as its `script`", hint="Make it a list of steps.")
    return Script.of(cast("ScriptSource", source), subagents=subagents, otherwise=otherwise)


def _takes_request(function: Callable[..., object]) -> bool:
    empty = inspect.Parameter.empty
    kinds = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    given = inspect.signature(function).parameters.values()
    return any(each.kind in kinds and each.default is empty for each in given)
