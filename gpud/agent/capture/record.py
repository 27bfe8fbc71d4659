"""Record a machine: what gpud asks of one and what it answered, as one JSON document.

Parts are asked at once, CUDA after the others, each with a deadline; none of them is needed.
Nothing here loads a driver: NVML is asked by its helper, CUDA by a probe child that makes no
context. What Windows serves (its drives, the driver store) may not answer for minutes or ever, so
it is looked at by a program of its own: ``python -I -m gpud.agent.capture.record SYSROOT`` prints
that part.
"""

from __future__ import annotations

import asyncio
import json
import os
import re
import signal
import sys
from dataclasses import asdict, dataclass, replace
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal

import msgspec

import gpud
from gpud import gpu_lock, regular_file
from gpud.agent import children, platform
from gpud.agent.capture import faults
from gpud.agent.children import ENVIRONMENT
from gpud.agent.measure import conditions, grace
from gpud.agent.measure.breaker import State
from gpud.agent.measure.clocks import now
from gpud.agent.telemetry import smi_output, windows
from gpud.agent.telemetry.sources import nvidia_smi, nvidia_smi_exe
from gpud.agent.telemetry.sources.nvml import candidates
from gpud.core import exposure, wire, wsl
from gpud.core.advice import CONTAINER_MARKS
from gpud.core.errors import DeniedError, TelemetryError, WireError
from gpud.core.sample import Failure, Inventory, Job, Reason
from gpud.core.settings import NVML_LOCK

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from gpud.core.report import ProcessRef
    from gpud.core.settings import Settings

SCHEMA_VERSION: Final = 1
RECORDED: Final = "recorded"

PYTHON = (sys.executable, "-I", "-m")
DEADLINE_S, GRACE_S = 5.0, 1.0
"""Of each part, all but the first and the last at once; and for a killed process to go."""
CUDA_START_LIMIT_S = 3.75  # the child ends itself before it has to be killed
MOST_NAMES, MOST_FOLDERS = 4096, 64
"""Of the names in one folder, and of folders of one kind."""

TEXTS = (
    "/etc/os-release",
    "/etc/wsl.conf",
    "/proc/1/comm",
    "/proc/driver/nvidia/version",
    "/proc/sys/fs/binfmt_misc/WSLInterop",
    "/proc/sys/fs/binfmt_misc/WSLInterop-late",
    "/proc/sys/kernel/osrelease",
    "/proc/version",
)
SUPPLIES, PCI = "/sys/class/power_supply", "/sys/bus/pci/devices"
DISPLAY_CLASS = "0x03"
DEVICES = re.compile(r"dxg|nvidia\d+|nvidiactl|nvidia-uvm")
DRIVER_STORE = f"/{exposure.STORE}"
DRIVER_FOLDER = re.compile(r"nv[^/]*\.inf_[a-z0-9]+_[0-9a-f]+", re.IGNORECASE)
DRIVER_FILES = re.compile(r".*\.so(?:\.[0-9]+)*|nvidia-smi|nvcubins\.bin")


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
    """One start of a program; ``error`` says why there is no ``code``."""

    arguments: tuple[str, ...]
    code: int | None = None
    stdout: str = ""
    stderr: str = ""
    encoding: Literal["utf-8", "utf-16-le"] = "utf-8"  # of what it wrote
    error: str | None = None


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
    nvml: RecordedNvml = RecordedNvml()
    programs: dict[str, RecordedProgram | None] = {}  # None: it is not there
    cuda: Inventory = Inventory()
    unanswered: dict[str, str] = {}  # part -> why it is empty
    known_faults: dict[str, str] = {}  # id -> state: seen, applies, reported
    doctor: Any = None  # the document of `gpud doctor --json`
    status: Any = None  # the document of `gpud status --json`


def encode(capture: Capture | dict[str, Any]) -> bytes:
    """Write the one form a capture has: sorted keys, two spaces, one newline at its end."""
    return msgspec.json.format(msgspec.json.encode(capture, order="sorted"), indent=2) + b"\n"


