"""Every command in the documents is run: here beside one agent, or by the test that a row names."""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import signal
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

import pytest

from tests.e2e.program import Program, cuda, nvml, only, program
from tests.golden.test_agent import GPU, history
from tests.terminals import ENVIRONMENT, window
from tests.waiting import LIMIT_S, until

if TYPE_CHECKING:
    from collections.abc import Iterator

TOP: Final = Path(__file__).resolve().parents[1]
KINDS: Final = ("README.md", "CONTRIBUTING.md", "docs/*.md", "docs/runbooks/*.md", "deploy/*/*.md")
CODE: Final = re.compile(r"^```(\w*)\n(.*?)^```|`([^`\n]+)`", re.MULTILINE | re.DOTALL)
SHELLS: Final = {"sh", "bash", "zsh", "console"}
INPUT: Final = re.compile(r"(<<'?(\w+)'?\n).*?^\2\n", re.MULTILINE | re.DOTALL)
COMMAND: Final = re.compile(
    r"(?:sudo|gpud|watch|\.venv/bin/\w+|apt-get|curl|docker|pipx|promtool|amtool|systemctl"
    r"|journalctl|nvidia-smi|wsl|openssl|man) [^\[<|…]+(?:[|].*)?|(?:deploy|benchmarks)/[^:\[]+"
)
"""A span that is a command; with brackets it is a grammar."""
RUN: Final = re.compile(
    r"(?:watch )?gpud (?!(?:un)?install|run|update)|curl [^|;&]*localhost:9945|promtool|amtool"
    r"|openssl req|man deploy/|(?:cp|mkdir|install) .*/etc/|\./(?:rules|targets)\.py"
)
"""What needs a folder of its own and an agent, and no more."""
ENDLESS: Final = re.compile(r"^watch | top$| --watch| -[fw]\b|probe$")
"""Ctrl-C ends them after their first words; all probes take seconds of the CPU."""
MAY_BE_1: Final = re.compile(r"gpud (?:status|alerts|doctor)\b(?! ack| test)")
"""The exit code says that something is not well."""
ACTS: Final = re.compile(
    r"gpud (?:(alerts ack)|(baseline a)|(baseline r)|(gpus)|(restart)|(down)|(up)\b)"
)
"""What changes the answers of other commands; these run last, in this order."""
ROWS: Final = {
    r"(deploy/install|gpud install) --gpu-containers": "deploy/test_gpu_containers.py::"
    "test_one_command_leads_from_nothing_to_a_figure_out_of_a_container",
    r"deploy/install --dry-run": "deploy/test_install.py::"
    "test_a_dry_run_needs_no_root_and_lists_all_that_the_installation_does",
    r"deploy/install --with apprise": "deploy/test_install.py::"
    "test_an_upgrade_keeps_apprise_that_was_installed",
    r"deploy/install --(no-)?systemd|systemctl stop gpud-wsl": "deploy/test_unit.py::"
    "test_systemd_runs_gpud_and_brings_it_back_and_the_shell_leaves_it_at_that",
    r"deploy/install( --(user|wheelhouse|make-wheelhouse) .*)?": "deploy/test_install.py::"
    "test_gpud_runs_afterwards_and_an_upgrade_restarts_it_but_neither_dockerd_nor_containers",
    r"(/opt/gpud/)?deploy/uninstall( --purge)?": "deploy/test_uninstall.py::"
    "test_uninstall_without_purge_keeps_history_logs_and_changed_settings",
    r"(~/.local/bin/)?gpud (un)?install.*": "deploy/test_from_wheel.py::"
    "test_wheel_in_an_own_environment_installs_itself_and_is_gone_again",
    r"pipx install .*|apt-get install( \S*gpud_\S*)?": "bare/test_four_ways.py::"
    "test_way_leads_to_figures_within_a_minute_and_the_next_day_docker_answers",
    r"apt-get (remove|purge)( gpud)?|deploy/build-deb.*": "deploy/test_debian_package.py::"
    "test_package_installs_is_changed_by_nobody_else_and_leaves_nothing",
    r"usermod -aG gpud-users .*": "deploy/test_people.py::"
    "test_members_ask_without_a_password_and_others_when_they_have_become_one",
    r"sudo -n( -l| /opt/gpud/bin/gpud up)?": "shell/test_sudo_rule.py::"
    "test_the_three_commands_run_the_rule_by_themselves_and_a_stranger_is_denied",
    r".*-m hatchling build .*": "test_wheel.py::"
    "test_every_committed_file_of_the_package_is_in_the_wheel",
    r"deploy/build-ptx": "child/test_kernels_ptx.py::test_the_shipped_ptx_is_what_its_source_gives",
    r"deploy/gpu-check.*": "gpu_check/test_command.py::"
    "test_both_sides_run_in_turns_and_every_figure_is_kept",
    r".*deploy/build-dashboards.*": "grafana/test_lint.py::"
    "test_the_command_tells_a_file_that_was_edited_and_writes_it_anew",
    r"deploy/run": "deploy/test_scripts.py::test_run_keeps_its_files_below_gpud_home",
    r"cat > \S+/gpud-fleet .*|deploy/fleet/push/start": "fleet/test_deploy.py::"
    "test_five_shells_start_one_vmagent_and_the_machine_arrives_under_its_own_name",
    r"read_gpud\(\) .*|PROMPT_COMMAND=.*|zmodload .*": "verbs/test_short.py::"
    "test_prompt_of_the_documentation_shows_the_line_without_a_process",
    r"gpud capture.*": "captures/test_command.py::"
    "test_file_is_named_after_the_moment_and_belongs_to_its_owner_alone",
    r"gpud update.*": "verbs/test_update.py::"
    "test_index_is_asked_through_pip_and_another_project_of_the_name_is_none",
    r"gpud run.*": "e2e/test_boot.py::test_no_cuda_call_is_made_in_the_grace_of_a_boot",
    r"man gpud": "deploy/test_install.py::"
    "test_the_command_is_for_everybody_with_completion_and_man_page",
    r"deploy/chaos.*": "not run: chaos/test_chaos.py runs trials of it",
    r"deploy/test.*|\.venv/bin/python -m pytest .*": "not run: it runs this test",
    r"deploy/build-screenshots": "not run: makes pictures for a person to look at",
    r"(\S*python )?benchmarks/.*": "not run: takes minutes of a machine that does nothing else",
    r"(cd \S+ && )?docker (compose|pull|run)\b.*": "not run: its images need a network",
    r"docker (ps|context|desktop)\b.*|dockerd": "not run: the machine's own Docker",
    r"(service|systemctl|journalctl) .*": "not run: the machine's own services",
    r"apt .*|pipx upgrade .*|apt-get .*": "not run: packages of the machine, by network",
    r"(usermod|visudo|ss|kill|hwclock|/usr/lib/gpud/install|sudo -u gpud sqlite3)\b.*": "not run: "
    "the machine's own accounts, processes, clock, package and history",
    r"(nvidia-smi|nvidia-ctk|modprobe|rmmod|ldconfig|dmesg)\b.*": "not run: needs a real driver",
    r"wsl --.*": "not run: belongs to Windows",
}
"""By the pattern of commands: the test that runs them, or why nothing can. The first counts."""


