"""Checks of WSL itself: version, systemd, interop and idle time-outs."""

from __future__ import annotations

import re

from gpud.core.wsl import Sections, sections
from gpud.doctor.finding import Finding, advice, check, combined, ok, problem, unknown
from gpud.doctor.machine import Machine
from gpud.install.places import UNIT, UNIT_ENABLED

INSTANCE_MS, VM_MS = 15_000, 60_000
"""WSL's idle time-outs unless .wslconfig says otherwise. Source: WSL 2.5.9 and later."""
NEVER = "in Windows' %UserProfile%\\.wslconfig: [general] instanceIdleTimeout=-1; wsl --shutdown"
MOST_USERS = 64


@check(10, "WSL version")
def wsl(machine: Machine) -> Finding:
    """WSL 2, WSL 1, Linux or container; kernel, distribution."""
    kernel = machine.kernel
    release = re.search(
        r'^PRETTY_NAME="?([^"\n]{1,80})', machine.text("/etc/os-release") or "", re.MULTILINE
    )
    distribution = release[1] if release else "a distribution without a name"
    if not kernel:
        return unknown("the kernel does not say its release: is /proc mounted?")
    if machine.container:
        return advice(
            f"a container on kernel {kernel}",
            "run gpud on the machine itself: in a container it sees neither dockerd nor wsl.conf",
        )
    if machine.wsl == "1":
        name = machine.environ.get("WSL_DISTRO_NAME", "NAME")
        return problem(
            f"WSL 1, kernel {kernel}: neither a GPU nor dockerd works there",
            f"from Windows: wsl --set-version {name} 2",
        )
    system = "WSL 2" if machine.wsl == "2" else "Linux, not WSL"
    return ok(f"{system}, kernel {kernel}, {distribution}")


@check(20, "systemd")
def systemd(machine: Machine) -> Finding:
    """On or off, gpud's unit, a `[boot] command` against it."""
    return combined(_first_process(machine), _unit(machine))


def _unit(machine: Machine) -> Finding | None:
    """Compare what starts gpud with whether systemd runs, which may have been switched since."""
    enabled = machine.exists(str(UNIT_ENABLED))
    if not machine.installed or enabled == machine.systemd:
        return None
    if enabled:
        return advice(
            f"{UNIT.name} waits for systemd, and a shell starts gpud",
            "[boot] systemd=true in /etc/wsl.conf, or deploy/install --no-systemd",
        )
    return advice("a shell starts gpud, and nothing does at boot", "deploy/install --systemd")


def _first_process(machine: Machine) -> Finding:
    now = "on" if machine.systemd else "off"
    if not machine.wsl:
        return ok(now)
    configured = machine.wsl_switch("boot", "systemd")
    if configured is None or configured == machine.systemd:
        state = ok(now)
    else:
        later = "on" if configured else "off"
        fix = "close every shell, then from Windows: wsl --terminate NAME"
        state = advice(f"{now}, and {later} from the next start on (wsl.conf)", fix)
    command = machine.wsl_conf.get("boot", {}).get("command", "")
    if "docker" not in command:
        return state
    line, fix = f"wsl.conf has [boot] command={command}", "remove that line from /etc/wsl.conf"
    if configured:
        fight = f"{line}, and systemd=true: the two break `service docker start`"
        return combined(state, problem(fight, fix))
    words = f"{line}: gpud then only watches that dockerd"
    return combined(state, advice(words, f"{fix}; gpud starts dockerd"))


@check(30, "interop")
def interop(machine: Machine) -> Finding:
    """`[interop] enabled`, and Windows programs can start."""
    if not machine.wsl:
        return ok("not WSL: there is none")
    if machine.wsl_switch("interop", "enabled") is False:
        return advice(
            "off in wsl.conf: the distribution stops about 15 s after its last terminal closes, "
            "gpud and dockerd with it",
            "[interop] enabled=true in /etc/wsl.conf, or in Windows' .wslconfig "
            "[general] instanceIdleTimeout=-1",
        )
    if not machine.interop:
        return advice(
            "on, but Windows programs are not registered with the kernel (systemd-binfmt?)",
            "from Windows: wsl --shutdown; if it stays, mask systemd-binfmt.service",
        )
    return ok("on")


@check(40, "idle time-outs", may_block=True)  # a Windows drive
def idle(machine: Machine) -> Finding:
    """`instanceIdleTimeout` and `vmIdleTimeout` of .wslconfig."""
    if machine.wsl != "2":
        return ok("not WSL 2: nothing stops this machine")
    if machine.wsl_switch("automount", "enabled") is False:
        return unknown("automount is off: Windows' .wslconfig cannot be read from here")
    users = f"{machine.drives}/c/Users"
    names = machine.names(users)[:MOST_USERS]
    if not names:
        return unknown(f"{users} is not there: Windows' .wslconfig cannot be read from here")
    on_path = re.search(f"{re.escape(users)}/([^/:]+)/", machine.environ.get("PATH", ""))
    if on_path and on_path[1] in names:  # WSL makes the PATH of the user who started it
        names = (on_path[1],)
    # Interop's init is a daemon of a shell, and keeps the distribution while there is no systemd.
    held = machine.wsl_switch("interop", "enabled") is not False and not machine.systemd
    texts = {name: machine.text(f"{users}/{name}/.wslconfig") for name in names}
    findings = [
        _time_outs(sections(text), f"{name}'s .wslconfig", held=held)
        for name, text in texts.items()
        if text is not None
    ]
    return combined(*(findings or [_time_outs({}, "no .wslconfig: the defaults", held=held)]))


def _time_outs(settings: Sections, origin: str, *, held: bool) -> Finding:
    """Check both; ``held``: interop keeps the distribution. Units: milliseconds, -1 for never."""
    instance = _milliseconds(settings, "general", "instanceidletimeout", INSTANCE_MS)
    machine = _milliseconds(settings, "wsl2", "vmidletimeout", VM_MS)
    if instance is None or machine is None:
        key = "instanceIdleTimeout" if instance is None else "vmIdleTimeout"
        return advice(f"{origin}: {key} is no number", "give it milliseconds, or -1 for never")
    evidence = f"{origin}: distribution {_words(instance)}, virtual machine {_words(machine)}"
    if instance < 0 <= machine and not held:
        evidence += " (which starts when no distribution is left)"
    if instance < 0 or held:
        return ok(evidence + ("; gpud keeps it up until then" if held and instance >= 0 else ""))
    if machine < 0:
        evidence += "; vmIdleTimeout alone does not keep the distribution"
    return advice(f"{evidence}; nothing keeps it up when the last terminal is closed", NEVER)


def _milliseconds(settings: Sections, section: str, key: str, default: int) -> int | None:
    text = settings.get(section, {}).get(key, str(default))
    return int(text) if re.fullmatch(r"[+-]?[0-9]{1,12}", text) else None


def _words(milliseconds: int) -> str:
    return "never stops" if milliseconds < 0 else f"stops after {milliseconds / 1000:g} s idle"
