"""deploy/fleet: each file read by the program that it is for, and the two small ones of its own."""

from __future__ import annotations

import http.server
import json
import os
import re
import signal
import subprocess
import sys
import threading
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.e2e.program import Program, alive, free_port, program
from tests.e2e.scraping import running
from tests.fleet import tools
from tests.fleet.tools import FOLDER, ROOT
from tests.prometheus import rules
from tests.waiting import LIMIT_S, until

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.e2e.scraping import Tool

RULES = ROOT / "deploy/prometheus/rules"


def said(*command: str | Path) -> str:
    return rules.said(*command, cwd=FOLDER)


def targets(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, FOLDER / "targets.py", *arguments],
        capture_output=True,
        text=True,
        check=False,
    )


def test_the_programs_find_nothing_wrong_with_the_configurations(tmp_path: Path) -> None:
    scrape = (FOLDER / "scrape/prometheus.yml").read_text()
    said(FOLDER / "rules.py", tmp_path / "rules")
    for name in ("ca.pem", "password"):
        (tmp_path / name).touch()
    (tmp_path / "scrape.yml").write_text(scrape)
    assert "3 rule files found" in said("promtool", "check", "config", tmp_path / "scrape.yml")
    (tmp_path / "push.yml").write_text((FOLDER / "push/prometheus.yml").read_text())
    assert "SUCCESS" in said("promtool", "check", "config", "--agent", tmp_path / "push.yml")
    said("vmagent", "-dryRun", "-promscrape.config=push/vmagent.yml", "-remoteWrite.url=http://x")
    assert "SUCCESS" in said("amtool", "check-config", "alertmanager.yml")
    said(FOLDER / "rules.py", "--no-keep-firing", tmp_path / "vm")  # a word that it does not know
    said("vmalert", "-dryRun", f"-rule={tmp_path}/vm/*.yml")


@pytest.mark.parametrize(
    ("labels", "receiver"),
    [
        ("alertname=GpudXid severity=critical owner=ada", "ada"),
        ("alertname=GpudXid severity=warning owner=grace", "grace"),
        ("alertname=GpudXid severity=warning owner=nobody-here", "fleet"),
        ("alertname=GpudXid severity=warning", "fleet"),
        ("alertname=GpudHostSilent severity=info owner=ada", "nobody"),
        ("alertname=GpudDriverSlowerThanBest severity=warning", "fleet"),
    ],
)
def test_an_alert_goes_to_the_owner_of_the_machine(labels: str, receiver: str) -> None:
    command = ("amtool", "config", "routes", "test", "--config.file=alertmanager.yml")
    assert said(*command, *labels.split()).strip() == receiver


def test_a_list_becomes_targets_with_labels_and_the_usual_port(tmp_path: Path) -> None:
    out = tmp_path / "targets/lab.json"
    done = targets("list", FOLDER / "scrape/hosts.csv", "--to", out)
    assert (done.returncode, done.stderr) == (0, "")
    lab = {"site": "lab", "owner": "ada", "always_on": "true"}
    assert json.loads(out.read_text()) == [
        {"targets": ["lab1.example:9945"], "labels": lab},
        {"targets": ["lab2.example:9945"], "labels": lab},
        {"targets": ["desk7.example:9945"], "labels": {"site": "berlin", "owner": "grace"}},
    ]
    assert list(out.parent.iterdir()) == [out]


@pytest.mark.parametrize(
    ("text", "word"),
    [
        ("host,site\nlab1,lab\n", "the columns are address, site, owner, always_on"),
        ("address,room\nlab1,3\n", "the columns are"),
        ("address\nlab 1\n", "hosts.csv:2: 'lab 1' is no address"),
        ("address,site\n,lab\n", "hosts.csv:2: '' is no address"),
    ],
)
def test_a_list_with_a_mistake_is_refused_and_the_targets_stay(
    text: str, word: str, tmp_path: Path
) -> None:
    (tmp_path / "hosts.csv").write_text(text)
    out = tmp_path / "lab.json"
    out.write_text("[]")
    done = targets("list", tmp_path / "hosts.csv", "--to", out)
    assert done.returncode == 1
    assert word in done.stderr
    assert out.read_text() == "[]"


