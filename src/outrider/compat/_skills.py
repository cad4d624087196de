"""What may stand in `ClaudeAgentOptions.skills`, and what the reference SDK says of the rest.

Does not say what a skill is.
"""

from __future__ import annotations

import re
from typing import Final, cast

_CONTROL: Final = re.compile("[\x00-\x1f\x7f-\x9f\ufeff(),]")
_SURROGATE: Final = re.compile("[\ud800-\udfff]")


def checked_skills(skills: object) -> object:
    """The skills as they are. Raises `TypeError` or `ValueError`."""
    if skills is None or (isinstance(skills, str) and skills == "all"):
        return skills
    if not isinstance(skills, list):
        meant = f" Did you mean [{skills!r}]?" if isinstance(skills, str) else ""
        raise TypeError(f'skills must be a list of skill names or "all", got {skills!r}.{meant}')
    names = cast("list[object]", skills)
    for name in names:
        _check(name)
    return names


def _check(name: object) -> None:
    if not isinstance(name, str):
        raise TypeError(f"Skill names must be strings, got {type(name).__name__}: {name!r}")
    if not name.strip():
        raise ValueError(f"Skill names must be non-empty, got {name!r}")
    if fault := _fault_of(name):
        raise ValueError(f"Invalid skill name {name!r}: {fault}")


def _fault_of(name: str) -> str:
    faults = {
        "it holds a lone surrogate, which cannot be sent.": _SURROGATE.search(name),
        "leading or trailing whitespace never matches.": name != name.strip(),
        "parentheses, commas and control characters would be read as something else.": _CONTROL.search(name),
        'use skills="all" for every skill.': name == "*",
        "wildcard-suffix names are not taken; name each skill.": name.endswith((":*", " *")),
        "a name may not start with '/'; give it without.": name.startswith("/"),
        "consecutive backslashes would be read as one.": "\\\\" in name,
        "an unpaired backslash at the end would be read with what follows.": name.endswith("\\"),
    }
    return next((text for text, is_there in faults.items() if is_there), "")
