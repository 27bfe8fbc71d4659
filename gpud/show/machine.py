"""Sections on the machine: Docker, changes, skipped probes, health, telemetry, sinks, own cost."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from gpud.core.health import Health, Level
from gpud.core.report import ContainersReport
from gpud.show import model
from gpud.units import MINUTE_S, lasted, place, spaced
from gpud.words import because, kind_words

if TYPE_CHECKING:
    from collections.abc import Iterator

    from gpud.core.report import DockerdReport, RootReport
    from gpud.document.machine import ChangeReport
    from gpud.document.runs import SkippedProbe
    from gpud.document.status import Status

HEALTH: Final[tuple[model.State, ...]] = ("ok", "degraded", "failed")
"""States by level."""
TOGETHER_S: Final = 120.0
"""Changes within so long of the first are one: each source sees its own at its own time."""
LEAST_PERCENT: Final = 0.01


def docker(source: model.Input) -> model.Section:
    """Make what root says of dockerd and GPU containers, or why nothing is known."""
    document = source.document
    root = document.root
    if root is None:
        health = document.health.get("root", Health())
        why = model.Prose(health.detail or "gpud's supervisor has not spoken yet")
        unknown = model.Paragraph((model.Mark("starting", "not known: "), why))
        return model.Section("docker", "Docker", [unknown, *model.to_do(health.fix)])
    blocks: list[model.Block] = [
        model.Pairs(list(_dockerd(root.dockerd, privileged=root.privileged)))
    ]
    if root.dockerd.detail and not source.brief:
        blocks.append(model.Paragraph(model.Prose(root.dockerd.detail), "lines"))
    blocks += model.to_do(root.dockerd.fix)
    blocks.append(model.Detail([model.Pairs(list(_figures(document, root)))]))
    return model.Section("docker", "Docker", blocks)


def _dockerd(dockerd: DockerdReport, *, privileged: bool) -> Iterator[model.Pair]:
    state: model.State = "degraded" if dockerd.reason else "ok"
    if not dockerd.up:
        state = "failed" if dockerd.reason else "starting"
    yield model.Pair("dockerd", model.Mark(state, spaced(dockerd.state)))
    watches = "" if privileged else ", without root: gpud only watches"
    yield model.Pair("owner", f"{spaced(dockerd.owner)}{watches}")
    yield model.Pair("version", dockerd.version)
    counts = sorted(dockerd.restarts.items())
    reasons = ", ".join(f"{count} {spaced(reason)}" for reason, count in counts if count)
    if reasons:
        yield model.Pair("restarts", f"{sum(dockerd.restarts.values())} ({reasons})")
    if dockerd.suspect_sockets:
        yield model.Pair(
            "suspect sockets", f"{dockerd.suspect_sockets} ignored, see docs/dockerd.md"
        )


def _figures(document: Status, root: RootReport) -> Iterator[model.Pair]:
    dockerd, containers = root.dockerd, root.containers or ContainersReport("off", "")
    running = dockerd.containers_running
    yield model.Pair("containers running", None if running is None else str(running))
    if (toolkit := containers.toolkit) is not None:
        why = (": ", model.Prose(toolkit.detail)) if toolkit.detail else None
        yield model.Pair("toolkit", (spaced(toolkit.state), why))
    if (comparison := document.containers) is not None:
        yield model.Pair("n-body in a container", model.Prose(comparison.detail))
    elif containers.image_present is False:
        pull = model.code(f"docker pull {containers.image}")
        yield model.Pair("n-body in a container", ("no image: ", pull))


def grouped_changes(document: Status) -> list[tuple[float, list[str]]]:
    """Return when something changed and all that did, in words; the newest last.

    A driver that is replaced changes five facts, and is one change. First sights are none.
    """
    groups: list[tuple[float, list[str]]] = []
    for change in document.changes:
        if change.old is None:
            continue
        if not groups or not 0 <= change.at_s - groups[-1][0] <= TOGETHER_S:
            groups.append((change.at_s, []))
        groups[-1][1].append(_change(change))
    return groups


def _change(change: ChangeReport) -> str:
    kind, old, new = change.kind, str(change.old), str(change.new)
    if kind == "boot_id":
        return "the machine was started anew"
    if kind == "gpus":
        before, after = (sum(1 for uuid in uuids.split(",") if uuid) for uuids in (old, new))
        return f"GPUs {before} -> {after}" if before != after else "another GPU"
    return f"{kind_words(kind)} {old} -> {new}"


def changes(source: model.Input) -> model.Section:
    """Make the latest changes, the newest first; the history has all of them."""
    rows = [
        (model.Timestamp(at_s), model.Prose(", ".join(words)))
        for at_s, words in reversed(grouped_changes(source.document))
    ]
    limit, more = 1 if source.brief else 3, model.Link("/api/v1/events", "/api/v1/events")
    columns = model.headings("when", "what")
    table = model.Table("events", "What changed", columns, rows, (), 50, limit, more)
    nothing = model.Detail(
        [model.Paragraph("Nothing has changed since gpud knows this machine.", "quiet")]
    )
    return model.Section("events", "Changes", [table if rows else nothing])


def skips(source: model.Input) -> model.Section:
    """Make what is being skipped now, how often in a row, and why."""
    document = source.document
    cuda = document.health.get("cuda")
    vain = "no_gpu" if cuda and not cuda.level and cuda.reason else None  # none to wait for
    rows = [
        (
            skip.probe,
            place(skip.gpu) if skip.gpu is not None else "",
            _because(skip),
            model.Mark("degraded", str(skip.count)) if skip.starving else str(skip.count),
        )
        for skip in sorted(document.put_off, key=lambda skip: (skip.gpu or 0, skip.probe))
        if skip.reason != vain
    ]
    columns = model.headings("probe", "on", "because", "in a row", numbers={"in a row"})
    more, limit = model.code("gpud status | less"), 3 if source.brief else 60
    table = model.Table("skips", "Skipped now", columns, rows, terminal=limit, more=more)
    nothing = model.Detail([model.Paragraph("Every run that is due is made.", "quiet")])
    return model.Section("skips", "Skipped", [table if rows else nothing])


def _because(skip: SkippedProbe) -> model.Text:
    words = because(skip.reason, skip.utilization_gpu_ratio)
    return words if skip.next_s is None else (words, ": next at ", model.Timestamp(skip.next_s))


def health(source: model.Input) -> model.Section:
    """Make a row for all components that say the same, those that are not well first.

    The brief form has no row for those that are well: its first line says so.
    """
    alike: dict[tuple[int, str, str, str | None], list[str]] = {}
    since_s: dict[tuple[int, str, str, str | None], float] = {}
    for name, part in sorted(source.document.health.items()):
        level, fix = part.level, part.fix
        word = spaced(part.reason) if not level and part.reason else HEALTH[level]
        why = part.detail or (part.why if level else "")
        key: tuple[int, str, str, str | None] = (int(level), word, why, fix)
        if source.brief and level == Level.OK:
            if word == HEALTH[Level.OK]:
                continue
            key = (level, word, "", None)
        alike.setdefault(key, []).append(name)
        if part.since_s:  # an older agent does not say
            since_s[key] = min(part.since_s, since_s.get(key, part.since_s))
    rows = []
    for key in sorted(alike, key=lambda key: (-key[0], not key[2], alike[key])):
        rank, word, why, fix = key
        names = ", ".join(alike[key])
        rows.append(
            (
                names,
                model.Mark(HEALTH[rank], word),
                model.Prose(why) if why else None,
                model.Advice(fix) if fix else None,
                model.Timestamp(since_s[key]) if key in since_s and rank else None,
            )
        )
    headings = ("component", "state", "because", "to do", "since")
    columns = [model.Heading(h, place="page" if h == "since" else "") for h in headings]
    table = model.Table("health", "Every component", columns, rows, stacked=True)
    nothing = model.Detail([model.Paragraph("No component has spoken yet.", "quiet")])
    return model.Section("health", "Health", [table if rows else nothing], wide=True)


def cost(source: model.Input) -> model.Section:
    """Make gpud's own cost since the agent started, and where its page is."""
    document, counters = source.document, source.document.counters
    running_s = max(document.written_s - document.started_s - counters.paused_s, 0.0)
    facts = [
        model.Pair("GPU time", _share(counters.gpu_seconds, running_s)),
        model.Pair("processes started", f"{counters.children:,}"),
    ]
    if document.url and document.health.get("http", Health()).level < Level.FAILED:
        facts.append(model.Pair("page", f"{document.url}/"))  # else somebody else may answer there
    return model.Section("cost", "What gpud takes", [model.Pairs(facts)])


def _share(took_s: float | None, running_s: float) -> str | None:
    """Write a time and what share of the running time it is: "12 s, 0.08 % of one GPU"."""
    if took_s is None:
        return None
    took = f"{took_s:.2g} s" if took_s < MINUTE_S else lasted(took_s)
    if not running_s:
        return took
    percent = 100 * took_s / running_s
    share = f"{percent:.2g}" if percent >= LEAST_PERCENT else f"below {LEAST_PERCENT:g}"
    return f"{took}, {share} % of one GPU"
