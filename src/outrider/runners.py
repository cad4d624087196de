"""Where Claude Code runs: here, in a container, in a pod, on another machine, or behind a command.

The default is `Local`.
"""

from outrider.launch import (
    Docker,
    Kubectl,
    Local,
    Prefix,
    Ssh,
)

__all__ = [
    "Docker",
    "Kubectl",
    "Local",
    "Prefix",
    "Ssh",
]
