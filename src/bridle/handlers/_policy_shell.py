"""Finds the commands that a shell would run for a text, as far as the text tells.

Also those within others, behind `sudo` or in `sh -c '…'`. It finds too many rather than too few, and is no
sandbox all the same: there are more ways to run a program than can be listed. Knows the shells of POSIX, no
others.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final, NamedTuple

from bridle.handlers._policy_plain import ASSIGNMENT, LONGEST

UNKNOWN: Final = "\0"
"""Stands for what only the shell will know: the value of a variable, the output of a command, file names."""

_DEEPEST: Final = 20
"""Commands within commands that are looked into."""
_MOST: Final = 5_000
"""Commands that are looked at."""
MOST_WORDS: Final = 500
"""Words of a command in which others are looked for."""

_AS_ANOTHER: Final = ("sudo", "doas", "pkexec", "su", "runuser", "setpriv", "chroot", "unshare", "nsenter")
_IN_ANOTHER_WAY: Final = ("env", "nice", "ionice", "nohup", "setsid", "stdbuf", "taskset", "chrt", "flock")
_WATCHED: Final = ("time", "timeout", "watch", "strace", "ltrace", "script", "caffeinate", "entr")
_ELSEWHERE: Final = ("ssh", "docker", "podman", "kubectl", "tmux", "screen", "proxychains", "systemd-run")
_FOR_EACH: Final = ("xargs", "parallel", "find", "fd")
_OF_THE_SHELL: Final = ("exec", "command", "builtin", "eval", "trap", "alias", "function", "coproc")
_OF_ZSH: Final = ("noglob", "nocorrect")
_OF_MANY: Final = ("busybox", "toybox", "npx", "bunx")
_WRAPPERS: Final = frozenset(
    (*_AS_ANOTHER, *_IN_ANOTHER_WAY, *_WATCHED, *_ELSEWHERE, *_FOR_EACH, *_OF_THE_SHELL, *_OF_ZSH, *_OF_MANY)
)
"""Commands that run others, which are somewhere among their arguments."""
_READERS: Final = frozenset(("sh", "bash", "dash", "zsh", "ksh", "ash", "mksh", "fish", "eval", "su", "ssh"))
"""Commands that take text for a command, in an argument or as input."""
_SOURCES: Final = frozenset((".", "source"))
"""The same, but only where a command begins: one is a folder elsewhere."""
_RESERVED: Final = frozenset(
    ("!", "{", "}", "if", "then", "else", "elif", "fi", "do", "done", "while", "until", "time", "coproc")
)
"""Words of the shell that a command may follow."""
_NAME: Final = re.compile(r"[\w./+:@%,^~\[\]*?\0][\w./+:@%,^~\]*?\0-]*|\[\[|\$")
"""What the name of a command looks like."""
_PARAMETER: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*|[0-9@*#?$!-]")
_OPTION: Final = re.compile(r"-|\d+[smhd]?\Z|\w+=")
_OF_OPTION: Final = re.compile(r"--?[\w-]+=|-\w|\w+=")
_FROM_INPUT: Final = re.compile(r"-[a-z]*s[a-z]*\Z|/dev/|/proc/")
_PLAIN: Final = re.compile(r"[\w./-]*")
_SEPARATING: Final = frozenset(" \t\n;&|()`$<>")
_BLANKS: Final = " \t"
_ODD_BLANKS: Final = "\r\f\v"
"""No blanks to a shell, but a text that came from elsewhere may have them around its words."""
_BEFORE_COMMENT: Final = ("", " ", "\t", "\n", ";", "&", "|", "(")


class Found(NamedTuple):
    """The commands that were found in a text. Each is a list of words without quotes, with `UNKNOWN` where
    the shell has the last word."""

    commands: list[list[str]]
    runners: list[list[str]]
    """Those that may run another, which is anywhere among their words."""
    doubt: str
    """Why there may be others; empty if there are none."""


def found_commands(text: str, depth: int = 0) -> Found:
    """Every command that is found in a text, in whatever it is wrapped."""
    if len(text) > LONGEST:
        return Found([], [], "it is too long")
    if depth > _DEEPEST:
        return Found([], [], "it is too deep")
    lexer = _Lexer(text, depth)
    lexer.read_all()
    doubt = lexer.doubt
    commands = [words for words in map(_without_reserved, lexer.commands) if words]
    runners = [words for words in commands if _runs_another(words)]
    if len(commands) > _MOST or any(len(words) > MOST_WORDS for words in runners):
        return Found(commands, [], "it has too many words")
    for words in tuple(runners):
        starts = _beginnings(words)
        commands += [words[start:] for start in starts]
        readers = [at for at in (0, *starts) if _is_reader(words, at)]
        if any(_reads_input(words[at + 1 :]) for at in readers):
            doubt = doubt or f"{basename(words[0])} runs what it is given as input"
        for word in dict.fromkeys(words[1:]):
            if _PLAIN.fullmatch(word) if readers else _SEPARATING.isdisjoint(word):
                continue
            within = found_commands(_OF_OPTION.sub("", word, count=1), depth + 1)
            commands += within.commands
            runners += within.runners
            doubt = doubt or within.doubt
    return Found(commands, runners, doubt if len(commands) <= _MOST else "it has too many commands")


def after_options(words: list[str], start: int = 0) -> Iterator[int]:
    """Where behind a word the first one may be that is neither an option nor the value of one."""
    for number in range(start + 1, len(words)):
        yield number
        if not _OPTION.match(words[number]) and not words[number - 1].startswith("-"):
            break


def basename(word: str) -> str:
    return word.rpartition("/")[2]


def _without_reserved(words: list[str]) -> list[str]:
    start = 0
    while start < len(words) and (words[start] in _RESERVED or ASSIGNMENT.match(words[start])):
        start += 1
    return words[start:]


def _runs_another(words: list[str]) -> bool:
    if _is_reader(words, 0) or basename(words[0]) in _WRAPPERS or "{" in words:
        return True
    # What does not look like a name is something in front of one: `{fd}>x rm`, `a[1 ]=x rm`, `time -p rm`.
    return not _NAME.fullmatch(words[0])


def _is_reader(words: list[str], at: int) -> bool:
    return basename(words[at]) in _READERS or (at == 0 and words[0] in _SOURCES)


def _reads_input(arguments: list[str]) -> bool:
    return all(word.startswith("-") for word in arguments) or any(map(_FROM_INPUT.match, arguments))


def _beginnings(words: list[str]) -> list[int]:
    """Where in the words of a command those begin that it runs, and those that they run."""
    found: set[int] = set()
    behind = [0]
    while behind:
        at = behind.pop()
        starts: set[int] = set()
        if _is_reader(words, at) or (at == 0 and not _NAME.fullmatch(words[0].removeprefix("-"))):
            starts.update(range(at + 1, len(words)))
        elif at == 0 or basename(words[at]) in _WRAPPERS:
            starts.update(after_options(words, at))
            starts.update(
                number + 1
                for number, word in enumerate(words[:-1])
                if number >= at and word.startswith(("-exec", "-ok", "{"))
            )
        behind += starts - found
        found |= starts
    return sorted(found)


class _Lexer:
    """Takes a text apart as a shell does, more or less: what is inside of others becomes a command too."""

    def __init__(self, text: str, depth: int) -> None:
        self._text = text
        self._depth = depth
        self._at = 0
        self._announced: list[tuple[str, bool]] = []
        self.commands: list[list[str]] = []
        self.doubt = ""

    def read_all(self) -> None:
        while self._at < len(self._text):
            self._read_commands("")
            # A closing parenthesis that nothing opened, as in `case`.
            self._at += 1
        if self._announced:
            self.doubt = self.doubt or "a text in it has no end"

    def _read_commands(self, closing: str) -> None:
        """Read until behind the closing character, or to the end where there is none."""
        words: list[str] = []
        first = len(self.commands)
        self.commands.append(words)
        redirection = ""
        while self._at < len(self._text):
            character = self._text[self._at]
            if character == ")":
                break
            if character in _BLANKS:
                self._at += 1
            elif character in ";&|\n":
                self._at += 1
                words, redirection = [], ""
                self.commands.append(words)
                if character == "\n":
                    self._read_announced()
            elif character == "(":
                self._at += 1
                self._read_nested()
                words = []
                self.commands.append(words)
            elif character in "<>":
                redirection = self._read_redirection(words)
            elif character == "#" and self._text[self._at - 1 : self._at] in _BEFORE_COMMENT:
                end = self._text.find("\n", self._at)
                self._at = len(self._text) if end < 0 else end
            else:
                word = self._read_word()
                if not redirection:
                    words.append(word)
                elif redirection == "<<<":
                    self._add_within(word)
                elif redirection in ("<<", "<<-"):
                    self._announced.append((word, redirection == "<<-"))
                redirection = ""
        if closing:
            self._doubt_closing(self.commands[first:])

    def _doubt_closing(self, commands: list[list[str]]) -> None:
        """Whether the parenthesis that ends these commands is the one that closes them."""
        if self._at >= len(self._text):
            self.doubt = self.doubt or "a parenthesis in it is never closed"
        elif self._announced or sum(each.count("case") - each.count("esac") for each in commands):
            self.doubt = self.doubt or "a parenthesis in it may close another"

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

    def _read_redirection(self, words: list[str]) -> str:
        """What is before the name of a file, such as `>>`; empty if no name is to come."""
        before = self._text[self._at - 1 : self._at]
        if words and words[-1].isdigit() and before.isdigit():
            del words[-1]
        start = self._at
        while self._at < len(self._text) and self._text[self._at] in "<>&|":
            self._at += 1
        if self._text[self._at : self._at + 1] == "(":
            self._at += 1
            self._read_nested()
            words.append(UNKNOWN)
            return ""
        if self._text.startswith("<<-", start):
            self._at += 1
        return self._text[start : self._at]

    def _read_announced(self) -> None:
        """The texts that the line before said would follow. A shell may be told to run them."""
        announced, self._announced = self._announced, []
        for delimiter, is_indented in announced:
            start = last = self._at
            line = None
            while line != delimiter and self._at < len(self._text):
                last = self._at
                end = self._text.find("\n", last)
                end = len(self._text) if end < 0 else end
                line = self._text[last:end]
                line = line.lstrip("\t") if is_indented else line
                self._at = end + 1
            if line != delimiter or UNKNOWN in delimiter:
                self.doubt = self.doubt or "a text in it has no end"
                last = len(self._text)
            text = self._text[start:last]
            self._add_within(text)
            # Quotes mean nothing in it: what is within `'$(…)'` runs too.
            self._add_within(text, is_quoted=True)

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
        return _expanded(word, bare).strip(_ODD_BLANKS)

    def _read_until(self, quote: str) -> str:
        start = self._at
        end = self._text.find(quote, start)
        if end < 0:
            self.doubt = self.doubt or "a quote in it is never closed"
            end = len(self._text)
        self._at = end + 1
        return self._text[start:end]

    def _read_double_quoted(self, closing: str = '"') -> str:
        inside = ""
        while self._at < len(self._text):
            character = self._text[self._at]
            self._at += 1
            if character == closing:
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
        if closing:
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

    def _add_within(self, text: str, *, is_quoted: bool = False) -> None:
        if self._depth > _DEEPEST:
            self.doubt = self.doubt or "it is too deep"
            return
        within = _Lexer(text, self._depth + 1)
        if is_quoted:
            within._read_double_quoted(closing="")
        else:
            within.read_all()
        self.commands += within.commands
        self.doubt = self.doubt or within.doubt


def _expanded(word: str, bare: str) -> str:
    """A word with `UNKNOWN` for what the shell would make file names or several words of."""
    several = bare[bare.find("{") : bare.rfind("}") + 1]
    if "{" in several and ("," in several or ".." in several):
        return UNKNOWN
    special = "*?[" if 0 <= bare.find("[") < bare.rfind("]") - 1 else "*?"
    return "".join(UNKNOWN if other in special else own for own, other in zip(word, bare, strict=True))