async def record(settings: Settings, config: Path, *, smi: bool) -> Capture:
    """Record this machine as it is, with every identifier in it. Errors: none.

    ``smi``: start nvidia-smi too; on some versions of WSL each start costs Windows memory.
    """
    unanswered: dict[str, str] = {}

    async def document(part: str, *command: str) -> Any:  # noqa: ANN401  # any JSON
        try:
            ended = await _answer((*PYTHON, *command), b"")
            return msgspec.json.decode(ended.stdout)
        except (TelemetryError, *wire.UNREADABLE) as error:
            unanswered[part] = str(error)
            return None

    ours = ("gpud", "--home", settings.home, "--config", str(config))
    status = await document("status", *ours, "status", "--json")
    breaker = status.get("breaker") if isinstance(status, dict) else None
    hangs = hang_of(breaker)
    nvml_hangs = hangs or nvml_hang_of(settings, status)
    doctor, store, nvml, content = await asyncio.gather(
        document("doctor", *ours, "doctor", "--json"),
        document("windows", "gpud.agent.capture.record", settings.sysroot),
        _nvml(settings, nvml_hangs),
        _programs(settings, smi=smi and not nvml_hangs),
    )
    cuda = await _cuda(settings, hangs)  # not beside the doctor, which may ask as well
    root, of_windows = Path(settings.sysroot), store or {"files": {}, "driver_store": {}}
    capture = Capture(
        gpud=gpud.__version__,
        files=linux_files(root) | of_windows["files"],
        devices=tuple(_devices(root)),
        driver_store=of_windows["driver_store"],
        pci=tuple(_display_vendors(root)),
        nvml=nvml,
        programs=content,
        cuda=cuda,
        unanswered=unanswered,
        doctor=doctor,
        status=status,
    )
    known = faults.matched(capture)
    return msgspec.structs.replace(capture, machine=described(capture), known_faults=known)


def hang_of(breaker: Any) -> str | None:  # noqa: ANN401  # of another program's document
    """Return why the driver is left alone: a running gpud has seen it hang and waits."""
    state = breaker.get("state") if isinstance(breaker, dict) else None
    hangs = state in {State.OPEN, State.HALF_OPEN, State.STUCK}
    return f"not asked: the breaker of the running gpud is {state}" if hangs else None


def nvml_hang_of(settings: Settings, status: Any) -> str | None:  # noqa: ANN401  # likewise
    """Return why NVML is left alone: the running gpud's hangs, or one of an earlier gpud stays."""
    if status is None:
        left = gpu_lock.holder_elsewhere(Path(settings.run_dir, "agent", NVML_LOCK))
        return f"not asked: {left} stays in a call of NVML" if left else None
    try:
        reason = status["telemetry"]["sources"]["nvml"]["reason"]
    except (KeyError, TypeError):
        return None
    hangs = reason in {"hung", "stuck"}
    return f"not asked: the running gpud says of NVML: {reason}" if hangs else None


def described(capture: Capture) -> str:
    """Return one line for people: which machine this is."""
    texts = [(c.call, c.value) for c in capture.nvml.calls if isinstance(c.value, str)]
    gpus = [value for call, value in texts if call == "nvmlDeviceGetName"]
    gpus = gpus or [device.name for device in capture.cuda.devices]
    driver = faults.driver(capture)
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


async def _nvml(settings: Settings, hangs: str | None) -> RecordedNvml:
    if hangs:
        return RecordedNvml(error=hangs)
    leave = settings.cuda.leaves_hung(platform.facts(settings.sysroot).get("kernel", ""))
    alarm = ("--budget-s=0",) if leave else ()
    command = (*PYTHON, "gpud.agent.telemetry.nvml", "--record", *alarm, *candidates(settings))
    try:
        ended = await _answer(command, b"", kill=not leave)
        answer = msgspec.json.decode(ended.stdout, type=RecordedNvml)
    except (TelemetryError, *wire.UNREADABLE) as error:
        return RecordedNvml(error=str(error))
    library, words = (p and _inside(settings, p) for p in (answer.library, answer.error))
    return msgspec.structs.replace(answer, library=library, error=words)


async def _cuda(settings: Settings, hangs: str | None) -> Inventory:
    if hangs:
        return Inventory(failure=Failure(Reason.HUNG, hangs))
    facts = platform.facts(settings.sysroot)
    if begins := grace.gpu_from(settings, facts, now()):
        words = f"not asked: {grace.begins(begins.wall_s)}"
        return Inventory(failure=Failure(Reason.NOT_READY, words))
    leave = settings.cuda.leaves_hung(facts.get("kernel", ""))
    job = Job(
        cuda_library=settings.cuda.library,
        sysroot=settings.sysroot,
        start_limit_s=CUDA_START_LIMIT_S,
        alarm=not leave,
    )
    try:
        answer = wire.decode((await _listed(settings, job)).stdout, Inventory)
    except TelemetryError as error:
        return Inventory(failure=Failure(Reason(error.reason), str(error)))
    except WireError as error:
        return Inventory(failure=Failure(Reason.BAD_OUTPUT, str(error)))
    failure = answer.failure
    if failure is not None:
        failure = replace(failure, detail=_inside(settings, failure.detail))
    library = answer.library and _inside(settings, answer.library)
    return replace(answer, library=library, failure=failure)


