"""The first row: the state in one word, and what is behind it."""

from deploy.grafana.layout import Row, row
from deploy.grafana.parts import (
    GREEN,
    GREY,
    ORANGE,
    RED,
    Panel,
    Query,
    Text,
    in_unit,
    number,
    rows,
    states,
    word,
)
from deploy.grafana.selecting import age, of

LEVELS = {0: ("ok", GREEN), 1: ("degraded", ORANGE), 2: ("failed", RED)}
TELEMETRY = {
    0: ("nothing", RED),
    1: ("dxg", ORANGE),
    2: ("CUDA", ORANGE),
    3: ("nvidia-smi", GREEN),
    4: ("nvidia-smi.exe", GREEN),
    5: ("NVML", GREEN),
}


def now() -> Row:
    """Give the row that says whether anything is to be done."""
    return row("Now", *_words(), *_identity(), _health(), _reasons(), _alerts())


def _words() -> list[Panel]:
    health = of("gpud_health")
    heard = f"timestamp({of('gpud_build_info')})"
    last = f"(max({heard}) or max(max_over_time({heard}[$__range:1m])))"
    return [
        number(
            Text(
                "State",
                "The worst of gpud's parts. Good is ok. Otherwise the table of reasons below names "
                "the part, and `gpud status` on the machine says what mends it. `no word` means "
                "that Prometheus has nothing from this machine now.",
                "none",
            ),
            Query(f"max({health})", "state"),
            mapped=LEVELS,
            steps=[(None, GREY)],
        ),
        number(
            Text(
                "Last heard of",
                "Since the last scrape that arrived. Good is below a minute. A laptop that sleeps "
                "is silent and well; one that is awake and silent wants `gpud status`.",
                "s",
            ),
            Query(age(last), "last scrape"),
            steps=[(None, GREEN), (120, ORANGE), (600, GREY)],
            absent="not in this range",
        ),
        number(
            Text(
                "Alerts firing",
                "gpud's own alerts, acknowledged ones too. Good is 0. Otherwise `gpud alerts` has "
                "the evidence, the likely cause and what to do.",
                "none",
            ),
            Query(f"sum({of('gpud_alerts_firing')})", "alerts"),
            steps=[(None, GREEN), (1, RED)],
        ),
        number(
            Text(
                "Figures that are worse",
                "Streams (GPU, probe, mode) in which a change for the worse holds. Good is 0. One "
                "alone may be chance; see the row on regressions, then `gpud alerts`.",
                "none",
            ),
            Query(f"sum(max by (gpu, probe, mode) ({of('gpud_regression_active')}))", "streams"),
            steps=[(None, GREEN), (1, ORANGE), (3, RED)],
            absent="not judged yet",
        ),
        number(
            Text(
                "dockerd",
                "Whether dockerd's API answers. Good is up; where the policy is off there is no "
                "word. Otherwise the row on Docker, and /var/log/gpud/dockerd.log.",
                "none",
            ),
            Query(of("gpud_dockerd_up"), "dockerd"),
            mapped={1: ("up", GREEN), 0: ("down", RED)},
            steps=[(None, GREY)],
            absent="not watched",
        ),
        number(
            Text(
                "Telemetry from",
                "The best source that sees a GPU now. Good is NVML; an nvidia-smi is as true and "
                "less often. Below that few fields have values: `gpud doctor` says why.",
                "none",
            ),
            Query(of("gpud_telemetry_level"), "level"),
            mapped=TELEMETRY,
            steps=[(None, GREY)],
        ),
    ]


def _identity() -> list[Panel]:
    cards = of("gpud_gpu_info")
    return [
        rows(
            Text(
                "GPUs",
                "Each GPU with its driver, as NVML or CUDA names them. Good is every GPU that is "
                "plugged in; one that is gone is the part `devices` among the reasons.",
                "none",
            ),
            Query(
                "max by (gpu, name, driver_version, cuda_version, compute_capability, "
                f"vbios_version, uuid) ({cards})"
            ),
            named={
                "gpu": "GPU",
                "name": "Model",
                "driver_version": "Driver",
                "cuda_version": "CUDA",
                "compute_capability": "Compute capability",
                "vbios_version": "VBIOS",
                "uuid": "UUID",
            },
            width=12,
            height=5,
            absent="no GPU, or no word of this machine",
        ),
        word(
            Text(
                "Machine",
                "What the machine calls itself. WSL's names collide; `gpud_machine_info` also has "
                "an identity that does not, for whoever joins the figures of many.",
                "none",
            ),
            Query(of("gpud_machine_info"), "{{hostname}}"),
        ),
        word(
            Text(
                "Driver",
                "The driver in force; in WSL it is Windows'. It is blue because a driver is "
                "neither good nor bad: the row on regressions compares it with the one before.",
                "none",
            ),
            Query(of("gpud_driver_info", 'driver_version!=""'), "{{driver_version}}"),
            absent="nobody names it",
        ),
        word(
            Text(
                "gpud",
                "The running version. Good is the same on all machines; `deploy/install` upgrades "
                "without ending a container.",
                "none",
            ),
            Query(of("gpud_build_info"), "{{version}}"),
        ),
    ]


def _health() -> Panel:
    return states(
        Text(
            "Health of gpud's parts",
            "A line for each part; green all along is good. Orange works less well, red does not "
            "work. A gap is time in which gpud was not heard of.",
            "none",
        ),
        Query(of("gpud_health"), "{{component}}"),
        mapped=LEVELS,
        height=12,
    )


def _reasons() -> Panel:
    return rows(
        Text(
            "Reasons",
            "Why a part is not ok. Good is an empty table, or `no_gpu` where there is none. The "
            "words and the fix are in `gpud status`.",
            "none",
        ),
        Query(f"max by (component, reason) ({of('gpud_health_reason_info')})"),
        named={"component": "Part", "reason": "Reason"},
        height=6,
    )


def _alerts() -> Panel:
    found = rows(
        Text(
            "Alerts that fire",
            "gpud's own, one for each cause. Good is an empty table. Each has a page with what to "
            "do at /runbooks/ of the machine; `gpud alerts ack ID` ends its repetition.",
            "none",
        ),
        Query(f"max by (alertname, severity) ({of('gpud_alerts_firing')}) > 0"),
        named={"alertname": "Alert", "severity": "Severity", "Value": "Count"},
        height=6,
    )
    return in_unit(found, "none", "Count")
