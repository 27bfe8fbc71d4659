"""Verdicts of checks that follow from files, from root's report and from the agent's document."""

from __future__ import annotations

import os
import subprocess
import time
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
from msgspec import structs

from gpud.core.report import (
    AgentReport,
    ContainersReport,
    Owner,
    ProbeStage,
    ToolkitReport,
    ToolkitState,
)
from gpud.core.sections import TelemetrySettings
from gpud.core.telemetry import LEVELS
from gpud.doctor.checks.docker import docker, live_restore, toolkit
from gpud.doctor.checks.driver import driver, dxg, telemetry
from gpud.doctor.checks.gpud import gpud
from gpud.doctor.checks.installation import COMMANDS, shell_hook, sudo_rule
from gpud.doctor.checks.libraries import libcuda
from gpud.doctor.checks.wsl import idle, interop, systemd, wsl
from tests.doctor.trees import (
    ADVICE,
    CONTAINER,
    LINUX,
    OK,
    PERSON,
    PROBLEM,
    SYSTEMD,
    UNKNOWN,
    WSL1,
    WSL2,
    agent,
    dockerd_up,
    expect,
    machine,
    make_dxg,
    program,
    reading,
    report,
)
from tests.waiting import LIMIT_S

if TYPE_CHECKING:
    from pathlib import Path

    from gpud.core.report import RootReport
    from gpud.doctor.finding import Check, Finding, Verdict

Files = dict[str, str]


def conf(text: str) -> Files:
    return {"/etc/wsl.conf": text}


def config(text: str) -> Files:
    return {"/mnt/c/Users/Ada/.wslconfig": text}


def daemon(text: str) -> Files:
    return {"/etc/docker/daemon.json": text}


OFF = "[interop]\nenabled=false\n"
INTEROP_OFF = WSL2 | conf(OFF)
FIGHT = SYSTEMD | conf('[boot]\nsystemd=true\ncommand="service docker start"\n')
BARE = {"/proc/sys/fs/binfmt_misc/WSLInterop": "disabled\n"}
GPU_OFF = WSL2 | conf("[gpu]\nenabled=false\n")
NEVER = config("[general]\ninstanceIdleTimeout=-1\n")
SOON = config("[general]\ninstanceIdleTimeout=soon\n")
STOPS = "distribution stops after 15 s idle, virtual machine stops after 60 s"

FROM_FILES: list[tuple[Check, Files, Verdict, str]] = [
    (wsl, WSL2, OK, "WSL 2, kernel 5.15.167.4"),
    (wsl, WSL1, PROBLEM, "WSL 1"),
    (wsl, LINUX, OK, "not WSL"),
    (wsl, CONTAINER, ADVICE, "a container"),
    (wsl, {}, UNKNOWN, "release"),
    (systemd, WSL2, OK, "off"),
    (systemd, WSL2 | SYSTEMD, OK, "on"),
    (systemd, WSL2 | SYSTEMD | conf("[boot]\nsystemd=true\n"), OK, "on"),
    (systemd, WSL2 | conf("[boot]\nsystemd = TRUE # soon\n"), ADVICE, "off, and on from the next"),
    (systemd, WSL2 | SYSTEMD | conf("[boot]\nsystemd=false\n"), ADVICE, "on, and off from the"),
    (systemd, WSL2 | conf("[boot]\ncommand=service docker start\n"), ADVICE, "only watches"),
    (systemd, WSL2 | FIGHT, PROBLEM, "the two break"),
    (interop, WSL2, OK, "on"),
    (interop, INTEROP_OFF, ADVICE, "stops about 15 s after its last terminal"),
    (interop, WSL2 | BARE, ADVICE, "not registered"),
    (interop, LINUX, OK, "not WSL"),
    (dxg, WSL2, PROBLEM, "none: Windows offers no GPU"),
    (dxg, WSL2 | {"/dev/dxg": ""}, PROBLEM, "not a device"),
    (dxg, GPU_OFF, ADVICE, "none: [gpu] enabled=false"),
    (dxg, LINUX | {"/dev/nvidia0": ""}, OK, "NVIDIA's own devices: nvidia0"),
    (idle, LINUX, OK, "not WSL 2"),
    (idle, WSL2 | config(""), OK, STOPS),
    (idle, WSL2 | config(""), OK, "gpud keeps it up"),
    (idle, INTEROP_OFF | config(""), ADVICE, "nothing keeps it up"),
    (idle, WSL2 | SYSTEMD | config(""), ADVICE, "nothing keeps it up"),
    (idle, INTEROP_OFF | NEVER, OK, "distribution never stops"),
    (idle, INTEROP_OFF | config("[wsl2]\nvmIdleTimeout=-1\n"), ADVICE, "alone does not"),
    (idle, WSL2 | SOON, ADVICE, "instanceIdleTimeout is no numb"),
    (idle, WSL2 | config("") | conf("[automount]\nenabled=false\n"), UNKNOWN, "automount is off"),
    *((check, GPU_OFF, OK, "[gpu] enabled=false in wsl.conf") for check in (driver, libcuda)),
    *((check, LINUX, UNKNOWN, "without a running gpud") for check in (driver, libcuda, telemetry)),
    (telemetry, GPU_OFF, OK, "[gpu] enabled=false in wsl.conf switches the GPU off"),
]


