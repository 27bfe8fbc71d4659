"""What opening a shell does: nothing while gpud runs, else one attempt, and never a word."""

from __future__ import annotations

import re
import signal
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pytest

from tests.shell.world import ROOT, USER, World
from tests.waiting import until

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.terminals import Window

HOME = f"/home/{USER}"
STATE = f"{HOME}/.local/state/gpud"
STARTED = "/run/started"
RECORDS = f'#!/bin/sh\necho "$@" >>{STARTED}\n'
"""What stands in for gpud behind the real sudo: it only says that root was asked, and how."""
PROMPT = "@ready> "


@dataclass(frozen=True)
class Shell:
    """One kind of shell: where its hook is read from, and how to speak to it."""

    name: str
    snippet: str
    rc: str
    prompt: str
    options: tuple[str, ...] = ()

    def prepare(self, world: World, before: str = "", after: str = "") -> None:
        # Without this, a first fish reads every manual page for a quarter of a minute.
        world.own(f"{HOME}/.local/share/fish/generated_completions/none", "")
        world.own(f"{HOME}/.config/fish/conf.d/none", "")
        text = (ROOT / self.snippet).read_text()
        world.own(f"{HOME}/{self.rc}", f"{before}\n{text}\n{after}\n{self.prompt}\n")

    def argv(self, *more: str) -> list[str]:
        return [self.name, *self.options, *more]

    def terminal(self, world: World, *more: str) -> Window:
        return world.window(*self.argv("-i", *more))


BASH = Shell("bash", "bashrc.snippet", ".bashrc", f"PS1='{PROMPT}'; PROMPT_COMMAND=")
ZSH = Shell("zsh", "deploy/zshrc.snippet", ".zshrc", f"PS1='{PROMPT}'; unsetopt zle prompt_sp")
FISH = Shell(
    "fish",
    "deploy/config.fish.snippet",
    ".config/fish/config.fish",
    f"set -g fish_greeting; function fish_prompt; echo -n '{PROMPT}'; end",
)
SHELLS = [BASH, ZSH, FISH]


@pytest.fixture(params=SHELLS, ids=lambda shell: str(shell.name))
def shell(request: pytest.FixtureRequest, machine: World) -> Shell:
    chosen: Shell = request.param
    chosen.prepare(machine)
    return chosen


def running(world: World) -> int:
    """Let a process stand for gpud, as root.pid would name it."""
    pid, start = world.sleeper()
    world.write("/run/gpud/root.pid", f"{pid} {start}\n")
    return pid


def asked(world: World) -> list[str]:
    """What root was asked to do, once per time."""
    path = world.path(STARTED)
    return path.read_text().splitlines() if path.exists() else []


def opened(world: World, shell: Shell, *more: str) -> str:
    """Open a shell, leave it at its first prompt, and give all that it showed before."""
    shown = shell.terminal(world, *more)
    said = shown.until(PROMPT)
    shown.send("\n")
    said += shown.until(PROMPT)  # what a job has to say comes before the next prompt
    shown.send("exit 7\n")
    status = shown.ended()
    assert status == 7
    return visible(said)


def visible(text: str) -> str:
    """Drop what steers the terminal; fish asks it questions and sets its title."""
    text = re.sub(
        r"\x1b\][^\x07\x1b]*(\x07|\x1b\\)|\x1b\[[0-9;?>=<]*[a-zA-Z]|\x1b[=>(]B?", "", text
    )
    return text.replace("\u23ce", "").strip()


def settled(world: World, *, but: tuple[str, ...] = ("sleep 1000", "time.sleep")) -> None:
    """Wait until nothing that the closed shells began is left, ``but`` what a test put there."""

    def left() -> list[str]:
        lines = world.processes().values()
        return [line for line in lines if not [known for known in but if known in line]]

    until(lambda: not left(), f"an end of {left()}")


