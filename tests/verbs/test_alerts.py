"""``gpud alerts`` and ``gpud gpus forget``: what is shown, and what the agent does."""

from __future__ import annotations

import json
import time
from typing import TYPE_CHECKING, Any

import msgspec

from gpud.agent.regression.commands import ALERT_ACKNOWLEDGED
from gpud.agent.state import status
from gpud.core.alerts import SHORT
from gpud.core.clock import Instant
from gpud.document.machine import Expected, ListedGpu
from tests import serving
from tests.events import made
from tests.verbs.decisions import HOSTILE, NOW_S, alert, document, snapshot, stream
from tests.verbs.homes import called, running, started

if TYPE_CHECKING:
    from pathlib import Path

NAME = alert()["fingerprint"]


def shown(home: Path, *alerts: dict[str, Any], words: tuple[str, ...] = (), **environ: str) -> str:
    ran = called(running(home, document(alerts=alerts)), "alerts", *words, **environ)
    assert ran.err == ""
    return ran.out


def test_alert_is_shown_with_evidence_cause_fix_and_what_to_do(tmp_path: Path) -> None:
    utc = time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime(NOW_S))
    local = time.strftime("%Y-%m-%d %H:%M", time.gmtime(NOW_S + 5.5 * 3600))
    late = alert(summary=f"launches +12 % since {utc}", starts_s=NOW_S + 1800)
    ran = started(
        running(tmp_path, document(alerts=[late], url="http://127.0.0.1:9")),
        "alerts",
        TZ="Asia/Kolkata",
    )
    for words in (
        "1 alert fires",
        f"launches +12 % since {local}",
        f"warning, since {local}",
        "submission latency (launch submit) 12 % slower 12.4 µs 13.9 µs GPU 0 10.2 to 13.9 % 25 a",
        "the likeliest first: driver 572.16 -> 576.02",
        "To do: roll the driver back",
        f"alerts ack {NAME[:SHORT]}",
        "http://127.0.0.1:9/runbooks/GpudDriverRegression",
    ):
        assert words in " ".join(ran.out.split())
    assert "UTC" not in ran.out


def test_acknowledged_and_ended_alerts_are_marked_and_ask_for_nothing(tmp_path: Path) -> None:
    over = alert("1", ends_s=NOW_S + 60, starts_s=NOW_S + 30)
    both = (over, alert("2", acknowledged_s=NOW_S + 90))
    text = shown(tmp_path, *both, words=("--all",))
    assert text.index("since driver 2 ->") < text.index("since driver 1 ->")
    assert "acknowledged 2025-10-09" in text
    assert "ended 2025-10-09" in text
    assert "alerts ack" not in text
    assert "driver 1 ->" not in shown(tmp_path, *both)


def test_foreign_words_are_harmless(tmp_path: Path) -> None:
    evil = alert(summary=HOSTILE * 40, fix=HOSTILE, severity=HOSTILE)
    published = document(alerts=[evil], streams=[stream(mode=HOSTILE)])
    running(tmp_path, published)
    for words in (("alerts", "--all"), ("baseline", "show")):
        text = called(tmp_path, *words).out
        assert "\\x1b[2J" in text
        assert not set("\x1b\u202e") & set(text)


def test_alerts_are_1_while_something_fires_and_0_else(tmp_path: Path) -> None:
    whole = msgspec.to_builtins(status.document(made("0.1.0", NOW_S), now=Instant(NOW_S, 0.0)))
    fires, over = alert(), alert("1", ends_s=NOW_S + 60, firing=False)
    seen = alert(acknowledged_s=NOW_S)
    running(tmp_path, document(alerts=[fires, over]))
    for option, count in ((), 1), (("--all",), 2):
        ran = called(tmp_path, "alerts", *option, "--json")
        read = json.loads(ran.out)
        assert (ran.code, read["schema_version"], len(read["alerts"])) == (1, 1, count)
    running(tmp_path, document(alerts=[over]))
    assert called(tmp_path, "alerts").out == "no alert fires\n"
    for each, code, words in (
        (fires, 1, ": slower, 1 alert since "),  # nobody has acknowledged it
        (seen, 0, ": ok since "),
        (over, 0, ": ok since "),
    ):
        ran = called(running(tmp_path, whole | {"state": "ok", "alerts": [each]}), "status")
        assert (ran.code, words in ran.out) == (code, True)
        assert called(tmp_path, "alerts").code == (0 if each is over else 1)


def test_alert_is_acknowledged_by_the_beginning_of_its_fingerprint(tmp_path: Path) -> None:
    with serving.agent(tmp_path, snapshot()) as decisions:
        ran = called(tmp_path, "alerts", "ack", NAME[:SHORT].upper())
        assert (ran.code, ran.out) == (0, f"{NAME} is acknowledged: no more reminders\n")
        for words in ("nonsense", ""):
            wrong = called(tmp_path, "alerts", "ack", words)
            assert (wrong.code, f"one of: {NAME}" in wrong.err) == (2, True)
    assert decisions.made == [(ALERT_ACKNOWLEDGED, NAME)]


def test_gpu_is_forgotten_by_its_uuid_or_with_all_others(tmp_path: Path) -> None:
    expected = {uuid: Expected(f"card {uuid}") for uuid in ("GPU-a", "GPU-b")}
    gpus = {"GPU-b": ListedGpu(1, "card GPU-b")}
    with serving.agent(tmp_path, made("1", 0.0, expected=expected, gpus=gpus)) as decisions:
        refused = called(tmp_path, "gpus", "forget", "GPU-b", "GPU-x")
        assert (refused.code, refused.out) == (2, "")
        assert "fix: one of: 1 card GPU-b (GPU-b), card GPU-a (GPU-a)\n" in refused.err
        for name in ("gpu-B", "1"):
            ran = called(tmp_path, "gpus", "forget", name)
            assert ran.out.startswith("card GPU-b (GPU-b) is forgotten\n")
        assert called(tmp_path, "gpus", "forget", "all").code == 0
    assert [uuid for _, uuid in decisions.made] == ["GPU-b", "GPU-b", "GPU-a", "GPU-b"]


def test_sink_is_tested_without_a_running_agent(tmp_path: Path) -> None:
    (tmp_path / "var/log/gpud/agent").mkdir(parents=True)
    ran = started(tmp_path, "alerts", "test", "log")
    assert ran.code == 0
    assert ran.out.startswith("log: delivered to ")
    assert "GpudTest" in (tmp_path / "var/log/gpud/agent/agent.log").read_text()
    wrong = started(tmp_path, "alerts", "test", "pager")
    assert (wrong.code, "pager: no such sink" in wrong.out) == (2, True)
