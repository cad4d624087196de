"""Writes a session from a store to where Claude Code looks for it.

On this machine its own file, if there is one, is compared first, so that nothing is lost that only one of the
two has. Does not read the store.
"""

from __future__ import annotations

import json
import os
from contextlib import contextmanager, suppress
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple, TypeAlias, cast

from outrider._folders import make_folders, replace_file
from outrider._threads import run_sync
from outrider.command import File
from outrider.errors import MessageInvalid, OptionsError, TranscriptError
from outrider.launch import look_up_user, make_environment
from outrider.transcripts import check_project_key, check_subpath, config_folder
from outrider.transcripts._disk.files import SessionFile, open_file, part_files, refuse_link
from outrider.transports import is_intercepted
from outrider.wire import encode
from outrider.wire._decoding import decode_object

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Generator, Mapping

    from outrider.command import UserId
    from outrider.options import Options
    from outrider.transcripts import SessionStoreEntry

    Append: TypeAlias = Callable[[str, list[SessionStoreEntry]], Awaitable[None]]

_PRIVATE: Final = "config/projects"
"""Where sessions are in the private folder of a hermetic run."""

_METADATA: Final = "agent_metadata"
_NOT_MIRRORED: Final = "api-request"
"""The program keeps a record of its requests in the file, and does not mirror it."""

_NOTES: Final = ("custom-title", "tag")
"""Titles and tags, which users may set at any time."""


class ConfigLocation(NamedTuple):
    """Where the configuration folder of a run is, which has its sessions."""

    config: Path | None
    """The program's configuration folder; None if it is made for the run, or not on this machine."""
    is_private: bool
    """Whether it is removed with the run."""
    user: UserId | None = None
    is_certain: bool = True
    """Whether the program must use this folder: a runner may change its environment, and a stand-in has
    folders of its own."""


def locate_config(options: Options) -> ConfigLocation:
    """Where the sessions of a run with these options are. Raises `UserNotFound`."""
    is_private = options.isolation.is_hermetic and options.isolation.config_dir is None
    is_elsewhere = options.runner is not None and not options.runner.is_local
    if is_private or is_elsewhere or options.transport is not None:
        return ConfigLocation(None, is_private)
    user = None if options.user is None else look_up_user(options.user)
    if options.isolation.config_dir is not None:
        config = Path(options.isolation.config_dir)
    else:
        # A relative one is so to the folder that the program runs in.
        config = Path(options.cwd or "") / config_folder(make_environment(options, user=user))
    is_certain = options.runner is None and not is_intercepted()
    return ConfigLocation(Path(os.path.abspath(config)), False, user, is_certain)  # noqa: PTH100 - no links resolved


class _Plan(NamedTuple):
    missing: dict[str, list[SessionStoreEntry]]
    """What the store lacks, by part."""
    stale: dict[str, list[SessionStoreEntry]]
    """What the files lack, by part."""


