"""Finds Claude Code on this machine, and knows what its versions can do: whether one is supported, too."""

from __future__ import annotations

import ntpath
import os
import posixpath
import re
import stat
import sys
import warnings
from typing import TYPE_CHECKING, Final, Literal, TypeAlias

import msgspec

from outrider._version import MINIMUM_AGENT_VERSION
from outrider.command import is_batch_file
from outrider.errors import AgentNotFound, AgentTooOld, Unsupported
from outrider.options._encode import runs_here
from outrider.options._table import older_ways
from outrider.redaction import preview

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from os import PathLike

    from outrider.options import Options
    from outrider.wire.control import Request

    StrPath: TypeAlias = str | PathLike[str]
    Look: TypeAlias = Callable[[str], "Kind"]


# The search.

Kind: TypeAlias = Literal["program", "not executable", "folder", "special", "no access", "missing"]
"""What is at a path: `special` is neither a file nor a folder, `no access`: this user may not look."""

BUNDLED_VARIABLE: Final = "CLAUDE_CODE_BUNDLED_CLI"

POSIX_FOLDERS: Final = (
    "~/.npm-global/bin",
    "/usr/local/bin",
    "~/.local/bin",
    "~/node_modules/.bin",
    "~/.yarn/bin",
    "~/.claude/local",
)
"""Where installers put the program, which need not be on the PATH of a service."""

_REASONS: Final[dict[Kind, str]] = {
    "not executable": "the file is not executable",
    "folder": "it is a folder",
    "special": "it is neither a file nor a folder",
    "no access": "this user may not look there",
    "missing": "no such file",
}
_BATCH: Final = "refused: cmd.exe would run this batch file, and it takes parts of arguments for commands"
_BARE: Final = "cli_path, on PATH"
_RELATIVE: Final = "not searched: a relative folder means another place wherever the program is started"


class Tried(msgspec.Struct, frozen=True):
    """A place where the program was looked for."""

    path: str
    source: str
    """Who named the place: `cli_path`, `bundled_path`, a variable, `the package`, or `the usual places`."""
    reason: str = ""
    """Why it was not taken; empty for the one that was."""

    def __str__(self) -> str:
        return f"{self.path} ({self.source}): {self.reason or 'found'}"


class Search(msgspec.Struct, frozen=True):
    """The result of a search: the program `found`, if any, and each place that was `tried`, in order."""

    found: str | None
    tried: tuple[Tried, ...]

    def __str__(self) -> str:
        return "\n".join(map(str, self.tried))


def find_agent(
    *,
    cli_path: StrPath | None = None,
    bundled_path: StrPath | None = None,
    environ: Mapping[str, str] | None = None,
    platform: str | None = None,
    look: Look | None = None,
) -> str:
    """The path of Claude Code, as an absolute one.

    If `cli_path` is given, nothing else counts; a text without a slash is looked up on PATH, as a shell does.
    Else it is the first that is there of `bundled_path`, the variable `CLAUDE_CODE_BUNDLED_CLI`, a folder
    `_bundled` in or beside this package, PATH, and the places where installers put it. `search_agent` shows
    what was tried. `environ`, `platform` and `look` stand for this machine: its variables, `sys.platform`,
    and what is at a path.

    Raises `AgentNotFound`, with each place and the reason why it was not taken.
    """
    search = search_agent(
        cli_path=cli_path, bundled_path=bundled_path, environ=environ, platform=platform, look=look
    )
    if search.found is not None:
        return search.found
    message = ""
    if cli_path is not None:
        name, place = os.fspath(cli_path), search.tried[0]
        reason = place.reason
        if place.source == _BARE and reason in _REASONS.values():
            reason = f"no such program on PATH; one in this folder would be {f'./{name}'!r}"
        message = f"`cli_path` is {name!r}: {reason}"
    raise AgentNotFound([str(place) for place in search.tried], message=message)