@pytest.mark.parametrize(("check", "files", "verdict", "evidence"), FROM_FILES)
def test_a_machine_gets_its_verdict(
    check: Check, files: Files, verdict: Verdict, evidence: str, tmp_path: Path
) -> None:
    finding = check.look(machine(tmp_path, files, environ={"WSL_DISTRO_NAME": "Debian"}))
    expect(finding, verdict, evidence)
    if (check, files) == (wsl, WSL1):
        assert finding.fix == "from Windows: wsl --set-version Debian 2"


needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="makes a device")

UNIT = {"/etc/systemd/system/multi-user.target.wants/gpud-wsl.service": ""}


@pytest.mark.parametrize("system", [LINUX, WSL2])
def test_systemd_switched_on_or_off_after_the_installation_is_noticed(
    system: Files, tmp_path: Path
) -> None:
    def look(name: str, files: Files, *, installed: bool = True) -> Finding:
        return systemd.look(machine(tmp_path / name, files, installed=installed))

    expect(look("neither", system), OK, "off")
    expect(look("both", system | SYSTEMD | UNIT), OK, "on")
    expect(look("development", system | SYSTEMD, installed=False), OK, "on")
    on = look("on", system | SYSTEMD)
    expect(on, ADVICE, "nothing does at boot", fix="deploy/install --systemd")
    off = look("off", system | UNIT)
    expect(off, ADVICE, "gpud-wsl.service waits for systemd", fix="--no-systemd")


@needs_root
def test_a_device_that_is_switched_off_is_not_missing(tmp_path: Path) -> None:
    make_dxg(tmp_path)
    expect(dxg.look(machine(tmp_path, WSL2)), OK, "there")
    off = "there: [gpu] enabled=false in wsl.conf switches the GPU off"
    expect(dxg.look(machine(tmp_path, GPU_OFF)), ADVICE, off)


def test_windows_user_is_that_of_the_path_and_drives_may_be_elsewhere(tmp_path: Path) -> None:
    files = WSL2 | conf(f"[automount]\nroot = /windows/\n{OFF}")
    for user, timeout in (("Ada", -1), ("Bob", 1000)):
        text = f"[general]\ninstanceIdleTimeout={timeout}\n"
        files |= {f"/windows/c/Users/{user}/.wslconfig": text}
    path = "/usr/bin:/windows/c/Users/Ada/AppData/Local/Microsoft/WindowsApps"
    finding = idle.look(machine(tmp_path, files, environ={"PATH": path}))
    expect(finding, OK, "Ada's")
    assert "Bob" not in finding.evidence
    expect(idle.look(machine(tmp_path, files)), ADVICE, "Ada's", "Bob's")  # either may be it


# from what the agent and root report

MISSING = {"reason": "library_missing", "detail": "not there", "fix": "install it"}
NOTHING = {"level": "nothing"}
WARM, NO_FAN = reading("temperature_celsius", 50.0), reading("fan_ratio", None, "unsupported")
SHOWN = reading("exposed", "yes")
NEW, SIDE = reading("driver_version", "595.71"), reading("nvml_version", "595.45.03")
LINUX_DRIVER = reading("driver_version", "550.54.15")
CUDA_13 = reading("cuda_version", "13.1")
MODULE = "NVRM version: NVIDIA UNIX x86_64 Kernel Module  550.54.15  Tue Mar  5 22:23:56 UTC\n"
LOADED = LINUX | {"/proc/driver/nvidia/version": MODULE}
NO_GPU = {"health": {"nvml": {"level": 0, "reason": "no_gpu", "detail": "no NVIDIA GPU here"}}}
USED, OTHER = "nvltwi.inf_amd64_08cf6d985207979a", "nvfrwi.inf_amd64_63d60f682af8cba2"
IN_USE = agent(reading("driver_version", "572.16"), reading("driver_folder", USED))
STORE = {f"/usr/lib/wsl/drivers/{name}/libcuda.so.1.1": "" for name in (USED, OTHER)}
STORE |= {"/usr/lib/wsl/drivers/nvhda.inf_amd64_1/nvhda64v.sys": ""}
OEM = STORE | {"/usr/lib/wsl/drivers/NVoem.inf_amd64_2/nvidia-smi": ""}
NO_DRIVER = "Windows offers a GPU, and no NVIDIA driver for WSL"


