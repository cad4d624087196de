"""What travels between processes is read by one that has loaded nothing of Outrider before."""

from __future__ import annotations

import pickle
import subprocess
import sys

import pytest

from outrider.errors import ApiFailed, TransportClosed
from outrider.fleet import (
    Attempted,
    ClusterNotFound,
    Empty,
    JournalBusy,
    JournalInvalid,
    Note,
    PoolClosed,
    QueueFull,
    QueueTimedOut,
    Restart,
    Restarted,
    Retry,
    Retrying,
    Spent,
    Task,
    WorkerLost,
    WorkspaceFailed,
    Worktree,
)
from outrider.fleet._ray.channel import ChannelMessage
from outrider.fleet._ray.worker import Reply
from outrider.session import Usage

_READ = """
import pickle, sys
assert not any(name.startswith("outrider") for name in sys.modules)
for each in pickle.load(sys.stdin.buffer):
    print(type(each).__module__, repr(each), repr(str(each)))
"""

LOST = WorkerLost("node-1", "it was shut down")
TRAVELLERS: list[object] = [
    LOST,
    ClusterNotFound("host:6379", "no answer"),
    JournalBusy("a.db", "process 7"),
    JournalInvalid("a.db", "there is no task in it"),
    PoolClosed(),
    QueueFull(3, "ada"),
    QueueTimedOut(2.5),
    WorkspaceFailed("/tmp/x", "it is a file"),
    Task("Count.", id="one", workspace=Worktree("repo"), options={"model": "opus"}, tags={"a": "b"}),
    Task("Count.", workspace=Empty()),
    Restart(max=2),
    Retry(kinds=frozenset({"overloaded"})),
    Restarted(cause=TransportClosed("it crashed"), attempt=1),
    Retrying(ApiFailed(message="overloaded"), 1, 0.5, 1.5),
    Note(worker="node-1", usage=Usage(input_tokens=3)),
    Spent(usd=1.5, tokens=3),
    ChannelMessage(key="k", kind="call", call="c", body=b"x"),
    Reply(attempted=Attempted(status="failed", error=LOST), traces=(b"x",)),
]


@pytest.mark.parametrize("protocol", [2, pickle.HIGHEST_PROTOCOL])
def test_a_fresh_interpreter_reads_what_was_sent(protocol: int) -> None:
    sent = pickle.dumps(TRAVELLERS, protocol)
    done = subprocess.run([sys.executable, "-c", _READ], input=sent, capture_output=True, check=True)
    expected = [f"{type(each).__module__} {each!r} {str(each)!r}" for each in pickle.loads(sent)]
    assert len(expected) == len(TRAVELLERS)
    assert done.stdout.decode().splitlines() == expected
