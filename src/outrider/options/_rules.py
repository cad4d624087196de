"""Permission rules for tools and names of skills: which of them the program reads as they were meant.

They reach it joined by commas in one argument, which it takes apart again. What a rule allows is its affair.
"""

from __future__ import annotations

import re
from typing import Final

from outrider.errors import OptionsError

_WHOLE_TOOL: Final = re.compile(r"[^()]+(?:\(\**\))?\Z")
_BLANK: Final = re.compile(r"\s")
_CONTROL: Final = re.compile("[\x00-\x1f\x7f-\x9f\ufeff]")


def split_rules(joined: str) -> list[str]:
    """A list of rules as the program takes it apart: at commas and blanks outside of parentheses.

    Parentheses do not nest: the first one that closes ends them all.
    """
    rules: list[str] = []
    rule, inside = "", False
    for character in joined:
        if character in ", " and not inside:
            rules.append(rule.strip())
            rule = ""
            continue
        inside = character == "(" or (inside and character != ")")
        rule += character
    return [found for found in (*rules, rule.strip()) if found]


def is_one_rule(place: str, rule: str) -> None:
    """Raise for a rule that the program would read as several, or as part of the next one."""
    read = split_rules(f"{rule},X")
    if read == [rule, "X"] and not _BLANK.search(rule.partition("(")[0]):
        return
    if len(read) > 2:
        pieces = ", ".join(map(repr, read[:-1]))
        raise OptionsError(
            f"{place} would be read as several rules: {rule!r}",
            hint=f"Give each as its own entry: [{pieces}]. Parentheses inside of parentheses can only be "
            "given in `settings`, under `permissions`.",
        )
    raise OptionsError(
        f"{place} would not be read as it is written: {rule!r}",
        hint="Write a tool's name, or `Tool(what)` with both parentheses, and no blanks around it.",
    )


def is_tool_name(place: str, name: str) -> None:
    """Raise for the name of a tool that the program would read as several."""
    if "," in name or _BLANK.search(name):
        hint = "Give each name as its own entry."
        raise OptionsError(f"{place} is not the name of one tool: {name!r}", hint=hint)


def allows_whole_tool(rule: str) -> bool:
    """Whether a rule allows all uses of a tool: `Read`, `Read()`, `Read(*)`."""
    return _WHOLE_TOOL.match(rule) is not None


def is_skill_name(place: str, name: str) -> None:
    """Raise for the name of a skill that cannot stand in a rule `Skill(name)`, or means more than one."""
    if reason := _skill_fault(name):
        raise OptionsError(
            f"{place} cannot be {name!r}: {reason}",
            hint='Give the plain name of a skill, or "all" in place of the list.',
        )


def _skill_fault(name: str) -> str:
    if name != name.strip():
        return "it has blanks around it"
    if any(character in name for character in "(),"):
        return "it has a parenthesis or a comma, which end a rule"
    if _CONTROL.search(name):
        return "it has a control character"
    if name == "*" or name.endswith((":*", " *")):
        return "it stands for more than one skill"
    if name.startswith("/"):
        return "it begins with a slash, as a command does"
    if "\\\\" in name or name.endswith("\\"):
        return "it has a backslash that would escape what follows"
    return ""
