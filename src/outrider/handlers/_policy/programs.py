"""Finds every command that a shell command may run, including those that programs in it start.

A program that is not known may run its arguments, so that anything but plain text makes the command unclear:
one that is missing here is denied too often, never too seldom.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping
from functools import lru_cache
from itertools import pairwise
from typing import Final, NamedTuple

from outrider.handlers._policy.shell import (
    DYNAMIC,
    LISTED,
    MARKERS,
    ONE,
    STAR,
    UNKNOWN,
    WORDS,
    Command,
    Unclear,
    names_of,
    read_script,
)


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
"""Programs that never run another because of their arguments or input."""
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
"""The same, unless one of these options is or may be among the arguments."""
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
"""Options that make a subcommand of git run its arguments."""
_GIT_BEFORE: Final = re.compile(r"--(no-pager|git-dir=\S*|work-tree=\S*)")
_ARITHMETIC_TESTS: Final = names("-eq -ne -lt -le -gt -ge -v -R")
_UNARY_TEST: Final = re.compile(r"-[a-zA-Z]")
_BINARY_TEST: Final = re.compile(r"==?|!=|<|>|-(eq|ne|lt|le|gt|ge|nt|ot|ef)")
_AWK_RUNS: Final = re.compile(r"(?<!\|)\|(?!\|)|system|@|getline|ARG[VC]|/inet")
_AWK_WRITES: Final = re.compile(r">(?!\s*=?\s*\d|\s*\"[^\"\\]*\"\s*([;}\n]|\Z))")
"""Output to a file whose name only awk knows."""
_SED_SCRIPT: Final = re.compile(
    r"(?:(?:\d+|\$|/[^/\n]*/)?(?:,(?:\d+|\$|\+\d+|/[^/\n]*/))?!?\s*"
    r"(?:[pdqQDGhHgxnN=]|s(?P<mark>[/|#,:@])(?:\\.|(?!(?P=mark))[^\\\n])*(?P=mark)(?:\\.|(?!(?P=mark))[^\\\n])*(?P=mark)[gpiI\d]*"
    r")?\s*(?:;\s*|\n\s*|\Z))*"
)
_SED_OPTION: Final = re.compile(r"-[nErsuiz]+|-i\.\w+|--(quiet|regexp-extended|in-place)")


def takes_data(program: str, words: list[str]) -> bool:
    """Whether a program takes its arguments as data only."""
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
    """Whether the operators are certain: some of them evaluate subscripts."""
    words = arguments[1:] if arguments[:1] == ["!"] else arguments
    if any(WORDS in each for each in words):
        return False
    if len(words) == 2:
        return bool(_UNARY_TEST.fullmatch(words[0])) and words[0] not in _ARITHMETIC_TESTS
    return len(words) < 2 or (len(words) == 3 and bool(_BINARY_TEST.fullmatch(words[1])))


def is_plain_comparison(arguments: list[str]) -> bool:
    """Whether `[[ … ]]` compares only numbers as numbers: it evaluates anything else."""
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


# Programs that run others.

_MOST_WORDS: Final = 2_000
"""How many words are analysed, so that no command takes long."""
_NEVER: Final = re.compile(r"(?!)")


TOOLS: Final = names(
    """make ninja cmake ctest meson bazel npm yarn pnpm bun cargo rustc rustup rustfmt go gofmt mvn gradle
    gradlew ant pytest tox nox pip pip3 pipx uv poetry pipenv conda ruff mypy pyright black isort flake8
    pylint bandit coverage pre-commit alembic flask uvicorn gunicorn django-admin twine sphinx-build
    mkdocs eslint prettier tsc ts-node tsx jest vitest mocha vite next webpack rollup esbuild playwright
    cypress turbo nx composer phpunit bundle rake rails rspec rubocop gem dotnet swift xcodebuild javac
    java kotlinc sbt mix gcc g++ cc c++ clang clang++ ld ar nm objdump apt apt-get apk yum dnf brew dpkg
    snap terraform helm shellcheck shfmt golangci-lint hadolint actionlint yamllint markdownlint"""
)
"""Programs that build, test and check a project. The project decides what they run; only
arguments that name a command directly count."""
_TOOLS_RUN: Final = re.compile(
    r"\S+ (exec|x|eval|dlx|runner|console) |\S+ .*--?(call|eval|exec|toolexec|wrapper|XX)"
    r"|make .*(-\w*E|--ev)|(bun|tsx|ts-node|swift|mix|sbt|rake) .*-\w*[ep]|\S+ .*(`|\$[\w({])",
    re.DOTALL,
)
"""Arguments that make a tool run others of its arguments."""
_RUN_SCRIPTS: Final = names("npm yarn pnpm")
"""Tools that run a script of the project by its name."""
_RUN_OWN: Final = _RUN_SCRIPTS | names("cargo go dotnet swift coverage pre-commit terraform")
"""Tools whose `run` does not run any program."""
_MODULES: Final = names(
    """pytest pip venv virtualenv unittest mypy ruff black isort flake8 pylint coverage build twine
    http.server json.tool compileall pyright tox nox uvicorn flask django sphinx mkdocs py_compile
    ensurepip alembic"""
)
_INTERPRETERS: Final[Mapping[str, re.Pattern[str]]] = {
    "python": re.compile(r"-[uBOIsESqbd]+|-W\w+|-X\w+"),
    "node": re.compile(r"--(test|watch|no-warnings|inspect|experimental-[\w-]+|max-old-space-size=\d+)"),
    "perl": re.compile(r"-w"),
    "ruby": re.compile(r"-w"),
    "php": _NEVER,
    "lua": _NEVER,
    "Rscript": _NEVER,
}
"""Programs that run a script, with the options that may come before it."""
_VERSION: Final = re.compile(r"\d[\d.]*\Z")
_SHELLS: Final = names("sh bash dash ash zsh ksh mksh rbash fish csh tcsh pwsh")
_OF_POSIX: Final = names("sh bash dash ash")
_EVALUATE: Final = names("eval let alias hash shopt enable bind complete compgen fc history jobs")
"""Builtins that run their arguments, or change what other commands mean."""
_TAKE_NAMES: Final = names("read mapfile readarray declare local typeset export readonly getopts unset")
"""Builtins that evaluate subscripts in the names of variables."""
_NAME_ARGUMENT: Final = re.compile(r"-[rspdtaxgfAulv]*\d*|--|\w*|(?P<name>\w+)\+?=(?P<value>.*)", re.DOTALL)
_PASSES: Final[Mapping[str, re.Pattern[str]]] = {
    "sudo": re.compile(r"-[EnH]+"),
    "time": re.compile(r"-[pv]"),
    "nice": re.compile(r"-n|-?\d+"),
    "timeout": re.compile(
        r"\d[\d.]*[smhd]?|--foreground|--preserve-status|-[ks]|(SIG)?(KILL|INT|TERM|HUP|QUIT)"
    ),
    "xargs": re.compile(r"-[0rt]+|-[nPL]\d*|\d+|-I|-I\{\}|\{\}|-d|\\n|--null|--no-run-if-empty"),
    "stdbuf": re.compile(r"-[ioe][L\d]+"),
    "env": re.compile(r"[A-Za-z_]\w*=[\w./:,+@-]*"),
    **dict.fromkeys(
        ("nohup", "command", "exec", "builtin", "setsid", "uv run", "poetry run", "bundle exec"), _NEVER
    ),
    **dict.fromkeys(("npx", "pnpm exec", "yarn exec", "pipenv run", "uvx"), re.compile(r"--yes|-y")),
}
"""Programs that run the command behind these arguments."""
_XARGS_VALUES: Final = {"-I": ["{}"], "-d": ["\\n"]}
"""Options that are known with these values only."""
_RISKY: Final = re.compile(r"PATH|ENV|SHELLOPTS|LD_\w+|DYLD_\w+|EXECIGNORE")
"""Variables that decide what a program's name means."""
_EVALUATED: Final = re.compile(
    r"PS\d|S?RANDOM|SECONDS|LINENO|HISTCMD|EPOCH\w+|OPTIND|BASH\w+|PROMPT_COMMAND|GLOBIGNORE|CDPATH"
)
"""Variables whose values bash runs or evaluates as numbers, and those that change what wildcards and folders
mean."""
_PATHS: Final = re.compile(r"\w*PATH")
_BIN: Final = re.compile(r"(.*/)?(s?bin|\.bin)/")
_NOT_FILES: Final = re.compile(r"-\Z|(.*/)?stdin\Z|/[/.]*(dev|proc)/|.*/fd/")
_NO_SCRIPT: Final = re.compile(r"-|(.*/)?\d+\Z|.*[\x00-\x03\x06\x0e]", re.DOTALL)
"""Names that are not, or not certainly, files where a script is expected."""
_INFORMATION: Final = re.compile(r"--?(version|help)|-[Vvh]")
_CODE: Final = re.compile(r"-[a-zA-Z]*[ceErp].*|--[ep].*", re.DOTALL)
"""Options of interpreters that a program in their arguments follows."""
_SETTINGS: Final = re.compile(
    r"[-+][aefuvxCE]+|[-+][efuvxCE]*o|pipefail|errexit|nounset|xtrace|noglob|allexport"
)
"""Options of the shell that do not change how it reads commands."""
_LEAVE_FILES: Final = (
    TOOLS
    | _SHELLS
    | _INTERPRETERS.keys()
    | SUBCOMMANDS.keys()
    | _TAKE_NAMES
    | names(
        """: true false echo printf pwd cd pushd popd exit test [ [[ for select sleep kill set which type
    whereis basename dirname realpath readlink ls cat head tail wc cut tr grep egrep fgrep rg diff cmp file
    stat du df tree touch mkdir rmdir chmod chown chgrp md5sum sha1sum sha256sum sha512sum date jq ps pgrep
    . source"""
    )
)
"""Programs that write no content to their arguments, or whose work the project decides."""
_PLAIN: Final = re.compile(r"[\w\s./:=@,+%~^#!\x02-\x06-]*")
_SEPARATORS: Final = re.compile(r"[^\w./~^+@%*?\x00-\x06\[-]+")
_QUOTES: Final = re.compile(r"[\"'\\]")
_USED: Final = re.compile(r"\$\{?[#!]?(\w+)")
_EXPORT: Final = names("export declare local typeset readonly set")
_EXPORT_ALL: Final = re.compile(r"-\w*a|allexport")
_ATTACHED: Final = re.compile(r"-\w(?=.)")
_FIND_VALUES: Final = names(
    """-name -iname -path -ipath -wholename -regex -iregex -newer -type -size -mtime -mmin -maxdepth -mindepth
    -user -group -perm"""
)


