"""Approvals that wait: what the agent asks a person is kept in a store, and the process may end meanwhile.

`Approvals` keeps and decides them; sessions ask and go on. Does not know agents.
"""

from typing import TYPE_CHECKING

from outrider._lazy import lazily

if TYPE_CHECKING:
    from outrider.approvals._approval import Approval as Approval
    from outrider.approvals._approvals import Approvals as Approvals
    from outrider.approvals._errors import ApprovalError as ApprovalError
    from outrider.approvals._errors import ApprovalNotFound as ApprovalNotFound
    from outrider.approvals._errors import ApprovalSettled as ApprovalSettled
    from outrider.approvals._errors import SessionParked as SessionParked
else:
    __getattr__, __dir__, __all__ = lazily(__name__)