def without_driver(level: int, reason: str) -> dict[str, Any]:
    """Write the agent's document where neither NVML nor CUDA has a library."""
    health = {"level": level, "reason": reason, "detail": NO_DRIVER, "fix": "install it"}
    failure = {"reason": "library_missing", "detail": "not there", "advice": "install it"}
    return agent(SHOWN, level="dxg", **MISSING) | {
        "health": {"cuda": health, "nvml": health},
        "cuda": {"devices": [], "failure": failure},
    }


def nvml(level: int, detail: str | None = None) -> dict[str, Any]:
    """Write the health of NVML."""
    return {"health": {"nvml": {"level": level, "reason": "r", "detail": detail, "fix": None}}}


ALL = (driver, libcuda, telemetry)
FROM_THE_AGENT: list[tuple[Check, Files, dict[str, Any], Verdict, str]] = [
    (telemetry, WSL2, agent(WARM, NO_FAN) | nvml(0), OK, "from NVML"),
    (telemetry, WSL2, agent(WARM) | nvml(1, "no power"), ADVICE, "from NVML; no power"),
    (telemetry, WSL2, agent(WARM, level="cuda") | nvml(1, "hung"), ADVICE, "CUDA only; hung"),
    (telemetry, LINUX, agent(SHOWN, **NOTHING) | nvml(2, "hung"), PROBLEM, "hung"),
    (telemetry, LINUX, agent(**NOTHING) | nvml(0), OK, "no GPU, and none expected"),
    (telemetry, LINUX, agent(**NOTHING, **MISSING) | NO_GPU, OK, "no NVIDIA GPU here"),
    (driver, WSL2, agent(NEW, SIDE, CUDA_13), OK, "driver 595.71 (WSL side 595.45.03), CUDA 13.1"),
    (driver, LINUX, agent(NEW, SIDE, CUDA_13), OK, "driver 595.71, CUDA 13.1"),
    (driver, LOADED, agent(LINUX_DRIVER), OK, "550.54.15"),
    (driver, LOADED, agent(NEW, SIDE), PROBLEM, "is 550.54.15 and its libraries are 595.45.03"),
    (driver, WSL2, agent(WARM, level="cuda"), UNKNOWN, "the line on telemetry says why"),
    (driver, WSL2 | STORE, IN_USE, OK, f"2 drivers lie in Windows' store ({OTHER}, {USED})"),
    (driver, WSL2 | STORE, IN_USE, OK, f"{USED} is in use"),
    (driver, WSL2 | OEM, IN_USE, OK, "3 drivers lie in Windows' store"),  # as the agent counts
    *((check, WSL2, without_driver(0, "no_gpu"), OK, NO_DRIVER) for check in ALL),
    (driver, WSL2 | STORE, without_driver(0, "no_gpu"), PROBLEM, "WSL has none of it"),
    (libcuda, WSL2, without_driver(2, "library_missing"), PROBLEM, NO_DRIVER),
    (telemetry, WSL2, without_driver(2, "library_missing"), PROBLEM, NO_DRIVER),
    *((check, WSL2, {}, UNKNOWN, "not looked yet") for check in ALL),
    (gpud, LINUX, {"health": {"probes": {"level": 2, "detail": "d"}}}, PROBLEM, "probes: d"),
]


@pytest.mark.parametrize(("check", "files", "document", "verdict", "evidence"), FROM_THE_AGENT)
def test_what_the_agent_reports_is_judged(
    check: Check,
    files: Files,
    document: dict[str, Any],
    *,
    verdict: Verdict,
    evidence: str,
    tmp_path: Path,
) -> None:
    looked = machine(tmp_path, files, root=report(), agent=document)
    finding = check.look(looked)
    expect(finding, verdict, evidence)
    assert "nvhda" not in finding.evidence
    assert "cuda:" not in finding.evidence or check is not gpud, "that has a check of its own"


