"""What each runner puts in front of a command, and what it refuses."""

from __future__ import annotations

import pickle
import shlex
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from outrider.command import FOLDER, Command, File, Runner, UserId
from outrider.errors import OptionsError
from outrider.launch import Docker, Kubectl, Local, Prefix, Ssh
from outrider.launch._runners import ARGV
from outrider.options import Options
from tests.cases import every_case

PLAIN = Command(("claude", "--flag=a b"))
FULL = Command(("claude", f"--settings={FOLDER}/a"), env={"A": "b"}, cwd="/project", files=(File("a", b"b"),))
SCRIPT = shlex.join(ARGV)
AT_HOST = shlex.quote(f"exec {SCRIPT}")

REMOTE: list[Runner] = [
    Prefix(["in-a-box"], is_local=False),
    Ssh("host"),
    Docker(container="box"),
    Kubectl("pod"),
]


@pytest.mark.parametrize("runner", [Local(), Prefix(["nice"]), *REMOTE], ids=repr)
def test_each_is_a_runner(runner: Runner) -> None:
    assert isinstance(runner, Runner)
    assert runner.is_local == (runner not in REMOTE)


def test_a_local_command_stays_as_it_is() -> None:
    assert Local().wrap(FULL) is FULL


def test_words_in_front_leave_the_rest_as_it_is() -> None:
    assert Prefix(["nice", "-n", "10"]).wrap(FULL) == msgspec.structs.replace(
        FULL, argv=("nice", "-n", "10", *FULL.argv)
    )
    user = msgspec.structs.replace(FULL, user=UserId(1, 2))
    assert Prefix(["nice"]).wrap(user).user == UserId(1, 2)


@every_case(
    "runner, words",
    [
        (Prefix(["podman", "exec"], is_local=False), f"podman exec {SCRIPT}"),
        (Ssh("host"), f"ssh -T -o BatchMode=yes -- host {AT_HOST}"),
        (Ssh("me@host"), f"ssh -T -o BatchMode=yes -- me@host {AT_HOST}"),
        (
            Ssh(
                "host", user="me", port=22, identity=Path("/my key"), options=["A=b c"], executable="/bin/ssh"
            ),
            f"/bin/ssh -T -l me -p 22 -i '/my key' -o 'A=b c' -o BatchMode=yes -- host {AT_HOST}",
        ),
        (Docker(container="box"), f"docker exec -i box {SCRIPT}"),
        (
            Docker(container="box", workdir="/w", user=0, args=["--privileged"], executable="podman"),
            f"podman exec -i --workdir /w --user 0 --privileged box {SCRIPT}",
        ),
        (Docker(image="img:1"), f"docker run -i --rm --entrypoint sh img:1 {SCRIPT[3:]}"),
        (
            Docker(image="i", volumes=["/a:/b:ro", "c:/d"], user="me:us"),
            f"docker run -i --rm --user me:us --volume /a:/b:ro --volume c:/d --entrypoint sh i {SCRIPT[3:]}",
        ),
        (Kubectl("pod"), f"kubectl exec -i pod -- {SCRIPT}"),
        (
            Kubectl("deploy/x", container="c", namespace="n", context="k", executable="oc"),
            f"oc --context k --namespace n exec -i deploy/x --container c -- {SCRIPT}",
        ),
    ],
    ids=lambda value: repr(value) if isinstance(value, msgspec.Struct) else "",
)
def test_the_client_is_given_where_to_go_and_nothing_of_the_command(runner: Runner, words: str) -> None:
    wrapped = runner.wrap(FULL)
    assert shlex.join(wrapped.argv) == words
    assert wrapped.preamble
    # The client runs here, with what this process has.
    assert (wrapped.env, wrapped.cwd, wrapped.user, wrapped.needs_folder) == (None, None, None, False)


@pytest.mark.parametrize(
    "runner, argv",
    [
        (Prefix(["in-a-box"], is_local=False), ("in-a-box", *PLAIN.argv)),
        (Ssh("host"), ("ssh", "-T", "-o", "BatchMode=yes", "--", "host", "exec claude '--flag=a b'")),
        (Docker(image="i"), ("docker", "run", "-i", "--rm", "--entrypoint", "claude", "i", "--flag=a b")),
        (Docker(container="c"), ("docker", "exec", "-i", "c", *PLAIN.argv)),
        (Kubectl("p"), ("kubectl", "exec", "-i", "p", "--", *PLAIN.argv)),
    ],
    ids=lambda value: repr(value) if isinstance(value, msgspec.Struct) else "",
)
def test_a_bare_command_goes_over_without_a_script(runner: Runner, argv: tuple[str, ...]) -> None:
    assert runner.wrap(PLAIN) == Command(argv)


@pytest.mark.parametrize("runner", REMOTE, ids=repr)
def test_a_user_of_this_machine_means_nothing_elsewhere(runner: Runner) -> None:
    with pytest.raises(OptionsError, match="`user` is a user of this machine"):
        runner.wrap(msgspec.structs.replace(FULL, user=UserId(1, 1)))


SECRET = "s3cr3tvalue"

ANY_SSH: type[Any] = Ssh
ANY_DOCKER: type[Any] = Docker
"""Without what type checkers know of them: the mistakes are meant."""

