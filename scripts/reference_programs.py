"""Runs the programs of `tests/compat/programs` with the reference SDK, and keeps what they print beside them.

    python scripts/reference_programs.py [--check] [NAME ...]

Each runs with the simulated agent and with the real one. `NAME.out` has what both print, or, if there is a
`NAME.real.out` beside it, what the first prints. With `--check` nothing is written, and it fails on a
difference. Installs the reference in an environment of its own if it is not there.
"""

from __future__ import annotations

import argparse
import sys
from difflib import unified_diff
from pathlib import Path

sys.path.insert(0, str(Path(__file__).absolute().parents[1]))

from tests.compat.running import FOLDER, SIMULATED_ONLY, names, run_program


def main() -> int:
    """What to exit with."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("names", nargs="*", metavar="NAME", help="programs; left out: all")
    parser.add_argument("--check", action="store_true", help="write nothing; exit with 1 on a difference")
    given = parser.parse_args()
    failed = [name for name in given.names or names() if not _is_kept(name, is_checked=given.check)]
    if failed:
        print(f"not as kept: {', '.join(failed)}", file=sys.stderr)
    return 1 if failed else 0


def _is_kept(name: str, *, is_checked: bool) -> bool:
    print(name, flush=True)
    done = run_program(name, "reference", "simulated")
    printed = {f"{name}.out": done.out}
    codes = [done.code]
    if name not in SIMULATED_ONLY:
        real = run_program(name, "reference", "real")
        codes.append(real.code)
        if real.out != done.out:
            printed[f"{name}.real.out"] = real.out
    if any(codes):
        print(f"{name} ended with {codes}: {done.err}", file=sys.stderr)
        return False
    if not is_checked:
        (FOLDER / f"{name}.real.out").unlink(missing_ok=True)
        for file, text in printed.items():
            (FOLDER / file).write_text(text, encoding="utf-8")
        return True
    kept = {path.name: path.read_text(encoding="utf-8") for path in _kept_files(name)}
    for file in sorted(kept.keys() | printed.keys()):
        old, new = (texts.get(file, "").splitlines(keepends=True) for texts in (kept, printed))
        sys.stdout.writelines(unified_diff(old, new, f"kept {file}", f"now {file}"))
    return kept == printed


def _kept_files(name: str) -> list[Path]:
    return [path for path in (FOLDER / f"{name}.out", FOLDER / f"{name}.real.out") if path.exists()]


if __name__ == "__main__":
    sys.exit(main())