class Runs(NamedTuple):
    """The commands that a text runs."""

    commands: list[list[str]]
    """Every simple command."""
    hidden: list[list[str]]
    """Words that may hold another command, from any of them on."""
    simple: list[Command]
    """The simple commands with their redirections and assignments."""
    outer: list[list[str]]
    """Those of `commands` that only run another of them."""
    doubt: str
    """Why there may be more commands; empty if there are not."""


@lru_cache(maxsize=16)
def runs_of(text: str, *, lists: bool = False) -> Runs:
    """Every command that a text may run. With `lists`, variables with known values are marked."""
    analysis = _Analysis(lists=lists)
    doubt = ""
    try:
        analysis.add(text)
    except Unclear as error:
        doubt = str(error)
    return Runs(analysis.commands, analysis.hidden, analysis.simple, analysis.outer, doubt)


def program_of(word: str) -> str:
    """The name of the program that a word certainly stands for; otherwise empty."""
    folder = _BIN.match(word)
    name = word[folder.end() :] if folder else word
    return "" if "/" in name or MARKERS.search(name) else name


class _Analysis:
    def __init__(self, *, lists: bool) -> None:
        self._lists = lists
        self.outer: list[list[str]] = []
        self.commands: list[list[str]] = []
        self.hidden: list[list[str]] = []
        self.simple: list[Command] = []
        self._redefines = False
        self._written: Counter[str] = Counter()
        """Names of files, with how many commands may write them."""
        self._own: tuple[frozenset[str], bool] = (frozenset(), False)
        """The names that the current command may write, and whether it may write any file."""
        self._unknown = 0
        """How many commands may write any file."""
        self._reads: frozenset[str] = frozenset()
        self._inputs: list[str] = []
        self._is_piped = False
        self._has_dashes = False
        self._depth = 0
        self._words = 0

    def add(self, text: str) -> None:
        script = read_script(text, self._depth, lists=self._lists)
        self.simple += script.commands
        before = self._own
        written = [_written_by(each) for each in script.commands]
        redirected = (script.written, DYNAMIC.search("".join(script.written)) is not None)
        for found, may_be_any in (*written, redirected):
            self._written.update(found)
            self._unknown += may_be_any
        self._reads |= script.reads
        self._redefines = self._redefines or script.redefines or any(map(_changes_names, script.commands))
        # Redirections of a block, or by `exec`, hold for each command.
        shared = [each for each in script.commands if each.words in ([], ["exec"])]
        self._inputs += [text for each in shared for text in each.inputs]
        self._is_piped = self._is_piped or any(each.pipes and each.files for each in shared)
        self._has_dashes = (
            self._has_dashes
            or any(each.startswith("-") for each in script.written)
            or any(map(_names_a_dash, script.commands))
        )
        exported = [each.words for each in script.commands if not _EXPORT.isdisjoint(each.words)]
        used = frozenset(_USED.findall(text)).difference(*exported)
        exports_all = any("set" in each and any(map(_EXPORT_ALL.match, each)) for each in exported)
        for each, self._own in zip(script.commands, written, strict=True):
            for assignment in each.sets:
                name = re.split(r"[+=\[]", assignment)[0]
                self._assign(assignment, is_given=bool(each.words) or exports_all or name not in used)
            if each.words:
                self._run(each.words, each)
        self._own = before

    def _run(self, words: list[str], command: Command) -> None:
        self.commands.append(words)
        self._count(len(words))
        name = program_of(words[0])
        program = "" if self._redefines else name
        interpreter = _VERSION.sub("", program)
        if self._is_written(words[0]) and "/" in words[0]:
            raise Unclear(f"it runs {words[0]}, which it writes itself")
        if name in _EVALUATE or (name == "[[" and not is_plain_comparison(words[1:])):
            raise Unclear(f"{name} runs its arguments")
        if words is not command.words and _changes_names(Command(words, [], [], [], [])):
            raise Unclear("it changes what the names of programs mean")
        if name == "set" and not all(map(_SETTINGS.fullmatch, words[1:])) and words[1:2] != ["--"]:
            raise Unclear("it changes how the shell reads")
        if self._has_dashes and any(word[:1] in (STAR, ONE) for word in words[1:]):
            raise Unclear("a file in it may be taken for an option")
        if name in _TAKE_NAMES:
            self._take_names(name, words[1:])
        elif name in _SHELLS:
            self._run_shell(name, words[1:], command)
        elif name in (".", "source"):
            self._run_file(words[1:2], words[2:])
        elif interpreter in _INTERPRETERS and (operands := _operands(words, _INTERPRETERS[interpreter])):
            self._interpret(operands, command)
        elif interpreter in _INTERPRETERS and not (words[1:] and all(map(_INFORMATION.fullmatch, words[1:]))):
            raise Unclear(f"{words[0]} runs a text")
        elif inner := self._inner(program, words):
            for each in inner:
                self._run(each, command)
        elif program and takes_data(program, words):
            return
        elif program in TOOLS and not _runs_given(program, words):
            first = 1 if "=" in "".join(words[1:2]) else 2
            self._hide(words[3 if words[1:2] == ["run"] and program in _RUN_SCRIPTS else first :])
        else:
            self._run_any(words, command)

    def _count(self, words: int) -> None:
        self._words += words
        if self._words > _MOST_WORDS:
            raise Unclear("it has too many words")

    def _run_any(self, words: list[str], command: Command) -> None:
        """An unknown program: it may run its arguments."""
        if program_of(words[0]) in ("sed", "xargs", "awk", "gawk", "mawk"):
            raise Unclear(f"{words[0]} may run its arguments")
        if command.pipes or self._is_piped or any(map(self._is_written, self._reads)):
            raise Unclear(f"{words[0]!r} may run its input")
        inputs = [*command.inputs, *self._inputs]
        if inputs and any(map(_is_interpreter, words)):
            raise Unclear("it runs a text")
        for argument in (*words[1:], *inputs):
            if DYNAMIC.search(argument):
                raise Unclear(f"{words[0]!r} may run its arguments, and only the shell knows them")
            if not _PLAIN.fullmatch(argument):
                raise Unclear(f"{words[0]!r} may run a text among its arguments")
            if any(map(self._is_written, (argument, *_SEPARATORS.split(argument)))):
                raise Unclear(f"{words[0]!r} may run {argument}, which the command writes itself")
        self._hide([*words[1:], *inputs])

    def _hide(self, arguments: list[str]) -> None:
        arguments = [each for each in arguments if not DYNAMIC.search(each)]
        # A program that runs a text also removes quotes.
        bare = [_QUOTES.sub("", each) for each in arguments if _QUOTES.search(each)]
        pieces = [piece for each in (*arguments, *bare) for piece in _SEPARATORS.split(each) if piece]
        if any(_is_interpreter(name) and _CODE.fullmatch(option) for name, option in pairwise(pieces)):
            raise Unclear("it runs a text")
        within = [piece for each in pieces for piece in (_ATTACHED.sub("", each, count=1), each)]
        for found in (arguments, pieces, within):
            self._count(len(found))
            if found and found not in self.hidden[-3:]:
                self.hidden.append(found)

    def _assign(self, assignment: str, *, is_given: bool) -> None:
        """An assignment; `is_given` if a program gets the variable, which may run its value."""
        name, _, value = assignment.partition("=")
        is_path = _PATHS.fullmatch(name.rstrip("+")) and not value.startswith("(")
        is_known = is_path or not DYNAMIC.search(value)
        if is_given and not (is_known and _PLAIN.fullmatch(DYNAMIC.sub("", value))):
            raise Unclear(f"a program may run the value of {name}")
        if is_given and value and self._is_written(value):
            raise Unclear(f"a program may run {value}, which the command writes itself")
        self._hide([value])

    def _take_names(self, name: str, arguments: list[str]) -> None:
        for each in arguments:
            found = _NAME_ARGUMENT.fullmatch(each)
            if not found:
                raise Unclear(f"{name} evaluates a subscript")
            if found["name"]:
                self._assign(each, is_given=True)

    # Programs that run a file or a text.

    def _is_written(self, path: str) -> bool:
        name = path.rpartition("/")[2]
        own, may_be_any = self._own
        if self._written[name] > (name in own) or self._unknown > may_be_any:
            return True
        return MARKERS.search(name) is not None and any(
            self._written[each] > (each in own) for each in self._written
        )

    def _run_file(self, file: list[str], arguments: list[str]) -> None:
        """A script: its content is not analysed, but the command itself may not write it."""
        if not file or _NOT_FILES.match(file[0]) or _NO_SCRIPT.match(file[0]):
            raise Unclear("it runs a script that is not in a file")
        if self._is_written(file[0]):
            raise Unclear(f"it runs {file[0]}, which it writes itself")
        self._hide([*file, *arguments])

    def _interpret(self, operands: list[str], command: Command) -> None:
        if operands[0] != "-m":
            if f"{operands[0].rstrip('/').rpartition('/')[2]}/" in self._written:
                raise Unclear("it runs a folder that it writes to")
            self._run_file(operands[:1], operands[1:])
        elif self._is_written(f"{''.join(operands[1:2])}.py"):
            raise Unclear("it runs a module that it writes itself")
        elif len(operands) > 1 and operands[1] in _MODULES:
            self._hide(operands[2:])
        else:
            self._run_any(operands, command)

    def _run_shell(self, name: str, arguments: list[str], command: Command) -> None:
        start = 0
        while start < len(arguments) and re.fullmatch(r"-[exuvlic]+", arguments[start]):
            start += 1
            if "c" not in arguments[start - 1]:
                continue
            text = "".join(arguments[start : start + 1])
            is_clear = name in _OF_POSIX and not MARKERS.search(text) and not text.startswith(("-", "+"))
            # A login shell reads files of the home folder first.
            reads_files = self._written and any("l" in each or "i" in each for each in arguments[:start])
            if not is_clear or reads_files or command.sets or self._redefines:
                raise Unclear(f"{name} runs a text that is not clear")
            self._depth += 1
            self.add(text)
            self._depth -= 1
            return
        self._run_file(arguments[start : start + 1], arguments[start + 1 :])

    # Programs that run another.

    def _inner(self, program: str, words: list[str]) -> list[list[str]]:
        """The commands that a program runs, if their beginning is known."""
        if program == "find":
            return _inner_of_find(words, LISTED if self._lists else UNKNOWN)
        two = f"{program} {words[1]}" if len(words) > 1 else ""
        start = 2 if two in _PASSES else 1
        passed = _PASSES.get(two) or _PASSES.get(program)
        if passed is None or two in ("command -v", "command -V"):
            return []
        while start < len(words) and passed.fullmatch(words[start]):
            if _XARGS_VALUES.get(words[start], words[start + 1 : start + 2]) != words[start + 1 : start + 2]:
                return []
            start += 1
        inner = words[start:]
        if not inner:
            return [[":"]]
        if inner[0].startswith("-") or MARKERS.search(inner[0]) or (program != "xargs" and "=" in inner[0]):
            return []
        self.outer.append(words)
        if program == "xargs":
            return [[*(word.replace("{}", UNKNOWN) for word in inner), WORDS]]
        return [inner]