async def _listed(settings: Settings, job: Job) -> children.Ended:
    """Have a probe child list the GPUs, under the lock. ``Errors: TelemetryError``."""

    def note(process: ProcessRef) -> None:
        if lock is not None:
            limit_s = DEADLINE_S if job.alarm else settings.cuda.start_limit_s
            gpu_lock.hand_over(lock, process.pid, limit_s, "inventory")

    try:
        with gpu_lock.taken(Path(settings.run_dir)) as lock:
            return await _answer(
                (*PYTHON, "gpud.child", "--serve"),
                json.dumps(asdict(job)).encode(),
                kill=job.alarm,
                started=note,
                pass_fds=() if lock is None else (lock,),
            )
    except gpu_lock.LockTakenError as taken:
        reason = Reason.HUNG if taken.stuck else Reason.NOT_READY
        raise TelemetryError(f"not asked: {taken}, has the GPU", reason=reason) from taken
    except (DeniedError, OSError) as error:
        raise TelemetryError(f"not asked: {error}", reason=Reason.NOT_PERMITTED) from error


def _inside(settings: Settings, words: str) -> str:
    """Name what lies below the tree by its path on the machine."""
    root = settings.sysroot.rstrip("/")
    if not root:
        return words
    return words.replace(f"{os.path.realpath(root)}/", "/").replace(f"{root}/", "/")


async def _answer(
    command: Sequence[str],
    stdin: bytes,
    *,
    kill: bool = True,
    started: Callable[[ProcessRef], None] = lambda _: None,
    pass_fds: Sequence[int] = (),
) -> children.Ended:
    """Run a program of gpud's to its end. ``Errors: TelemetryError`` without an answer."""
    try:
        ended = await children.run(
            command,
            stdin,
            deadline_s=DEADLINE_S,
            grace_s=GRACE_S,
            kill=kill,
            started=started,
            pass_fds=pass_fds,
        )
    except OSError as error:
        words = f"cannot start {command[0]}: {error.strerror}"
        raise TelemetryError(words, reason=Reason.SPAWN_FAILED) from error
    if ended.code in {None, -signal.SIGALRM} or ended.killed:  # a probe child ends itself before
        raise TelemetryError(f"no answer within {DEADLINE_S:g} s", reason=Reason.HUNG)
    if not ended.stdout:
        last = ended.stderr.decode(errors="replace").strip()[-200:]
        words = f"it ended with {ended.code} and said: {last or 'nothing'}"
        raise TelemetryError(words, reason=Reason.CRASHED)
    return ended


# The programs of NVIDIA, of WSL and of Windows


@dataclass(frozen=True, slots=True)
class ProgramStart:
    """A program to start, the first of ``places``; ``trouble`` says why none can be started."""

    places: tuple[str, ...]
    arguments: tuple[str, ...]
    environment: Mapping[str, str]
    trouble: str | None = None
    kill: bool = True


async def _programs(settings: Settings, *, smi: bool) -> dict[str, RecordedProgram | None]:
    """Start each program once, all at the same time; None for one that is not there.

    Outside WSL there is none. Errors: none, they are in what is returned.
    """
    root, trouble = settings.sysroot, None
    environment: Mapping[str, str] = ENVIRONMENT
    try:
        environment = windows.environment(root)
    except TelemetryError as error:
        trouble = str(error)

    def of_windows(places: tuple[str, ...], *arguments: str) -> ProgramStart:
        return ProgramStart(places, arguments, environment, trouble)

    in_wsl = bool(platform.facts(root).get("wsl"))
    query = smi_output.ARGUMENTS
    starts: dict[str, ProgramStart] = {}
    if in_wsl:
        wslinfo = (str(Path(root, "usr/bin/wslinfo")),)
        starts["wslinfo"] = ProgramStart(wslinfo, ("--wsl-version",), ENVIRONMENT)
        for name, *arguments in (("wsl.exe", "--version"), ("cmd.exe", "/d", "/c", "ver")):
            starts[name] = of_windows(windows.places(root, f"{windows.SYSTEM}/{name}"), *arguments)
    if smi and in_wsl:
        kill = not settings.cuda.leaves_hung(platform.facts(root).get("kernel", ""))
        places = nvidia_smi.places(settings)
        starts["nvidia-smi"] = ProgramStart(places, query, ENVIRONMENT, kill=kill)
        starts["nvidia-smi.exe"] = of_windows(nvidia_smi_exe.places(settings), *query)
    answers = await asyncio.gather(*(_started(start) for start in starts.values()))
    return dict(zip(starts, answers, strict=True))


