"""List what changed in the public names since the last release and could break a program that uses them.

Each has to be named in the section "Unreleased" of CHANGELOG.md, as `name` or `Class.name`: then it is meant.
Without git or a tag of a release, as in a shallow clone, there is nothing to compare with.
"""

from __future__ import annotations

import ast
import io
import logging
import re
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import griffe

ROOT = Path(__file__).resolve().parents[1]
PACKAGE = "outrider"


class Change(NamedTuple):
    """Something that programs may use, and what happened to it."""

    path: str
    what: str


def last_release(root: Path) -> str | None:
    """The newest tag of a release that the current commit has behind it."""
    try:
        done = subprocess.run(
            ["git", "describe", "--tags", "--abbrev=0", "--match=v[0-9]*"],
            cwd=root,
            capture_output=True,
            text=True,
            check=False,
        )
    except OSError:
        return None
    return done.stdout.strip() or None


class Offered(griffe.Extension):
    """Takes to be public what type checkers do, too: `from module import name as name`."""

    def on_alias_instance(
        self, *, node: ast.AST | griffe.ObjectNode, alias: griffe.Alias, **_: object
    ) -> None:
        if isinstance(node, ast.ImportFrom):
            alias.public = any(each.name == each.asname == alias.name for each in node.names) or None


def load(folder: Path) -> griffe.Module | griffe.Alias:
    loaded = griffe.load(
        PACKAGE,
        search_paths=[folder / "src"],
        extensions=griffe.Extensions(Offered()),
        allow_inspection=False,
        resolve_aliases=True,
    )
    assert isinstance(loaded, griffe.Module | griffe.Alias)
    return loaded


def load_release(root: Path, tag: str) -> griffe.Module | griffe.Alias:
    packed = subprocess.run(["git", "archive", tag, "src"], cwd=root, capture_output=True, check=True).stdout
    with tempfile.TemporaryDirectory() as folder, tarfile.open(fileobj=io.BytesIO(packed)) as archive:
        archive.extractall(folder, filter="data")
        return load(Path(folder))


def breaking_changes(
    old: griffe.Module | griffe.Alias, new: griffe.Module | griffe.Alias
) -> Iterator[Change]:
    for each in griffe.find_breaking_changes(old, new):
        if is_ours(each.obj):
            yield Change(each.obj.path, each.kind.value[0].lower() + each.kind.value[1:])


def is_ours(found: griffe.Object | griffe.Alias) -> bool:
    """Whether it is defined here: `from module import *` also brings what that module has imported."""
    target = found.path
    while isinstance(found, griffe.Alias):
        target = found.target_path
        try:
            found = found.target
        except griffe.AliasResolutionError:
            break
    return target.startswith(f"{PACKAGE}.")


def unreleased(changelog: str) -> str:
    """The text of the section for what has not been released."""
    return changelog.partition("\n## Unreleased\n")[2].partition("\n## ")[0]


def is_named(change: Change, section: str) -> bool:
    name = change.path.removesuffix(".__init__").rpartition(".")[2]
    return re.search(rf"`(?:[\w.]+\.)?{re.escape(name)}\b", section) is not None


def main(root: Path = ROOT) -> int:
    tag = last_release(root)
    if tag is None:
        print("no tag of a release here: nothing to compare the public names with")
        return 0
    logging.getLogger("griffe").setLevel(logging.ERROR)
    section = unreleased((root / "CHANGELOG.md").read_text(encoding="utf-8"))
    changes = list(breaking_changes(load_release(root, tag), load(root)))
    unnamed = [change for change in changes if not is_named(change, section)]
    for change in unnamed:
        print(f"error: {change.path}: {change.what}", file=sys.stderr)
    if unnamed:
        print(
            f"These break programs written for {tag}. Undo them, or name them in CHANGELOG.md.",
            file=sys.stderr,
        )
        return 1
    print(
        f"{len(changes)} incompatible changes since {tag}, all in CHANGELOG.md" if changes else f"as in {tag}"
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