def _changes_names(command: Command) -> bool:
    """Whether a command sets a variable that changes what the names of programs mean."""
    named = command.sets
    if command.words and program_of(command.words[0]) in {
        *_TAKE_NAMES,
        "for",
        "select",
        "printf",
        "unset",
        "env",
    }:
        named = [*named, *command.words[1:]]
    variables = [re.split(r"[+=\[]", each)[0] for each in named]
    if any(map(_EVALUATED.fullmatch, variables)):
        raise Unclear("it sets a variable that bash runs")
    return any(map(_RISKY.fullmatch, variables))


def _written_by(command: Command) -> tuple[frozenset[str], bool]:
    """Names of files that a command may write, and whether it may write any: all its arguments, unless it is
    known to write none."""
    behind = [
        number
        for number, word in enumerate(command.words)
        if program_of(word) not in _PASSES and not re.match(r"[-\d]|\w+=", word)
    ]
    start = behind[0] if behind else 0
    program = program_of(command.words[start]) if command.words else ""
    if not command.words or _VERSION.sub("", program) in _LEAVE_FILES:
        return frozenset(), False
    arguments = command.words[start + 1 :]
    pieces = [piece for each in arguments for piece in (each, *_SEPARATORS.split(each)) if piece]
    pieces += [_ATTACHED.sub("", piece, count=1) for piece in pieces]
    found = frozenset(name for piece in pieces for name in names_of(piece))
    # `split` makes names of its own.
    return found, program == "split" or DYNAMIC.search("".join(found)) is not None


