"""Matches shell commands against a pattern, and finds the paths and addresses that a command uses.

To allow, a pattern has to match all of a command; to deny, any part of it.
"""

from __future__ import annotations

import posixpath
import re
import sys
from collections.abc import Iterable, Iterator, Mapping
from functools import lru_cache
from itertools import pairwise
from typing import Final, NamedTuple, TypeAlias, TypeVar

from outrider.handlers._policy.patterns import Match, is_special, literal_prefix, text_regex
from outrider.handlers._policy.programs import TOOLS, Runs, names, program_of, runs_of, takes_data
from outrider.handlers._policy.shell import (
    DYNAMIC,
    HERE,
    HOME,
    LISTED,
    LONGEST,
    MARKERS,
    NUMBER,
    ONE,
    STAR,
    UNKNOWN,
    WORDS,
    NotPlain,
    Plain,
    Unclear,
    plain_command,
)
from outrider.redaction import preview_value

# Patterns.

IGNORES_CASE: Final = sys.platform in ("darwin", "win32")
"""Whether names of programs ignore case on this system; denials then do, too."""

_MOST_OPTIONS: Final = 50
_MOST_PATTERN_WORDS: Final = 500
_LONGEST_NAME: Final = 255
_SHAPES: Final = {STAR: "[^/]*", ONE: "[^/]", NUMBER: "[0-9]*"}
_PLAIN_POWERSHELL: Final = re.compile(r"[\w ./\\:=,+-]+")
_POWERSHELL_PARTS: Final = re.compile(r"[;|&\n\r(){}`$<>\"']+")
_POWERSHELL_TEXT: Final = re.compile(
    r"`|[&.]\s*[$(\"']|\b(iex|icm)\b|invoke-(expression|command)|\.invoke|scriptblock"
    r"|-e[cn]?(?!\w)|-enc(?!oding)",
    re.IGNORECASE,
)
"""Text that PowerShell runs as a command, or that hides a name."""


def command_match(pattern: str, command: str, *, is_powershell: bool = False) -> tuple[Match, str]:
    """Whether a pattern matches a command, and why. YES: it is one plain command, which matches. MAYBE: one
    of its commands matches, or that is not certain."""
    if is_powershell:
        return _powershell_match(pattern, command)
    plain, not_plain = _plain(command)
    if plain is not None and _is_meant(pattern, plain.written) and _is_meant(pattern, plain.meant):
        return Match.YES, f"{plain.written!r} matches"
    runs = runs_of(command)
    for words in runs.commands:
        if why := _reason_to_doubt(pattern, words):
            return Match.MAYBE, f"{why}; {not_plain}" if not_plain else why
    for words in runs.hidden:
        # A pattern that begins with `*` also matches the words behind the first one.
        for start, word in enumerate(words[:1] if pattern.startswith("*") else words):
            if _may_name(pattern, word) and (why := _reason_to_doubt(pattern, words[start:])):
                return Match.MAYBE, why
    if runs.doubt:
        return Match.MAYBE, f"it is not certain: {runs.doubt}"
    return Match.NO, "no command in it matches"


@lru_cache(maxsize=16)
def _plain(command: str) -> tuple[Plain | None, str]:
    try:
        return plain_command(command), ""
    except NotPlain as error:
        return None, str(error)


def _powershell_match(pattern: str, command: str) -> tuple[Match, str]:
    text = command.strip()
    if len(text) > LONGEST:
        return Match.MAYBE, "it is not certain: it is too long"
    if _PLAIN_POWERSHELL.fullmatch(text) and _is_meant(pattern, " ".join(text.split())):
        return Match.YES, f"{text!r} matches"
    for part in (text, *_POWERSHELL_PARTS.split(text)):
        words = part.replace("\\", "/").split()
        if len(words) > _MOST_PATTERN_WORDS:
            return Match.MAYBE, "it is not certain: it has too many words"
        if any(_is_meant_widely(pattern, words[start:], ignores_case=True) for start in range(len(words))):
            return Match.MAYBE, f"{part.strip()!r} is in it"
    if _POWERSHELL_TEXT.search(text):
        return Match.MAYBE, "it is not certain: it runs a text as a command"
    return Match.NO, "no command in it matches"


