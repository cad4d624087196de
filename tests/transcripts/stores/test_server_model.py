"""Each store that has a server does what a model of it in plain dicts does."""

from __future__ import annotations

from uuid import uuid4

import pytest

from outrider.transcripts import SessionStore
from tests.transcripts.stores.model import StoreMachine, check_model
from tests.transcripts.stores.remote import REMOTES


@pytest.mark.timeout(180)
@pytest.mark.parametrize(
    "name, examples", [("postgres", 15), ("redis", 25), ("s3", 4)], ids=["postgres", "redis", "s3"]
)
def test_a_store_does_what_its_model_does(name: str, examples: int) -> None:
    remote = REMOTES[name]
    remote.server()
    prefix = f"t{uuid4().hex[:8]}_"

    class Machine(StoreMachine):
        def open(self) -> SessionStore:
            return remote.make(prefix=prefix)

    check_model(Machine, examples=examples)
