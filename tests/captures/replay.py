"""A capture -> the machine it was made of: a tree of files, driver libraries, programs, settings.

What cannot be replayed is an error, never left out: a test of half a machine proves nothing.
"""

from __future__ import annotations

import json
import os
import shutil
import socket
import stat
import subprocess
import sys
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from gpud.core import wsl
from tests.captures import cuda_script, nvml_script, program
from tests.captures.nvml_script import CannotReplay
from tests.captures.recording import SCHEMA_VERSION, Capture, RecordedNvml
from tests.standins.build import build_libcuda, build_libnvml

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.captures.recording import RecordedProgram

MACHINES = Path(__file__).parent / "machines"
LDCONFIG = "/sbin/ldconfig"
WSL_LIBRARIES, LINUX_LIBRARIES = "/usr/lib/wsl/lib", "/usr/lib/x86_64-linux-gnu"
WSLINFO = "/usr/bin/wslinfo"
DRIVER_STORE = "/usr/lib/wsl/drivers"
NVML, CUDA, CUDA_IN_STORE = "libnvidia-ml.so.1", "libcuda.so.1", "libcuda.so.1.1"
MISSING = "cannot open shared object file"
WINDOWS_PROGRAMS = ("nvidia-smi.exe", "cmd.exe", "wsl.exe")


@dataclass(frozen=True, slots=True)
class Replayed:
    """A machine to run on: where its tree begins, and the settings that find its libraries."""

    sysroot: Path
    sections: dict[str, dict[str, Any]]

    def real(self, path: str) -> str:
        """Follow links, and give a path of the machine again."""
        return os.path.realpath(_at(self.sysroot, path)).removeprefix(str(self.sysroot))


def names() -> list[str]:
    """Name every machine there is."""
    return sorted(path.stem for path in MACHINES.glob("*.json"))


def load(name: str) -> Capture:
    """Read one of them."""
    return decode((MACHINES / f"{name}.json").read_bytes())


def decode(text: bytes) -> Capture:
    """Read a capture. ``Errors: msgspec.ValidationError`` for what is none."""
    capture = msgspec.json.decode(text, type=Capture)
    assert capture.schema_version == SCHEMA_VERSION
    return capture


@contextmanager
def replayed(capture: Capture, folder: Path) -> Iterator[Replayed]:
    """Lay the machine out below ``folder``, while the sockets of its sessions are open.

    Needs root, for devices and the linker's cache. Errors: ``CannotReplay``.
    """
    root = (folder / "sysroot").resolve()
    for path, text in capture.files.items():
        _write(root, path, text)
    if capture.files.get("/proc/1/comm", "").strip() == "systemd":
        _at(root, "/run/systemd/system").mkdir(parents=True)
    for path in capture.devices:
        _at(root, path).parent.mkdir(parents=True, exist_ok=True)
        os.mknod(_at(root, path), stat.S_IFCHR | 0o666, os.makedev(1, 3))
        _at(root, path).chmod(0o666)  # whatever the umask says
    for number, vendor in enumerate(capture.pci):
        slot = f"/sys/bus/pci/devices/0000:{number:02x}:00.0"
        _write(root, f"{slot}/class", "0x030000\n")
        _write(root, f"{slot}/vendor", f"{vendor}\n")
    for store, held in capture.driver_store.items():
        for name in held:
            _write(root, f"{DRIVER_STORE}/{store}/{name}", "")
    sections = _libraries(capture, root, folder / "built")
    for name, said in capture.programs.items():
        if said is not None:
            put_program(_place(capture, name), said, root)
    with ExitStack() as open_:
        if any(capture.programs.get(name) for name in WINDOWS_PROGRAMS):
            open_.enter_context(_session(root))
        yield Replayed(root, sections)