class SessionFiles:
    """A session as files: by the part of it, with `""` for the main transcript."""

    def __init__(
        self, session_id: str, parts: Mapping[str, list[SessionStoreEntry]], project: str, kept_as: str
    ) -> None:
        """`project` is that of the folder where it continues, `kept_as` the one that the store has it
        under."""
        self.session_id = session_id
        self._parts = dict(parts)
        self._projects = [project]
        with suppress(OptionsError):
            self._projects.append(check_project_key(kept_as))
        self._torn: set[str] = set()
        """Parts whose file does not end with a whole line."""
        self.files: tuple[File, ...] = ()
        """What a command needs whose configuration folder is private, once they are made."""

    async def render(self) -> None:
        """Make the files, for a command whose configuration folder is private."""
        with self._converting_errors("its private folder"):
            self.files = await run_sync(self._files)

    async def restore(self, location: ConfigLocation, append: Append | None) -> None:
        """Write it to the configuration folder of this machine. `append` gives the store what it lacks of a
        part; None: the store stays as it is.

        Raises `TranscriptError` if the two have gone different ways, or if it cannot be written.
        """
        assert location.config is not None
        folder = self._folder(location.config)
        with self._converting_errors(folder):
            plan = await run_sync(self._plan, folder)
        for part, entries in plan.missing.items():
            if append is not None:
                await append(part, entries)
        with self._converting_errors(folder):
            await run_sync(self._write, folder, plan.stale, location.user)

    @contextmanager
    def _converting_errors(self, folder: Path | str) -> Generator[None]:
        try:
            yield
        except OSError as error:
            raise TranscriptError(
                f"the session {self.session_id!r} cannot be restored to {folder}: {error}",
                session_id=self.session_id,
                hint="Make room, or let the folder be read and written.",
            ) from error
        except MessageInvalid as error:
            # Without the text of the error, which shows parts of the transcript.
            raise TranscriptError(
                f"the session {self.session_id!r} has an entry in the session store that is not JSON",
                session_id=self.session_id,
                hint="Delete it there, or repair it.",
            ) from error

    def _folder(self, config: Path) -> Path:
        """The project's folder: the existing one, if there is one."""
        folders = [config / "projects" / project for project in self._projects]
        there = (folder for folder in folders if (folder / self._name("")).exists())
        return next(there, folders[0])

    def _name(self, part: str) -> str:
        return f"{self.session_id}/{part}.jsonl" if part else f"{self.session_id}.jsonl"

    def _rendered(self, part: str, entries: list[SessionStoreEntry]) -> dict[str, bytes]:
        lines = [entry for entry in entries if entry.get("type") != _METADATA]
        metadata = [entry for entry in entries if entry.get("type") == _METADATA]
        files: dict[str, bytes] = {}
        if lines or not metadata:
            # Not joined: all lines would be in memory twice.
            content = BytesIO()
            for line in lines:
                content.write(encode(line) + b"\n")
            files[self._name(part)] = content.getvalue()
        if metadata and part:
            fields = {name: value for name, value in metadata[-1].items() if name != "type"}
            files[self._name(part).removesuffix(".jsonl") + ".meta.json"] = encode(fields)
        return files

    # In a thread.

    def _files(self) -> tuple[File, ...]:
        return tuple(
            File(f"{_PRIVATE}/{self._projects[0]}/{name}", content)
            for part, entries in self._parts.items()
            for name, content in self._rendered(part, entries).items()
        )

    def _plan(self, folder: Path) -> _Plan:
        """What each of the two lacks of the other."""
        plan = _Plan({}, {})
        local = self._read(folder)
        for part in dict.fromkeys((*self._parts, *local)):
            stored, there = self._parts.get(part, []), local.get(part, [])
            is_behind, is_ahead = bool(_unknown(stored, there)), bool(_unknown(there, stored))
            if is_behind and is_ahead:
                raise TranscriptError(
                    f"the session {self.session_id!r} has gone on both in the session store and in "
                    f"{folder / self._name(part)}",
                    session_id=self.session_id,
                    hint="Move that file away to go on with the store's; `outrider sessions fork` keeps it "
                    "as a session of its own.",
                )
            missing = _notes(stored, there) if is_ahead else _missing(stored, there)
            if missing:
                plan.missing[part] = missing
            if _adds(stored, local.get(part)):
                plan.stale[part] = [*stored, *missing]
            elif part in self._torn:
                # Otherwise the next entry would become part of that line.
                plan.stale[part] = there
        return plan

    def _read(self, folder: Path) -> dict[str, list[SessionStoreEntry]]:
        found: dict[str, list[SessionStoreEntry]] = {}
        main = SessionFile(session_id=self.session_id, project=folder.name, path=folder / self._name(""))
        others = (path for _, path in part_files(main, strict=True) if path.suffix == main.path.suffix)
        for path in (main.path, *others):
            part = "/".join(path.relative_to(folder).with_suffix("").parts[1:])
            # Entries that no store accepts stay where they are.
            with suppress(FileNotFoundError, NotADirectoryError, OptionsError):
                with open_file(path) as file:
                    data = file.read()
                found[check_subpath(part) if part else ""] = _entries(data)
                if data and not data.endswith(b"\n"):
                    self._torn.add(part)
        return found

    def _write(self, folder: Path, parts: Mapping[str, list[SessionStoreEntry]], user: UserId | None) -> None:
        for part, entries in parts.items():
            for name, content in self._rendered(part, entries).items():
                for above in Path(name).parents[:-1]:
                    refuse_link(folder / above)
                owner = None if user is None else (user.uid, user.gid)
                make_folders((folder / name).parent, owner)
                replace_file(folder / name, content, owner=owner)


def _entries(data: bytes) -> list[SessionStoreEntry]:
    """The lines of a file, except damaged and incomplete ones."""
    found: list[SessionStoreEntry] = []
    for line in data.split(b"\n"):
        with suppress(ValueError):
            found.append(cast("SessionStoreEntry", decode_object(line)))
    return found


def _unknown(known: list[SessionStoreEntry], entries: list[SessionStoreEntry]) -> set[str]:
    """The messages, by uuid, that the first has and the second lacks."""
    return _uuids(entries) - _uuids(known)


def _uuids(entries: list[SessionStoreEntry]) -> set[str]:
    found = (cast("Mapping[str, object]", entry).get("uuid") for entry in entries)
    return {uuid for uuid in found if isinstance(uuid, str)}


def _missing(stored: list[SessionStoreEntry], there: list[SessionStoreEntry]) -> list[SessionStoreEntry]:
    """What the store lacks of a file: messages, and other lines after the last that both have."""
    if not there:
        # To compare takes as much memory again as there is.
        return []
    lines = [entry for entry in there if not str(entry.get("type")).startswith(_NOT_MIRRORED)]
    known, unknown = {_canonical(entry) for entry in stored}, _unknown(stored, there)
    last = max((at for at, entry in enumerate(lines) if _canonical(entry) in known), default=-1)
    return [entry for at, entry in enumerate(lines) if at > last or _uuids([entry]) & unknown]


def _notes(stored: list[SessionStoreEntry], there: list[SessionStoreEntry]) -> list[SessionStoreEntry]:
    """The last title and tag that a file was given, where the store has not got another since."""
    found: list[SessionStoreEntry] = []
    for kind in _NOTES:
        ours = [entry for entry in there if entry.get("type") == kind]
        theirs = {_canonical(entry) for entry in stored if entry.get("type") == kind}
        if ours and _canonical(ours[-1]) not in theirs and theirs <= {_canonical(entry) for entry in ours}:
            found.append(ours[-1])
    return found


def _adds(entries: list[SessionStoreEntry], there: list[SessionStoreEntry] | None) -> bool:
    """Whether a file lacks anything of what the store has."""
    if there is None:
        return True
    known = {_canonical(entry) for entry in there}
    return any(_canonical(entry) not in known for entry in entries if entry.get("type") != _METADATA)


def _canonical(entry: SessionStoreEntry) -> str:
    """A key that is equal for equal entries, in any order of their fields."""
    # Values that are not JSON are refused when they are written.
    return json.dumps(entry, sort_keys=True, default=repr)
