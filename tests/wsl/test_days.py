"""The life of a distribution with gpud in it, as its user sees it."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from tests.e2e.program import alive, children_of
from tests.shell.world import STRANGER, USER
from tests.waiting import until
from tests.wsl.conftest import GREET, SUDO_LOG
from tests.wsl.terminal import PROMPT

if TYPE_CHECKING:
    from tests.wsl.conftest import FirstDay
    from tests.wsl.machine import Machine, Process

QUIET = (
    "[schedule]\ntelemetry_interval_s = 3600\nsmall_interval_s = 3600\nlarge_interval_s = 3600\n"
)
OPENINGS, MOST_OPENINGS = 4, 40
SCRAPE = """python3 -c 'import urllib.request as u; u.urlopen("http://127.0.0.1:9945/metrics")'"""


def supervisor(machine: Machine) -> Process:
    """The only one, as soon as it has a dockerd that answers and what began it has ended."""
    until(lambda: machine.report().get("dockerd", {}).get("up"), "a dockerd that answers")

    def alone() -> Process | None:
        named, pid = machine.named("gpud"), machine.root / "run/gpud/root.pid"
        if [str(one.inner) for one in named] != pid.read_text().split()[:1]:
            return None
        above = (p for p in machine.processes() if p.pid == named[0].parent)
        return named[0] if any(" relay " in p.command for p in above) else None

    return until(alone, "one supervisor")


def test_first_window_leads_to_a_container(first_day: FirstDay) -> None:
    assert first_day.greeting[0] == 0, first_day.greeting[1]
    assert "\nhello from a container\n" in first_day.greeting[1]


def test_after_a_shutdown_a_window_brings_everything_back_without_a_password(
    next_day: Machine,
) -> None:
    next_day.boot()
    assert not next_day.named("dockerd")
    window = next_day.terminal()
    root = supervisor(next_day)
    (dockerd,) = next_day.named("dockerd")
    assert dockerd.parent == root.pid
    until(next_day.containers, "the container with a restart policy")
    assert "kept" in window.run("docker ps --format '{{.Names}}'")[1]
    assert "hello from a container" in window.run(GREET)[1]
    # Nothing of it was ever shown, and nobody asked for anything.
    assert "gpud" not in window.everything
    assert "password" not in window.everything

    assert until(lambda: window.run(SCRAPE)[0] == 0, "/metrics")


def test_gpud_lives_below_the_relay_of_its_window_and_has_nothing_of_that_window(
    next_day: Machine,
) -> None:
    next_day.boot()
    window = next_day.terminal()
    root = supervisor(next_day)
    window.close()
    (relay,) = (p for p in next_day.processes() if p.pid == root.parent)
    assert " relay " in relay.command  # what keeps WSL from stopping the distribution
    assert window.relay.poll() is None

    daemons = [root, *(p for p in next_day.processes() if p.pid in children_of(root.pid))]
    assert {"gpud", "dockerd", "python"} <= {p.name for p in daemons}
    assert all(alive(daemon.pid) for daemon in daemons)
    for daemon in daemons:
        fields = Path(f"/proc/{daemon.pid}/stat").read_text().rpartition(")")[2].split()
        assert fields[4] == "0", f"{daemon} has a controlling terminal"
        for file in Path(f"/proc/{daemon.pid}/fd").iterdir():
            with suppress(FileNotFoundError):  # closed since it was listed
                name = str(file.readlink())
                assert "/pts/" not in name
                assert "/tty" not in name
    until(lambda: not starting(next_day), "the end of every attempt")  # sudo ends before its caller
    # A new window finds all of it running, and a ping that works.
    assert next_day.terminal().run("docker info >/dev/null 2>&1")[0] == 0
    assert supervisor(next_day) == root


def test_a_second_window_starts_no_process(next_day: Machine) -> None:
    settings = next_day.changes / "etc/gpud/gpud.toml"
    settings.parent.mkdir(parents=True)
    settings.write_text(QUIET)
    next_day.boot()
    cold = _pids_used(next_day, USER)
    before = supervisor(next_day)
    # The stranger's shell has Debian's own .bashrc, so it tells how many processes that one starts.
    # Daemons start threads, which count as well: the least of enough openings has none of them.
    bare, ours = [], []
    for _ in range(MOST_OPENINGS):
        bare.append(_pids_used(next_day, STRANGER))
        ours.append(_pids_used(next_day, USER))
        if len(bare) >= OPENINGS and min(ours) == min(bare):
            break
    assert cold > min(bare)
    assert min(ours) == min(bare)
    assert supervisor(next_day) == before


def _pids_used(machine: Machine, user: str) -> int:
    window = machine.terminal(user, wait=False)
    last = machine.root / "proc/sys/kernel/ns_last_pid"
    begun = int(last.read_text())
    window.open()
    window.expect(PROMPT)
    used = int(last.read_text()) - begun
    window.close()
    return used


WINDOWS = 50


def test_fifty_windows_on_a_cold_boot_begin_a_single_supervisor_and_dockerd(
    next_day: Machine,
) -> None:
    before = begun(next_day)
    next_day.boot()
    windows = [next_day.terminal(wait=False) for _ in range(WINDOWS)]
    for window in windows:
        window.open()
    for window in windows:
        window.expect(PROMPT)
    until(lambda: next_day.report().get("dockerd", {}).get("up"), "a dockerd that answers")
    until(lambda: not starting(next_day), "the end of every attempt")
    assert [now - then for now, then in zip(begun(next_day), before, strict=True)] == [1, 1, 1]
    assert (len(next_day.named("gpud")), len(next_day.named("dockerd"))) == (1, 1)
    assert not [window for window in windows if "gpud" in window.everything]


def starting(machine: Machine) -> list[Process]:
    """Starters that have not ended."""
    return [p for p in machine.processes() if "gpud-start" in p.command or p.name == "sudo"]


def begun(machine: Machine) -> tuple[int, int, int]:
    """How often sudo was asked, a supervisor and a dockerd were begun, since the first boot."""
    sudo, root = (log(machine, name) for name in (SUDO_LOG[1:], "var/log/gpud/root.log"))
    asked = sudo.count("COMMAND=/opt/gpud/bin/gpud up")
    return asked, root.count('"supervisor_started"'), root.count('"action": "start"')


def log(machine: Machine, name: str) -> str:
    """The file as the distribution has it: in its own changes, or in a layer below."""
    layers = (machine.changes, *machine.layers)
    return next((text.read_text() for at in layers if (text := at / name).exists()), "")
