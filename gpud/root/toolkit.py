"""Facts about the NVIDIA Container Toolkit: names and small files, nothing is run."""

from __future__ import annotations

import json
import os
import re
import shutil
import stat
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gpud.core.toolkit import CDI_KIND, PROGRAMS, ToolkitFacts
from gpud.root import process
from gpud.root.conditions import PATH

if TYPE_CHECKING:
    from collections.abc import Mapping

CDI_DIRS = ("/etc/cdi", "/var/run/cdi")
CONFIG = "/etc/docker/daemon.json"
LARGEST_FILE = 256 * 1024
MOST_SPECS = 32
_KIND = re.compile(rf'^\s*"?kind"?\s*:\s*"?{re.escape(CDI_KIND)}"?\s*,?\s*$', re.MULTILINE)


def facts(info: Mapping[str, Any], dockerd: int | None, *, desktop: bool) -> ToolkitFacts:
    """Give what dockerd's ``/info`` and the files say. ``dockerd`` is its pid, where it is known.

    Errors: none; what cannot be read is not there. A dockerd that is not root's is not followed to
    files of its choice: the usual places have to do.
    """
    trusted = dockerd is not None and _is_roots(dockerd)
    dockerd = dockerd if trusted else None
    path = _variable(dockerd, "PATH") or PATH  # gpud starts dockerd with the latter
    paths = {name: where for name in PROGRAMS if (where := shutil.which(name, path=path))}
    spec_dirs = info.get("CDISpecDirs")
    dirs = tuple(map(str, spec_dirs)) if isinstance(spec_dirs, list) else ()
    devices = info.get("DiscoveredDevices")
    runtimes = info.get("Runtimes")
    return ToolkitFacts(
        version=str(info.get("ServerVersion") or "") or None,
        runtimes=tuple(sorted(runtimes)) if isinstance(runtimes, dict) else None,
        cdi_dirs=dirs,
        cdi_devices=tuple(
            str(device.get("ID", ""))
            for device in (devices if isinstance(devices, list) else ())
            if isinstance(device, dict)
        ),
        configured=_configured(_config_file(dockerd)),
        programs=tuple(paths),
        fresh=tuple(name for name, where in paths.items() if _younger(where, dockerd)),
        cdi_specs=_specs((dirs if trusted else ()) or CDI_DIRS),
        desktop=desktop,
    )


def _specs(directories: tuple[str, ...]) -> tuple[str, ...]:
    paths: list[str] = []
    for directory in directories:
        try:
            files = sorted(Path(directory).iterdir())[:MOST_SPECS]
        except OSError:
            continue
        specs = [file for file in files if file.suffix in {".yaml", ".json"}]
        paths += [str(file) for file in specs if _KIND.search(_text(file))]
    return tuple(dict.fromkeys(paths))


def _configured(config: str) -> tuple[str, ...]:
    try:
        runtimes = json.loads(_text(Path(config)))["runtimes"]
        return tuple(sorted(runtimes))
    except (ValueError, KeyError, TypeError, RecursionError):
        return ()


def _config_file(dockerd: int | None) -> str:
    """Ask dockerd's own command line which file it reads."""
    words = iter(_proc(dockerd, "cmdline"))
    for word in words:
        name, equals, value = word.partition("=")
        if name == "--config-file":
            return value if equals else next(words, CONFIG)
    return CONFIG


def _variable(dockerd: int | None, name: str) -> str | None:
    for entry in _proc(dockerd, "environ"):
        key, _, value = entry.partition("=")
        if key == name:
            return value
    return None


def _is_roots(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}").stat().st_uid == 0
    except OSError:
        return False


def _younger(file: str, dockerd: int | None) -> bool:
    """Say whether a file came, or changed, after dockerd started; False where nobody can tell."""
    started = None if dockerd is None else process.ref(dockerd)
    if started is None:
        return False
    try:
        uptime_s = float(Path("/proc/uptime").read_text().split()[0])
        age_s = uptime_s - started.start_ticks / os.sysconf("SC_CLK_TCK")
        return time.time() - Path(file).stat().st_ctime < age_s
    except (OSError, ValueError):
        return False


def _proc(pid: int | None, name: str) -> list[str]:
    if pid is None:
        return []
    try:
        return Path(f"/proc/{pid}/{name}").read_bytes().decode(errors="replace").split("\0")
    except OSError:
        return []


def _text(path: Path) -> str:
    """Read a small regular file; a fifo or a device in its place delays nobody."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
        with os.fdopen(descriptor, "rb") as file:
            if not stat.S_ISREG(os.fstat(descriptor).st_mode):
                return ""
            return file.read(LARGEST_FILE).decode(errors="replace")
    except OSError:
        return ""
