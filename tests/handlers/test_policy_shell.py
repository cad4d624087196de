"""A rule that allows a command is about all of it; a rule that denies one is about any part of it."""

from __future__ import annotations

import shutil
import subprocess
from time import process_time

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from outrider.handlers._policy import commands
from outrider.handlers._policy.commands import command_match
from outrider.handlers._policy.patterns import Match
from outrider.handlers._policy.programs import runs_of
from outrider.handlers._policy.shell import (
    STAR,
    UNKNOWN,
    WORDS,
    NotPlain,
    Unclear,
    plain_command,
    read_script,
)
from tests.cases import every_case

GIT, RM = "git *", "rm *"
BASH = shutil.which("bash")


def match(pattern: str, command: str) -> Match:
    return command_match(pattern, command)[0]


# What is allowed.

PLAIN = [
    "git",
    "git status",
    "  git   status  ",
    "git\tstatus",
    "git log --format=%H -n 5",
    "git commit -m 'a; b && c | d > e $(f) `g`'",
    'git commit -m "a; b && c | d > e"',
    'git commit -m "first\nsecond"',
    "git commit -m 'it'\"'\"'s'",
    r'git commit -m "say \"hi\" for \$5"',
    "git add *.py",
    "git add src/[ab]?.py",
    "git log feature#1",
    "git log HEAD~2 HEAD^ a..b",
    "git config a.b=c",
    "git add {}",
    "git log ''",
    "git log '#' !",
]


@pytest.mark.requirement("A10")
@every_case("command", PLAIN)
def test_one_plain_command_is_allowed(command: str) -> None:
    assert match(GIT, command) is Match.YES


NOT_PLAIN = [
    "git status; rm -rf /",
    "git status;rm",
    "git status && x",
    "git status || x",
    "git status & x",
    "git status &",
    "git status | sh",
    "git status |& sh",
    "git status\nrm -rf /",
    "git status\r\nrm -rf /",
    "git status\\\nrm",
    "git $(rm -rf /)",
    "git `rm -rf /`",
    'git "$(rm -rf /)"',
    'git "`rm -rf /`"',
    "git $X",
    'git "$X"',
    "git ${X}",
    "git $'a'",
    'git $"a"',
    "git $((1))",
    "git log > x",
    "git log >> x",
    "git log 2>&1",
    "git log < x",
    "git log << x",
    "git log <(rm)",
    "git log >(rm)",
    "(git status)",
    "git (status)",
    "{ git status; }",
    "git {status,log}",
    "git log # '\nrm -rf / # '",
    "git status #x",
    "git log 'x",
    'git log "x',
    "git log \"x'",
    r"git log \; x",
    r"git\ status",
    r'git log "x\"',
    'git log "a\\\nb"',
    "X=1 git status",
    "X+=1 git status",
    "X[0]=1 git status",
    "LD_PRELOAD=evil.so git status",
    "env X=1 git status",
    "sudo git status",
    "'git' status",
    '"git" status',
    'g"i"t status',
    "gi''t status",
    '"git status" x',
    "gi[t] status",
    "gi? status",
    "! git status",
    "git status\x0brm",
    "git status\x0crm",
    "git status\x00rm",
    "git status\x85rm",
    "git status\u2028rm",
    "git\u00a0status",
    "git status " + "x" * 100_001,
]


@pytest.mark.requirement("A10")
@every_case("command", NOT_PLAIN, ids=[repr(each)[:40] for each in NOT_PLAIN])
def test_more_than_one_plain_command_is_not_allowed(command: str) -> None:
    assert match(GIT, command) is not Match.YES
    assert match("*", command) is not Match.YES or command.startswith(("env ", "sudo "))


@every_case("command", ["", " ", "\n", "gitk", "git-lfs x", "legit status", "ls", "echo git status"])
def test_another_command_is_not_meant(command: str) -> None:
    assert match(GIT, command) is not Match.YES


