"""Where Claude Code runs: here, in a container, in a pod, on another machine, or behind a command.

The default is `Local`.
"""

from typing import TYPE_CHECKING

from outrider._lazy import lazily

if TYPE_CHECKING:
    from outrider.launch import Docker as Docker
    from outrider.launch import Kubectl as Kubectl
    from outrider.launch import Local as Local
    from outrider.launch import Prefix as Prefix
    from outrider.launch import Ssh as Ssh
else:
    __getattr__, __dir__, __all__ = lazily(__name__)
