"""Reads a shell command as bash does: its simple commands, and the words of each.

Knows the grammar that one-liners use, and raises `Unclear` for the rest, so that its result is complete.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Final, NamedTuple

# Markers for text that the shell inserts.
UNKNOWN: Final = "\x00"
"""Any text, as a part of one word: `"$X"`, `"$(…)"`, `<(…)`."""
WORDS: Final = "\x01"
"""Any text, which may become several words: `$X`, `$(…)`, `"$@"`."""
STAR: Final = "\x02"
"""Text of file names without a slash: `*`, `[a-z]`."""
ONE: Final = "\x03"
"""One character of a file name: `?`."""
HOME: Final = "\x04"
"""The home folder: `$HOME`."""
HERE: Final = "\x05"
"""The working folder: `$PWD`."""
NUMBER: Final = "\x06"
"""A whole number: `$?`, `$#`, `$((…))`."""
LISTED: Final = "\x0e"
"""A variable whose values are all in the text: `$X` in `for X in a b`. Only with `lists`."""
OPEN: Final = "\x07"
"""A bracket that may begin a class of characters."""
BRACE: Final = "\x08"
"""A brace that may begin alternatives."""
MARKERS: Final = re.compile(r"[\x00-\x06\x0e]")
DYNAMIC: Final = re.compile(r"[\x00\x01\x0e]")

_NAME: Final = re.compile(r"[A-Za-z_]\w*")
_UNCLOSED_SUBSCRIPT: Final = re.compile(r"\w*\x07")
_ALTERNATIVES: Final = re.compile(
    r"([^\x00-\x08{}]*)\x08([^\x00-\x08{}]*,[^\x00-\x08{}]*)\}([^\x00-\x08{}]*)"
)
PARAMETER: Final = re.compile(
    r"\{(?:#(?P<counted>\w+|\w+\[[@*]\])|(?P<name>\w+|[@*])(?P<all>\[[@*\d]+\])?"
    r"(?P<rest>(?::?[-+?]|##?|%%?|//?|\^\^?|,,?)(?:[^'\"\\`{}$\n]|\$\w+|\$\{\w+\})*|:\s*\d+(?::\d+)?)?)\}"
)
"""`${…}` in the forms that only insert a value."""
_SET_BY_BASH: Final = re.compile(
    r"_|REPLY|MAPFILE|OPTARG|COPROC|DIRSTACK|(?:OLD)?PWD|HOME|FUNCNAME|SHELLOPTS|(?:BASH|COMP|HIST|READLINE)\w*"
)
"""Variables that bash itself sets to any text."""


class Unclear(ValueError):
    """A text may run commands that are not found in it; the message says why."""


class Command(NamedTuple):
    """A simple command: words without quotes, with markers for text that only the shell knows."""

    words: list[str]
    sets: list[str]
    """Assignments before it, or without a command."""
    files: list[str]
    """The files that it is redirected from and to."""
    inputs: list[str]
    """Its input as text: here-documents and here-strings."""
    pipes: list[bool]
    """Not empty if it may read the output of another command."""


class Script(NamedTuple):
    """All simple commands of a text, including those in substitutions."""

    commands: list[Command]
    redefines: bool
    """Whether it may change what the name of a program means: by a function, or by its own `PATH`."""
    written: frozenset[str]
    """Names of the files that it redirects output to."""
    reads: frozenset[str]
    """Files that it redirects input from."""


def finished_word(word: str, *, is_plain: bool) -> list[str]:
    """The words that a word with brackets and braces becomes: alternatives, a marker, or the word itself."""
    if OPEN in word and word not in (OPEN, OPEN * 2):
        before, _, after = word.partition(OPEN)
        inside, bracket, after = after.rpartition("]")
        if not bracket and _UNCLOSED_SUBSCRIPT.match(word):
            raise Unclear("a bracket in it is not closed")
        if bracket and _NAME.fullmatch(before) and after[:1] in ("=", "+") and not inside.isdigit():
            raise Unclear("it evaluates a subscript")
        if bracket and not (_NAME.fullmatch(before) and after[:1] == "="):
            word = before + (UNKNOWN if "/" in inside or BRACE in inside else STAR) + after
    word = word.replace(OPEN, "[")
    if BRACE not in word:
        return [word]
    if is_plain and (found := _ALTERNATIVES.fullmatch(word)):
        return [f"{found[1]}{each}{found[3]}" for each in found[2].split(",")]
    several = word[word.index(BRACE) : word.rfind("}") + 1]
    return [WORDS] if "," in several or ".." in several else [word.replace(BRACE, "{")]


def is_number(name: str, text: str, arithmetic: list[tuple[int, int]]) -> bool:
    """Whether a text sets a variable to whole numbers only."""
    if _SET_BY_BASH.fullmatch(name):
        return False
    ends = [0, *(end for _, end in arithmetic)]
    starts = [*(start for start, _ in arithmetic), len(text)]
    rest = NUMBER.join(text[end:start] for end, start in zip(ends, starts, strict=True))
    known = rf"\$\{{?#?{name}\b|\b{name}=(?:\d*|\${NUMBER})(?![^\s;&|)])|\bfor {name} in [\d .{{}}-]*[;\n]"
    return not re.search(rf"\b{name}\b", re.sub(known, "", rest))


def names_of(path: str) -> set[str]:
    """The names by which a written file may be run: with and without its ending, or as a folder."""
    *folders, name = path.split("/")
    return {name, name.rpartition(".")[0], *(f"{folder}/" for folder in (*folders, "."))} - {""}


# Plain commands.

LONGEST: Final = 20_000
"""The longest command that is analysed, in characters."""

_NOT_PLAIN: Final[Mapping[str, str]] = {
    "": "it is empty",
    ";": "it has more than one command",
    "&": "it has more than one command",
    "|": "it is a pipe",
    "\n": "it has more than one line",
    "<": "it reads from a file",
    ">": "it writes to a file",
    "(": "it starts another shell",
    ")": "it starts another shell",
    "`": "it runs a command within",
    "$": "only the shell knows a part of it",
    "\\": "it has a backslash outside of quotes",
    "{": "it has a brace outside of quotes",
    "#": "it has a comment",
    "'": "a quote in it is not closed",
    '"': "a quote in it is not closed, or holds something that only the shell knows",
}
"""Why a command with this character outside of a word is not plain."""
_PLAIN_WORD: Final = re.compile(
    r"(?P<word>(?!\#)(?:[^\s\\;&|<>()`$'\"{]|\{(?=\})|'[^']*'|\"(?:[^\"\\$`]|\\[^\n])*\")+)[ \t]*"
)
_PLAIN_QUOTES: Final = re.compile(r"'(?P<single>[^']*)'|\"(?P<double>(?:[^\"\\]|\\.)*)\"", re.DOTALL)
_ESCAPED: Final = re.compile(r"\\([\"\\$`])")
_PLAIN_NAME: Final = re.compile(r"[A-Za-z0-9_./+:@%,^-]+")


class NotPlain(ValueError):
    """A command is more than one simple command, or not what it looks like; the text says why."""


class Plain(NamedTuple):
    """One simple command in which the shell replaces nothing but file names."""

    written: str
    """As it is written, with single blanks between the words."""
    meant: str
    """Without the quotes."""


def plain_command(text: str) -> Plain:
    """The one simple command that a text is. Raises `NotPlain` for anything else, and if in doubt."""
    if len(text) > LONGEST:
        raise NotPlain("it is too long")
    if "\0" in text:
        raise NotPlain("it has a NUL byte in it")
    text, at = text.strip(" \t\n"), 0
    written: list[str] = []
    while at < len(text) or not written:
        found = _PLAIN_WORD.match(text, at)
        if found is None or not _PLAIN_QUOTES.sub("", found["word"]).isprintable():
            strange = "it has a strange character outside of quotes"
            raise NotPlain(strange if found else _NOT_PLAIN.get(text[at : at + 1], strange))
        written.append(found["word"])
        at = found.end()
    if not _PLAIN_NAME.fullmatch(written[0]):
        raise NotPlain("it sets a variable first, or the name of its command is not plain text")
    return Plain(" ".join(written), _PLAIN_QUOTES.sub(_without_quotes, " ".join(written)))


def _without_quotes(found: re.Match[str]) -> str:
    return found["single"] or _ESCAPED.sub(r"\1", found["double"] or "")


# Limits, so that no text takes long.
_MOST_STEPS: Final = 5_000
_MOST_NUMBERS: Final = 10
_DEEPEST: Final = 20
"""How deeply commands may be nested."""

_CONTROL: Final = re.compile(r"[\x00-\x08\x0b-\x1f\x7f]")
_PLAIN: Final = re.compile(r"[^\s;&|()<>'\"\\$`*?\[{]+")
_IN_QUOTES: Final = re.compile(r'[^"\\$`]+')

_SPECIAL: Final = re.compile(r"[0-9@*#?$!-]")
_ARITHMETIC: Final = re.compile(r"[\w\s+*/%<>=!&|^~?:,;()-]|\$[A-Za-z_]\w*|\$\{(?:#|(?!\d))\w+\}|\$[#?]")
_SET: Final = re.compile(r"\b([A-Za-z_]\w*)(?:=| in )")
_ESCAPES: Final = {"n": "\n", "t": "\t", "\\": "\\", "'": "'", '"': '"'}
_ASSIGNMENT: Final = re.compile(r"[A-Za-z_]\w*(\[\d+\])?\+?=")
_DESCRIPTOR: Final = re.compile(r"\d+|\{\w+\}")
_REDIRECTION: Final = re.compile(r"&>>?|<<<|<<-?|<>|[<>]&|>>|>\||[<>]")
_LEADING: Final = {"if", "then", "else", "elif", "fi", "do", "done", "while", "until", "time", "!", "{", "}"}
"""Words of the shell before a command."""
_COMPOUND: Final = frozenset(("if", "while", "until", "for", "select", "{"))
_TEST_WORD: Final = re.compile(r"[<>()&|!]+")


def read_script(text: str, depth: int = 0, *, lists: bool = False) -> Script:
    """The simple commands of a text, or of a text inside another. Raises `Unclear` if there may be more. With
    `lists`, variables whose values are all in the text are marked as `LISTED`."""
    if len(text) > LONGEST:
        raise Unclear(f"it is longer than {LONGEST:,} characters")
    known = {} if depth else {"HOME": HOME, "PWD": HERE}
    known = {name: marker for name, marker in known.items() if not re.search(rf"(?<![$\w{{]){name}\b", text)}
    parser = _Parser(text, depth, known)
    parser.read()
    if more := {} if depth else parser.variables(lists=lists):
        parser = _Parser(text, depth, known | more)
        parser.read()
    parser.check_counted()
    return Script(parser.commands, parser.redefines, frozenset(parser.written), frozenset(parser.reads))


class _Parser:
    def __init__(self, text: str, depth: int, known: Mapping[str, str]) -> None:
        if depth > _DEEPEST:
            raise Unclear("it is nested too deeply")
        if _CONTROL.search(text):
            raise Unclear("it has a control character in it")
        self._text = text
        self._at = 0
        self._depth = depth
        self._known = known
        """Variables that have their own marker."""
        self._awaited: list[tuple[str, bool, bool, Command]] = []
        """Here-documents after this line: the delimiter, whether tabs are removed, whether it is literal."""
        self._counted: set[str] = set()
        """Variables used in arithmetic, which evaluates their values."""
        self._arithmetic: list[tuple[int, int]] = []
        self._steps = 0
        self._all_piped = False
        self.commands: list[Command] = []
        self.redefines = False
        self.written: set[str] = set()
        self.reads: set[str] = set()

    # Commands.

    def read(self) -> None:
        self._read_commands("")
        if self._awaited:
            raise Unclear("a here-document in it has no end")

    def check_counted(self) -> None:
        """Raise if a variable used in arithmetic may hold anything but a number."""
        for name in self._counted:
            is_known = not self._depth and len(self._counted) <= _MOST_NUMBERS
            if not is_known or not is_number(name, self._text, self._arithmetic):
                raise Unclear(f"arithmetic evaluates {name}")

    def variables(self, *, lists: bool) -> dict[str, str]:
        """Variables that only hold whole numbers, and those whose values are known."""
        names = sorted(set(_SET.findall(self._text)))[:_MOST_NUMBERS]
        found = {name: LISTED for name in names if lists and self._is_listed(name)}
        return found | {name: NUMBER for name in names if is_number(name, self._text, self._arithmetic)}

    def _is_listed(self, name: str) -> bool:
        if re.search(rf"(?<![$\w{{]){name}\b(?!=| in )", self._text):
            return False
        texts = [
            text
            for each in self.commands
            for text in (*each.words, *each.sets)
            if text.startswith(f"{name}=")
        ]
        texts += [
            text for each in self.commands if each.words[:2] == ["for", name] for text in each.words[3:]
        ]
        return bool(texts) and not any(map(DYNAMIC.search, texts))

    def _read_commands(self, closing: str) -> None:
        command = self._begin(is_piped=False)
        while True:
            self._step()
            self._skip_blanks()
            character = self._text[self._at : self._at + 1]
            if not character or character == ")":
                if character != closing:
                    raise Unclear("a parenthesis in it is not closed")
                self._at += 1
                return
            if character in ";\n":
                if self._text.startswith(";;", self._at):
                    raise Unclear("it has a `;;`")
                self._at += 1
                if character == "\n":
                    self._read_documents()
                command = self._begin(is_piped=False)
            elif character == "|" or (character == "&" and self._text[self._at : self._at + 2] != "&>"):
                is_double = self._text[self._at + 1 : self._at + 2] == character
                self._at += 2 if is_double or self._text.startswith("|&", self._at) else 1
                command = self._begin(is_piped=character == "|" and not is_double)
            elif character == "#":
                end = self._text.find("\n", self._at)
                self._at = len(self._text) if end < 0 else end
            elif character == "(":
                self._read_parenthesis(command)
            elif character in "<>&" and not self._is_substitution():
                self._read_redirection(command)
            else:
                self._read_into(command)
                if command.words[:1] == ["[["]:
                    # `then` may follow at once.
                    command = self._begin(is_piped=False)

    def _begin(self, *, is_piped: bool) -> Command:
        command = Command([], [], [], [], [True] if is_piped or self._all_piped else [])
        self.commands.append(command)
        return command

    def _step(self) -> None:
        self._steps += 1
        if self._steps > _MOST_STEPS:
            raise Unclear("it is too long to be read")

    def _skip_blanks(self) -> None:
        while self._text.startswith((" ", "\t", "\\\n"), self._at):
            self._step()
            self._at += 2 if self._text[self._at] == "\\" else 1

    def _is_substitution(self) -> bool:
        return self._text.startswith(("<(", ">("), self._at)

    def _read_parenthesis(self, command: Command) -> None:
        if command.words in ([], ["for"]) and self._text.startswith("((", self._at):
            self._read_arithmetic()
            # What follows may be `do`, `then` or a brace.
            command.words.clear()
        elif not command.words and not command.sets:
            self._all_piped = self._all_piped or bool(command.pipes)
            self._at += 1
            self._read_nested()
        elif len(command.words) == 1 and self._text[self._at + 1 :].lstrip(" \t").startswith(")"):
            self.redefines = True
            self._at = self._text.index(")", self._at) + 1
            command.words.clear()
        else:
            raise Unclear("it has a parenthesis in an odd place")

    def _read_nested(self) -> None:
        """Read the commands inside parentheses, and the closing parenthesis."""
        awaited, self._awaited = self._awaited, []
        self._depth += 1
        if self._depth > _DEEPEST:
            raise Unclear("it is nested too deeply")
        self._read_commands(")")
        self._depth -= 1
        if self._awaited:
            raise Unclear("a here-document in it has no end")
        self._awaited = awaited

    def _read_into(self, command: Command) -> None:
        """Read the next word into a command."""
        start = self._at
        words = self._read_word()
        raw = self._text[start : self._at]
        if self._text.startswith(("<", ">"), self._at):
            if raw.startswith("{") and "[" in raw:
                raise Unclear("it evaluates a subscript")
            if _DESCRIPTOR.fullmatch(raw):
                return
        if command.words[:1] in (["for"], ["select"]) and len(command.words) == 2 and words[0] in ("do", "{"):
            command.words.clear()
        if not command.words and not command.files and len(words) == 1:
            (word,) = words
            if word in ("case", "coproc"):
                raise Unclear(f"it has a `{word}`")
            if word == "function":
                self.redefines = True
                self._skip_blanks()
                self._read_word()
                return
            if word in _COMPOUND and command.pipes:
                self._all_piped = True
            if word in _LEADING:
                return
            if word == "[[":
                command.words.extend(self._read_test())
                return
        if not command.words and _ASSIGNMENT.match(words[0]):
            command.sets.append(words[0])
        else:
            command.words.extend(words)

    def _read_test(self) -> list[str]:
        """The words of `[[ … ]]`."""
        words = ["[["]
        while words[-1] != "]]":
            self._skip_blanks()
            if found := _TEST_WORD.match(self._text, self._at):
                if "<(" in found[0] or ">(" in found[0]:
                    raise Unclear("a `[[` in it runs commands")
                self._at = found.end()
                words.append(found[0])
            elif self._text.startswith("\n", self._at) and not self._awaited:
                self._at += 1
            else:
                start = self._at
                words += self._read_word(in_test=True)
                if self._at == start:
                    raise Unclear("a `[[` in it is not closed")
        return words

    # Redirections.

    def _read_redirection(self, command: Command) -> None:
        found = _REDIRECTION.match(self._text, self._at)
        if not found:
            raise Unclear("a redirection in it is odd")
        self._at = found.end()
        self._skip_blanks()
        start = self._at
        words = self._read_word()
        if not words:
            raise Unclear("a redirection in it has no file")
        (word, *_) = words
        if found[0] in ("<<", "<<-"):
            raw = self._text[start : self._at]
            if MARKERS.search(word) or "$" in raw or "\\\n" in raw:
                raise Unclear("a here-document in it has an odd delimiter")
            self._awaited.append((word, found[0] == "<<-", raw != word, command))
        elif found[0] == "<<<":
            command.inputs.append(word)
        else:
            command.files.extend(words)
            if found[0] in ("<", "<>", "<&") and MARKERS.search(word):
                command.pipes.append(True)
            if found[0] in ("<", "<>"):
                self.reads.add(word)
            if found[0] not in ("<", "<&"):
                self.written |= names_of(word)

    def _read_documents(self) -> None:
        awaited, self._awaited = self._awaited, []
        for delimiter, has_tabs, is_literal, command in awaited:
            lines: list[str] = []
            while True:
                if self._at >= len(self._text):
                    raise Unclear("a here-document in it has no end")
                end = self._text.find("\n", self._at)
                end = len(self._text) if end < 0 else end
                line = self._text[self._at : end]
                self._at = end + 1
                line = line.lstrip("\t") if has_tabs else line
                if line == delimiter:
                    break
                if not is_literal and line.endswith("\\"):
                    raise Unclear("a here-document in it continues a line")
                lines.append(line)
            text = "\n".join(lines)
            command.inputs.append(text if is_literal else self._within(text, _Parser._read_document))

    def _read_document(self) -> str:
        return self._read_quoted(closing="")

    # Words.

    def _read_word(self, *, in_test: bool = False) -> list[str]:
        """The words that the next word becomes: none at the end, several for alternatives in braces."""
        start, word = self._at, ""
        is_plain = True
        while self._at < len(self._text):
            self._step()
            if found := _PLAIN.match(self._text, self._at):
                word += found[0]
                self._at = found.end()
                continue
            character = self._text[self._at]
            if character in " \t\n;" or (
                character in "&|()<>" and not in_test and not self._is_substitution()
            ):
                break
            self._at += 1
            if character in "*?[{":
                word += {"*": STAR, "?": ONE, "[": OPEN, "{": BRACE}[character]
                continue
            is_plain = is_plain and character in "()&|"
            word += self._read_part(character)
        if self._at == start:
            return []
        return finished_word(word, is_plain=is_plain)

    def _read_part(self, character: str) -> str:
        """Read on behind a character that means something to the shell."""
        if character == "'":
            return self._read_until_quote()
        if character == '"':
            return self._read_quoted()
        if character == "\\":
            following = self._text[self._at : self._at + 1]
            self._at += 1
            return "" if following == "\n" else following
        if character == "$":
            return self._read_dollar(is_quoted=False)
        if character == "`":
            return self._read_backticks(is_quoted=False)
        if character in "<>":
            self._at += 1
            self._read_nested()
            return UNKNOWN
        return character

    def _read_until_quote(self) -> str:
        start, end = self._at, self._text.find("'", self._at)
        if end < 0:
            raise Unclear("a quote in it is not closed")
        self._at = end + 1
        return self._text[start:end]

    def _read_quoted(self, closing: str = '"') -> str:
        inside: list[str] = []
        while self._at < len(self._text):
            self._step()
            if found := _IN_QUOTES.match(self._text, self._at):
                inside.append(found[0])
                self._at = found.end()
                continue
            character = self._text[self._at]
            self._at += 1
            if character == closing:
                return "".join(inside)
            if character == "\\":
                following = self._text[self._at : self._at + 1]
                self._at += 1
                inside.append(
                    following if following in '"\\$`' else "" if following == "\n" else f"\\{following}"
                )
            elif character == "$":
                inside.append(self._read_dollar(is_quoted=True))
            elif character == "`":
                inside.append(self._read_backticks(is_quoted=True))
            else:
                inside.append(character)
        if closing:
            raise Unclear("a quote in it is not closed")
        return "".join(inside)

    # Expansions.

    def _read_dollar(self, *, is_quoted: bool) -> str:
        marker = UNKNOWN if is_quoted else WORDS
        following = self._text[self._at : self._at + 1]
        if self._text.startswith("((", self._at):
            self._read_arithmetic()
            return NUMBER
        if following == "(":
            self._at += 1
            self._read_nested()
            return marker
        if following == "[":
            raise Unclear("it has arithmetic in brackets")
        if following == "{":
            return self._read_parameter(marker)
        if following == "'" and not is_quoted:
            return self._read_escapes()
        if following == '"' and not is_quoted:
            raise Unclear("it has a text that is translated")
        if found := _NAME.match(self._text, self._at):
            self._at = found.end()
            return self._known.get(found[0], marker)
        if _SPECIAL.match(following):
            self._at += 1
            return WORDS if following in "@*" else NUMBER if following in "#?$!" else marker
        return "$"

    def _read_parameter(self, marker: str) -> str:
        found = PARAMETER.match(self._text, self._at)
        if not found:
            raise Unclear("it has a `${…}` that may run commands")
        self._at = found.end()
        if found["counted"]:
            return NUMBER
        if found["name"] in "@*" or "@" in (found["all"] or "") or "*" in (found["all"] or ""):
            return WORDS
        return self._known.get(found["name"], marker) if not found["rest"] else marker

    def _read_arithmetic(self) -> None:
        """`((…))`: the shell runs commands in brackets, in the text and in the values of variables."""
        start = self._at + 2
        end, depth = start, 2
        while found := _ARITHMETIC.match(self._text, end):
            depth += {"(": 1, ")": -1}.get(found[0], 0)
            if depth == 1 and self._text.startswith("))", end):
                inside = self._text[start:end]
                self._counted.update(_NAME.findall(re.sub(r"\$\{?#\w+", "", inside)))
                self._arithmetic.append((self._at, end + 2))
                self._at = end + 2
                return
            if depth == 1:
                break
            end = found.end()
        raise Unclear("it has arithmetic that may run commands")

    def _read_escapes(self) -> str:
        """`$'…'`, which can hold any character as a number."""
        self._at += 1
        inside = ""
        while True:
            self._step()
            character = self._text[self._at : self._at + 1]
            self._at += 1
            if not character:
                raise Unclear("a quote in it is not closed")
            if character == "'":
                return inside
            if character == "\\":
                inside += _ESCAPES.get(self._text[self._at : self._at + 1], UNKNOWN)
                self._at += 1
            else:
                inside += character

    def _read_backticks(self, *, is_quoted: bool) -> str:
        end = self._text.find("`", self._at)
        inside = self._text[self._at : end]
        if end < 0 or "\\" in inside:
            raise Unclear("it has backticks that are not plain")
        self._at = end + 1
        self._within(inside, _Parser._read_script)
        return UNKNOWN if is_quoted else WORDS

    def _read_script(self) -> str:
        self.read()
        return ""

    def _within(self, text: str, read: Callable[[_Parser], str]) -> str:
        """Read another text, with the commands in it."""
        within = _Parser(text, self._depth + 1, self._known)
        within._steps = self._steps
        found = read(within)
        self._steps = within._steps
        self.commands += within.commands
        self.written |= within.written
        self.reads |= within.reads
        self._counted |= within._counted
        self.redefines = self.redefines or within.redefines
        return found