def _reason_to_doubt(pattern: str, words: list[str]) -> str:
    """Why a pattern matches or may match a command among others; empty if it does not."""
    if not _may_name(pattern, words[0]):
        return ""
    if _is_meant_widely(pattern, words):
        return f"{_shown(words)} is in it"
    if MARKERS.search(words[0]) or any(_may_become(pattern, text) for text in _texts(words)):
        return f"{_shown(words)} may become a match"
    for number, start in enumerate(_after_options(words)):
        # `git push *` also matches `git -C folder push`.
        if number and _is_meant_widely(pattern, [words[0], *words[start:]]):
            return f"{_shown(words)} is in it"
        if number > _MOST_OPTIONS:
            return f"{_shown(words)} has too many options to be sure"
    return ""


def _after_options(words: list[str]) -> Iterator[int]:
    """The possible positions of the first word that is neither an option nor the value of one."""
    for number in range(1, len(words)):
        yield number
        if not words[number].startswith("-") and not words[number - 1].startswith("-"):
            break


def _may_name(pattern: str, word: str) -> bool:
    """Whether a word may name the program of a pattern."""
    wanted, name = _basename(pattern.split(" ", 1)[0]), _basename(word)
    if WORDS in word or UNKNOWN in name:
        return True
    flags = re.IGNORECASE if IGNORES_CASE else re.NOFLAG
    if is_special(wanted):
        known, fixed = MARKERS.split(name, maxsplit=1)[0], literal_prefix(wanted)
        length = len(fixed) if known == name else min(len(known), len(fixed))
        return re.match(re.escape(fixed[:length]), known, flags) is not None
    if not MARKERS.search(name):
        return name == wanted or (IGNORES_CASE and name.lower() == wanted.lower())
    if len(name) > _LONGEST_NAME:
        return True
    name = re.sub(f"{STAR}+", STAR, name)
    shape = "".join(_SHAPES.get(character) or re.escape(character) for character in name)
    return re.fullmatch(shape, wanted, flags) is not None


def _shown(words: list[str]) -> str:
    return preview_value(MARKERS.sub("…", " ".join(words)))


def _basename(word: str) -> str:
    return word.rpartition("/")[2]


def _texts(words: list[str]) -> list[str]:
    """A command as text: as it is, and with programs without their folder."""
    names = [_basename(word) for word in words]
    return list(dict.fromkeys((" ".join(words), " ".join((names[0], *words[1:])), " ".join(names))))


def _is_meant_widely(pattern: str, words: list[str], *, ignores_case: bool | None = None) -> bool:
    ignores = IGNORES_CASE if ignores_case is None else ignores_case
    program, blank, rest = pattern.partition(" ")
    patterns = {pattern, _basename(program) + blank + rest}
    return any(_is_meant(each, text, ignores_case=ignores) for text in _texts(words) for each in patterns)


def _is_meant(pattern: str, text: str, *, ignores_case: bool = False) -> bool:
    """Whether a pattern matches a command; `git *` also matches `git` alone."""
    if text_regex(pattern, ignores_case=ignores_case).match(text):
        return True
    bare = pattern.removesuffix(" *")
    return bare != pattern and text_regex(bare, ignores_case=ignores_case).match(text) is not None


def _may_become(pattern: str, text: str) -> bool:
    """Whether a text may match a pattern once the shell has replaced the markers."""
    found = MARKERS.search(text)
    if found is None:
        return False
    known, fixed = text[: found.start()], literal_prefix(pattern)
    if IGNORES_CASE:
        known, fixed = known.lower(), fixed.lower()
    return known.startswith(fixed) or fixed.startswith(known)


# Paths and addresses.