def test_beside_a_running_gpud_no_process_is_begun(machine: World, shell: Shell) -> None:
    running(machine)
    machine.own(f"{STATE}/notice", "")
    machine.write("/run/gpud/notice", "slower\n")
    count = "trace=clone,clone3,fork,vfork,execve"

    def begun(script: str) -> int:
        """Count the processes and programs of a shell that runs ``script``."""
        machine.own(f"{HOME}/rc", script)
        rc = ["--rcfile", f"{HOME}/rc"] if shell is BASH else []
        if shell is not BASH:
            machine.own(f"{HOME}/{shell.rc}", script)
        trace = f"{HOME}/trace"
        line = ["strace", "-qq", "-f", "-e", count, "-o", trace, *shell.argv(*rc, "-i")]
        shown = machine.window(*line)
        shown.send("exit\n")
        shown.ended()
        lines = machine.path(trace).read_text().splitlines()
        threads = ("CLONE_THREAD", "resumed", "+++", "---")  # fish has some, and they come and go
        return len([line for line in lines if not [word for word in threads if word in line]])

    hook = (ROOT / shell.snippet).read_text()
    begun("")  # a first fish makes its directories
    assert begun(hook) == begun("")
    assert begun(f"{hook}\n/bin/true\n") > begun("")


def test_what_a_person_stopped_stays_stopped(machine: World, shell: Shell) -> None:
    machine.write("/run/gpud/stopped", "")
    with machine.covered("/opt/gpud/bin/gpud", RECORDS):
        assert opened(machine, shell) == ""
        machine.run("/opt/gpud/bin/gpud-start")
        settled(machine)
        assert asked(machine) == []


def recycled(world: World) -> None:
    pid, start = world.sleeper()
    world.write("/run/gpud/root.pid", f"{pid} {start - 1}\n")


def zombie(world: World) -> None:
    script = (
        "import os, sys, time\nchild = os.fork()\nif child == 0: os._exit(0)\n"
        "os.waitid(os.P_PID, child, os.WEXITED | os.WNOWAIT)\n"
        "print(child, flush=True); os.close(1); time.sleep(1000)\n"
    )
    pid = int(world.root(f"setsid /usr/bin/python3 -c '{script}' 2>/dev/null &"))
    world.write("/run/gpud/root.pid", f"{pid} {world.started(pid)}\n")


def garbage(content: bytes) -> Callable[[World], None]:
    def make(world: World) -> None:
        world.write("/run/gpud/root.pid", "")
        world.path("/run/gpud/root.pid").write_bytes(content)

    return make


def as_root(script: str) -> Callable[[World], None]:
    return lambda world: (world.root(f"mkdir -p /run/gpud; {script}"), None)[1]


STALE: dict[str, Callable[[World], None]] = {
    "no file": lambda _: None,
    "a recycled pid": recycled,
    "a zombie": zombie,
    "a dead pid": garbage(b"4000000 17\n"),
    "an empty file": garbage(b""),
    "binary": garbage(bytes(range(256)) * 4),
    "huge": garbage(b"1" * 500_000),
    "code": garbage(b"$(touch /run/x) a[$(touch /run/x)]\n"),
    "a FIFO": as_root("mkfifo /run/gpud/root.pid"),
    "unreadable": as_root("echo 1 1 >/run/gpud/root.pid; chmod 0 /run/gpud/root.pid"),
    "a directory that is closed": as_root("chmod 0 /run/gpud"),
}


@pytest.mark.parametrize("how", STALE)
def test_an_opened_shell_starts_gpud_once_in_silence_whatever_else_a_pid_file_names(
    machine: World, shell: Shell, how: str
) -> None:
    STALE[how](machine)
    with machine.covered("/opt/gpud/bin/gpud", RECORDS):
        assert opened(machine, shell) == ""
        assert until(lambda: asked(machine), "a start") == ["up"]
        settled(machine)


