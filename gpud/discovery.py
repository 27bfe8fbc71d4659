"""Discovery of plug-ins: each public module of a folder is one; a broken one is listed as refused.

Nothing registers itself and nothing is imported by name. A module that does not load is refused
with its reason and the others go on; a missing dependency never looks like "not installed".
"""

from __future__ import annotations

import importlib
import os

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable
    from types import ModuleType


def names(package: ModuleType) -> tuple[str, ...]:
    """List the plug-ins of a package, importing none of them."""
    # pkgutil loads ``inspect``, and pathlib takes as long: a fifth of the start of a child.
    files = (file.name for folder in package.__path__ for file in os.scandir(folder))
    modules = {file.removesuffix(".py") for file in files if file.endswith(".py")}
    return tuple(sorted(m for m in modules if m.isidentifier() and not m.startswith("_")))


def modules(
    package: ModuleType, offers: Iterable[str] = ()
) -> tuple[dict[str, ModuleType], dict[str, str]]:
    """Import every plug-in of ``package`` that has all the names in ``offers``.

    Shapes: usable modules by name, and refused names with the reason in words.
    """
    usable: dict[str, ModuleType] = {}
    refused: dict[str, str] = {}
    for name in names(package):
        loaded = module(package, name, offers)
        if isinstance(loaded, str):
            refused[name] = loaded
        else:
            usable[name] = loaded
    return usable, refused


def module(package: ModuleType, name: str, offers: Iterable[str] = ()) -> ModuleType | str:
    """Import one plug-in and no other, or say in words why it cannot be used."""
    try:
        loaded = importlib.import_module(f"{package.__name__}.{name}")
    except Exception as error:  # noqa: BLE001  # the boundary: a plug-in may fail in any way
        return f"{type(error).__name__}: {error}"
    lacking = [attribute for attribute in offers if not hasattr(loaded, attribute)]
    return f"does not define {', '.join(lacking)}" if lacking else loaded