def search_agent(
    *,
    cli_path: StrPath | None = None,
    bundled_path: StrPath | None = None,
    environ: Mapping[str, str] | None = None,
    platform: str | None = None,
    look: Look | None = None,
) -> Search:
    """Search as `find_agent` does, and return what was tried instead of raising."""
    env = os.environ if environ is None else environ
    looked = look or look_at
    machine = _Windows(env, looked) if (platform or sys.platform) == "win32" else _Posix(env, looked)
    places = machine.explicit(cli_path) if cli_path is not None else machine.places(bundled_path)
    tried: list[Tried] = []
    for place in places:
        if place.path not in {earlier.path for earlier in tried}:
            tried.append(place)
        if not place.reason:
            return Search(place.path, tuple(tried))
    return Search(None, tuple(tried))


def look_at(path: str) -> Kind:
    """What is at a path of this machine, links followed."""
    try:
        mode = os.stat(path).st_mode  # noqa: PTH116
    except PermissionError:
        return "no access"
    except (OSError, ValueError):
        return "missing"
    if stat.S_ISDIR(mode):
        return "folder"
    if not stat.S_ISREG(mode):
        return "special"
    return "program" if os.access(path, os.X_OK) else "not executable"


class _Posix:
    """The places of a POSIX system, in order."""

    path = posixpath
    separator = ":"
    program = "claude"
    home_variable = "HOME"

    def __init__(self, environ: Mapping[str, str], look: Look) -> None:
        self.environ, self.look = environ, look

    def explicit(self, given: StrPath) -> Iterator[Tried]:
        text = os.fspath(given)
        # A bare name does not ask for a file in the current folder, which may be someone else's. A path
        # object does: `Path("./claude")` has lost its dot.
        if isinstance(given, str) and text and self.path.basename(text) == text and text[0] != "~":
            yield from self.on_path(text, _BARE)
        else:
            yield self.named(text, "cli_path")

    def places(self, bundled_path: StrPath | None) -> Iterator[Tried]:
        if bundled_path is not None:
            yield self.named(os.fspath(bundled_path), "bundled_path")
        if bundled := self.environ.get(BUNDLED_VARIABLE):
            yield self.named(bundled, BUNDLED_VARIABLE)
        package = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))  # noqa: PTH100, PTH120
        for folder in (package, os.path.dirname(package)):  # noqa: PTH120
            yield self.judged(self.path.join(folder, "_bundled", self.program), "the package")
        yield from self.on_path(self.program, "PATH")
        yield from self.usual()

    def on_path(self, program: str, source: str) -> Iterator[Tried]:
        # An empty entry would stand for the current folder.
        entries = [entry for entry in self.environ.get("PATH", "").split(self.separator) if entry]
        if not entries:
            yield Tried(program, source, "PATH is not set, or empty")
        for entry in entries:
            place = self.path.join(entry, program)
            if self.is_absolute(entry):
                yield self.judged(place, source)
            else:
                yield Tried(place, source, _RELATIVE)

    def usual(self) -> Iterator[Tried]:
        for folder in POSIX_FOLDERS:
            yield self.named(f"{folder}/{self.program}", "the usual places")

    def named(self, text: str, source: str) -> Tried:
        """A path that may begin with `~` or be relative to the current folder."""
        if not text:
            return Tried(text, source, "the path is empty")
        if text == "~" or text[:2] in ("~/", "~" + self.path.sep):
            home = self.home()
            if not home:
                return Tried(text, source, f"there is no home folder: {self.home_variable} is not set")
            text = home.rstrip("/" + self.path.sep) + text[1:]
        try:
            return self.judged(text if self.is_absolute(text) else self.path.abspath(text), source)
        except FileNotFoundError:
            return Tried(text, source, "the current folder does not exist any more")

    def judged(self, path: str, source: str) -> Tried:
        kind = self.look(path)
        return Tried(path, source, "" if kind == "program" else _REASONS[kind])

    def is_absolute(self, path: str) -> bool:
        return self.path.isabs(path)

    def home(self) -> str:
        return self.environ.get("HOME", "")