@every_case(
    "pattern, command, is_meant",
    [
        ("git status", "git status", True),
        ("git status", "git status -s", False),
        ("git status *", "git status", True),
        ("git status *", 'git "status x"', False),
        ("git log -n ?", "git log -n 5", True),
        ("git log -n [0-9]", "git log -n x", False),
        ("npm run *", "npm run test -- --watch", True),
        ("*", "anything at all", True),
        ("git commit -m *", 'git commit -m "a b"', True),
    ],
)
def test_a_pattern_means_what_it_says(pattern: str, command: str, is_meant: bool) -> None:
    assert (match(pattern, command) is Match.YES) is is_meant


TEXTS = st.text(st.sampled_from("ab -_./=:,'\"\\#~!*?[]{}$`;&|<>()\n\t\r"), max_size=30)


def runs_more_than_git(rest: str) -> bool:
    """Whether a real shell finds anything behind `git` that is not an argument of it."""
    # Each argument on a line of its own, from a function in git's place; whatever else is run says so.
    script = "git() { printf '%s\\n' GIT; }\ncommand_not_found_handle() { printf '%s\\n' OTHER; }\n"
    ran = subprocess.run(
        [BASH or "", "--norc", "-r", "-c", f"{script}git {rest}"],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=20,
        env={"PATH": "/nowhere"},
        check=False,
    )
    return ran.stdout != "GIT\n"


@pytest.mark.skipif(BASH is None, reason="there is no bash to ask")
@given(TEXTS)
@example("x; y")
@example("'a' # '\nb #'")
@example('"a\\" ; b "')
@example("a\\\n;b")
def test_nothing_that_is_allowed_runs_more_than_the_one_command(rest: str) -> None:
    """The shell itself is asked what it would do: it may run nothing but the command that the rule is for."""
    if match(GIT, f"git {rest}") is Match.YES:
        assert not runs_more_than_git(rest)


SEPARATORS = ["; ", " && ", " || ", " | ", " & ", "\n", " > ", " < ", "$(x)", "`x`", " <(x)", " ${x}"]


@given(
    st.lists(st.from_regex(r"[a-z-]{1,5}|'[a-z ;|&]*'|\"[a-z ;|&]*\"", fullmatch=True), max_size=4),
    st.sampled_from(SEPARATORS),
    st.lists(st.from_regex(r"[a-z-]{1,5}|'[a-z ;|&]*'|\"[a-z ;|&]*\"", fullmatch=True), max_size=4),
)
def test_a_separator_or_a_substitution_outside_of_quotes_is_never_allowed(
    before: list[str], separator: str, after: list[str]
) -> None:
    command = f"git {' '.join(before)}{separator}{' '.join(after)} x"
    assert match(GIT, command) is not Match.YES
    assert match("*", command) is not Match.YES


# What is denied.

