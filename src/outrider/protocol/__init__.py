"""State machines of the protocol, without I/O: `Peer` tracks requests, `Turns` tracks turns."""

from typing import TYPE_CHECKING

from outrider._lazy import lazily

if TYPE_CHECKING:
    from outrider.protocol._peer import Event as Event
    from outrider.protocol._peer import Peer as Peer
    from outrider.protocol._peer import RequestAnswered as RequestAnswered
    from outrider.protocol._peer import RequestEvent as RequestEvent
    from outrider.protocol._peer import RequestLost as RequestLost
    from outrider.protocol._peer import RequestReceived as RequestReceived
    from outrider.protocol._peer import RequestRefused as RequestRefused
    from outrider.protocol._peer import RequestWithdrawn as RequestWithdrawn
    from outrider.protocol._peer import Table as Table
    from outrider.protocol._turns import HOLDING_TASKS as HOLDING_TASKS
    from outrider.protocol._turns import MESSAGE_TABLE as MESSAGE_TABLE
    from outrider.protocol._turns import RUN_TABLE as RUN_TABLE
    from outrider.protocol._turns import MessageMoved as MessageMoved
    from outrider.protocol._turns import MessageSignal as MessageSignal
    from outrider.protocol._turns import MessageState as MessageState
    from outrider.protocol._turns import RunMoved as RunMoved
    from outrider.protocol._turns import RunSignal as RunSignal
    from outrider.protocol._turns import RunState as RunState
    from outrider.protocol._turns import TurnBegan as TurnBegan
    from outrider.protocol._turns import TurnEnded as TurnEnded
    from outrider.protocol._turns import TurnEvent as TurnEvent
    from outrider.protocol._turns import Turns as Turns
else:
    __getattr__, __dir__, __all__ = lazily(__name__)
