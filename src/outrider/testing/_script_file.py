"""Owns scripts in files: YAML and JSON, with the same words as in Python, and Python itself.

Does not play them.
"""

from __future__ import annotations

import difflib
import inspect
import itertools
import json
import os
import sys
import traceback
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Final, cast

from outrider.errors import OptionsError, OutriderError
from outrider.testing._script import Script
from outrider.testing._script_words import ItemReader, Misplaced

if TYPE_CHECKING:
    from outrider.testing._script import Item, Scripted, ScriptSource

__all__ = ["read_script"]

_TOP: Final = ("script", "subagents", "otherwise")
_numbers = itertools.count(1)


def read_script(path: str | os.PathLike[str]) -> Script:
    """The script of a file.

    Raises `OptionsError` if there is none, or it is not as it should be; says where.
    """
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
        told = " ".join(str(error).split())
        if isinstance(error, yaml.MarkedYAMLError) and error.problem_mark is not None:
            mark = error.problem_mark
            told = f"line {mark.line + 1}, column {mark.column + 1}: {error.problem}"
        raise OptionsError(f"{file} is not YAML: {told}", hint="Correct it there.") from error


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