async def _started(start: ProgramStart) -> RecordedProgram | None:
    arguments = start.arguments
    if start.trouble is not None:
        return RecordedProgram(arguments=arguments, error=start.trouble)
    try:
        ended = await children.run_program(
            start.places,
            arguments,
            deadline_s=DEADLINE_S,
            grace_s=GRACE_S,
            environment=start.environment,
            kill=start.kill,
        )
    except OSError as error:
        return RecordedProgram(arguments=arguments, error=f"cannot start: {error.strerror}")
    if ended.code == children.NOT_THERE and not ended.stdout:
        return None
    if ended.killed or ended.code is None:
        return RecordedProgram(arguments=arguments, error=f"no answer within {DEADLINE_S:g} s")
    return RecordedProgram(
        arguments=arguments,
        code=ended.code,
        stdout=windows.text(ended.stdout),
        stderr=windows.text(ended.stderr),
        encoding="utf-16-le" if b"\0" in ended.stdout else "utf-8",
    )


# Files, devices and folders below ``root``: all of it bounded


def linux_files(root: Path) -> dict[str, str]:
    """Return the texts that Linux itself has: it answers at once."""
    supplies = _names(root, SUPPLIES)[:MOST_FOLDERS]
    paths = [f"{SUPPLIES}/{s}/{name}" for s in supplies for name in conditions.SUPPLY_FILES]
    # That the marks are there says that this is a container; what they hold is not looked at.
    return _texts(root, (*TEXTS, *paths)) | {
        path: "" for path in CONTAINER_MARKS if _at(root, path).exists()
    }


def windows_side(root: Path) -> dict[str, Any]:
    """Return NVIDIA's folders in Windows' driver store, and people's .wslconfig."""
    store = {}
    folders = [name for name in _names(root, DRIVER_STORE) if DRIVER_FOLDER.fullmatch(name)]
    for folder in folders[:MOST_FOLDERS]:
        names = filter(DRIVER_FILES.fullmatch, _names(root, f"{DRIVER_STORE}/{folder}"))
        if files := list(islice(names, MOST_FOLDERS)):
            store[folder] = files
    conf = wsl.sections(regular_file.text(_at(root, "/etc/wsl.conf")) or "")
    users = f"{wsl.mounts_at(conf)}/c/Users"
    paths = [f"{users}/{name}/.wslconfig" for name in _names(root, users)[:MOST_FOLDERS]]
    # Whoever may write into a folder of Windows could let a name there lead to another's file.
    return {"files": _texts(root, paths, os.O_NOFOLLOW), "driver_store": store}


def _devices(root: Path) -> Iterator[str]:
    for name in _names(root, "/dev"):
        if DEVICES.fullmatch(name) and _at(root, f"/dev/{name}").is_char_device():
            yield f"/dev/{name}"


def _display_vendors(root: Path) -> Iterator[str]:
    for name in _names(root, PCI):
        kind, vendor = (
            (regular_file.text(_at(root, f"{PCI}/{name}/{fact}")) or "").strip()
            for fact in ("class", "vendor")
        )
        if kind.startswith(DISPLAY_CLASS) and vendor:
            yield vendor


def _at(root: Path, path: str) -> Path:
    return root / path.lstrip("/")


def _names(root: Path, path: str) -> list[str]:
    """List a folder, sorted; empty when it cannot be listed."""
    try:
        with os.scandir(_at(root, path)) as entries:
            return sorted(entry.name for entry in islice(entries, MOST_NAMES))
    except OSError:
        return []


def _texts(root: Path, paths: Sequence[str], flags: int = 0) -> dict[str, str]:
    """Read the beginnings of regular files; what is none has no key."""
    texts = {}
    for path in paths:
        try:
            content = regular_file.read(_at(root, path), regular_file.LARGEST, flags)
        except OSError:
            continue
        texts[path] = content.decode(errors="replace")
    return texts


if __name__ == "__main__":
    # A name that is no UTF-8 must not cost the rest of the document.
    text = json.dumps(windows_side(Path(sys.argv[1])), ensure_ascii=False)
    sys.stdout.buffer.write(text.encode(errors="replace"))
