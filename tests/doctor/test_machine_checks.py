"""sudo, the hook, Python, store, port, clock: judged from what a machine shows."""

from __future__ import annotations

import os
import socket
import subprocess
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from gpud.core.clock import Instant
from gpud.core.http_settings import Http, TlsServerConfig
from gpud.core.report import AgentReport
from gpud.core.settings import Settings
from gpud.doctor.checks import (
    clock,
    gpud,
    installation,
    port,
    python,
    shell_hook,
    store,
    sudo_rule,
)
from gpud.doctor.finding import Verdict
from gpud.doctor.machine import Machine
from tests.doctor.trees import (
    LINUX,
    NOW,
    PERSON,
    RULE,
    WSL2,
    machine,
    program,
    report,
    said,
)
from tests.e2e.program import free_port

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


OK, UNKNOWN, ADVICE, PROBLEM = Verdict.OK, Verdict.UNKNOWN, Verdict.ADVICE, Verdict.PROBLEM


# sudo


def test_the_rule_is_read_over_continued_lines_and_sticking_tags() -> None:
    found = sudo_rule.grants(RULE)
    assert {grant.command for grant in found} == sudo_rule.WANTED
    mixed = (
        RULE + "    (root) NOPASSWD: SETENV: /bin/a, PASSWD: /bin/b\n    (bob) NOPASSWD: /bin/c\n"
    )
    assert [grant.command for grant in sudo_rule.grants(mixed)[3:]] == ["/bin/a", "/bin/c"]


def rules(*lines: str) -> str:
    return "User ada may run the following commands on here:\n" + "".join(
        f"    {line}\n" for line in lines
    )


GPUD = "(root) NOPASSWD: " + ", ".join(sorted(sudo_rule.WANTED))


@pytest.mark.parametrize(
    ("listing", "verdict", "word"),
    [
        (RULE, OK, "present"),
        (rules(GPUD, "(root) NOPASSWD: /usr/sbin/service docker start"), OK, "present"),
        (rules(GPUD, '(root) NOPASSWD: /usr/bin/dockerd ""'), OK, "present"),
        (rules(GPUD, "(bob) NOPASSWD: /usr/bin/dockerd"), OK, "present"),
        (rules(GPUD, "(root) /usr/bin/dockerd"), OK, "present"),
        (rules(GPUD, "(root) NOPASSWD: /usr/bin/dockerd"), PROBLEM, "equals root"),
        (rules(GPUD, "(ALL : ALL) NOPASSWD: /usr/bin/docker *"), PROBLEM, "equals root"),
        (rules(GPUD, "(root) NOPASSWD: /opt/gpud/bin/gpud"), PROBLEM, "wider than gpud's"),
        (
            rules(GPUD, "(root) NOPASSWD: /opt/gpud/bin/python -I -m gpud up"),
            PROBLEM,
            "wider than gpud's",
        ),
        (rules("(ALL) NOPASSWD: ALL"), ADVICE, "every command"),
        (rules("(root) NOPASSWD: /opt/gpud/bin/gpud up"), PROBLEM, "missing for down, restart"),
        ("sudo: a password is required\n", PROBLEM, "missing"),
        ("", PROBLEM, "missing"),
    ],
)
def test_an_installed_gpud_needs_its_rule_and_nothing_that_equals_root(
    listing: str, verdict: Verdict, word: str, tmp_path: Path
) -> None:
    program(tmp_path, "sudo", listing, code=0 if listing.startswith("User") else 1)
    said(sudo_rule.look(machine(tmp_path, LINUX, installed=True)), verdict, word)


REAL = """
mount -t tmpfs -o mode=0755 none /etc/sudoers.d
printf '%s\\n' "$1" >/etc/sudoers.d/rules && chmod 0440 /etc/sudoers.d/rules && visudo -cq
setpriv --reuid=65534 --regid=65534 --clear-groups env LC_ALL=C.UTF-8 sudo -n -l
"""