BROKEN = {
    "gpud is not installed": ("mv /opt/gpud /opt/gone", "mv /opt/gone /opt/gpud"),
    "its starter is gone": (
        "mv /opt/gpud/bin/gpud-start /opt/gpud/gone",
        "mv /opt/gpud/gone /opt/gpud/bin/gpud-start",
    ),
    "there is no rule": (
        "mv /etc/sudoers.d/gpud /etc/gpud-rule",
        "mv /etc/gpud-rule /etc/sudoers.d/gpud",
    ),
    "the rule is broken": (
        "cp -p /etc/sudoers.d/gpud /run/rule; echo nonsense >/etc/sudoers.d/gpud",
        "mv /run/rule /etc/sudoers.d/gpud",
    ),
}


@pytest.mark.parametrize("how", BROKEN)
def test_in_a_broken_world_the_shell_opens_as_if_there_were_no_hook(
    machine: World, shell: Shell, how: str
) -> None:
    broken, mended = BROKEN[how]
    machine.root(broken)
    try:
        assert opened(machine, shell) == ""
        settled(machine)
    finally:
        machine.root(mended)


def test_a_shell_says_that_the_python_of_gpud_is_gone_and_how_to_mend_it(
    machine: World, shell: Shell
) -> None:
    link = machine.root("readlink /opt/gpud/bin/python").strip()
    said = "gpud: the Python that gpud was installed with is gone. Run deploy/install again."
    machine.root("ln -sfn /usr/bin/python3.0 /opt/gpud/bin/python")
    try:
        assert opened(machine, shell) == said
        assert machine.run(*shell.argv("-i", "-c", "exit")).stdout == "", "a program reads it"
        ran = machine.run("/opt/gpud/bin/gpud", "status")
        assert (ran.returncode, ran.stdout, ran.stderr) == (1, "", f"{said}\n")
        settled(machine)
    finally:
        machine.root(f"ln -sfn {link} /opt/gpud/bin/python")


@pytest.mark.parametrize(
    ("broken", "mended"),
    [
        (f"mount --bind -o ro {HOME} {HOME}", f"umount -l {HOME}"),
        (f"mv {HOME} {HOME}.gone", f"mv {HOME}.gone {HOME}"),
    ],
    ids=["read-only", "gone"],
)
def test_without_a_home_to_write_to_gpud_starts_all_the_same(
    machine: World, shell: Shell, broken: str, mended: str
) -> None:
    machine.root(f"cp -r {HOME} /run/rc; chown -R {USER} /run/rc")
    fish = ("XDG_CONFIG_HOME=/run/rc/.config", "XDG_DATA_HOME=/run/rc/.local/share")
    line = {
        "bash": ["bash", "--rcfile", "/run/rc/.bashrc", "-i"],
        "zsh": ["env", "ZDOTDIR=/run/rc", "zsh", "-i"],
        "fish": ["env", *fish, "fish", "-i"],
    }[shell.name]
    machine.root(broken)
    try:
        with machine.covered("/opt/gpud/bin/gpud", RECORDS):
            shown = machine.window(*line)
            said = shown.until(PROMPT)
            shown.send("exit 7\n")
            status = shown.ended()
            assert until(lambda: asked(machine), "a start") == ["up"]
            settled(machine)
    finally:
        machine.root(mended)
    assert status == 7
    assert not [word for word in ("gpud", "sudo", "password") if word in said]


def test_a_sudo_that_hangs_delays_no_prompt(machine: World, shell: Shell) -> None:
    machine.root("mkfifo -m 666 /run/hang")
    hangs = f"#!/bin/sh\necho hangs >>{STARTED}\nexec cat /run/hang\n"
    machine.write(STARTED, "", 0o666)
    with machine.covered("/usr/bin/sudo", hangs):
        assert opened(machine, shell) == ""
        assert until(lambda: asked(machine), "sudo") == ["hangs"]
        assert opened(machine, shell) == ""  # and the second does not ask again
        settled(machine, but=("locked", "/run/hang"))
        assert [line for line in machine.processes().values() if "/run/hang" in line]
        assert asked(machine) == ["hangs"]
        machine.path("/run/hang").write_text("")  # let it go
        settled(machine)


