"""How prompts reach the agent: as messages while it runs, or as one text when it starts.

Does not write a prompt: it decides what the command line looks like.
"""

from __future__ import annotations

import enum


class Mode(enum.Enum):
    """How prompts reach the agent."""

    STREAMING = "streaming"
    """Messages on stdin, which stays open until the session is closed."""
    STREAMING_ONCE = "streaming_once"
    """Messages on stdin, which is closed once all are written and nothing needs it any more."""
    ONE_SHOT = "one_shot"
    """One text on stdin, then the end of input. There are no requests in either direction."""
    ONE_SHOT_ARGV = "one_shot_argv"
    """One text on the command line, where every user of the machine can read it."""

    @property
    def is_streaming(self) -> bool:
        return self in (Mode.STREAMING, Mode.STREAMING_ONCE)

    def given(self, prompt: str | None) -> Mode:
        """The mode that this one comes to with a prompt: there is nothing to shoot with an empty one."""
        return Mode.STREAMING if prompt == "" and not self.is_streaming else self
