"""Owns what is known of a shell command before it runs: its parts, and the files that they read and change.

Knows the commands that the program lets pass unasked, as far as they are common. Runs nothing.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final, Literal

import msgspec

__all__ = ["Part", "Touch", "parts_of", "suggested_rule", "unsafe_reason"]


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


# Commands that only look. Those with paths are refused files outside the folders of the session.
_LOOKING: Final = _words(
    """cat cd cksum cmp comm cut diff du file find fold grep egrep fgrep head jq less ls md5sum more nl od
    realpath readlink rev rg sha1sum sha256sum sort stat tac tail tree uniq wc xxd"""
)
_HARMLESS: Final = _words(
    """[ arch basename cal date df dirname echo expr false free groups hostname id locale lscpu nproc printf
    pwd seq sleep test true tty type uname uptime which who whoami :"""
)
_GIT: Final = _words("blame branch describe diff log ls-files remote rev-parse show status tag")
_DOCKER: Final = _words("images info inspect logs ps version")
_CHANGING: Final = _words("cp ln mkdir mv rm rmdir sed touch truncate")
_FINDS_AND_ACTS: Final = frozenset({"-delete", "-exec", "-execdir", "-fprint", "-o", "-ok", "-okdir"})
_RUNNING_OTHERS: Final = _words("bash doas env eval exec nice nohup sh sudo time timeout xargs zsh")
_SAFE_TARGETS: Final = frozenset({"/dev/null", "/dev/stdout", "/dev/stderr"})

_TOKEN: Final = re.compile(
    r"""(?P<space>[ \t]+|\\\n)
    |(?P<end>&&|\|\||\|&|;;|[;|\n]|&(?!>))
    |(?P<redirect>\d*(?:>>|>\||>&|&>>|&>|<<-|<<<|<<|<&|<>|<|>))
    |(?P<word>(?:'[^']*'|"(?:\\.|[^"\\])*"|\\.|[^\s;&|<>'"\\])+)
    |(?P<other>.)""",
    re.VERBOSE | re.DOTALL,
)


_QUOTED: Final = re.compile(r"""'([^']*)'|"((?:\\.|[^"\\])*)"|\\(.)""", re.DOTALL)


class Touch(msgspec.Struct, frozen=True):
    """A file that a part of a command reads or changes."""

    path: Path
    by: str
    """The command; empty for a redirection."""
    kind: Literal["read", "change", "write"]
    """`write`: the output is put there."""


class Part(msgspec.Struct, frozen=True):
    """A simple command of a line, without its redirections."""

    words: tuple[str, ...]
    text: str
    touches: tuple[Touch, ...]
    is_known: bool
    """It may run unasked, but for the files."""


def unsafe_reason(command: str) -> str | None:
    """Why nothing can be told of the command before it runs."""
    bare = re.sub(r"'[^']*'", "''", command)
    if "$(" in bare or "`" in bare or "<(" in bare or ">(" in bare:
        return "A nested command in this command can't be checked before it runs"
    if re.search(r"<<-?\s*[A-Za-z_]", bare):
        return "Heredoc with unquoted delimiter undergoes shell expansion"
    return None


def parts_of(command: str, cwd: Path) -> list[Part]:
    """The simple commands of a line."""
    found: list[Part] = []
    for words, targets, text in _split(command):
        if words or targets:
            found.append(_part(words, targets, text, cwd))
    return found


def _split(command: str) -> Iterator[tuple[list[str], list[tuple[str, str]], str]]:
    words: list[str] = []
    targets: list[tuple[str, str]] = []
    start, pending, text_end = 0, "", 0
    for token in _TOKEN.finditer(command):
        kind, text = token.lastgroup, token[0]
        if kind == "end":
            yield words, targets, command[start:text_end].strip()
            words, targets, pending, start, text_end = [], [], "", token.end(), token.end()
        elif kind == "redirect":
            pending = text
        elif kind in ("word", "other"):
            if pending:
                targets.append((pending, _bare(text)))
                pending = ""
            else:
                words.append(_bare(text))
                text_end = token.end()
    yield words, targets, command[start:text_end].strip()


def _bare(word: str) -> str:
    """The word without its quotes."""
    return _QUOTED.sub(lambda found: "".join(filter(None, found.groups())), word)


def _part(words: list[str], targets: list[tuple[str, str]], text: str, cwd: Path) -> Part:
    name = words[0] if words else ""
    plain = [word for word in words[1:] if not word.startswith("-")]
    touches = [
        Touch(_path(target, cwd), "", "write" if ">" in operator else "read")
        for operator, target in targets
        if not operator.startswith("<<") and not operator.endswith("&") and target not in _SAFE_TARGETS
    ]
    changes = name in _CHANGING and (name != "sed" or any(word.startswith("-i") for word in words))
    if changes:
        paths = plain[1:] if name == "sed" else plain
        touches += [Touch(_path(word, cwd), name, "change") for word in paths]
    elif name in _LOOKING:
        paths = plain[1:] if name in ("grep", "egrep", "fgrep", "rg", "jq") else plain
        if name == "find":
            paths = plain[:1]
        touches += [Touch(_path(word, cwd), name, "read") for word in paths]
    return Part(
        words=tuple(words),
        text=text,
        touches=tuple(touches),
        is_known=not changes and _is_known(name, words),
    )


def _is_known(name: str, words: list[str]) -> bool:
    if name in ("find", "sort"):
        return not _FINDS_AND_ACTS.intersection(words)
    if name in ("git", "docker"):
        return len(words) > 1 and words[1] in (_GIT if name == "git" else _DOCKER)
    return name in _LOOKING or name in _HARMLESS or name == "sed"


def _path(word: str, cwd: Path) -> Path:
    return Path(os.path.realpath(os.path.join(cwd, os.path.expanduser(word))))  # noqa: PTH111, PTH118


def suggested_rule(command: str) -> str:
    """The rule that would let this command pass, and others of its kind."""
    words = command.split()
    is_plain = len(words) > 1 and "=" not in words[0] and words[0] not in _RUNNING_OTHERS
    if is_plain and re.fullmatch(r"[a-z][a-z0-9-]*", words[1]):
        return f"{words[0]} {words[1]} *"
    return command