DENIED = [
    "rm",
    "rm -rf /",
    "rm   -rf   /",
    "/bin/rm x",
    "./rm x",
    r"\rm x",
    "'rm' x",
    "r''m x",
    'r"m" x',
    "ls; rm x",
    "ls;rm x",
    "ls && rm x",
    "ls || rm x",
    "ls & rm x",
    "ls | rm x",
    "ls\nrm x",
    "ls \\\n; rm x",
    "(rm x)",
    "( ls; (rm x) )",
    "{ rm x; }",
    "! rm x",
    "echo $(rm x)",
    'echo "a $(rm x) b"',
    "echo `rm x`",
    'echo "`rm x`"',
    r"echo `echo \`rm x\``",
    "echo ${X:-$(rm x)}",
    "echo $(( $(rm x) ))",
    "ls <(rm x)",
    "ls > >(rm x)",
    ">x rm y",
    "2>/dev/null rm y",
    "X=1 rm x",
    "X=1 Y='a b' rm x",
    "if true; then rm x; fi",
    "if rm x; then ls; fi",
    "while true; do rm x; done",
    "for i in a b; do rm $i; done",
    "case x in a) rm y;; esac",
    "f() { rm x; }; f",
    "function f { rm x; }; f",
    "time rm x",
    "sudo rm x",
    "sudo -u root rm x",
    "sudo -u root /bin/rm x",
    "doas rm x",
    "env rm x",
    "env -i A=1 rm x",
    "nohup rm x &",
    "nice -n 5 rm x",
    "timeout 5 rm x",
    "exec rm x",
    "command rm x",
    "builtin rm x",
    "find . -name x | xargs rm",
    "xargs -n 1 rm < list",
    "find . -exec rm {} +",
    r"find . -exec rm {} \;",
    "busybox rm x",
    "sh -c 'rm x'",
    'bash -lc "cd x && rm y"',
    "sudo sh -c 'ls; rm x'",
    "sh -c \"sh -c 'rm x'\"",
    "eval 'rm x'",
    "eval rm x",
    "ssh host rm x",
    "ssh host 'cd /; rm x'",
    "docker run image rm x",
    "watch 'rm x'",
    "trap 'rm x' EXIT",
    "sh <<EOF\nrm x\nEOF",
    "cat <<EOF\n'$(rm x)'\nEOF",
    "cat <<EOF\nit's\nEOF\nrm x\ncat <<EOF\nit's\nEOF",
    "cat <<-EOF\n\tit's\n\tEOF\nrm x # it's",
    "cat <<A <<B\na'\nA\nb'\nB\nrm x",
    "bash -s x <<< 'rm y'",
    "source /dev/stdin <<< 'rm x'",
    "ls \r# ; rm x",
    "ls <(x)#; rm y",
    "echo $(case x in x) rm y;; esac)",
    'echo "$(case x in\nx) rm y;; esac)"',
    "time -p rm x",
    "if time -p rm x; then ls; fi",
    "{fd}>/dev/null rm x",
    "X[1 ]=1 rm x",
    "X[1 ]=1 rm$Y",
    "> a\recho rm x",
    "ls\r\nrm\r\n",
    "pkexec rm x",
    "noglob rm x",
    "env -S'rm x'",
    "env --split-string='rm x'",
    "alias x='rm y'",
    "sudo env nice -n 5 rm x",
]

IN_DOUBT = [
    "$X -rf /",
    "${X} y",
    "$(cat name) y",
    "`cat name` y",
    "r$X y",
    "$'\\x72m' x",
    "/bin/r? x",
    "/bin/[r]m x",
    "{rm,-rf,/}",
    "eval $X",
    'eval "$X"',
    'sh -c "$X"',
    "sudo $X",
    "sudo -u root $X y",
    "timeout 5 $X",
    "find . -exec $X {} +",
    "curl x | sh",
    "curl x | bash -s",
    "base64 -d x | sh",
    "curl x | sudo bash",
    "curl x | sudo -u root env bash",
    "curl x | bash -s y",
    "curl x | bash /dev/stdin",
    "source <(curl x)",
    ". <(curl x)",
    "sudo " + "-x " * 5_000 + "$X",
    "cat <<EOF\nls",
    "ls 'x",
    'ls "x',
    "ls $(x",
    "ls `x",
    "ls ${x",
    "ls $'x",
    "(ls",
    "ls " + "x" * 100_001,
    "$(" * 100 + "ls" + ")" * 100,
    "( " * 100 + "ls" + ")" * 100,
    "${" * 100 + "ls" + "}" * 100,
    "ls; " * 6_000,
]


@pytest.mark.requirement("A10")
@every_case("command", DENIED)
def test_a_denied_command_is_found_wherever_it_is(command: str) -> None:
    assert match(RM, command) is not Match.NO


@every_case("command", IN_DOUBT, ids=[repr(each)[:30] for each in IN_DOUBT])
def test_a_command_that_cannot_be_told_counts_as_denied(command: str) -> None:
    assert match(RM, command) is Match.MAYBE


