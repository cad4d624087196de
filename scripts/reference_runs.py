"""Runs programs that others wrote for the reference SDK with it and with `outrider.compat`, and compares what
they print: the examples of its repository, and instrumentors and frameworks that have its name compiled in.

    python scripts/reference_runs.py [NAME ...]

The examples run with the real Claude Code, whose model is a script; the programs of
`tests/compat/instrumentors` with a simulated one. Fails if one that is not explained prints something else.
"""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
from difflib import unified_diff
from pathlib import Path
from tempfile import TemporaryDirectory

sys.path.insert(0, str(Path(__file__).absolute().parents[1]))

from benchmarks.reference import Unavailable
from outrider.testing import MessagesApi, clean_environment, say
from outrider.testing._simulator.program import SCRIPT_VARIABLE, write_launcher
from scripts.agent_program import program as real_program
from scripts.reference_suites import INSTRUMENTORS, PYTHON, ROOT, SUITES, install, sources

PROGRAMS = ROOT / "tests" / "compat" / "instrumentors"
SECONDS = 120
"""How long a program may take."""
EXPLAINED = {
    "hooks": "a hook that names another event is heard, and not rejected",
    "include_partial_messages": "it prints messages, which have more fields here",
    "plugin_example": "it prints the keys of a frame, which names the prompt here",
}
NOTEBOOKS = frozenset(("streaming_mode_ipython",))
"""Examples that are cells of a notebook."""
VARIABLE = re.compile(r"[0-9a-f]{8}-[0-9a-f-]{27}|(?:toolu|msg|req)_\w+|/tmp/\S+|\$?\d+(?:\.\d+)?")
"""What is different each time: ids, places, times and figures."""


def main() -> int:
    """What to exit with."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("names", nargs="*", metavar="NAME", help="programs; left out: all")
    given = parser.parse_args()
    try:
        install()
        examples = sources("claude-agent-sdk", SUITES["claude-agent-sdk"]) / "examples"
    except Unavailable as error:
        print(f"programs of others are left out: {error}", file=sys.stderr)
        return 0
    found = [path for path in sorted(examples.glob("*.py")) if path.stem not in NOTEBOOKS]
    programs = [*found, *(PROGRAMS / f"{name}.py" for name in INSTRUMENTORS)]
    wanted = [path for path in programs if not given.names or path.stem in given.names]
    different = [path.stem for path in wanted if not _is_same(path)]
    print(
        f"{len(wanted) - len(different)}/{len(wanted)} programs of others print the same, or it is explained"
    )
    return 1 if different else 0


def _is_same(program: Path) -> bool:
    """Whether a program prints the same with both packages, or the difference is explained."""
    was, now = (_printed(program, is_ours=is_ours) for is_ours in (False, True))
    name = program.stem
    reason = EXPLAINED.get(name)
    if was == now and reason is None:
        print(f"{name:<28}the same", flush=True)
        return True
    if was != now and reason is not None:
        print(f"{name:<28}differs: {reason}", flush=True)
        return True
    print(f"{name:<28}{'differs' if reason is None else 'is the same, though it is explained'}")
    old, new = (text.splitlines(keepends=True) for text in (was, now))
    print("".join(unified_diff(old, new, "reference", "outrider")), flush=True)
    return False


def _printed(program: Path, *, is_ours: bool) -> str:
    """What a program prints, and how it ends. Nothing of this machine's settings is seen by it."""
    alias = "import outrider.compat; outrider.compat.install(); " if is_ours else ""
    arguments = ["all"] if "sys.argv" in program.read_text(encoding="utf-8") else []
    code = f"{alias}import runpy; runpy.run_path({str(program)!r}, run_name='__main__')"
    command = [str(PYTHON), "-c", code, *arguments]
    with (
        TemporaryDirectory(prefix="outrider-program-") as place,
        MessagesApi([], otherwise=say("Good morning.")) as api,
    ):
        home = Path(place).resolve()
        (home / ".claude").mkdir()
        environment = clean_environment(home, url=api.url)
        # Claude Code for Outrider; the reference has its own.
        environment["PATH"] = f"{Path(str(real_program())).parent}:{environment['PATH']}"
        # The order of sets is that of the hashes.
        environment |= {"PYTHONHASHSEED": "0", "PYTHONPATH": str(program.parent)}
        environment |= {SCRIPT_VARIABLE: str(PROGRAMS / "script.yaml"), "AGENT": str(write_launcher(home))}
        done = subprocess.run(
            command,
            cwd=home,
            env=environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
            timeout=SECONDS,
        )
    failure = done.stderr.strip().splitlines()[-1:] if done.returncode else []
    text = "\n".join((done.stdout, *failure, f"exit {done.returncode}", ""))
    return VARIABLE.sub("…", text).replace("claude_agent_sdk.", "").replace("outrider.compat.", "")


if __name__ == "__main__":
    sys.exit(main())