def test_no_shell_asks_again_soon_after_a_refusal_until_something_changes(
    machine: World, shell: Shell
) -> None:
    refuses = f"#!/bin/sh\necho refused >>{STARTED}\necho why >&2\nexit 1\n"
    with machine.covered("/opt/gpud/bin/gpud", refuses):
        for _ in range(3):
            opened(machine, shell)
            until(lambda: asked(machine), "a start")
            settled(machine)
        assert asked(machine) == ["refused"]
        assert machine.path(f"{STATE}/start.log").read_text() == "why\n"
        machine.root("touch /etc/sudoers.d")
        opened(machine, shell)
        settled(machine)
        assert asked(machine) == ["refused", "refused"]


def test_start_that_was_killed_is_no_refusal(machine: World, shell: Shell) -> None:
    dies = f"#!/bin/sh\necho killed >>{STARTED}\nkill -9 $$\n"
    with machine.covered("/opt/gpud/bin/gpud", dies):
        for count in (1, 2):
            opened(machine, shell)
            settled(machine)
            assert asked(machine) == ["killed"] * count


def test_a_hold_of_another_boot_or_of_a_wrong_clock_counts_for_nothing(machine: World) -> None:
    boot = machine.path("/proc/sys/kernel/random/boot_id").read_text().strip()
    this = f"{boot}/{machine.started(1)}"
    with machine.covered("/opt/gpud/bin/gpud", RECORDS):
        for count, hold in enumerate((f"99999999999 {this}", "9 9", "", "x y z"), 1):
            machine.own(f"{STATE}/hold", f"{hold}\n")
            assert machine.run("/opt/gpud/bin/gpud-start").returncode == 0
            assert len(asked(machine)) == count, hold


@pytest.mark.parametrize("shell", [BASH, ZSH], ids=lambda shell: str(shell.name))
def test_the_starter_is_deaf_to_the_closing_terminal_from_its_first_moment(
    machine: World, shell: Shell
) -> None:
    shell.prepare(machine)
    machine.write(STARTED, "", 0o666)
    speaks = f"#!/bin/sh\ngrep SigIgn /proc/self/status >>{STARTED}\n"
    with machine.covered("/opt/gpud/bin/gpud-start", speaks):
        opened(machine, shell)
        [line] = until(lambda: asked(machine), "a start")
        settled(machine)
    assert int(line.split()[1], 16) & 1 << (signal.SIGHUP - 1)


def test_starters_that_race_ask_root_once(machine: World) -> None:
    """Shells take their time to open; these begin as close together as processes can."""
    pid, start = machine.sleeper()
    runs = f"{RECORDS}mkdir -p /run/gpud\necho {pid} {start} >/run/gpud/root.pid\n"
    race = "for _ in $(seq 40); do /opt/gpud/bin/gpud-start & done; wait"
    with machine.covered("/opt/gpud/bin/gpud", runs):
        for _ in range(5):
            machine.root(f"rm -rf {STARTED} /run/gpud {HOME}/.local")
            assert machine.run("sh", "-c", race).returncode == 0
            settled(machine)
            assert asked(machine) == ["up"]


def test_roots_own_shell_needs_no_sudo_and_hands_nothing_on(machine: World) -> None:
    speaks = f"#!/bin/sh\nenv | grep GPUD_ >>{STARTED}\necho $(id -u) $@ >>{STARTED}\n"
    home = {"HOME": "/run/home", "GPUD_HOME": "/run/home"}
    with (
        machine.covered("/opt/gpud/bin/gpud", speaks),
        machine.covered("/usr/bin/sudo", "#!/bin/sh\nexit 1\n"),
    ):
        done = machine.run("/opt/gpud/bin/gpud-start", user=None, environ=home)
        assert done.returncode == 0
        assert asked(machine) == ["0 up"]
        assert not machine.path("/run/home/.local/state/gpud/hold").exists()
