"""Runs tests that others wrote for the reference SDK with it and with `outrider.compat`, and counts both.

    python scripts/reference_suites.py [NAME ...]

Of each test that passes with the reference, it counts whether it passes with `--outrider-compat`, which lets
`import claude_agent_sdk` mean the drop-in. The last column leaves out files that the drop-in cannot import:
most of the reference's own tests are about functions inside of it.

Sources come from the package index; a suite that cannot be had is left out, with the reason. Everything is
installed in `build/parity`.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
import tarfile
from functools import partial
from pathlib import Path
from typing import NamedTuple

sys.path.insert(0, str(Path(__file__).absolute().parents[1]))

from benchmarks.reference import PIN, Unavailable, run

ROOT = Path(__file__).absolute().parents[1]
FOLDER = ROOT / "build" / "parity"
PYTHON = FOLDER / "bin" / "python"
PIP = (str(PYTHON), "-m", "pip", "--disable-pip-version-check", "--retries", "1")
TOOLS = ("pytest==9.2.0", "pytest-asyncio", "pytest-timeout", "trio", "inline-snapshot")
SECONDS = 20
"""How long a test may take."""
FILE_SECONDS = 180
PYTEST = (
    *(str(PYTHON), "-m", "pytest", "-v", "--tb=no", "-p", "no:cacheprovider"),
    *(f"--timeout={SECONDS}", "--timeout-method=thread"),
)
OUTCOME = re.compile(r"^(\S+::.*?) (PASSED|FAILED|ERROR|SKIPPED|XFAIL|XPASS)\b", re.MULTILINE)
HUNG = re.compile(r"^(\S+::[^\n]*?) (?:\+{5}|\Z)", re.MULTILINE)


class Suite(NamedTuple):
    """Tests in a source distribution."""

    package: str
    """As pip takes it, with its version."""
    files: tuple[str, ...]
    """Patterns of the files to run."""
    needed: tuple[str, ...] = ()
    """Patterns of what else has to be there."""
    without: frozenset[str] = frozenset()
    """Files that test something else: how that project is built and released."""


SUITES = {
    "claude-agent-sdk": Suite(
        PIN.read_text(encoding="utf-8").strip(),
        ("tests/test_*.py",),
        ("tests/conftest.py", "examples/**/*"),
        frozenset(
            ("test_build_wheel.py", "test_changelog.py", "test_download_cli.py", "test_update_cli_version.py")
        ),
    ),
    "logfire": Suite(
        "logfire==5.2.0",
        ("tests/otel_integrations/test_claude_agent_sdk.py",),
        (
            *("tests/__init__.py", "tests/conftest.py", "tests/otel_integrations/fake_claude.py"),
            "tests/otel_integrations/cassettes/test_claude_agent_sdk/*",
        ),
    ),
    "langsmith": Suite("langsmith==0.14.17", ("tests/unit_tests/wrappers/test_claude_agent_sdk_hooks.py",)),
    # Its tests are inside of it.
    "posthog": Suite(
        "posthog==7.91.1", ("posthog/test/ai/claude_agent_sdk/test_*.py",), ("posthog/**/*.py",)
    ),
}

INSTRUMENTORS = {
    "open_inference": "openinference-instrumentation-claude-agent-sdk==0.1.22",
    "with_agno": "agno==3.1.10",
    "with_braintrust": "braintrust==0.47.0",
    "with_datadog": "ddtrace==4.16.0",
    "with_langsmith": "langsmith==0.14.17",
    "with_logfire": "logfire==5.2.0",
    "with_posthog": "posthog==7.91.1",
}
"""The programs of `tests/compat/instrumentors`, and the package that each is about."""


def main() -> int:
    """What to exit with."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"{', '.join(SUITES)}; left out: all")
    parser.add_argument("--failed", action="store_true", help="list what passes with the reference alone")
    given = parser.parse_args()
    try:
        install()
    except Unavailable as error:
        print(f"the suites are left out: {error}", file=sys.stderr)
        return 0
    print(f"{'tests of':<20}{'reference':>12}{'outrider':>12}{'importable':>12}")
    for name in given.names or SUITES:
        try:
            tests = sources(name, SUITES[name])
        except Unavailable as error:
            print(f"{name:<20} left out: {error}")
            continue
        files = [path for pattern in SUITES[name].files for path in sorted(tests.glob(pattern))]
        theirs, ours, importable = set[str](), set[str](), set[str]()
        count = 0
        for file in files:
            passed, ran = _passed(tests, file)
            theirs |= passed
            count += ran
            # What does not pass there says nothing.
            here, ran = _passed(tests, file, "--outrider-compat")
            ours |= passed & here
            importable |= passed if ran else set()
        numbers = (f"{len(theirs)}/{count}", *(f"{len(ours)}/{len(each)}" for each in (theirs, importable)))
        print(f"{name:<20}", *(f"{number:>12}" for number in numbers), sep="", flush=True)
        if given.failed:
            print("".join(f"  {test}\n" for test in sorted(theirs - ours)), end="", flush=True)
    return 0


