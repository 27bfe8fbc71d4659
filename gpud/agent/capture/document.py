"""A recorded machine: what gpud asks of one and what it answered, as one JSON document.

Shapes: bytes of one document in, a ``Capture`` out, and back. What arrives may come from anybody:
unknown keys, paths that leave the tree they are laid out in and programs nobody knows are refused.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Any, Final, Literal, TypeAlias

import msgspec

from gpud.core import wsl
from gpud.core.errors import WireError
from gpud.core.sample import Inventory

SCHEMA_VERSION: Final = 1
LARGEST: Final = 8 << 20
NAMED_LONGEST: Final = 80

WINDOWS_PROGRAMS: Final = ("nvidia-smi.exe", "cmd.exe", "wsl.exe")
LINUX_PROGRAMS: Final = ("nvidia-smi", "wslinfo")
PROGRAMS: Final = frozenset({*WINDOWS_PROGRAMS, *LINUX_PROGRAMS})
RECORDED: Final = "recorded"
BUILT: Final = "built: "
"""What ``origin`` begins with where no machine was recorded; the rest names public sources."""

Json: TypeAlias = Any
"""Whatever JSON can hold, kept as it is: a raw value of C, another program's document."""

_PATH = re.compile(r"(?:/(?!\.{1,2}(?:/|$))[^/\0]+)+", re.DOTALL)
_NAME = re.compile(r"(?!\.{1,2}$)[^/\0]+", re.DOTALL)


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """One call of NVML as C saw it: its raw value, or its code and no value."""

    call: str  # "nvmlDeviceGetPowerUsage"
    gpu: int | None = None  # NVML's own index; None for a call of the library
    arguments: tuple[int, ...] = ()
    code: int | None = 0  # None: the wrapper refused, in the words of ``error``
    value: Json = None  # a number, text, or the members of a struct
    error: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Nvml:
    """What NVML answered to every question of gpud, as its helper's ``--record`` prints it."""

    library: str | None = None  # the file that was loaded
    error: str | None = None  # why nothing was
    missing: tuple[str, ...] = ()  # C functions this library does not have
    calls: tuple[Call, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Program:
    """One start of a program; ``error`` says why there is no ``code``."""

    arguments: tuple[str, ...]
    code: int | None
    stdout: str = ""
    stderr: str = ""
    encoding: Literal["utf-8", "utf-16-le"] = "utf-8"  # of what it wrote
    error: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Capture:
    """One machine. Paths are the machine's; what is not there has no key."""

    schema_version: int
    gpud: str  # the version that recorded it
    origin: str  # RECORDED, or BUILT and from which documented behaviour
    machine: str  # one line for people
    files: dict[str, str] = field(default_factory=dict)  # path -> text
    devices: tuple[str, ...] = ()  # character devices, "/dev/dxg"
    driver_store: dict[str, tuple[str, ...]] = field(default_factory=dict)  # folder -> its files
    pci: tuple[str, ...] = ()  # vendors of display controllers, "0x10de"
    nvml: Nvml = field(default_factory=Nvml)
    programs: dict[str, Program | None] = field(default_factory=dict)  # None: it is not there
    cuda: Inventory = field(default_factory=Inventory)
    unanswered: dict[str, str] = field(default_factory=dict)  # part -> why it is empty
    doctor: Json = None  # the document of `gpud doctor --json`
    status: Json = None  # the document of `gpud status --json`


def encode(capture: Capture) -> bytes:
    """Write the one form a capture has: sorted keys, two spaces, one newline at its end."""
    packed = msgspec.json.encode(capture, order="sorted")
    return msgspec.json.format(packed, indent=2) + b"\n"


def decode(text: bytes) -> Capture:
    """Read one. ``Errors: WireError`` saying what is wrong, and where."""
    if len(text) > LARGEST:
        raise WireError(f"not a capture: longer than {LARGEST} bytes")
    try:
        raw = msgspec.json.decode(text)
        capture = msgspec.convert(raw, Capture)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise WireError(f"not a capture: {error}") from error
    if capture.schema_version != SCHEMA_VERSION:
        raise WireError(f"a capture of schema {capture.schema_version}, not {SCHEMA_VERSION}")
    if (stranger := unknown(raw, msgspec.to_builtins(capture))) is not None:
        raise WireError(f"not a capture: unknown key {stranger}")
    _refuse_strange_names(capture)
    return capture


def described(capture: Capture) -> str:
    """Say in one line for people which machine this is."""
    calls = capture.nvml.calls
    content = {call.call: call.value for call in reversed(calls) if isinstance(call.value, str)}
    named = [call.value for call in calls if call.call == "nvmlDeviceGetName"]
    gpus = [name for name in named if isinstance(name, str)]
    gpus = gpus or [device.name for device in capture.cuda.devices]
    driver = content.get("nvmlSystemGetDriverVersion")
    kernel = capture.files.get("/proc/sys/kernel/osrelease", "").strip()
    place = {"1": "WSL 1", "2": "WSL 2"}.get(wsl.version(kernel), "Linux")
    release = capture.files.get("/etc/os-release", "")
    distribution = re.search(r'^PRETTY_NAME="?([^"\n]*)', release, re.MULTILINE)
    parts = [
        " and ".join(gpus) or "no GPU that answers",
        f"driver {driver}" if driver else "",
        f"{place}, kernel {kernel}" if kernel else "",
        distribution[1] if distribution else "",
    ]
    return ", ".join(filter(None, parts))


def unknown(raw: Json, accepted: Json, place: str = "") -> str | None:
    """Name the first key of ``raw`` that ``accepted``, made from it, has lost, if any."""
    if isinstance(raw, dict):
        for key, value in raw.items():
            here = f"{place}.{key}" if place else str(key)
            if key not in accepted:
                return f"{here!a:.{NAMED_LONGEST}}"
            if (name := unknown(value, accepted[key], here)) is not None:
                return name
    if isinstance(raw, list):
        for index, (value, copy) in enumerate(zip(raw, accepted, strict=True)):
            if (name := unknown(value, copy, f"{place}[{index}]")) is not None:
                return name
    return None


def _refuse_strange_names(capture: Capture) -> None:
    """Refuse what would be laid out elsewhere than below the tree it belongs to."""
    folders = capture.driver_store
    names = [*folders, *(name for files in folders.values() for name in files)]
    paths = [*capture.files, *capture.devices]
    for library in filter(None, (capture.nvml.library, capture.cuda.library)):
        (paths if "/" in library else names).append(library)  # a bare one is as it was asked for
    wrong = [path for path in paths if not _PATH.fullmatch(path)]
    wrong += [name for name in names if not _NAME.fullmatch(name)]
    wrong += [name for name in capture.programs if name not in PROGRAMS]
    if wrong:
        raise WireError(f"not a capture: {wrong[0]!a:.{NAMED_LONGEST}} cannot be a name there")