def test_sources_that_are_switched_off_are_no_problem(tmp_path: Path) -> None:
    never = {"telemetry": TelemetrySettings(disabled=LEVELS[1:])}
    made = machine(tmp_path, WSL2, root=report(), settings=never)
    expect(telemetry.look(made), OK, "every source is switched off")
    never = {"telemetry": TelemetrySettings(disabled=("nvml",))}
    document = agent(WARM, level="cuda")
    made = machine(tmp_path, WSL2, root=report(), agent=document, settings=never)
    expect(telemetry.look(made), OK, "from CUDA only; NVML is switched off")


def with_toolkit(*fields: Any) -> RootReport:
    made = ContainersReport(ProbeStage.WAITING, "i", toolkit=ToolkitReport(*fields))
    return structs.replace(report(), containers=made)


NOT_YET = structs.replace(report(), containers=ContainersReport(ProbeStage.WAITING, "i"))


def down(state: str, **changed: object) -> RootReport:
    return report(dockerd_up(up=False, state=state, **changed))


LOGS = "sudo gpud logs --component dockerd says more"
DESKTOP = WSL2 | {"/mnt/wsl/docker-desktop/cli-tools/x": ""}
OF_DESKTOP = report(dockerd_up(owner=Owner.DOCKER_DESKTOP))
WELL = daemon('{"live-restore": null, "runtimes": null}')
UNEXPECTED = "is not what dockerd expects"
BROKEN = with_toolkit(ToolkitState.BROKEN, "r", "unloaded", "x")
NO_DOCKERD = structs.replace(down("failed"), containers=NOT_YET.containers)
NO_AGENT = report(agent=AgentReport("backoff", detail="code 3", fix="f"))

FROM_ROOT: list[tuple[Check, Files, RootReport, Verdict, str, str | None]] = [
    (docker, LINUX, report(), OK, "20.10.24+dfsg1, kept by gpud", None),
    (docker, LINUX, report(dockerd_up(reason="x", detail="slow")), ADVICE, "slow", "gpud status"),
    (docker, LINUX, down("down", detail="no space", fix="make"), PROBLEM, "no space", "make"),
    (docker, LINUX, down("unresponsive", detail="x"), PROBLEM, "down: x", LOGS),
    (docker, LINUX, down("absent", owner=Owner.NONE, detail="none"), ADVICE, "none", "start dock"),
    (docker, LINUX, down("starting"), UNKNOWN, "starting", "ask again in a moment"),
    (docker, LINUX | daemon('{"debug": true,}'), report(), PROBLEM, UNEXPECTED, None),
    (docker, LINUX | daemon("[]"), report(), PROBLEM, UNEXPECTED, None),
    (docker, LINUX | WELL, report(), OK, "", None),
    (docker, DESKTOP, OF_DESKTOP, ADVICE, "an engine too", None),
    (toolkit, WSL2, BROKEN, PROBLEM, "unload", "x"),
    (toolkit, WSL2, NOT_YET, UNKNOWN, "not looked yet: gpud asks dockerd", None),
    (toolkit, WSL2, NO_DOCKERD, OK, "no dockerd runs", None),
    (toolkit, WSL2, report(), OK, "gpud leaves dockerd alone", None),
    (gpud, LINUX, NO_AGENT, PROBLEM, "3", "f"),
]


@pytest.mark.parametrize(("check", "files", "root", "verdict", "evidence", "fix"), FROM_ROOT)
def test_what_root_reports_is_passed_on_with_its_fix(
    check: Check,
    files: Files,
    root: RootReport,
    *,
    verdict: Verdict,
    evidence: str,
    fix: str | None,
    tmp_path: Path,
) -> None:
    program(tmp_path, "dockerd")
    expect(check.look(machine(tmp_path, files, root=root)), verdict, evidence, fix=fix)


def test_figures_that_grow_old_on_battery_are_meant_to(tmp_path: Path) -> None:
    skip = {"probe": "launch", "gpu": 0, "reason": "on_battery", "next_s": 1_800_000_000.0}
    document = {"health": {"agent": {"level": 0}}, "put_off": [skip]}
    resting = gpud.look(machine(tmp_path, LINUX, root=report(), agent=document))
    moment = time.strftime("%X", time.localtime(1_800_000_000.0))
    skipped = "1 probe is skipped on GPU 0: on battery: small probes at"
    expect(resting, OK, f"{skipped} {moment}, large ones")