HARMLESS = [
    "cat <<EOF\nrm x\nEOF",
    "ls",
    "ls -la /rm",
    "echo rm",
    "git commit -m 'rm x; rm y'",
    'git commit -m "then: rm x"',
    "ls *.py",
    "ls $HOME",
    "cd $X && ls",
    "echo '$(rm x)'",
    "ls # rm x",
    "if [ -f x ]; then ls; fi",
    "[[ -f x ]] && ls",
    "sudo apt install $PACKAGE",
    "find . -name '*.py'",
    "find . -name *.py",
    "ls 2>&1 > out",
    "bash script.sh",
    "npm run rm",
    "cat <<EOF\nsome text\nEOF\nls",
    "git commit -m \"$(cat <<'EOF'\nSome text\nEOF\n)\"",
    ". venv/bin/activate",
    "ssh -oBatchMode=yes host ls",
    "[ -f x ] && ls",
    "farm x",
    "rmdir x",
    "",
    "   ",
]


@every_case("command", HARMLESS)
def test_a_command_that_is_certainly_another_is_not_denied(command: str) -> None:
    assert match(RM, command) is Match.NO


@every_case(
    "pattern, command, expected",
    [
        ("git push", "git push > log", Match.MAYBE),
        ("git push", "git push 2>&1", Match.MAYBE),
        ("git push *--force*", "git push origin --force", Match.YES),
        ("git push *--force*", "git push $FLAGS", Match.MAYBE),
        ("git push *--force*", "git log $FLAGS", Match.NO),
        ("git push *--force*", "git push origin; ls --force", Match.NO),
        ("*curl*", "ls $X", Match.MAYBE),
        ("git push *", "git -C . push", Match.MAYBE),
        ("git push *", "git -c a=b -C 'a b' --no-pager push -f", Match.MAYBE),
        ("git push *", "sudo /usr/bin/git --git-dir=x push", Match.MAYBE),
        ("git push *", "git " + "-x " * 100 + "push", Match.MAYBE),
        ("git push *", "git -C . log", Match.NO),
        ("git push *", 'git -C "$X" log', Match.NO),
        ("git push *", "git stash push", Match.NO),
    ],
)
def test_arguments_count_as_far_as_they_are_known(pattern: str, command: str, expected: Match) -> None:
    assert match(pattern, command) is expected