class Command(NamedTuple):
    """What a person types, without sudo, and the folder to which the page has gone."""

    text: str
    folder: str = "."


def typed(line: str) -> str:
    """Leave out the comment, ``sudo`` and where ``gpud`` of a checkout lies."""
    text = re.sub(r"(^|\s+)#.*", "", line).strip()
    return re.sub(r"^(sudo (?=[\w/])|\.venv/bin/(?=gpud))", "", text)


def is_program(span: str) -> bool:
    file = TOP / span.split(maxsplit=1)[0]
    return file.is_file() and (os.access(file, os.X_OK) or file.parent.name == "benchmarks")


def commands(page: Path) -> Iterator[Command]:
    folder = "."
    for language, block, span in CODE.findall(page.read_text()):
        if COMMAND.fullmatch(span) and (is_program(span) or not span.startswith(("dep", "bench"))):
            yield Command(typed(span))
        for line in INPUT.sub(r"\1", block).splitlines() if language in SHELLS else ():
            text = typed(line.removeprefix("$ "))
            if change := re.fullmatch(r"cd (\S+)", text):
                folder = change[1]
            elif text and (language != "console" or line.startswith("$ ")):
                yield Command(text, folder)


PAGES: Final = [page for kind in KINDS for page in sorted(TOP.glob(kind))]
COMMANDS: Final = list(dict.fromkeys(command for page in PAGES for command in commands(page)))
OWN: Final = [
    each for each in COMMANDS if not any(re.fullmatch(pattern, each.text) for pattern in ROWS)
]
"""Those that this module runs."""