@pytest.mark.parametrize(
    ("health", "verdict", "evidence"),
    [
        ({"level": 1, "reason": "toolkit_not_installed"}, OK, "`--gpus` and CDI"),
        ({"level": 2, "reason": "hung", "detail": "no end"}, PROBLEM, "in a container: no end"),
        ({"level": 1, "reason": "slower", "detail": "half as fast"}, ADVICE, "half as fast"),
    ],
)
def test_gpu_containers_are_judged_by_root_and_the_agent(
    health: dict[str, Any], verdict: Verdict, evidence: str, tmp_path: Path
) -> None:
    both = with_toolkit(ToolkitState.BOTH)
    document = {"health": {"containers": health}}
    expect(toolkit.look(machine(tmp_path, WSL2, root=both, agent=document)), verdict, evidence)


@pytest.mark.parametrize(
    ("changed", "verdict"),
    [
        ({}, OK),
        ({"live_restore": False}, ADVICE),
        ({"live_restore": None, "up": False}, OK),
        ({"live_restore": False, "owner": Owner.DOCKER_DESKTOP}, OK),
    ],
)
def test_live_restore_is_advised(changed: dict[str, Any], verdict: Verdict, tmp_path: Path) -> None:
    finding = live_restore.look(machine(tmp_path, LINUX, root=report(dockerd_up(**changed))))
    assert finding.verdict is verdict
    line = 'add "live-restore": true to /etc/docker/daemon.json'
    assert (line in (finding.fix or "")) == (verdict is ADVICE)
    expect(live_restore.look(machine(tmp_path, LINUX)), UNKNOWN, "without a running gpud")


# the sudo rule and the hook

RULE = """Matching Defaults entries for ada on here:
    env_reset

User ada may run the following commands on here:
    (ALL : ALL) ALL
    (root) NOPASSWD: /opt/gpud/bin/gpud up, /opt/gpud/bin/gpud down,
        /opt/gpud/bin/gpud restart
"""
LISTED = ", ".join(sorted(COMMANDS))
GPUD = f"(root) NOPASSWD: {LISTED}"


def rules(*lines: str) -> str:
    listed = "".join(f"    {line}\n" for line in lines)
    return f"User ada may run the following commands on here:\n{listed}"


LISTINGS = [
    (RULE, OK, "present"),
    (rules(GPUD, "(root) NOPASSWD: /usr/sbin/service docker start"), OK, "present"),
    (rules(GPUD, '(root) NOPASSWD: /usr/bin/dockerd ""'), OK, "present"),
    (rules(GPUD, "(bob) NOPASSWD: /usr/bin/dockerd"), OK, "present"),
    (rules(GPUD, "(root) /usr/bin/dockerd"), OK, "present"),
    (rules(GPUD, "(root) NOPASSWD: SETENV: /bin/a, PASSWD: /usr/bin/dockerd"), OK, "present"),
    (rules(GPUD, "(root) NOPASSWD: /usr/bin/dockerd"), PROBLEM, "dockerd with free arguments"),
    (rules(GPUD, "(root) NOPASSWD: SETENV: /bin/sh"), PROBLEM, "/bin/sh with free arguments"),
    (rules(GPUD, "(ALL : ALL) NOPASSWD: /usr/bin/docker *"), PROBLEM, "equals root"),
    (rules(GPUD, "(root) NOPASSWD: /opt/gpud/bin/gpud"), PROBLEM, "wider than gpud's"),
    (rules(GPUD, "(root) NOPASSWD: /opt/gpud/bin/python -m gpud up"), PROBLEM, "wider than"),
    (rules("(ALL) NOPASSWD: ALL"), ADVICE, "every command"),
    (rules("(root) NOPASSWD: /opt/gpud/bin/gpud up"), PROBLEM, "missing for down, restart"),
    ("sudo: a password is required\n", PROBLEM, "missing"),
    ("", PROBLEM, "missing"),
]


