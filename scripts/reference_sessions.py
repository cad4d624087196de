"""Runs the cases of `tests/compat/session_cases.py` on a package that has the session functions, and keeps
what the reference package answers in `tests/compat/reference/sessions.json`.

    python scripts/reference_sessions.py --write REFERENCE_PYTHON   # asks the reference anew
    python scripts/reference_sessions.py --package NAME < cases     # prints the answers of one package

The second needs the standard library and the package only.
"""

from __future__ import annotations

import argparse
import importlib
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

ROOT = Path(__file__).absolute().parents[1]
KEPT = ROOT / "tests" / "compat" / "reference" / "sessions.json"


def ask(python: str, package: str, worlds: Mapping[str, Any], cases: list[dict[str, Any]]) -> dict[str, Any]:
    """The answers of a package in an environment of its own."""
    with tempfile.TemporaryDirectory() as folder:
        done = subprocess.run(
            [str(Path(python).absolute()), str(Path(__file__).absolute()), "--package", package],
            input=json.dumps([worlds, cases]),
            cwd=folder,
            # The reference takes times without a zone for local ones.
            env={**os.environ, "TZ": "UTC"},
            timeout=120,
            capture_output=True,
            text=True,
            check=False,
        )
    if done.returncode:
        raise SystemExit(done.stderr)
    told: dict[str, Any] = json.loads(done.stdout)
    return told


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--package", default="claude_agent_sdk")
    parser.add_argument("--write", metavar="REFERENCE_PYTHON")
    options = parser.parse_args()
    sys.path[:0] = [str(ROOT)]
    if options.write:
        sys.path[:0] = [str(ROOT / "src")]
        from tests.compat.kept_sessions import WORLDS
        from tests.compat.session_cases import CASES

        told = ask(options.write, options.package, WORLDS, CASES)
        lines = [f"{json.dumps(name)}: {json.dumps(answer)}" for name, answer in told.items()]
        KEPT.parent.mkdir(parents=True, exist_ok=True)
        KEPT.write_text("{\n" + ",\n".join(lines) + "\n}\n")
        return
    from tests.compat.session_answers import answers

    package = importlib.import_module(options.package)
    worlds, cases = json.load(sys.stdin)
    with tempfile.TemporaryDirectory() as folder:
        print(json.dumps(answers(worlds, cases, lambda name: getattr(package, name), Path(folder))))


if __name__ == "__main__":
    main()
