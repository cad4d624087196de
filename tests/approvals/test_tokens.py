"""Tokens, for links: genuine, for one call, and for some time."""

from __future__ import annotations

from typing import Any

import pytest

from outrider import Approvals
from outrider.approvals import ApprovalError, ApprovalNotFound
from outrider.errors import OptionsError
from outrider.transcripts import MemoryStore

pytestmark = pytest.mark.anyio
SESSION = "2f5b6a4e-5d64-4a4e-9d7c-0c8a5a3f1c11"


async def test_a_token_is_for_one_call() -> None:
    store = MemoryStore()
    approvals = Approvals(store, secret="a secret that is long enough")
    waiting = await approvals.ask(SESSION, "Bash", {"command": "ls"})
    token = approvals.sign(waiting)
    assert await approvals.verify(token) == waiting
    # Another process, with the same secret.
    assert (
        await Approvals(MemoryStore(store), secret=b"a secret that is long enough").verify(token) == waiting
    )
    for other in (Approvals(store, secret="another secret, as long"), approvals):
        forged = token if other is not approvals else f"X{token[1:]}"
        with pytest.raises(ApprovalError, match="not genuine"):
            await other.verify(forged)
    # The bits that the last letter has too many, and what base64 skips.
    letters = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"
    twin = token[:-1] + letters[letters.index(token[-1]) ^ 1]
    for other_text in (twin, f"{token}!", f" {token}", f"{token}="):
        with pytest.raises(ApprovalError, match="not a token"):
            await approvals.verify(other_text)


async def test_a_secret_can_be_changed() -> None:
    store, old, new = MemoryStore(), "the secret of last year", b"the secret of this year"
    before, both = Approvals(store, secret=old), Approvals(store, secret=[new, old])
    after = Approvals(store, secret=(new,))
    waiting = await before.ask(SESSION, "Bash", {"command": "ls"})
    assert await both.verify(before.sign(waiting)) == waiting
    assert await after.verify(both.sign(waiting)) == waiting
    with pytest.raises(ApprovalError, match="not genuine"):
        await after.verify(before.sign(waiting))


@pytest.mark.parametrize("token", ["", "x", "a.b.c", "é.é", "!!.!!", None, b"a.b"])
async def test_nonsense_is_no_token(token: Any) -> None:
    with pytest.raises(ApprovalError):
        await Approvals(MemoryStore(), secret="some secret of ours").verify(token)


async def test_a_token_runs_out(monkeypatch: pytest.MonkeyPatch) -> None:
    approvals = Approvals(MemoryStore(), secret="some secret of ours")
    token = approvals.sign(await approvals.ask(SESSION, "Bash", {"command": "ls"}), seconds=1e-6)
    with pytest.raises(ApprovalError, match="not valid any more"):
        await approvals.verify(token)


async def test_without_a_secret_nothing_is_signed() -> None:
    approvals = Approvals(MemoryStore())
    waiting = await approvals.ask(SESSION, "Bash", {"command": "ls"})
    with pytest.raises(OptionsError, match="no `secret`"):
        approvals.sign(waiting)


@pytest.mark.parametrize("id", ["nonsense", "a.b", "", None, "\0.\ud800", "../../x.y"])
async def test_an_id_that_is_none(id: Any) -> None:
    with pytest.raises(ApprovalNotFound):
        await Approvals(MemoryStore()).get(id)


@pytest.mark.parametrize(
    "fields",
    [
        {"patience": -1},
        {"patience": "60"},
        {"expires": 0},
        {"secret": "short"},
        {"secret": 5},
        {"secret": ["a secret that is long enough", "short"]},
        {"expires": True},
    ],
)
def test_settings_that_cannot_be(fields: dict[str, object]) -> None:
    with pytest.raises(OptionsError):
        Approvals(MemoryStore(), **fields)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]


def test_a_store_of_another_kind_cannot_keep_them() -> None:
    class Other:
        async def append(self) -> None: ...
        async def load(self) -> None: ...

    with pytest.raises(OptionsError, match="Other cannot keep approvals"):
        Approvals(Other())  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
