"""State machines of the protocol, without I/O: who asked what (`Peer`), and when turns are over (`Turns`)."""

from outrider.protocol._peer import (
    Event,
    Peer,
    RequestAnswered,
    RequestEvent,
    RequestLost,
    RequestReceived,
    RequestRefused,
    RequestWithdrawn,
)
from outrider.protocol._tables import Table
from outrider.protocol._turns import (
    HOLDING_TASKS,
    MESSAGE_TABLE,
    RUN_TABLE,
    MessageMoved,
    MessageSignal,
    MessageState,
    RunMoved,
    RunSignal,
    RunState,
    TurnBegan,
    TurnEnded,
    TurnEvent,
    Turns,
)

__all__ = [
    "Event",
    "HOLDING_TASKS",
    "MESSAGE_TABLE",
    "MessageMoved",
    "MessageSignal",
    "MessageState",
    "Peer",
    "RUN_TABLE",
    "RequestAnswered",
    "RequestEvent",
    "RequestLost",
    "RequestReceived",
    "RequestRefused",
    "RequestWithdrawn",
    "RunMoved",
    "RunSignal",
    "RunState",
    "Table",
    "TurnBegan",
    "TurnEnded",
    "TurnEvent",
    "Turns",
]
