"""What a session can ask about the workspace: files, directories, and commands in the background.

Does not touch a file itself: the agent may run on another machine.
"""

from __future__ import annotations

from os import PathLike
from typing import Literal, TypeAlias, cast

from outrider.errors import RequestFailed, RequestTimedOut, Unsupported
from outrider.options._readers import any_text, choice, fault, path_text, switch, text, whole
from outrider.session._requests_asking import UNSET, Asking, Timeout
from outrider.wire import control

StrPath: TypeAlias = str | PathLike[str]


class FileRequests(Asking):
    """The part of `Requests` that is about the workspace and about background tasks."""

    # Files.

    async def read_file(
        self,
        path: StrPath,
        *,
        max_bytes: int | None = None,
        encoding: Literal["utf-8", "base64"] | None = None,
        timeout: Timeout = UNSET,
    ) -> control.FileContents:
        """Read a file of the workspace, as the agent sees it; at most `max_bytes`, or else 1 MB.

        A file that is missing and one that may not be read both raise `RequestFailed`, with the same words.
        """
        request = control.ReadFile(
            path_text("`path`", path),
            None if max_bytes is None else cast(int, whole(1)("`max_bytes`", max_bytes)),
            None if encoding is None else cast(str, choice("utf-8", "base64")("`encoding`", encoding)),
        )
        return await self.request(request, timeout=timeout)

    async def suggest_files(self, query: str, *, timeout: Timeout = UNSET) -> control.SuggestedFiles:
        """The files that a typed name may mean, best first."""
        request = control.FileSuggestions(any_text("`query`", query))
        return await self.request(request, timeout=timeout)

    async def seed_read_state(self, path: StrPath, mtime_ns: int, *, timeout: Timeout = UNSET) -> None:
        """Let the agent edit a file as if it had read it.

        `mtime_ns` is when the file was last changed, as `Path.stat().st_mtime_ns` tells it: if it has been
        changed since, the agent must read it after all.
        """
        if isinstance(mtime_ns, bool) or not isinstance(cast(object, mtime_ns), int) or mtime_ns < 0:
            raise fault("`mtime_ns`", "a number of nanoseconds", mtime_ns, "Give `path.stat().st_mtime_ns`.")
        # Whole milliseconds, rounded down: the agent compares.
        request = control.SeedReadState(path_text("`path`", path), mtime_ns // 1_000_000)
        await self.request(request, timeout=timeout)

    async def rewind_files(
        self, user_message_id: str, *, dry_run: bool = False, timeout: Timeout = UNSET
    ) -> control.RewindReport:
        """Take files back to what they were before a message of the user's.

        `dry_run` only tells what would change. Needs `enable_file_checkpointing`. If the agent cannot do it,
        that is no exception: `can_rewind` is False, and `error` tells why.
        """
        dry = switch("`dry_run`", dry_run) or None
        request = control.RewindFiles(text("`user_message_id`", user_message_id), dry)
        try:
            return await self.request(request, timeout=timeout)
        except (Unsupported, RequestTimedOut):
            raise
        except RequestFailed as refused:
            # The agent refuses in two ways: by the answer to a dry run, and by an error otherwise.
            return control.RewindReport.from_wire({"canRewind": False, "error": refused.message})

    async def workspace_diff(self, *, timeout: Timeout = UNSET) -> control.WorkspaceDiff:
        """What differs from the last commit."""
        return await self.request(control.GetWorkspaceDiff(), timeout=timeout)

    # Directories.

    async def set_cwd(
        self,
        path: StrPath,
        *,
        trusted_directory: StrPath | None = None,
        timeout: Timeout = UNSET,
    ) -> control.DirectoryChanged:
        """Move the session to another working directory.

        Look at `status` in the answer. `needs_trust`: nothing was changed; ask the user whether `directory`
        can be trusted, and call again with it as `trusted_directory`.
        """
        trusted = None if trusted_directory is None else path_text("`trusted_directory`", trusted_directory)
        request = control.SetCwd(path_text("`path`", path), None if trusted is None else True, trusted)
        return await self.request(request, timeout=timeout)

    async def register_repo_root(
        self,
        directory: StrPath,
        *,
        reload_claude_md: bool = False,
        reload_plugins: bool = False,
        reload_skills: bool = False,
        timeout: Timeout = UNSET,
    ) -> str:
        """Make a repository below the working directory part of the workspace; gives back its path."""
        wanted = path_text("`directory`", directory)
        request = control.RegisterRepoRoot(
            wanted,
            switch("`reload_claude_md`", reload_claude_md) or None,
            switch("`reload_plugins`", reload_plugins) or None,
            switch("`reload_skills`", reload_skills) or None,
        )
        return (await self.request(request, timeout=timeout)).directory or wanted

    # Background tasks.

    async def stop_task(self, task_id: str, *, timeout: Timeout = UNSET) -> None:
        """End a background task. The agent does not tell whether there was one of this id."""
        await self.request(control.StopTask(text("`task_id`", task_id)), timeout=timeout)

    async def background_tasks(self, tool_use_id: str | None = None, *, timeout: Timeout = UNSET) -> bool:
        """Move running commands and subagents to the background, so that the turn goes on.

        `tool_use_id` names one call; None: all. False if there was nothing to move. A command can be moved
        once it has run for some seconds.
        """
        call = None if tool_use_id is None else text("`tool_use_id`", tool_use_id)
        answer = await self.request(control.BackgroundTasks(call), timeout=timeout)
        return answer.backgrounded is not False

    async def task_output(self, task_id: str, *, timeout: Timeout = UNSET) -> control.TaskTail:
        """The end of what a command in the background has printed: at most 8 KiB."""
        return await self.request(control.GetTaskOutput(text("`task_id`", task_id)), timeout=timeout)