@pytest.mark.parametrize(("listing", "verdict", "evidence"), LISTINGS)
def test_an_installed_gpud_needs_its_rule_and_nothing_that_equals_root(
    listing: str, verdict: Verdict, evidence: str, tmp_path: Path
) -> None:
    program(tmp_path, "sudo", listing, code=0 if listing.startswith("User") else 1)
    expect(sudo_rule.look(machine(tmp_path, LINUX, installed=True)), verdict, evidence)
    if verdict is PROBLEM:  # a development run needs no rule, and is warned of a wide one
        wide = PROBLEM if "with free" in evidence or "equals" in evidence else None
        assert wide in {None, sudo_rule.look(machine(tmp_path, LINUX)).verdict}


WIDE = f"""nobody ALL=(root) NOPASSWD: {LISTED}, /usr/bin/a\\,b *
nobody ALL=(ALL:ALL) PASSWD: /bin/ls, NOPASSWD: /usr/bin/dockerd"""
REAL = """
mount -t tmpfs -o mode=0755 none /etc/sudoers.d
printf '%s\\n' "$1" >/etc/sudoers.d/rules && chmod 0440 /etc/sudoers.d/rules && visudo -cq
setpriv --reuid=65534 --regid=65534 --clear-groups env LC_ALL=C.UTF-8 sudo -n -l
"""


@needs_root
@pytest.mark.parametrize(
    ("rule", "verdict", "evidence"),
    [
        (f"nobody ALL=(root) NOPASSWD: {LISTED}", OK, "present"),
        (WIDE, PROBLEM, "/usr/bin/dockerd"),
        (f'nobody ALL=(root) NOPASSWD: {LISTED}, /usr/bin/dockerd ""', OK, "present"),
        ("# nothing", PROBLEM, "missing"),
    ],
)
def test_the_listing_of_the_real_sudo_is_understood(
    rule: str, verdict: Verdict, evidence: str, tmp_path: Path
) -> None:
    command = ["unshare", "--mount", "bash", "-c", REAL, "bash", rule]
    listing = subprocess.run(command, capture_output=True, text=True, check=False, timeout=LIMIT_S)
    program(tmp_path, "sudo", listing.stdout)
    expect(sudo_rule.look(machine(tmp_path, LINUX, installed=True)), verdict, evidence)


BLOCK = "# >>> gpud >>>\nstart\n# <<< gpud <<<\n"
SHARE = LINUX | {"/opt/gpud/share/bashrc.snippet": BLOCK}
BASHRC, FISH = "/people/ada/.bashrc", "/people/ada/.config/fish"
HALF, OLDER = BLOCK.removesuffix("# <<< gpud <<<\n"), BLOCK.replace("start", "older")
PROFILE = {"/people/ada/.bash_profile": "export A=b\n"}


@pytest.mark.parametrize(
    ("shell", "files", "verdict", "evidence"),
    [
        ("bash", {BASHRC: f"alias a=b\n{BLOCK}"}, OK, "in /people/ada/.bashrc"),
        ("bash", {BASHRC: ""}, ADVICE, "none in /people/ada/.bashrc"),
        ("bash", {BASHRC: OLDER}, ADVICE, "another version"),
        ("bash", {BASHRC: BLOCK + BLOCK}, PROBLEM, "or more than one"),
        ("bash", {BASHRC: HALF}, PROBLEM, "half a block"),
        ("bash", {BASHRC: BLOCK} | PROFILE, ADVICE, ".bash_profile does not read .bashrc"),
        ("fish", {f"{FISH}/conf.d/gpud.fish": BLOCK}, OK, "in /people/ada/.config/fish"),
        ("zsh", {BASHRC: BLOCK}, ADVICE, "none in /people/ada/.zshrc"),
        ("tcsh", {BASHRC: BLOCK}, ADVICE, "your shell is tcsh"),
    ],
)
def test_the_block_is_whole_current_single_and_reached_by_the_login_shell(
    shell: str, files: Files, verdict: Verdict, evidence: str, tmp_path: Path
) -> None:
    person = replace(PERSON, login_shell=f"/usr/bin/{shell}")
    looked = machine(tmp_path, SHARE | files, installed=True, person=person)
    expect(shell_hook.look(looked), verdict, evidence)


@pytest.mark.parametrize("owner", ["deploy/install", "gpud install", "/usr/lib/gpud/install"])
def test_fix_names_the_command_that_installed_gpud(owner: str, tmp_path: Path) -> None:
    noted = {"/etc/gpud/manifest": f"dir /etc/gpud\nowner {owner}\nuser gpud\n"}
    found = shell_hook.look(machine(tmp_path, SHARE | noted, installed=True))
    assert found.fix == f"{owner} puts it there (and --no-bashrc leaves it out)"
