"""Owns the question which other worktrees a folder's repository has.

Does not run git: the repository may be anybody's.
"""

from __future__ import annotations

import os
import unicodedata

from outrider._git import find_repository

__all__ = ["worktrees"]


def worktrees(folder: str | os.PathLike[str]) -> list[str]:
    """The folders of all worktrees of the repository that a folder is in; none if it is in no repository."""
    try:
        repository = find_repository(folder)
    except (OSError, ValueError):
        return []
    found = [] if repository is None else repository.worktrees()
    return [unicodedata.normalize("NFC", each) for each in found]
