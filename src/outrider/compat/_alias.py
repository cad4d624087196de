"""Lets `import claude_agent_sdk` mean `outrider.compat`, in this process: `outrider.compat.install`.

Programs of others have that name compiled in: they import it, patch it, or ask for its version.
"""

from __future__ import annotations

import re
import sys
from importlib import import_module
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from importlib.util import find_spec
from threading import Lock
from types import ModuleType
from typing import TYPE_CHECKING, Final

from outrider.compat._version import __version__
from outrider.errors import UsageError

if TYPE_CHECKING:
    import os
    from collections.abc import Iterator, Sequence
    from importlib.metadata import Distribution, DistributionFinder
    from typing import NoReturn

NAME: Final = "claude_agent_sdk"
_TARGET: Final = "outrider.compat"
_DISTRIBUTION: Final = "claude-agent-sdk"
_OWN: Final = frozenset(("__name__", "__package__", "__spec__", "__loader__", "__path__"))
"""What the import system sets on a package, also when it is loaded again."""


class _Package(ModuleType):
    """The drop-in, under the reference's name: some ask a package for its name, and then for its version.

    All else is that of the drop-in, also what is set or deleted, as by a patch.
    """

    def __getattr__(self, name: str) -> object:
        return getattr(import_module(_TARGET), name)

    def __setattr__(self, name: str, value: object) -> None:
        if name in _OWN:
            super().__setattr__(name, value)
        else:
            setattr(import_module(_TARGET), name, value)

    def __delattr__(self, name: str) -> None:
        delattr(import_module(_TARGET), name)

    def __dir__(self) -> list[str]:
        return dir(import_module(_TARGET))

    @property
    def __dict__(self) -> dict[str, object]:  # type: ignore[override]
        # `mock.patch` looks there for what it has to put back.
        return vars(import_module(_TARGET))


_PACKAGE: Final = _Package(NAME)


class _Alias(MetaPathFinder, Loader):
    """Finds the modules of the drop-in by the reference's names. All but the package are the same objects."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if not f"{fullname}.".startswith(f"{NAME}."):
            return None
        if (there := find_spec(_target(fullname))) is None:
            return None
        spec = ModuleSpec(fullname, self, origin=there.origin)
        spec.submodule_search_locations = there.submodule_search_locations
        return spec

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        return _PACKAGE if spec.name == NAME else None

    def exec_module(self, module: ModuleType) -> None:
        if module is not _PACKAGE:
            # The import system continues with what it finds there.
            sys.modules[module.__name__] = import_module(_target(module.__name__))

    def find_distributions(self, context: DistributionFinder.Context) -> Iterator[Distribution]:
        """The package that `importlib.metadata` finds: instrumentors ask for its version."""
        if context.name is None or re.sub(r"[-_.]+", "-", context.name).lower() == _DISTRIBUTION:
            yield _distribution()


def _target(name: str) -> str:
    return _TARGET + name.removeprefix(NAME)


def _distribution() -> Distribution:
    # Here: it takes longer to import than all else of this module.
    from importlib.metadata import Distribution

    class Alias(Distribution):
        def read_text(self, filename: str) -> str | None:
            return {
                "METADATA": f"Metadata-Version: 2.1\nName: {_DISTRIBUTION}\nVersion: {__version__}\n",
                "top_level.txt": f"{NAME}\n",
            }.get(filename)

        def locate_file(self, path: str | os.PathLike[str]) -> NoReturn:
            raise FileNotFoundError(f"{_DISTRIBUTION} is an alias of Outrider, and has no files: {path}")

    return Alias()


_ALIAS: Final = _Alias()
_ADDING: Final = Lock()


def add_alias() -> None:
    """Add the alias, once. Raises `UsageError` if the reference itself is imported already."""
    there = sys.modules.get(NAME)
    if there is not None and there is not _PACKAGE:
        raise UsageError(
            f"`{NAME}` is imported already, from {getattr(there, '__file__', None) or 'somewhere else'}",
            hint="Call `outrider.compat.install()` before anything imports it: at the start of the program.",
        )
    with _ADDING:
        if _ALIAS not in sys.meta_path:
            sys.meta_path.insert(0, _ALIAS)
            # None if a program has forbidden to import it.
            sys.modules.pop(NAME, None)
    # As an import of the reference does. Some tests put another object in the package's place, and import on.
    for module in ("", ".types", ".client", ".query", "._internal.message_parser"):
        import_module(f"{NAME}{module}")


def remove_alias() -> None:
    """Remove the alias. What was imported by it stays what it is."""
    if _ALIAS in sys.meta_path:
        sys.meta_path.remove(_ALIAS)
        for name in [name for name in sys.modules if f"{name}.".startswith(f"{NAME}.")]:
            del sys.modules[name]