@pytest.mark.parametrize("pattern", ROWS)
def test_row_is_used_and_names_a_test_or_a_reason(pattern: str) -> None:
    assert any(re.fullmatch(pattern, each.text) for each in COMMANDS), "no page has such a command"
    file, _, name = ROWS[pattern].rpartition("::")
    if not name.startswith("not run: "):
        assert re.search(rf"def {name}\(", (TOP / "tests" / file).read_text())


def test_command_without_a_row_can_be_run_here() -> None:
    assert len(OWN) > 30
    assert [each.text for each in OWN if not RUN.match(each.text)] == []


@pytest.fixture
def agent() -> Iterator[Program]:
    """A gpud with a history in which a driver made submissions slower, and the alert of it."""
    with program(
        probes=only("cpu_call", "launch", "triad"),
        alerts={"group_wait_s": 0.0, "warm_up_s": 0.0, "command": ["/bin/true"]},
        schedule={"small_interval_s": 3600.0, "telemetry_interval_s": 0.5},
    ) as made:
        history(made.home)
        made.settings |= {"cuda": cuda(made.home), "nvml": nvml(made.home)}
        made.start()
        try:
            until(lambda: made.runs("triad"), "a run of each probe")
            yield made
        finally:
            made.cli("down")


def checkout(agent: Program) -> Path:
    """A folder with a gpud and a curl that ask this agent, and an etc of its own."""
    top = agent.home / "checkout"
    for folder in ("etc/prometheus", "etc/grafana", ".zfunc", ".config/fish/completions", "bin"):
        (top / folder).mkdir(parents=True)
    shutil.copytree(TOP / "deploy", top / "deploy")
    shutil.copy(top / "deploy/fleet/scrape/hosts.csv", top / "deploy/fleet")
    for file in ("etc/prometheus/ca.pem", "etc/prometheus/password"):
        (top / file).touch()
    (agent.home / "var/log/gpud/dockerd.log").touch()
    for name, line in {"gpud": shlex.join(agent.command()), "curl": "/usr/bin/curl -f"}.items():
        (top / "bin" / name).write_text(f'#!/bin/sh\nexec {line} "$@"\n')
        (top / "bin" / name).chmod(0o755)
    return top


def filled(text: str, agent: Program, top: Path, alert: str) -> str:
    """Replace what stands for something of the reader's machine."""
    for pattern, value in {
        r"(?<= )/etc/": f"{top}/etc/",
        r"localhost:9945": f"127.0.0.1:{agent.port}",
        r"-g gpud ": "-g nogroup ",
        r"(alerts ack|baseline accept)( ID| [0-9a-f]{8})?$": rf"\1 {alert}",
        r"gpus forget( UUID)?$": f"gpus forget {GPU}",
        r"\bSINK\b": "log",
        r"\bVERB\b": "status",
        r"(gpud .*)\b(NAME|PROBE)\b": r"\1launch",
        r"(gpud .*)\bMODE\b": r"\1submit",
    }.items():
        text = re.sub(pattern, value, text)
    return text


def run(text: str, folder: Path, environ: dict[str, str]) -> tuple[int, str]:
    """Run a command, an endless one until its first output, and give exit code and output."""
    line = ["bash", "-c", f"cd {folder}; {text}"]
    if ENDLESS.search(text):
        with window(line, environ=environ) as shown:
            shown.expect(r"[a-z]{3}")
            shown.send("\x03")
            code = shown.ended()
            return (0 if code in {130, -signal.SIGINT} else code), shown.everything
    done = subprocess.run(
        line,
        input="secret\n",
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
        timeout=LIMIT_S,
        env=environ,
    )
    return done.returncode, done.stdout


def rank(command: Command) -> int:
    match = ACTS.match(command.text)
    return 0 if match is None or match.lastindex is None else match.lastindex


@pytest.mark.skipif(os.geteuid() != 0, reason="the agent runs as nobody, as root starts it")
def test_commands_succeed_beside_an_agent(agent: Program) -> None:
    top = checkout(agent)
    alert = until(lambda: json.loads(agent.get("/api/v1/alerts"))["alerts"], "an alert")[0]
    environ = ENVIRONMENT | {"HOME": str(top), "PATH": f"{top}/bin:{os.environ['PATH']}"}
    own = [
        each._replace(text=filled(each.text, agent, top, alert["fingerprint"]))
        for each in OWN
        if RUN.match(each.text)
    ]
    for text, folder in sorted(dict.fromkeys(own), key=rank):
        code, output = run(text, top / folder, environ)
        allowed = {0, 1} if MAY_BE_1.match(text) else {0}
        assert code in allowed, f"{text}: exit code {code}: {output}"
        assert "Traceback" not in output, f"{text}: {output}"
