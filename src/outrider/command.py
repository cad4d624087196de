"""Describes a program to start as one plain value: arguments, environment, working folder, user and files.

`outrider.launch` makes it from options, `outrider.transports` starts it. It can describe any program.
"""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Final, Protocol, runtime_checkable

import msgspec

from outrider.redaction import DEFAULT, MASK, Redaction

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["FOLDER", "Command", "File", "Runner", "UserId", "is_batch_file"]

FOLDER: Final = "\0folder"
"""Stands for the path of the command's private folder, wherever it occurs in `argv` and `env`.

No argument and no variable can hold a NUL byte, so nothing else can be mistaken for it.
"""


class File(msgspec.Struct, frozen=True):
    """A file that the command needs: made before the start, readable by its user alone, removed at the end.

    `name` is its path in the command's private folder, with `/` between the parts.
    """

    name: str
    content: bytes

    def __repr__(self) -> str:
        return f"File({self.name!r}, <{len(self.content)} bytes>)"


class UserId(msgspec.Struct, frozen=True):
    """The user that a command runs as, and that its files belong to."""

    uid: int
    gid: int
    groups: tuple[int, ...] = ()
    name: str | None = None
    home: str | None = None


class Command(msgspec.Struct, frozen=True):
    """A program and all that it needs to start."""

    argv: tuple[str, ...]
    """The program and its arguments; `FOLDER` in them stands for the private folder."""
    env: Mapping[str, str] | None = None
    """The whole environment. None: that of this process."""
    cwd: str | None = None
    """The working folder. None: that of this process."""
    files: tuple[File, ...] = ()
    folders: tuple[str, ...] = ()
    """Empty folders to make in the private folder."""
    user: UserId | None = None
    """None: the user of this process."""
    preamble: bytes = b""
    """What is written to stdin before anything else; a runner uses it to carry secrets to the far side."""
    far_env: tuple[str, ...] | None = None
    """What stays of the environment of another machine, if a runner carries the command there: names, or the
    beginnings of names and `*`. None: all of it."""
    secrets: tuple[str, ...] = ()
    """Secrets that it carries where they cannot be told by a name, as in `preamble`."""

    @property
    def needs_folder(self) -> bool:
        """Whether a private folder has to be made for it."""
        return bool(self.files or self.folders) or FOLDER in "\0".join(
            (*self.argv, *(self.env or {}).values())
        )

    def placed(self, folder: str) -> Command:
        """The command with the path of its private folder filled in."""
        env = None if self.env is None else {k: v.replace(FOLDER, folder) for k, v in self.env.items()}
        argv = tuple(argument.replace(FOLDER, folder) for argument in self.argv)
        return msgspec.structs.replace(self, argv=argv, env=env)

    def known_secrets(self, environ: Mapping[str, str]) -> tuple[str, ...]:
        """What it carries under the name or in the shape of a secret: in its environment, which is `environ`
        if it has none of its own, in its arguments, and in its JSON files."""
        values: list[object] = [dict(environ if self.env is None else self.env)]
        for file in self.files:
            if file.name.endswith(".json"):
                with suppress(ValueError, RecursionError):
                    values.append(msgspec.json.decode(file.content))
        found = [secret for value in values for secret in DEFAULT.secrets_in(value)]
        for argument, hidden in zip(self.argv, DEFAULT.mask_argv(self.argv), strict=True):
            shown, mask, rest = hidden.partition(MASK)
            if mask and not rest and argument.startswith(shown):
                found.append(argument[len(shown) :])
        return tuple(dict.fromkeys((*self.secrets, *found)))

    def redaction(self, environ: Mapping[str, str], redaction: Redaction = DEFAULT) -> Redaction:
        """A redaction that hides what the command carries, wherever it is seen."""
        return redaction.with_values(*self.known_secrets(environ))

    def __repr__(self) -> str:
        argv = [argument.replace(FOLDER, "<folder>") for argument in self.redaction({}).mask_argv(self.argv)]
        parts = [repr(argv)]
        if self.env is not None:
            # The names alone: it is the whole environment of this process, as a rule.
            parts.append(f"env=<{', '.join(self.env)}>")
        if self.cwd is not None:
            parts.append(f"cwd={self.cwd!r}")
        if self.files:
            parts.append(f"files={list(self.files)}")
        if self.user is not None:
            parts.append(f"user={self.user.uid}")
        return f"Command({', '.join(parts)})"


@runtime_checkable
class Runner(Protocol):
    """Says how a command is started: as it is, or wrapped so that it runs elsewhere."""

    @property
    def is_local(self) -> bool:
        """Whether the command sees the files, folders and users of this machine."""
        ...

    def wrap(self, command: Command) -> Command:
        """The command that, started here, runs the given one where it should run."""
        ...


def is_batch_file(path: str) -> bool:
    r"""Whether Windows may take a program's path for a batch file, whatever system this is.

    Windows drops dots and spaces at the end of a name, `:` leads to a stream of the same file, `\…\..` leads
    back, and a quote ends a name early: so any part of the path counts, without what is dropped.
    """
    return any(
        part.rstrip(" .").endswith((".cmd", ".bat"))
        for quote in ("", "\\")
        for part in path.lower().replace('"', quote).replace("/", "\\").replace(":", "\\").split("\\")
    )
