"""The standing of each stream beside its baseline, by number of GPU, probe and mode."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING, NamedTuple

from gpud.agent.state.snapshot import ProbeKey, RegressionState

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from gpud.agent.regression.detector import StreamStanding
    from gpud.agent.state.snapshot import Snapshot
    from gpud.core.sample import Unit
    from gpud.core.stream_key import StreamKey


class Place(NamedTuple):
    """What people take for one series: the power source and the probe's version are not in it."""

    gpu: int | None  # its number; None for the CPU
    probe: str
    mode: str


def number(snapshot: Snapshot, stream: StreamKey) -> int | None:
    """Give the number of the GPU that a stream is of; None for the CPU, and for no such GPU."""
    known = None if stream.gpu is None else snapshot.gpus.get(stream.gpu)
    return None if known is None else known.number


def places(snapshot: Snapshot) -> dict[Place, tuple[StreamKey, ...]]:
    """Give the streams of each place, the one that its last run was of first.

    Those of a GPU that is gone are left out, as its figures are, and so are those of an earlier
    version of a probe's method. A list of GPUs that could not be taken takes none away.
    """
    inventory = snapshot.measure.inventory
    known = set(snapshot.gpus)
    if inventory is not None and inventory.failure is None:
        known &= {device.uuid for device in inventory.devices}
    found: defaultdict[Place, list[StreamKey]] = defaultdict(list)
    for stream in snapshot.regression.streams:
        if stream.gpu is None or stream.gpu in known:
            place = Place(number(snapshot, stream), stream.probe, stream.mode)
            found[place].append(stream)
    return {
        place: _ordered(snapshot, place, streams)
        for place, streams in sorted(
            found.items(), key=lambda item: (item[0].gpu is not None, item[0])
        )
    }


def with_streams(
    regression: RegressionState,
    streams: Mapping[StreamKey, StreamStanding],
    units: Mapping[StreamKey, Unit],
    gone: Iterable[StreamKey] = (),
) -> RegressionState:
    """Take in how these streams stand; those that are ``gone`` are shown no more."""
    shown, shown_units = {**regression.streams, **streams}, {**regression.units, **units}
    for key in set(gone) - streams.keys():
        shown.pop(key, None)
        shown_units.pop(key, None)
    return RegressionState(shown, shown_units)


def usual(standing: StreamStanding) -> float | None:
    """Give the level that slowdown is measured from: the one before all open regressions.

    Units: those of the stream. None: not known yet.
    """
    if not standing.open:
        return standing.level
    before = [alarm.before for alarm in standing.open]
    higher_is_worse = standing.open[0].effect.ratio > 1
    return min(before) if higher_is_worse else max(before)


def _ordered(snapshot: Snapshot, place: Place, streams: list[StreamKey]) -> tuple[StreamKey, ...]:
    state = snapshot.measure.probes.get(ProbeKey(place.probe, place.gpu))
    run = None if state is None else state.report
    on_battery = None if run is None else run.conditions.get("after.ac") is False

    def newest(stream: StreamKey) -> tuple[bool, float]:
        judged_s = snapshot.regression.streams[stream].last_judged_s
        return stream.on_battery is on_battery, 0.0 if judged_s is None else judged_s

    version = max(stream.version for stream in streams)
    now = [stream for stream in streams if stream.version == version]
    return tuple(sorted(now, key=newest, reverse=True))