def _names_a_dash(command: Command) -> bool:
    """Whether a command may create a file named like an option."""
    _, *behind = " ".join(command.words).split(" -- ")
    is_tool = command.words[:1] and program_of(command.words[0]) in TOOLS
    return any("/-" in word for word in command.words) or bool(
        not is_tool and behind and re.search(r"(\A|\s)-", " ".join(behind))
    )


def _is_interpreter(word: str) -> bool:
    return _VERSION.sub("", word.rpartition("/")[2]) in _INTERPRETERS


def _operands(words: list[str], options: re.Pattern[str]) -> list[str]:
    """The arguments behind the options of an interpreter, if they begin with a script or a module."""
    start = 1
    while start < len(words) and options.fullmatch(words[start]):
        start += 1
    operands = words[start:]
    return operands if operands and (operands[0] == "-m" or not operands[0].startswith("-")) else []


def _inner_of_find(words: list[str], marker: str) -> list[list[str]]:
    found: list[list[str]] = []
    inner: list[str] | None = None
    unknown = [number for number, word in enumerate(words) if DYNAMIC.search(word)]
    for number, (before, word) in enumerate(pairwise(words), 1):
        if inner is not None:
            if word in (";", "+"):
                inner = None
            else:
                inner.append(word.replace("{}", marker))
        elif word.startswith(("-exec", "-ok")):
            inner = []
            found.append(inner)
        elif (
            WORDS in word
            or (word.startswith("-") and DYNAMIC.search(word))
            # It may be an option itself: alone in front, or behind what takes no value.
            or (DYNAMIC.match(word) and before not in _FIND_VALUES and (number > 1 or unknown != [1]))
            or (word in (";", "+") and unknown)
        ):
            return []
    return [each or [UNKNOWN] for each in found] or [[":"]]


def _runs_given(program: str, words: list[str]) -> bool:
    """Whether a tool runs its arguments, or a script that is not in a file."""
    runs_other = words[1:2] == ["run"] and program not in _RUN_OWN
    return (
        runs_other
        or not _SHELLS.isdisjoint(words[2:])
        or any(map(_NOT_FILES.match, words))
        or bool(_TOOLS_RUN.match(" ".join([*words, ""])))
    )