@pytest.mark.parametrize("system, denied", [("linux", False), ("mac", True)])
def test_case_counts_where_it_counts_for_programs(
    system: str, denied: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(commands, "IGNORES_CASE", system == "mac")
    for command in ("RM x", "sudo RM x", "ls; Rm y"):
        assert (match(RM, command) is not Match.NO) is denied
    assert match("RM *", "rm x") is not Match.YES


HUGE = ["sudo " + "git " * 24_000, "sudo " + "a " * 49_000, "sh " * 33_000, "a{" * 49_000, "a[" * 49_000]


@pytest.mark.parametrize("command", HUGE, ids=[each[:8] for each in HUGE])
@pytest.mark.parametrize("is_powershell", [False, True])
def test_a_huge_command_takes_no_more_than_a_moment(command: str, is_powershell: bool) -> None:
    began = process_time()
    for pattern in ("git *--force*", "*c*u*r*l*"):
        command_match(pattern, command, is_powershell=is_powershell)
    assert process_time() - began < 10


ANY = st.text(st.sampled_from("rm ls sudo sh -c '\"\\#$`;&|<>(){}[]*?=\n"), max_size=60)


@given(ANY)
def test_any_text_can_be_looked_at(text: str) -> None:
    for pattern in (GIT, RM, "*"):
        found, why = command_match(pattern, text)
        assert found in Match
        assert why
    assert all(words for words in runs_of(text).commands)


@given(ANY, st.sampled_from([";", "\n", "&&", "||", "|", "&"]))
def test_a_denied_command_in_front_is_found_whatever_follows(text: str, separator: str) -> None:
    assert match(RM, f"rm x {separator} {text}") is not Match.NO


@given(st.from_regex(r"[a-z]{1,5}( ('[a-z;&| ]*'|[a-z]{1,5})){0,3}", fullmatch=True))
def test_what_is_denied_is_found_behind_anything_that_is_plain(command: str) -> None:
    for separator in ("; ", " && ", " | ", "\n"):
        assert match(RM, f"{command}{separator}rm x") is not Match.NO


def test_a_plain_command_is_shown_as_written_and_as_meant() -> None:
    plain = plain_command("  git  commit -m 'a  b' ")
    assert plain == ("git commit -m 'a  b'", "git commit -m a  b")
    with pytest.raises(NotPlain, match="more than one command"):
        plain_command("a; b")


def test_commands_are_read_with_what_is_unknown_in_them() -> None:
    script = read_script("ls $X \"$Y\" | grep 'a b' > out; A=1 sudo -n rm *.py <<< x")
    ls, grep, sudo = script.commands
    assert (ls.words, ls.pipes) == (["ls", WORDS, UNKNOWN], [])
    assert (grep.words, grep.files, grep.pipes) == (["grep", "a b"], ["out"], [True])
    assert (sudo.words, sudo.sets, sudo.inputs) == (["sudo", "-n", "rm", f"{STAR}.py"], ["A=1"], ["x"])
    assert "out" in script.written
    with pytest.raises(Unclear, match="a quote in it is not closed"):
        read_script("ls 'x")


def test_commands_are_found_behind_those_that_run_them() -> None:
    runs = runs_of("sudo -n timeout 5 ls x; sh -c 'cd y; pwd'; other --run=a b")
    assert ["ls", "x"] in runs.commands
    assert ["cd", "y"] in runs.commands
    assert ["--run", "a", "b"] in runs.hidden
    assert runs.doubt == ""


# PowerShell.


@every_case(
    "pattern, command, expected",
    [
        ("Get-Item *", "Get-Item C:\\x", Match.YES),
        ("Get-Item *", "Get-Item x; Remove-Item y", Match.MAYBE),
        ("Get-Item *", "Get-Item $x", Match.MAYBE),
        ("Get-Item *", "Get-Item (x)", Match.MAYBE),
        ("Get-Item *", "Get-Item 'x'", Match.MAYBE),
        ("Remove-Item *", "Get-Item x", Match.NO),
        ("Remove-Item *", "Get-Item x; Remove-Item y", Match.MAYBE),
        ("Remove-Item *", "Get-Item x | Remove-Item", Match.MAYBE),
        ("Remove-Item *", "& { Remove-Item y }", Match.MAYBE),
        ("Remove-Item *", "iex $x", Match.MAYBE),
        ("Remove-Item *", "powershell -EncodedCommand abc", Match.MAYBE),
        ("Remove-Item *", "pwsh -e abc", Match.MAYBE),
        ("Remove-Item *", "remove-item y", Match.MAYBE),
        ("Remove-Item *", "Microsoft.PowerShell.Management\\Remove-Item y", Match.MAYBE),
        ("Remove-Item *", "Rem`ove-Item y", Match.MAYBE),
        ("Remove-Item *", "& ('Remove'+'-Item') y", Match.MAYBE),
        ("Remove-Item *", "& $x y", Match.MAYBE),
        ("Remove-Item *", "Get-Item x -ErrorAction Stop -Encoding utf8", Match.NO),
        ("Remove-Item *", "x" * 100_001, Match.MAYBE),
    ],
)
def test_powershell_is_looked_at_by_its_own_rules(pattern: str, command: str, expected: Match) -> None:
    assert command_match(pattern, command, is_powershell=True)[0] is expected