class _Windows(_Posix):
    """The places of Windows, in order: programs only, never a batch file."""

    path = ntpath
    separator = ";"
    program = "claude.exe"
    home_variable = "USERPROFILE"

    def on_path(self, program: str, source: str) -> Iterator[Tried]:
        # As the system does it: `claude` stands for `claude.exe`.
        return super().on_path(program if ntpath.splitext(program)[1] else f"{program}.exe", source)

    def usual(self) -> Iterator[Tried]:
        if local := self.environ.get("LOCALAPPDATA"):
            yield self.judged(ntpath.join(local, "Programs", "claude", self.program), "the usual places")
        yield self.named(ntpath.join("~", ".local", "bin", self.program), "the usual places")
        # Mention npm's script: people take it for the program.
        roaming = [self.environ.get("APPDATA", ""), ntpath.join(self.home(), "AppData", "Roaming")]
        for folder in filter(self.is_absolute, roaming):
            script = ntpath.join(folder, "npm", "claude.cmd")
            if self.look(script) != "missing":
                yield self.judged(script, "npm")

    def judged(self, path: str, source: str) -> Tried:
        return Tried(path, source, _BATCH) if is_batch_file(path) else super().judged(path, source)

    def is_absolute(self, path: str) -> bool:
        # `\folder` and `C:folder` depend on the current drive and its current folder.
        drive, rest = ntpath.splitdrive(path)
        return bool(drive) and rest[:1] in ("\\", "/")

    def home(self) -> str:
        drive = self.environ.get("HOMEDRIVE", "") + self.environ.get("HOMEPATH", "")
        return self.environ.get("USERPROFILE") or drive


# The version.

SKIP_VARIABLE: Final = "CLAUDE_AGENT_SDK_SKIP_VERSION_CHECK"
"""If this variable is set, even to nothing, no version is refused or warned about."""

# What may follow is a pre-release, a build, or words after a space: `2.4.1-beta.1`, `2.4.1 (Claude Code)`.
_FORM = re.compile(r"\s*v?([0-9]{1,9})\.([0-9]{1,9})\.([0-9]{1,9})(?=[-+\s]|\Z)")


class AgentVersionUnknown(UserWarning):
    """Claude Code does not report its version, or in an unknown form: it may be too old."""


class Version(msgspec.Struct, frozen=True, order=True):
    """A version, as its numbers. An unreadable one has none, and sorts before all others."""

    numbers: tuple[int, ...] = ()

    @classmethod
    def parse(cls, text: str | None) -> Version:
        """The version at the start of a text. A pre-release counts as the version that it leads to."""
        match = _FORM.match(text or "")
        return cls(tuple(map(int, match.groups()))) if match else cls()

    @property
    def is_known(self) -> bool:
        return bool(self.numbers)

    def __str__(self) -> str:
        return ".".join(map(str, self.numbers)) or "unknown"


def check_version(text: str | None, *, environ: Mapping[str, str] | None = None) -> Version:
    """Read the version that the program reports, and check that it is new enough.

    Raises `AgentTooOld` below `MINIMUM_AGENT_VERSION`; warns with `AgentVersionUnknown` if it cannot be read.
    Neither happens if the variable `CLAUDE_AGENT_SDK_SKIP_VERSION_CHECK` is set to anything.
    """
    version = Version.parse(text)
    if SKIP_VARIABLE in (os.environ if environ is None else environ):
        return version
    if not version.is_known:
        said = f"says it is of version {preview(text)!r}" if text else "does not say its version"
        warnings.warn(
            f"Claude Code {said}; Outrider needs {MINIMUM_AGENT_VERSION} or later. "
            f"Update it with `claude update`, or set {SKIP_VARIABLE}.",
            AgentVersionUnknown,
            stacklevel=2,
        )
    elif version < Version.parse(MINIMUM_AGENT_VERSION):
        raise AgentTooOld(str(version), MINIMUM_AGENT_VERSION)
    return version


_DEFERS: Final = Version((2, 1, 89))
"""The first version that leaves a call for later, and continues it when the session is resumed."""
_WAITS: Final = Version((2, 1, 261))
"""The first one that can be told to wait for the hooks before it does."""