_MOST: Final = 200
"""How many paths and addresses are checked, so that no command takes long."""
_MOST_FOLDERS: Final = 8
SEPARATORS: Final = re.compile(r"""[\s;|&<>()`"'${}=,:@]+""")
"""Separates names of files from the rest of a word."""
_FLAG: Final = re.compile(r"-\w?")
_NAMED_FOLDERS: Final = re.compile(r"~[-+\d]")
_NO_FILES: Final = names(
    """: true false echo printf export declare local typeset readonly unset test [ [[ kill sleep exit seq date
    basename dirname read return wait which type shift set for select"""
)
"""Programs that open none of their arguments as files."""
_RECURSIVE: Final[Mapping[str, re.Pattern[str]]] = {
    "ls": re.compile(r"-\w*R|--r"),
    "cp": re.compile(r"-\w*[rRa]|--[ra]"),
    "diff": re.compile(r"-\w*r|--r"),
    "git": re.compile(r"grep\Z"),
    **dict.fromkeys(("grep", "egrep", "fgrep"), re.compile(r"-\w*[rRd]|--(d|r)")),
    **dict.fromkeys(("chmod", "chown", "chgrp"), re.compile(r"-\w*R|--r")),
    **dict.fromkeys(("mv", "ln", "du", "tree", "rg", "find", "tar", "zip"), re.compile("")),
}
"""Programs that go through a folder if they have one of these options."""
_FROM_HERE: Final = names("ls du tree")
_WITH_A_PATTERN: Final = names("grep egrep fgrep rg")
"""Programs that begin at the working folder if they are given no other."""
_LISTS: Final[Mapping[str, re.Pattern[str]]] = {
    "curl": re.compile(r"-\w*K|--conf"),
    "file": re.compile(r"-\w*f|--fi"),
    "tar": re.compile(r"-\w*T|--fi"),
    "wget": re.compile(r"-\w*i|--(in|conf)"),
    "zip": re.compile(r"-\w*@"),
    **dict.fromkeys(("sort", "wc", "du", "find"), re.compile(r"--?files0")),
}
"""Options with which a program reads paths or addresses from a file."""
_CHANGES_HOME: Final = re.compile(r"(?<![$\w{])(HOME|OLDPWD|PWD)\b(?=.*(~|\bcd\b))", re.DOTALL)
_FILE_URL: Final = re.compile(r"file:(//[^/\x04\x05]*(?=[/\x04\x05]))?", re.IGNORECASE)
_VALUE: Final = re.compile(r"\d+|--?[\w-]+|[^=]*=.*", re.DOTALL)
_URL: Final = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:[/\\]{1,3}[^\s'\"<>|]+")
_HOST: Final = re.compile(r"(?:[^\s/@'\"]+@)?(\[[0-9A-Fa-f:.%]+\]|[^\s/:?#'\"=,]+)")
_UNKNOWN_HOST: Final = re.compile(
    r"(?:[^/]*://)?[^/]*[\x00-\x03\x0e]|(?:[^/]*://)?(?:[^/@]*@)?[^/:@]*\x06"
    # Programs also expand braces and ranges.
    r"|[^/]*://[^/]*(?:\{|\[[^:]*\])|[\w.-]*\{[\w.,-]+\}[\w.,-]*\.|[\w.-]*\.[\w-]*\{[\w.,-]+\}"
)
_NUMBERS: Final = re.compile(r"[0-9A-Fa-f:]*:[0-9A-Fa-f:.]*:[0-9A-Fa-f:.]*")
_LONGEST_NUMBERS: Final = 60
_LONGEST_ADDRESS: Final = 2_000
_DEVICE: Final = re.compile(r"/dev/(?:tcp|udp)/([^/]+)")
_NETWORK: Final = names("curl wget ping dig nslookup host git docker gh kubectl")
"""Known programs that connect to hosts in their arguments."""


T = TypeVar("T")


class Path(NamedTuple):
    text: str
    """As written, with markers for wildcards."""
    folder: str
    """What it is relative to; empty for the working folder."""
    reaches_in: bool
    """Whether everything inside it is used, too."""


Reach: TypeAlias = tuple[list[T], str]
"""What a command may use, and why there may be more of it; empty if there is not."""


@lru_cache(maxsize=16)
def paths_of(text: str) -> Reach[Path]:
    """The paths that a command may use."""
    found: dict[Path, None] = {}
    try:
        for path in _all_paths(text):
            found[path] = None
            if len(found) > _MOST:
                raise Unclear("it has too many words to look for paths in them")
    except Unclear as error:
        return [], str(error)
    return list(found), ""


def paths_among(texts: Iterable[str]) -> Reach[Path]:
    """Texts that may be paths, each as a whole."""
    found = dict.fromkeys(text.removeprefix("file://") for text in texts if text)
    doubt = "it is too long to look for paths in it" if len(found) > _MOST else ""
    return [Path(text, "", reaches_in=False) for text in list(found)[:_MOST]], doubt


def _all_paths(text: str) -> Iterator[Path]:
    if doubt := runs_of(text).doubt:
        raise Unclear(doubt)
    if _CHANGES_HOME.search(text):
        raise Unclear("it changes what `~` and `cd` mean")
    runs = runs_of(text, lists=True)
    folders = _folders(runs, text)
    for words in runs.commands:
        program = program_of(words[0])
        if any(words is each for each in runs.outer):
            continue
        _refuse_lists(program, words)
        if program not in _NO_FILES and program not in TOOLS:
            _refuse_unknown(words[1:], f"{program or words[0]!r} is given")
        recurses = _recurses(program, words)
        bases = [*folders, *_bases(words)]
        for word in words[1:] if program else words:
            yield from _reached_paths(word, bases, reaches_in=recurses)
        if recurses and _begins_here(program, words):
            yield from (Path(".", folder, True) for folder in folders)
    for command in runs.simple:
        _refuse_unknown(command.files, "it is redirected to")
        inputs = [] if command.words[:1] in (["cat"], ["tee"]) else command.inputs
        for word in (*command.files, *command.sets, *inputs):
            yield from _reached_paths(word, folders, reaches_in=word in command.sets)


def _folders(runs: Runs, text: str) -> list[str]:
    """The folders that a command may be in; an empty text for the working folder."""
    folders = [""]
    for words in runs.commands:
        if words[0] in ("popd", "dirs") or words in (["cd", "-"], ["cd"]):
            folders += ["~"] if words == ["cd"] else []
        elif words[0] in ("cd", "pushd"):
            targets = [word for word in words[1:] if not word.startswith("-")]
            if len(targets) != 1 or DYNAMIC.search(targets[0]):
                raise Unclear("only the shell knows which folder it changes to")
            folders += [posixpath.join(folder, _plain_words(targets[0])) for folder in folders]
        if len(folders) > _MOST_FOLDERS:
            raise Unclear("it changes to too many folders")
    return folders


def _refuse_unknown(words: list[str], what: str) -> None:
    if any(DYNAMIC.search(word) and word != LISTED for word in words):
        raise Unclear(f"only the shell knows which files {what}")


def _refuse_lists(program: str, words: list[str]) -> None:
    listed = _LISTS.get(program)
    own = [f"-{each}" if program == "tar" else each for each in words[1:2]]
    if listed and any(map(listed.match, (*own, *words[1:]))):
        raise Unclear(f"{program} reads its arguments from a file")


def _recurses(program: str, words: list[str]) -> bool:
    """Whether a program may go through a folder."""
    options = _RECURSIVE.get(program)
    if options is not None:
        return options.pattern == "" or any(map(options.match, words[1:]))
    return program not in _NO_FILES and program not in TOOLS and not takes_data(program, words)


def _begins_here(program: str, words: list[str]) -> bool:
    """Whether a program may go through the working folder, for lack of another."""
    given = [word for before, word in pairwise(words) if not _VALUE.fullmatch(word) and before[:2] != "--"]
    if program == "find":
        return not words[1:] or words[1][:1] in ("-", "!", "(")
    if program == "git":
        return True
    return (program in _FROM_HERE and not given) or (program in _WITH_A_PATTERN and len(given) < 2)


def _bases(words: list[str]) -> Iterator[str]:
    """Folders among the arguments that other paths may be relative to: `tar -C /`, `env --chdir=/`."""
    for before, word in pairwise(words):
        for piece in SEPARATORS.split(_FLAG.sub("", word, count=1) if word.startswith("-") else word):
            if piece.startswith(("/", "..", "~", HOME)) or (
                before.startswith("-") and piece and piece == word
            ):
                yield _plain_words(piece)


def _reached_paths(word: str, folders: Iterable[str], *, reaches_in: bool) -> Iterator[Path]:
    pieces = [word, *SEPARATORS.split(word)]
    pieces += [_FLAG.sub("", piece, count=1) for piece in pieces if piece.startswith("-")]
    for piece in dict.fromkeys(map(_plain_words, pieces)):
        if not piece or piece.startswith("-"):
            continue
        if _FILE_URL.match(piece) and re.search(r"[%{\[]", piece):
            raise Unclear("a program knows other names for the file")
        if _NAMED_FOLDERS.match(piece):
            raise Unclear("only the shell knows which folder it means")
        if piece.startswith(("/", "~")):
            yield Path(piece, "", reaches_in)
        else:
            yield from (Path(piece, folder, reaches_in) for folder in folders)


def _plain_words(word: str) -> str:
    found = _FILE_URL.match(word)
    path = word[found.end() :] if found and not re.search(r"[%{\[]", word) else word
    return path.replace(HOME, "~").replace(HERE, ".")


@lru_cache(maxsize=16)
def addresses_of(text: str) -> Reach[str]:
    """The addresses that a command may use: URLs anywhere, hosts where a program may take one."""
    runs = runs_of(text)
    if runs.doubt:
        return [], runs.doubt
    found: list[str] = []
    for words in runs.commands:
        program = program_of(words[0])
        try:
            _refuse_lists(program, words)
        except Unclear as error:
            return [], str(error)
        is_local = program not in _NETWORK and (program in TOOLS or takes_data(program, words))
        is_outer = any(words is each for each in runs.outer)
        if not is_local and not is_outer and any(map(DYNAMIC.search, words[1:])):
            return [], f"only the shell knows what {program or words[0]!r} is given"
        for word in words[1:]:
            found += _addresses(word, has_hosts=not is_local)
    for command in runs.simple:
        for word in (*command.files, *command.sets, *command.inputs):
            found += _addresses(word, has_hosts=word in command.sets)
    return _at_most(found)


def addresses_among(texts: Iterable[str]) -> Reach[str]:
    """The addresses in several texts, each of which may be a host itself."""
    return _at_most([address for text in texts for address in _addresses(text, has_hosts=" " not in text)])


def _at_most(found: Iterable[str]) -> Reach[str]:
    different = list(dict.fromkeys(found))
    if any(map(_UNKNOWN_HOST.match, different)):
        return different[:_MOST], "only the shell knows what it connects to"
    too_many = "it has too many words to look for addresses in them"
    return different[:_MOST], too_many if len(different) > _MOST else ""


def _addresses(word: str, *, has_hosts: bool) -> Iterator[str]:
    yield from _URL.findall(word[:_LONGEST_ADDRESS])
    if device := _DEVICE.match(word):
        yield device[1]
    if has_hosts:
        pieces = [word, *re.split(r"[\s=,]+", word), *re.split(r"[\s=,:]+", word)]
        for piece in (*pieces, *(piece[2:] for piece in pieces if piece.startswith("-"))):
            if found := _HOST.match(piece[:_LONGEST_ADDRESS]):
                yield found[1]
        for found in _NUMBERS.finditer(word[:_LONGEST_ADDRESS]):
            # Also behind a name and a port: `--resolve a:80:::1`.
            numbers = found[0][-_LONGEST_NUMBERS:].rstrip(".")
            yield from (numbers[start:] for start in range(len(numbers)) if numbers[start:].count(":") > 1)