def really(rule: str) -> str:
    """What the real sudo lists for nobody under a rule, in a mount namespace of its own."""
    command = ["unshare", "--mount", "bash", "-c", REAL, "bash", rule]
    ran = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    return ran.stdout


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a rule")
def test_the_real_sudo_is_understood() -> None:
    own = f"nobody ALL=(root) NOPASSWD: {', '.join(sorted(sudo_rule.WANTED))}"
    said(sudo_rule.judged(sudo_rule.grants(really(own)), installed=True), OK, "present")
    wide = f"{own}\nnobody ALL=(ALL:ALL) PASSWD: /bin/ls, NOPASSWD: /usr/bin/dockerd, /bin/a\\,b *"
    found = sudo_rule.grants(really(wide))
    assert {grant.command for grant in found} == {
        *sudo_rule.WANTED,
        "/usr/bin/dockerd",
        "/bin/a,b *",
    }
    said(sudo_rule.judged(found, installed=True), PROBLEM, "/usr/bin/dockerd")
    exact = f'{own}\nnobody ALL=(root) NOPASSWD: /usr/bin/dockerd ""'
    said(sudo_rule.judged(sudo_rule.grants(really(exact)), installed=True), OK, "present")
    said(sudo_rule.judged(sudo_rule.grants(really("# nothing")), installed=True), PROBLEM, "miss")


def test_a_development_run_needs_no_rule_but_hears_of_one_that_equals_root(tmp_path: Path) -> None:
    program(tmp_path, "sudo", rules("(root) NOPASSWD: /usr/bin/dockerd"))
    said(sudo_rule.look(machine(tmp_path, LINUX)), PROBLEM, "/usr/bin/dockerd")
    program(tmp_path, "sudo", "", code=1)
    assert sudo_rule.look(machine(tmp_path, LINUX)).verdict is OK


# the installation


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can make a tree of root's")
def test_what_somebody_else_can_write_is_named(tmp_path: Path) -> None:
    files = LINUX | {
        "/opt/gpud/bin/gpud": "#!",
        "/opt/gpud/lib/x.py": "",
        "/etc/gpud/gpud.toml": "",
    }
    tree = machine(tmp_path, files, installed=True)
    said(installation.look(tree), OK, "root alone")
    (tmp_path / "opt/gpud/lib/x.py").chmod(0o666)
    said(installation.look(tree), PROBLEM, "/opt/gpud/lib/x.py (mode 0666)")
    os.chown(tmp_path / "opt/gpud/lib/x.py", 1000, 1000)
    (tmp_path / "opt").chmod(0o777)
    said(installation.look(tree), PROBLEM, "/opt (mode 0777)")
    assert "x.py (owner 1000)" in installation.look(tree).evidence


BLOCK = "# >>> gpud >>>\nstart\n# <<< gpud <<<\n"
GUARD = 'case $- in\n    *i*) ;;\n      *) return;;\nesac\n[ -z "$PS1" ] && return\n'
FUNCTION = "f() {\n  return 1\n}\nif true; then\n  return\nfi\n"


@pytest.mark.parametrize(
    ("text", "verdict", "word"),
    [
        (BLOCK, OK, "current"),
        (GUARD + FUNCTION + BLOCK, OK, "current"),
        (BLOCK.replace("start", "older"), ADVICE, "another version"),
        (BLOCK + BLOCK, PROBLEM, "more than once"),
        (BLOCK.removesuffix("# <<< gpud <<<\n"), PROBLEM, "half a block"),
        ("alias a=b\nreturn\n" + BLOCK, PROBLEM, "returns in line 2"),
        ("exit 0 # for now\n" + BLOCK, PROBLEM, "returns in line 1"),
    ],
)
def test_the_block_is_whole_current_single_and_reached(
    text: str, verdict: Verdict, word: str
) -> None:
    said(shell_hook.judged("~/.bashrc", text, BLOCK), verdict, word)


