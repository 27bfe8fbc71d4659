"""/api/v1/telemetry: minutes reduced to steps for charts, hours for long ranges."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from gpud.agent.history.telemetry import write_minutes
from tests.agent.serve.api.everything import client, state_folder
from tests.histories import BEGUN_S, DAY_S, HOUR_S, opened, telemetry

if TYPE_CHECKING:
    from pathlib import Path

    import httpx

    from gpud.agent.history.telemetry import TelemetryRow

NOW_S = float(BEGUN_S + DAY_S)


def write(home: Path, *minutes: TelemetryRow) -> None:
    with opened(state_folder(home)) as store:
        store.write(write_minutes, minutes)


def answer(home: Path, **query: Any) -> httpx.Response:
    async def ask() -> httpx.Response:
        async with client(home, now_s=NOW_S) as asks:
            return await asks.get("/api/v1/telemetry", params=query)

    return asyncio.run(ask())


def ask(home: Path, **query: Any) -> dict[str, Any]:
    response = answer(home, **query)
    document: dict[str, Any] = response.json()
    assert (response.status_code, document["schema_version"]) == (200, 1)
    return document


def test_minutes_are_reduced_to_steps_that_keep_their_ends(tmp_path: Path) -> None:
    write(
        tmp_path,
        *(telemetry(BEGUN_S + 60 * n, 50.0 + n, throttle_thermal_ratio=n / 60) for n in range(60)),
        telemetry(BEGUN_S, 40.0, gpu="GPU-2", power_watts=9.0),
    )
    document = ask(tmp_path, since=BEGUN_S, until=BEGUN_S + HOUR_S, points=2)
    assert (document["source"], document["step_s"]) == ("minutes", HOUR_S / 2)
    first, second = document["gpus"]
    assert (first["gpu"], first["n"]) == ("GPU-1", [180, 180])
    assert first["at_s"] == [BEGUN_S, BEGUN_S + HOUR_S // 2]
    assert first["figures"] == {
        "temperature_celsius": {
            "mean": [64.5, 94.5],
            "minimum": [50.0, 80.0],
            "maximum": [79.0, 109.0],
        }
    }
    assert first["throttle"] == {"thermal": [0.241667, 0.741667]}
    assert second["gpu"] == "GPU-2"
    assert second["throttle"] is None, "no reasons were given"


def test_reasons_that_were_given_and_in_force_nowhere_are_an_empty_object(tmp_path: Path) -> None:
    write(tmp_path, telemetry(NOW_S - 60, throttle_thermal_ratio=0.0))
    (gpu,) = ask(tmp_path)["gpus"]
    assert gpu["throttle"] == {}


def test_steps_without_samples_are_absent_and_a_value_that_a_step_lacks_is_null(
    tmp_path: Path,
) -> None:
    write(tmp_path, telemetry(NOW_S - DAY_S / 2, None), telemetry(NOW_S - 60))
    document = ask(tmp_path)
    (gpu,) = document["gpus"]
    early, late = gpu["at_s"]
    assert late - early > document["step_s"]
    assert gpu["figures"]["temperature_celsius"]["mean"] == [None, 60.0]


def test_no_step_is_shorter_than_a_minute(tmp_path: Path) -> None:
    write(tmp_path, *(telemetry(NOW_S - 60 * n) for n in range(1, 31)))
    document = ask(tmp_path, since=NOW_S - HOUR_S / 2, points=2000)
    assert document["step_s"] == 60
    assert len(document["gpus"][0]["at_s"]) == 30


def test_long_range_comes_from_the_hours(tmp_path: Path) -> None:
    midnight_s = NOW_S // DAY_S * DAY_S
    write(tmp_path, *(telemetry(midnight_s - 600 * n, 50.0 + n % 6) for n in range(1, 6 * 24 * 9)))
    document = ask(tmp_path, since=midnight_s - 8 * DAY_S, until=midnight_s, points=8)
    assert (document["source"], document["step_s"]) == ("hours", DAY_S)
    (gpu,) = document["gpus"]
    assert gpu["n"] == [6 * 6 * 24] * 8
    assert gpu["figures"]["temperature_celsius"]["mean"] == [52.5] * 8


def test_gpus_are_selected_and_an_unknown_one_is_a_404(tmp_path: Path) -> None:
    write(tmp_path, telemetry(NOW_S - 60), telemetry(NOW_S - 60, gpu="GPU-2"))
    for query, expected in (({}, 2), ({"gpu": "GPU-2"}, 1), ({"gpu": "0"}, 0), ({"gpu": "cpu"}, 0)):
        assert len(ask(tmp_path, **query)["gpus"]) == expected, query
    refused = answer(tmp_path, gpu="GPU-9")
    assert (refused.status_code, refused.json()["error"]["reason"]) == (404, "unknown_gpu")
    refused = answer(tmp_path, probe="launch")
    assert (refused.status_code, refused.json()["error"]["reason"]) == (400, "unknown_parameter")