def check_options(options: Options, version: Version, *, as_sent: bool = False) -> None:
    """Check that Claude Code of this version has the options that are set: it would ignore some of them, and
    not start with others. `as_sent`: they cannot be sent in any other way than that for the newest version.

    Raises `AgentTooOld`, unless the variable `CLAUDE_AGENT_SDK_SKIP_VERSION_CHECK` is set to anything.
    """
    is_resumed = options.resume is not None or options.continue_conversation
    if is_resumed and options.hooks and _DEFERS <= version < _WAITS:
        # Whatever that variable says: a call could run that a hook denies.
        name = "continue_conversation" if options.resume is None else "resume"
        raise AgentTooOld(str(version), str(_WAITS), [name, "hooks"])
    if not version.is_known or SKIP_VARIABLE in os.environ:
        return
    missing, moved = older_ways(options, version.numbers)
    if as_sent:
        missing |= moved
    if missing:
        raise AgentTooOld(str(version), str(Version(max(missing.values()))), list(missing))


_answers: Final[dict[tuple[object, ...], Version]] = {}
"""The versions of programs whose installation was looked at, or that were asked."""


def known_version(options: Options) -> Version:
    """The version of the program that these options start, if it can be known without a start: from the
    folder that it is installed in, or because it was asked before."""
    program, key = _located(options)
    if key not in _answers and program is not None:
        _answers[key] = installed_version(program)
    return _answers.get(key, Version())


def remember_version(options: Options, version: Version) -> None:
    """Remember what the program of these options said about its version, until its file changes."""
    if key := _located(options)[1]:
        _answers[key] = version


def installed_version(program: str) -> Version:
    """The version that an installation names: npm in a `package.json`, the installer of Claude Code in the
    name of the file. Unknown for any other program."""
    real = os.path.realpath(program)
    folder, name = os.path.split(real)
    if os.path.basename(folder) == "versions":  # noqa: PTH119
        return Version.parse(name)
    for place in (folder, os.path.dirname(folder)):  # noqa: PTH120
        try:
            with open(os.path.join(place, "package.json"), "rb") as file:  # noqa: PTH118, PTH123
                package = msgspec.json.decode(file.read(), type=_Package)
        except (OSError, ValueError):
            continue
        if package.name == "@anthropic-ai/claude-code":
            return Version.parse(package.version)
    return Version()


class _Package(msgspec.Struct):
    name: str = ""
    version: str = ""


def _located(options: Options) -> tuple[str | None, tuple[object, ...]]:
    """The path of the program on this machine, if it is on it, and what tells it from others."""
    if not runs_here(options.runner):
        return None, (repr(options.runner), options.cli_path)
    try:
        program = find_agent(cli_path=options.cli_path, bundled_path=options.bundled_path)
        found = os.stat(program)  # noqa: PTH116
    except (AgentNotFound, OSError):
        return None, ()
    return program, (program, found.st_mtime_ns, found.st_size, found.st_ino)


_ANSWERS_ALL: Final = Version((2, 1, 40))
"""The first version that answers requests that it does not know."""

_READS_WITHDRAWALS: Final = Version((2, 1, 100))
"""A version that can be told that a request is withdrawn. Others exit, some of these later than 2.1.45."""

_KNOWN_BEFORE: Final = {
    "initialize": (2, 0, 0),
    "interrupt": (2, 0, 0),
    "mcp_status": (2, 0, 0),
    "set_model": (2, 0, 0),
    "set_permission_mode": (2, 0, 0),
    "set_max_thinking_tokens": (2, 0, 22),
    "mcp_message": (2, 0, 45),
    "rewind_files": (2, 0, 64),
    "mcp_set_servers": (2, 0, 70),
    "mcp_reconnect": (2, 1, 15),
    "mcp_toggle": (2, 1, 15),
}
"""The requests that versions before that one know, each since when."""


def check_request(request: Request[object], version: Version) -> None:
    """Raise `Unsupported` if a version that is known would leave this request unanswered."""
    if version.is_known and version < _ANSWERS_ALL:
        since = _KNOWN_BEFORE.get(request.subtype)
        if since is None or version.numbers < since:
            raise Unsupported(request, f"Claude Code {version} does not know it")


def can_withdraw_requests(version: Version) -> bool:
    """Whether a version can be told that a request needs no answer any more."""
    return version >= _READS_WITHDRAWALS