def test_the_hook_is_looked_for_in_the_file_of_the_login_shell(tmp_path: Path) -> None:
    files = LINUX | {
        "/opt/gpud/share/bashrc.snippet": BLOCK,
        "/people/ada/.bashrc": "alias a=b\n" + BLOCK,
        "/people/ada/.config/fish/conf.d/gpud.fish": BLOCK,
        "/people/ada/.config/fish/config.fish": BLOCK,
    }
    tree = machine(tmp_path, files, installed=True)
    said(shell_hook.look(tree), OK, "in /people/ada/.bashrc, current")
    fish = replace(tree, person=replace(PERSON, login_shell="/usr/bin/fish"))
    said(shell_hook.look(fish), PROBLEM, "more than one block")
    zsh = replace(tree, person=replace(PERSON, login_shell="/usr/bin/zsh"))
    said(shell_hook.look(zsh), ADVICE, "none in /people/ada/.zshrc")
    (tmp_path / "people/ada/.bash_profile").write_text("export A=b\n")
    said(shell_hook.look(tree), ADVICE, ".bash_profile does not read .bashrc")


def test_a_python_that_was_replaced_is_told(tmp_path: Path) -> None:
    files = LINUX | {
        "/opt/gpud/pyvenv.cfg": "home = /usr/bin\nversion = 3.11.2\n",
        "/usr/bin/python3.12": "",
        "/opt/gpud/lib/python3.11/site-packages/gpud/__pycache__/cli.pyc": "",
    }
    tree = machine(tmp_path, files, installed=True)
    link = tmp_path / "opt/gpud/bin/python"
    link.parent.mkdir()
    link.symlink_to(tmp_path / "usr/bin/python3.12")
    said(python.look(tree), PROBLEM, "was made for Python 3.11 and finds 3.12")
    link.unlink()
    link.symlink_to(tmp_path / "usr/bin/python3.9")
    said(python.look(tree), PROBLEM, "leads nowhere")
    (tmp_path / "usr/bin/python3.11").touch()
    link.unlink()
    link.symlink_to(tmp_path / "usr/bin/python3.11")
    assert python.look(tree).verdict is OK


# gpud's own


def test_an_agent_that_does_not_run_is_a_problem_with_roots_reason() -> None:
    backoff = AgentReport("backoff", detail="exit code 3", fix="free the disk")
    said(gpud.processes(report(agent=backoff), "/var/log/gpud"), PROBLEM, "exit code 3")


def test_parts_without_a_check_of_their_own_are_passed_on() -> None:
    health = {"probes": {"level": 2, "detail": "d", "fix": "f"}, "cuda": {"level": 2}}
    assert [found.evidence for found in gpud.parts({"health": health})] == ["probes: d"]


SIZE = {"n_bytes": 3 * store.MIB, "runs": 41_000, "waiting": 0, "dropped": 0}


@pytest.mark.parametrize(
    ("health", "size", "verdict", "words"),
    [
        ({"level": 0}, SIZE, OK, "gpud's, mode 0750; the agent writes to it: 3.0 MiB, 41,000 runs"),
        ({"level": 0}, None, OK, "the agent writes to it"),
        ({}, None, UNKNOWN, "not for you to read"),
        ({"level": 2, "detail": "the disk is full"}, SIZE, UNKNOWN, "not for you to read"),
    ],
)
def test_of_a_history_that_is_not_for_you_the_agents_word_is_taken(
    health: dict[str, object], size: dict[str, int] | None, verdict: Verdict, words: str
) -> None:
    found = store.withheld("/var/lib/gpud/gpud.db", "gpud's, mode 0750", health, size)
    said(found, verdict, words)
    assert (found.fix is not None and "sudo gpud doctor" in found.fix) == (verdict is UNKNOWN)


def test_whose_the_folder_of_the_history_is_can_be_said(tmp_path: Path) -> None:
    tmp_path.chmod(0o750)
    assert store.rights(str(tmp_path)).endswith("'s, mode 0750")
    assert store.rights(str(tmp_path / "none")).startswith("behind another")


def test_the_store_is_judged_from_outside(tmp_path: Path) -> None:
    tree = machine(tmp_path, LINUX)
    assert "not there yet" in store.look(tree).evidence
    folder = tmp_path / "home-of-gpud/var/lib/gpud"
    folder.mkdir(parents=True)
    (folder / "gpud.db").write_bytes(store.MAGIC + bytes(100))
    assert "last write" in store.look(tree).evidence
    (folder / "gpud.db").write_text("no database at all")
    said(store.look(tree), PROBLEM, "no SQLite database")
    told = replace(tree, agent={"health": {"store": {"level": 2, "detail": "the disk is full"}}})
    assert "the disk is full" in store.look(told).evidence


