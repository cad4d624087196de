"""Which programs take all that they are given as data, and run none of it.

One that is missing here is taken to run what it is given: that is in `_policy_programs`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from itertools import pairwise
from typing import Final

from outrider.handlers._policy_script import DYNAMIC, MARKERS, WORDS


def names(text: str) -> frozenset[str]:
    return frozenset(text.split())


DATA: Final = names(
    """: true false echo pwd cd pushd popd dirs exit return break continue shift sleep kill umask
    ulimit times for select which type whereis basename dirname realpath readlink mktemp ls cat head
    tail tac wc cut tr uniq comm paste nl rev fold fmt column expand unexpand join od xxd hexdump
    strings base64 base32 md5sum sha1sum sha256sum sha512sum cksum sum seq shuf numfmt factor tsort grep
    egrep fgrep diff cmp file stat du df tree touch mkdir rmdir cp mv ln chmod chown chgrp truncate tee
    dd date cal whoami id groups hostname uname nproc arch uptime free ps pgrep lsof ss netstat printenv
    logname tty locale jq curl ping dig nslookup host gzip gunzip zcat bzip2 bunzip2 bzcat xz unxz xzcat
    zstd unzip clear reset tput iconv dos2unix unix2dos getconf"""
)
"""Programs that never run another one by their arguments or their input."""
DATA_UNLESS: Final[Mapping[str, re.Pattern[str]]] = {
    "rg": re.compile(r"--(pre|hostname-bin)"),
    "sort": re.compile(r"--c"),
    "split": re.compile(r"--f"),
    "tar": re.compile(r"--(?!exclude|strip)|-?\w*[IF]"),
    "wait": re.compile(r"-\w*p"),
    "wget": re.compile(r"--(use-a|exe|conf)|-\w*e"),
    "zip": re.compile(r"-\w*T|--u"),
    "printf": re.compile(r"-v"),
}
"""The same, unless one of these options is among the arguments, or may be."""
SUBCOMMANDS: Final[Mapping[str, frozenset[str]]] = {
    "git": names(
        """status log diff show add commit checkout switch branch restore stash tag merge merge-base rev-parse
    rev-list remote reset revert cherry-pick blame describe ls-files ls-tree mv rm init shortlog
    cat-file reflog worktree clean push fetch pull clone rebase grep apply show-ref diff-tree check-ignore
    count-objects"""
    ),
    "docker": names("ps images logs build pull push inspect version info stop start restart rm rmi tag"),
    "gh": names("pr issue run release workflow auth search label status"),
    "kubectl": names("get describe logs apply delete version scale rollout top explain"),
    "systemctl": names("status start stop restart reload is-active list-units"),
}
"""Subcommands that take their arguments as data."""
_GIT_UNLESS: Final[Mapping[str, re.Pattern[str]]] = {
    "clone": re.compile(r"-\w*[uc]|--(up|conf)|ext:"),
    "fetch": re.compile(r"--up|ext:"),
    "grep": re.compile(r"-\w*O|--op"),
    "pull": re.compile(r"--up|-\w*[xs]|ext:"),
    "push": re.compile(r"--(rec|exe)|ext:"),
    "rebase": re.compile(r"-\w*x|--exe"),
    "remote": re.compile(r"ext:"),
}
"""Options with which one of them runs what it is given."""
_GIT_BEFORE: Final = re.compile(r"--(no-pager|git-dir=\S*|work-tree=\S*)")
_ARITHMETIC_TESTS: Final = names("-eq -ne -lt -le -gt -ge -v -R")
_UNARY_TEST: Final = re.compile(r"-[a-zA-Z]")
_BINARY_TEST: Final = re.compile(r"==?|!=|<|>|-(eq|ne|lt|le|gt|ge|nt|ot|ef)")
_AWK_RUNS: Final = re.compile(r"(?<!\|)\|(?!\|)|system|@|getline|ARG[VC]|/inet")
_AWK_WRITES: Final = re.compile(r">(?!\s*=?\s*\d|\s*\"[^\"\\]*\"\s*([;}\n]|\Z))")
"""What may be a file that only awk knows."""
_SED_SCRIPT: Final = re.compile(
    r"(?:(?:\d+|\$|/[^/\n]*/)?(?:,(?:\d+|\$|\+\d+|/[^/\n]*/))?!?\s*"
    r"(?:[pdqQDGhHgxnN=]|s(?P<mark>[/|#,:@])(?:\\.|(?!(?P=mark))[^\\\n])*(?P=mark)(?:\\.|(?!(?P=mark))[^\\\n])*(?P=mark)[gpiI\d]*"
    r")?\s*(?:;\s*|\n\s*|\Z))*"
)
_SED_OPTION: Final = re.compile(r"-[nErsuiz]+|-i\.\w+|--(quiet|regexp-extended|in-place)")


def takes_data(program: str, words: list[str]) -> bool:
    """Whether a program takes its arguments for nothing but data."""
    if program in DATA or program == "[[" or words[:2] in (["command", "-v"], ["command", "-V"]):
        return True
    arguments = words[1:]
    if program in ("[", "test"):
        return _is_plain_test(arguments[:-1] if program == "[" else arguments)
    if program in ("awk", "gawk", "mawk"):
        return _is_plain_awk(arguments)
    if program == "sed":
        return _is_plain_sed(arguments)
    if program in DATA_UNLESS:
        given = arguments[:1] if program == "printf" else arguments
        return not any(DATA_UNLESS[program].match(each) or _may_be_option(each) for each in given)
    if program in SUBCOMMANDS:
        return _is_plain_subcommand(program, arguments)
    return False


def _may_be_option(word: str) -> bool:
    """Whether only the shell knows if a word is an option, or which."""
    return bool(DYNAMIC.match(word)) or (word.startswith("-") and bool(DYNAMIC.search(word)))


def _is_plain_test(arguments: list[str]) -> bool:
    """Whether it is certain which operators there are: one of them runs what is in a subscript."""
    words = arguments[1:] if arguments[:1] == ["!"] else arguments
    if any(WORDS in each for each in words):
        return False
    if len(words) == 2:
        return bool(_UNARY_TEST.fullmatch(words[0])) and words[0] not in _ARITHMETIC_TESTS
    return len(words) < 2 or (len(words) == 3 and bool(_BINARY_TEST.fullmatch(words[1])))


def is_plain_comparison(arguments: list[str]) -> bool:
    """Whether nothing is compared as a number in `[[ … ]]` but numbers: what is in others is run."""
    numbers = re.compile(r"[\d\x06]+|[^\w\x00-\x05]+|-\w+")
    return _ARITHMETIC_TESTS.isdisjoint(arguments) or all(map(numbers.fullmatch, arguments))


def _is_plain_awk(arguments: list[str]) -> bool:
    script = 0
    while script < len(arguments) and arguments[script].startswith(("-F", "-v")):
        script += 2 if len(arguments[script]) == 2 else 1
    before = arguments[: script + 1]
    if script >= len(arguments) or any(WORDS in each for each in before):
        return False
    if arguments[script].startswith("-") or DYNAMIC.search(arguments[script]):
        return False
    prints = arguments[script].partition("print")[2]
    return not any(map(_AWK_RUNS.search, arguments)) and not _AWK_WRITES.search(prints)


def _is_plain_sed(arguments: list[str]) -> bool:
    if any(WORDS in each or DYNAMIC.match(each) for each in arguments):
        return False
    options = [each for each in arguments if each.startswith("-")]
    others = [each for each in arguments if not each.startswith("-")]
    if not all(each == "-e" or _SED_OPTION.fullmatch(each) for each in options):
        return False
    behind = [after for before, after in pairwise(arguments) if before == "-e"]
    scripts = behind or others[:1]
    return all(not MARKERS.search(each) and _SED_SCRIPT.fullmatch(each) for each in scripts)


def _is_plain_subcommand(program: str, arguments: list[str]) -> bool:
    start = 0
    while program == "git" and start < len(arguments):
        if arguments[start] == "-C" and WORDS not in "".join(arguments[start : start + 2]):
            start += 2
        elif _GIT_BEFORE.fullmatch(arguments[start]):
            start += 1
        else:
            break
    known = SUBCOMMANDS[program]
    rest = arguments[start:]
    unless = _GIT_UNLESS.get(rest[0]) if program == "git" and rest else None
    if unless and any(unless.match(each) or _may_be_option(each) for each in rest[1:]):
        return False
    return bool(rest) and rest[0] in known
