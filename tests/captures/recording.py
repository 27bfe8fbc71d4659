"""A machine as a file under ``machines``: what `gpud capture` writes, and what was added by hand.

``cuda``, ``programs``, ``driver_store`` and ``pci`` are added: no command records them.
"""

from __future__ import annotations

from typing import Any, Final, Literal

import msgspec

from gpud.core.sample import Inventory

SCHEMA_VERSION: Final = 1
RECORDED: Final = "recorded"


class RecordedCall(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One call of NVML as C saw it: its raw value, or its code and no value."""

    call: str  # "nvmlDeviceGetPowerUsage"
    gpu: int | None = None  # NVML's own index; None for a call of the library
    arguments: tuple[int, ...] = ()
    code: int | None = 0  # None: the wrapper refused, in the words of ``error``
    value: Any = None  # a number, text, or the members of a struct
    error: str | None = None


class RecordedNvml(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What NVML answered to every question of gpud, as its helper's ``--record`` prints it."""

    library: str | None = None  # the file that was loaded
    error: str | None = None  # why nothing was
    missing: tuple[str, ...] = ()  # C functions this library does not have
    calls: tuple[RecordedCall, ...] = ()


class RecordedProgram(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One start of a program."""

    arguments: tuple[str, ...]
    code: int
    stdout: str = ""
    stderr: str = ""
    encoding: Literal["utf-8", "utf-16-le"] = "utf-8"  # of what it wrote
    error: None = None


class Capture(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One machine. Paths are the machine's; what is not there has no key."""

    schema_version: int = SCHEMA_VERSION
    gpud: str  # the version that recorded it
    origin: str = RECORDED  # or from which documented behaviour it was built
    machine: str = ""  # one line for people
    files: dict[str, str] = {}  # path -> text
    devices: tuple[str, ...] = ()  # character devices, "/dev/dxg"
    driver_store: dict[str, tuple[str, ...]] = {}  # folder -> its files
    pci: tuple[str, ...] = ()  # vendors of display controllers, "0x10de"
    nvml: RecordedNvml | None = None
    programs: dict[str, RecordedProgram | None] = {}  # None: it is not there
    cuda: Inventory = Inventory()
    unanswered: dict[str, str] = {}  # part -> why it is empty
    doctor: Any = None  # the document of `gpud doctor --json`
    status: Any = None  # the document of `gpud status --json`