def test_gpud_is_asked_directly_whatever_proxy_the_environment_names(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    class Gpud(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.end_headers()
            self.wfile.write(b'gpud_machine_info{hostname="DESKTOP-1",machine_id="0123456789"} 1.0')

        def log_message(self, *_: object) -> None:
            """Say nothing."""

    monkeypatch.setenv("http_proxy", "http://127.0.0.1:1")
    monkeypatch.delenv("no_proxy", raising=False)
    with http.server.HTTPServer(("127.0.0.1", 0), Gpud) as gpud:
        threading.Thread(target=gpud.handle_request, daemon=True).start()
        done = targets("this", "--address", f"127.0.0.1:{gpud.server_port}")
    assert (done.returncode, done.stderr) == (0, "")
    labels = {"instance": "desktop-1-01234567", "pushed": "true"}
    assert json.loads(done.stdout)[0]["labels"] == labels
    silent = targets("this", "--address", "127.0.0.1:1")
    assert (silent.returncode, silent.stdout, "refused" in silent.stderr) == (1, "", True)


def test_the_rules_of_a_fleet_have_the_same_expressions(tmp_path: Path) -> None:
    changes = ("--runbooks", "https://wiki.example/gpud/", "--no-keep-firing", "--hurry", "60")
    said(FOLDER / "rules.py", *changes, tmp_path)
    files = sorted(RULES.glob("*.yml"))
    assert sorted(path.name for path in tmp_path.iterdir()) == [file.name for file in files]
    waits = re.compile(r"^ +(for|keep_firing_for|interval|runbook_url):.*\n", re.MULTILINE)
    links = re.compile(r"^ +http://.*/runbooks/\w+\n", re.MULTILINE)
    for file in files:
        there = (tmp_path / file.name).read_text()
        assert waits.sub("", there) == links.sub("", waits.sub("", file.read_text()))
        assert "keep_firing_for" not in there
        assert "runbooks/Gpud" not in there
        assert there.count("https://wiki.example/gpud/Gpud") == file.read_text().count(
            "runbook_url"
        )
    assert "        for: 60s\n" in (tmp_path / "fleet.yml").read_text()
    said("promtool", "check", "rules", *sorted(tmp_path.glob("*.yml")))


# --- the first machine: a real gpud, what a person types, and the store it arrives in ---


@pytest.fixture
def gpud() -> Iterator[Program]:
    with program() as made:
        made.start()
        yield made


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Tool]:
    made = tools.victoria(tmp_path / "victoria")
    with running(made):
        yield made


def shippers(state: Path) -> list[int]:
    """Every process that has this person's state among its arguments."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            words = (folder / "cmdline").read_bytes().split(b"\0")
        except OSError:
            continue
        if any(str(state).encode() in word for word in words) and alive(int(folder.name)):
            found.append(int(folder.name))
    return found


def test_five_shells_start_one_vmagent_and_the_machine_arrives_under_its_own_name(
    gpud: Program, store: Tool, tmp_path: Path
) -> None:
    until(gpud.metrics, "gpud answers")
    (tmp_path / "gpud-fleet").write_text(
        f"URL=http://127.0.0.1:{store.port}/api/v1/write\nSITE='north wing'\nOWNER=ada\n"
        f"GPUD=127.0.0.1:{gpud.port}\nLISTEN=127.0.0.1:{free_port()}\n"
        "INTERVAL=1s\nCHOICE='-loggerLevel=INFO -loggerTimezone=UTC'\n"
    )
    state = tmp_path / "gpud-fleet.state"
    around = {
        **os.environ,
        "GPUD_FLEET": str(tmp_path / "gpud-fleet"),
        "XDG_STATE_HOME": str(state),
    }
    try:
        shells = [subprocess.Popen([FOLDER / "push/start"], env=around) for _ in range(5)]
        assert [shell.wait(timeout=LIMIT_S) for shell in shells] == [0] * 5
        [(labels, _)] = until(lambda: store.values('gpud_machine_info{job="gpud"}'), "it arrives")
        assert (labels["site"], labels["owner"]) == ("north wing", "ada")
        assert re.fullmatch(rf"[a-z0-9.-]+-{labels['machine_id'][:8]}", labels["instance"])
        until(lambda: len(shippers(state)) == 2, "flock and vmagent alone are left")
    finally:
        for process in shippers(state):
            os.kill(process, signal.SIGTERM)
        until(lambda: not shippers(state), "vmagent has ended")