CANNOT_WORK: list[tuple[Callable[[], object], str]] = [
    (lambda: Prefix([]), "`Prefix` has no words"),
    (lambda: Prefix("nice -n 10"), r"Give a list of words: \['nice', '-n', '10'\]"),
    (lambda: Prefix("it's"), r"""Give a list of words: \["it's"\]"""),
    (lambda: Prefix([""]), "it is empty"),
    (lambda: Prefix(["nice", 10]), "has 10"),  # type: ignore[list-item]  # pyright: ignore[reportArgumentType]
    (lambda: Prefix(["a", "b\0"]), "without NUL bytes"),
    (
        lambda: Ssh("-oProxyCommand=evil"),
        "`host` of `Ssh` is '-oProxyCommand=evil': it would be taken for a flag",
    ),
    (lambda: Ssh(""), "it is empty"),
    (lambda: Ssh("a b"), "white space"),
    (lambda: Ssh("a\nb"), "control characters"),
    (lambda: Ssh("a\0"), "control characters"),
    (lambda: Ssh("host", user="-x"), "`user` of `Ssh`"),
    (lambda: Ssh("$(id)"), "a shell gives a meaning to"),
    (lambda: Ssh("host", user="`id`"), "a shell gives a meaning to"),
    (lambda: ANY_SSH(5), "`host` of `Ssh` is 5: it is not text"),
    (lambda: ANY_SSH("host", port="22"), "from 1 to 65535"),
    (lambda: ANY_SSH("host", port=True), "from 1 to 65535"),
    (lambda: ANY_SSH("host", identity=b"key"), "`identity` of `Ssh` is b'key': it is not text"),
    (lambda: ANY_SSH("host", options=None), "Give a list of words"),
    (lambda: ANY_DOCKER(container="a", user=True), "`user` of `Docker` is True: it is not text"),
    (lambda: Ssh("host", port=0), "from 1 to 65535"),
    (lambda: Ssh("host", port=65536), "from 1 to 65535"),
    (lambda: Ssh("host", identity=""), "`identity`"),
    (lambda: Ssh("host", options=["-J"]), "ServerAliveInterval=15"),
    (lambda: Ssh("host", options="A=b"), r"Give a list of words: \['A=b'\]"),
    (lambda: Ssh("host", executable=""), "`executable`"),
    (Docker, "neither of `container` and `image`"),
    (lambda: Docker(container="a", image="b"), "both of `container` and `image`"),
    (lambda: Docker(container=""), "`container` of `Docker` is '': it is empty"),
    (lambda: Docker(image="--privileged"), "it would be taken for a flag"),
    (lambda: Docker(container="a", volumes=["/a:/b"]), "cannot be added to a running container"),
    (lambda: Docker(image="a", volumes=["-v"]), "`volumes`"),
    (lambda: Docker(container="a", workdir=" "), "`workdir`"),
    (lambda: Docker(container="a", user=-1), "`user` of `Docker` is '-1'"),
    (lambda: Kubectl(""), "`pod`"),
    (lambda: Kubectl("--all"), "it would be taken for a flag"),
    (lambda: Kubectl("p", container=""), "`container`"),
    (lambda: Kubectl("p", namespace="-n"), "`namespace`"),
    (lambda: Kubectl("p", context="\t"), "`context`"),
]


@every_case("number", range(len(CANNOT_WORK)))
def test_what_cannot_work_is_refused_at_once(number: int) -> None:
    make, text = CANNOT_WORK[number]
    with pytest.raises(OptionsError, match=text):
        make()


def test_a_runner_is_a_value() -> None:
    words = ["nice"]
    runner = Prefix(words)
    words.append("-n")
    assert runner == Prefix(("nice",))
    assert hash(runner) == hash(Prefix(["nice"]))
    assert pickle.loads(pickle.dumps(Ssh("host", port=22))) == Ssh("host", port=22)
    with pytest.raises(AttributeError):
        runner.argv = ()  # type: ignore[misc]  # pyright: ignore[reportAttributeAccessIssue]


@pytest.mark.parametrize(
    "runner, text",
    [
        (Local(), "Local()"),
        (Ssh("host", port=22), "Ssh(host='host', port=22)"),
        (Docker(container="box"), "Docker(container='box')"),
        (Kubectl("pod", namespace="n"), "Kubectl(pod='pod', namespace='n')"),
    ],
    ids=repr,
)
def test_a_runner_shows_what_was_said(runner: Runner, text: str) -> None:
    assert repr(runner) == text


@pytest.mark.parametrize(
    "runner",
    [
        Docker(container="box", args=["-e", f"API_KEY={SECRET}"]),
        Docker(container="box", args=["--token", SECRET]),
        Prefix(["env", f"API_TOKEN={SECRET}"]),
        Ssh("host", options=[f"SetEnv=API_TOKEN={SECRET}"]),
    ],
    ids=["docker env", "docker flag", "prefix", "ssh"],
)
def test_a_runner_tells_no_secret(runner: Runner) -> None:
    assert SECRET not in repr(runner)
    assert SECRET not in repr(Options(runner=runner))