@pytest.mark.parametrize("make", [lambda path: path.symlink_to("/dev/zero"), os.mkfifo])
def test_what_lies_in_the_histories_place_is_not_followed_by_root(
    tmp_path: Path, make: Callable[[Path], None]
) -> None:
    tree = machine(tmp_path, LINUX)
    folder = tmp_path / "home-of-gpud/var/lib/gpud"
    folder.mkdir(parents=True)
    make(folder / "gpud.db")
    said(store.look(tree), PROBLEM, "no plain file")


def test_little_room_is_advice_and_none_a_problem() -> None:
    assert store.room("/x", 50 * store.MIB) == replace(
        store.room("/x", 50 * store.MIB) or pytest.fail("nothing found"), verdict=PROBLEM
    )
    low = store.room("/x", 500 * store.MIB)
    assert low is not None
    assert low.verdict is ADVICE
    assert store.room("/x", 5000 * store.MIB) is None
    assert store.room("/x", None) is None


def test_a_certificate_that_cannot_be_used_is_said_before_gpud_starts(tmp_path: Path) -> None:
    tls = TlsServerConfig(cert_file="/etc/gpud/c.pem", key_file="/etc/gpud/k.pem")
    settings = Settings(sysroot=str(tmp_path), http=Http(tls_server_config=tls))
    found = port.look(machine(tmp_path, {"/proc/net/tcp": ""}, settings=settings))
    assert found.verdict is Verdict.PROBLEM
    assert "cert_file" in found.evidence
    assert "c.pem cannot be read" in found.evidence
    assert found.fix


def test_who_holds_the_port_is_named_where_it_can_be_seen() -> None:
    number = free_port()  # nobody else's in between
    with socket.create_server(("127.0.0.1", number)):
        found = port.look(_listening(number))
        said(found, PROBLEM, f"(process {os.getpid()})")
    said(port.look(_listening(number)), OK, "is free")


def _listening(number: int) -> Machine:
    settings = Settings(home="/nowhere", http=Http(listen=f"127.0.0.1:{number}"))
    return Machine(settings, PERSON, {}, NOW)


def test_a_port_nobody_here_holds_is_another_distributions(tmp_path: Path) -> None:
    row = "   0: 0100007F:26D9 00000000:0000 0A 00000000:00000000 00:00000000 00000000 0 0 4242 1\n"
    files = WSL2 | {"/proc/net/tcp": WSL2["/proc/net/tcp"] + row}
    said(port.look(machine(tmp_path, files)), PROBLEM, "another distribution")
    served = {"health": {"http": {"level": 0}}}
    running = machine(tmp_path, files, root=report(), agent=served)
    said(port.look(running), OK, "served by gpud's agent")
    young = machine(tmp_path, files, root=report())
    said(port.look(young), UNKNOWN, "the agent has not said yet")


def test_clocks_are_compared(tmp_path: Path) -> None:
    files = WSL2 | {"/proc/55/comm": "chronyd\n"}
    said(clock.look(machine(tmp_path, files)), ADVICE, "chronyd runs beside WSL's own")
    assert clock.wall(NOW, report()) is None
    later = clock.wall(Instant(NOW.wall_s + 300, NOW.mono_s), report())
    assert later is not None
    assert "+300 s" in later.evidence
    unset = clock.wall(Instant(1000.0, 5.0), None)
    assert unset is not None
    assert unset.verdict is PROBLEM


def test_many_jumps_are_the_hosts_doing() -> None:
    since = {"started_s": NOW.wall_s - 3600, "counters": {"clock_jumps": 100}}
    many = clock.jumps(since, NOW)
    assert many is not None
    said(many, ADVICE, "100 jumps in 1.0 h")
    few = clock.jumps({**since, "counters": {"clock_jumps": 2}}, NOW)
    assert few is not None
    assert few.verdict is OK