def _libraries(capture: Capture, root: Path, built: Path) -> dict[str, dict[str, Any]]:
    """Put both where they were, and where WSL's folder links to; plain Linux's are configured."""
    sections: dict[str, dict[str, Any]] = {}
    under_wsl = wsl.version(capture.files.get("/proc/sys/kernel/osrelease", "")) == "2"
    recorded_nvml = capture.nvml or RecordedNvml(error=MISSING)
    nvml = None if _missing(recorded_nvml) else nvml_script.script(recorded_nvml)
    cuda = cuda_script.script(capture.cuda, _slots(capture))
    folder = WSL_LIBRARIES if under_wsl else LINUX_LIBRARIES
    for section, text, found, name in (
        ("nvml", nvml, recorded_nvml.library, NVML),
        ("cuda", cuda, capture.cuda.library, CUDA),
    ):
        if text is None:
            continue
        recorded = found or f"{folder}/{name}"  # one that refuses to begin is not named
        if section == "cuda" and (store := capture.cuda.driver_folder) is not None:
            recorded = f"{DRIVER_STORE}/{store}/{CUDA_IN_STORE}"  # which WSL's own one opens
        if "/" not in recorded:
            raise CannotReplay(f"{name} that lies at {recorded}")
        made = (
            build_libnvml(built, text, recorded_nvml.missing)
            if section == "nvml"
            else build_libcuda(built, text)
        )
        place = _at(root, recorded)
        place.parent.mkdir(parents=True, exist_ok=True)
        for suffix in ("", ".script"):
            shutil.copy(f"{made}{suffix}", f"{place}{suffix}")
        if not under_wsl:
            sections[section] = {"library": str(place)}
        elif recorded != (link := f"{WSL_LIBRARIES}/{name}"):
            _at(root, link).parent.mkdir(parents=True, exist_ok=True)
            _at(root, link).symlink_to(os.path.relpath(place, _at(root, link).parent))
    if under_wsl and _at(root, WSL_LIBRARIES).is_dir():  # as WSL does at every start
        _at(root, "/etc").mkdir(exist_ok=True)
        _at(root, "/etc/ld.so.conf").write_text(f"{WSL_LIBRARIES}\n")
        subprocess.run([LDCONFIG, "-r", root, "-X"], check=True, capture_output=True)
    return sections


def _missing(nvml: RecordedNvml) -> bool:
    error = nvml.error
    if error is not None and MISSING not in error:
        raise CannotReplay(f"NVML: {error}")
    return error is not None


def _slots(capture: Capture) -> dict[str, str]:
    """Give the UUID that NVML has for the GPU in each slot, spelled as CUDA spells slots."""
    slots, uuids = {}, {}
    for call in capture.nvml.calls if capture.nvml else ():
        if call.gpu is not None and not call.code and call.call == "nvmlDeviceGetPciInfo_v3":
            slots[call.gpu] = call.value["busId"][-12:].lower()
        if call.gpu is not None and not call.code and call.call == "nvmlDeviceGetUUID":
            uuids[call.gpu] = call.value
    return {slot: uuids[gpu] for gpu, slot in slots.items() if gpu in uuids}


def _place(capture: Capture, name: str) -> str:
    if name not in WINDOWS_PROGRAMS:
        return WSLINFO
    mounts = wsl.mounts_at(wsl.sections(capture.files.get("/etc/wsl.conf", "")))
    return f"{mounts}/c/Windows/System32/{name}"


def put_program(path: str, said: RecordedProgram, root: Path) -> None:
    """Put a program there that says what was recorded."""
    source = Path(program.__file__).read_text()
    interpreter = os.path.realpath(sys.executable)  # the agent's user may not enter the venv
    _write(root, path, f"#!{interpreter} -IS\n{source}")
    _at(root, path).chmod(0o755)
    held = {"code": said.code, "arguments": said.arguments, "encoding": said.encoding}
    _write(
        root, f"{path}.recorded", json.dumps(held | {"stdout": said.stdout, "stderr": said.stderr})
    )


@contextmanager
def _session(root: Path) -> Iterator[None]:
    """Be a session of WSL, which listens for programs to start."""
    path = _at(root, "/run/WSL/1_interop")
    path.parent.mkdir(parents=True, exist_ok=True)
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as listening:
        listening.bind(str(path))
        path.chmod(0o777)
        listening.listen()
        yield


def _write(root: Path, path: str, text: str) -> None:
    place = _at(root, path)
    place.parent.mkdir(parents=True, exist_ok=True)
    place.write_bytes(text.encode())


def _at(root: Path, path: str) -> Path:
    """Return the place below the tree: a capture may come from anybody."""
    if ".." in path.split("/"):
        raise CannotReplay(f"{path}, which leaves the tree")
    return root / path.lstrip("/")