def install() -> None:
    """Make the environment, with both packages. Raises `Unavailable`."""
    packages = (*(suite.package for suite in SUITES.values()), *INSTRUMENTORS.values())
    wanted = (PIN.read_text(encoding="utf-8").strip(), *TOOLS, *dict.fromkeys(packages))
    stamp = FOLDER / "installed"
    told = f"{wanted}{sys.version}{ROOT}\n"
    if not stamp.exists() or stamp.read_text(encoding="utf-8") != told:
        print("installing the reference and what is tested with it in build/parity …", file=sys.stderr)
        run(sys.executable, "-m", "venv", "--clear", str(FOLDER))
        run(*PIP, "install", "--quiet", *wanted)
        run(*PIP, "install", "--quiet", "--editable", f"{ROOT}[compat]")
        stamp.write_text(told, encoding="utf-8")


def sources(name: str, suite: Suite) -> Path:
    """The folder of a suite, with its tests alone. Raises `Unavailable`."""
    folder = FOLDER / "suites" / suite.package
    if not folder.exists():
        downloads = FOLDER / "downloads"
        package = suite.package.partition("==")[0]
        run(
            *(*PIP, "download", "--quiet", "--no-deps", "--no-binary", package, "--dest", str(downloads)),
            suite.package,
        )
        (archive,) = downloads.glob(f"{package.replace('-', '_')}-*.tar.gz")
        unpacked = downloads / name
        with tarfile.open(archive) as tar:
            tar.extractall(unpacked, filter="data")
        (top,) = unpacked.iterdir()
        for pattern in (*suite.files, *suite.needed):
            for path in top.glob(pattern):
                if path.is_file() and path.name not in suite.without:
                    target = folder / path.relative_to(top)
                    target.parent.mkdir(parents=True, exist_ok=True)
                    shutil.copy(path, target)
        if not folder.exists():
            raise Unavailable("its source distribution has no tests")
        # Their own has options of other plugins.
        (folder / "pytest.ini").write_text("[pytest]\naddopts = --import-mode=importlib\n", encoding="utf-8")
    return folder


def _passed(folder: Path, file: Path, *arguments: str) -> tuple[set[str], int]:
    """The tests of a file that pass, and how many ran. One that hangs is left out of the next run."""
    hung: list[str] = []
    while True:
        deselected = [word for test in hung for word in ("--deselect", test)]
        command = (*PYTEST, *arguments, *deselected, str(file.relative_to(folder)))
        printed = _printed(folder, *command)
        if not (last := HUNG.search(printed)):
            outcomes = OUTCOME.findall(printed)
            return {test for test, outcome in outcomes if outcome == "PASSED"}, len(outcomes) + len(hung)
        hung.append(last[1])


def _printed(folder: Path, *command: str) -> str:
    """What a run prints: nothing of this machine's settings is seen by it."""
    home = FOLDER / "home"
    home.mkdir(exist_ok=True)
    environment = {"PATH": os.environ["PATH"], "HOME": str(home), "LANGSMITH_TRACING": "false"}
    run_it = partial(subprocess.run, cwd=folder, env=environment, capture_output=True, text=True)
    try:
        return str(run_it(command, check=False, timeout=FILE_SECONDS).stdout)
    except subprocess.TimeoutExpired as late:
        return (late.stdout or b"").decode(errors="replace")


if __name__ == "__main__":
    sys.exit(main())
