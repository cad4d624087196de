"""Finds the commands that a shell would run for a text, as far as the text tells.

Also those within others, behind `sudo` or in `sh -c '…'`. It finds too many rather than too few, and is no
sandbox all the same: there are more ways to run a program than can be listed. Knows the shells of POSIX, no
others.
"""

from __future__ import annotations

import re
from typing import Final, NamedTuple

UNKNOWN: Final = "\0"
"""Stands for what only the shell will know: the value of a variable, the output of a command, file names."""

_LONGEST: Final = 100_000
"""Characters of a text that are looked at; a longer one is not understood."""
_DEEPEST: Final = 20
"""Commands within commands that are looked into."""
_MOST: Final = 5_000
"""Commands that are looked at."""

_AS_ANOTHER: Final = ("sudo", "doas", "su", "runuser", "setpriv", "chroot", "unshare", "nsenter")
_IN_ANOTHER_WAY: Final = ("env", "nice", "ionice", "nohup", "setsid", "stdbuf", "taskset", "chrt", "flock")
_WATCHED: Final = ("time", "timeout", "watch", "strace", "ltrace", "script", "caffeinate", "entr")
_ELSEWHERE: Final = ("ssh", "docker", "podman", "kubectl", "tmux", "screen", "proxychains", "systemd-run")
_FOR_EACH: Final = ("xargs", "parallel", "find", "fd")
_OF_THE_SHELL: Final = ("exec", "command", "builtin", "eval", "trap", "function", "coproc")
_OF_MANY: Final = ("busybox", "toybox", "npx", "bunx")
WRAPPERS: Final = frozenset(
    (*_AS_ANOTHER, *_IN_ANOTHER_WAY, *_WATCHED, *_ELSEWHERE, *_FOR_EACH, *_OF_THE_SHELL, *_OF_MANY)
)
"""Commands that run others, which are somewhere among their arguments."""
READERS: Final = frozenset(("sh", "bash", "dash", "zsh", "ksh", "ash", "mksh", "fish", "eval", "su", "ssh"))
"""Commands that take text for a command, in an argument or as input."""
_RESERVED: Final = frozenset(
    ("!", "{", "}", "if", "then", "else", "elif", "fi", "do", "done", "while", "until", "time", "coproc")
)
"""Words of the shell that a command may follow."""
_ASSIGNMENT: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*(\[[^]]*\])?\+?=")
_PARAMETER: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*|[0-9@*#?$!-]")
_SEVERAL: Final = re.compile(r"\{.*(,|\.\.).*\}")
_CLASS: Final = re.compile(r"\[.+\]")
_BLANKS: Final = " \t\r\f\v"


class Found(NamedTuple):
    """The commands that were found in a text."""

    commands: list[list[str]]
    """Each as its words, without quotes; `UNKNOWN` where the shell has the last word."""
    doubt: str
    """Why there may be others; empty if there are none."""


def found_commands(text: str, depth: int = 0) -> Found:
    """Every command that is found in a text, in whatever it is wrapped."""
    if len(text) > _LONGEST:
        return Found([], "it is too long")
    if depth > _DEEPEST:
        return Found([], "it is too deep")
    lexer = _Lexer(text, depth)
    lexer.read_all()
    doubt = lexer.doubt
    commands = [words for words in map(_without_reserved, lexer.commands) if words]
    for words in commands[:_MOST]:
        name = basename(words[0])
        if name not in WRAPPERS | READERS:
            continue
        if name in READERS and all(word.startswith("-") for word in words[1:]):
            doubt = doubt or f"{name} runs what it is given as input"
        for word in words[1:]:
            if name in READERS or any(character in word for character in " \t\n;&|()`$<>"):
                within = found_commands(word, depth + 1)
                commands += within.commands
                doubt = doubt or within.doubt
    return Found(commands, doubt if len(commands) <= _MOST else "it has too many commands")


def basename(word: str) -> str:
    return word.rpartition("/")[2]


def _without_reserved(words: list[str]) -> list[str]:
    start = 0
    while start < len(words) and (words[start] in _RESERVED or _ASSIGNMENT.match(words[start])):
        start += 1
    return words[start:]


class _Lexer:
    """Takes a text apart as a shell does, more or less: what is inside of others becomes a command too."""

    def __init__(self, text: str, depth: int) -> None:
        self._text = text
        self._depth = depth
        self._at = 0
        self.commands: list[list[str]] = []
        self.doubt = ""

    def read_all(self) -> None:
        while self._at < len(self._text):
            self._read_commands("")
            # A closing parenthesis that nothing opened, as in `case`.
            self._at += 1

    def _read_commands(self, closing: str) -> None:
        """Read until behind the closing character, or to the end where there is none."""
        words: list[str] = []
        self.commands.append(words)
        is_target = False
        while self._at < len(self._text):
            character = self._text[self._at]
            if character == ")":
                break
            if character in _BLANKS:
                self._at += 1
            elif character in ";&|\n":
                self._at += 1
                words, is_target = [], False
                self.commands.append(words)
            elif character == "(":
                self._at += 1
                self._read_nested()
                words = []
                self.commands.append(words)
            elif character in "<>":
                is_target = self._read_redirection(words)
            elif character == "#":
                end = self._text.find("\n", self._at)
                self._at = len(self._text) if end < 0 else end
            else:
                word = self._read_word()
                if not is_target:
                    words.append(word)
                is_target = False
        if closing and self._at >= len(self._text):
            self.doubt = self.doubt or "a parenthesis in it is never closed"

    def _read_nested(self) -> None:
        """The commands inside of parentheses, and the parenthesis that closes them."""
        if self._depth > _DEEPEST:
            self.doubt = self.doubt or "it is too deep"
            self._at = len(self._text)
            return
        self._depth += 1
        self._read_commands(")")
        self._depth -= 1
        self._at += 1

    def _read_redirection(self, words: list[str]) -> bool:
        """What follows `<` or `>` up to the name of the file. Whether there is a name to come."""
        before = self._text[self._at - 1 : self._at]
        if words and words[-1].isdigit() and before.isdigit():
            del words[-1]
        while self._at < len(self._text) and self._text[self._at] in "<>&|":
            self._at += 1
        if self._text[self._at : self._at + 1] == "(":
            self._at += 1
            self._read_nested()
            words.append(UNKNOWN)
            return False
        return True

    def _read_word(self) -> str:
        # The same twice, but for a blank in place of each character that is quoted.
        word = bare = ""
        start = self._at
        while self._at < len(self._text):
            character = self._text[self._at]
            if character in _BLANKS + "\n;&|()<>":
                break
            self._at += 1
            if character == "'":
                added = self._read_until("'")
            elif character == '"':
                added = self._read_double_quoted()
            elif character == "\\":
                added = self._text[self._at : self._at + 1].replace("\n", "")
                self._at += 1
            elif character == "$":
                added = self._read_dollar()
            elif character == "`":
                added = self._read_backticks()
            else:
                word += character
                bare += character
                continue
            word += added
            bare += " " * len(added)
        if self._at == start:
            self._at += 1
        return _expanded(word, bare)

    def _read_until(self, quote: str) -> str:
        start = self._at
        end = self._text.find(quote, start)
        if end < 0:
            self.doubt = self.doubt or "a quote in it is never closed"
            end = len(self._text)
        self._at = end + 1
        return self._text[start:end]

    def _read_double_quoted(self) -> str:
        inside = ""
        while self._at < len(self._text):
            character = self._text[self._at]
            self._at += 1
            if character == '"':
                return inside
            if character == "\\":
                following = self._text[self._at : self._at + 1]
                self._at += 1
                inside += following if following in '"\\$`' else "" if following == "\n" else f"\\{following}"
            elif character == "$":
                inside += self._read_dollar()
            elif character == "`":
                inside += self._read_backticks()
            else:
                inside += character
        self.doubt = self.doubt or "a quote in it is never closed"
        return inside

    def _read_dollar(self) -> str:
        following = self._text[self._at : self._at + 1]
        if following == "(":
            self._at += 1
            self._read_nested()
        elif following == "{":
            self._at += 1
            self._read_braces()
        elif following == "'":
            self._at += 1
            self._read_escapes()
        elif following == '"':
            return ""
        elif found := _PARAMETER.match(self._text, self._at):
            self._at = found.end()
        else:
            return "$"
        return UNKNOWN

    def _read_braces(self) -> None:
        """`${…}`: what is inside may run commands."""
        start, open_braces = self._at, 1
        while self._at < len(self._text) and open_braces:
            open_braces += {"{": 1, "}": -1}.get(self._text[self._at], 0)
            self._at += 1
        if open_braces:
            self.doubt = self.doubt or "a brace in it is never closed"
        self._add_within(self._text[start : self._at - 1])

    def _read_escapes(self) -> None:
        """`$'…'`, in which any character may be written as a number."""
        while self._at < len(self._text) and self._text[self._at] != "'":
            self._at += 2 if self._text[self._at] == "\\" else 1
        if self._at >= len(self._text):
            self.doubt = self.doubt or "a quote in it is never closed"
        self._at += 1

    def _read_backticks(self) -> str:
        start = self._at
        while self._at < len(self._text) and self._text[self._at] != "`":
            self._at += 2 if self._text[self._at] == "\\" else 1
        if self._at >= len(self._text):
            self.doubt = self.doubt or "a backtick in it is never closed"
        self._add_within(re.sub(r"\\([`\\$])", r"\1", self._text[start : self._at]))
        self._at += 1
        return UNKNOWN

    def _add_within(self, text: str) -> None:
        if self._depth > _DEEPEST:
            self.doubt = self.doubt or "it is too deep"
            return
        within = _Lexer(text, self._depth + 1)
        within.read_all()
        self.commands += within.commands
        self.doubt = self.doubt or within.doubt


def _expanded(word: str, bare: str) -> str:
    """A word with `UNKNOWN` for what the shell would make file names or several words of."""
    if _SEVERAL.search(bare):
        return UNKNOWN
    special = "*?[" if _CLASS.search(bare) else "*?"
    return "".join(UNKNOWN if other in special else own for own, other in zip(word, bare, strict=True))
