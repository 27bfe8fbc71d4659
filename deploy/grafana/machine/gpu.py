"""What the GPU reports of itself: heat, power, clocks, load, and what wears out."""

from deploy.grafana.layout import Row, row
from deploy.grafana.parts import (
    BLUE,
    GREY,
    RED,
    Panel,
    Query,
    Style,
    Text,
    dashed,
    graph,
    rows,
    states,
)
from deploy.grafana.selecting import GPU, increase, of, rate

EACH = "GPU {{gpu}}"


def heat_and_power() -> Row:
    """Give the row on temperature, power and what holds the clocks down."""
    return row("Heat and power", _temperature(), _power(), _throttling(), _violations(), _fan())


def clocks_and_load() -> Row:
    """Give the row on clocks, memory and utilisation."""
    return row("Clocks and load", _clocks(), _utilisation(), _memory(), _pstate(), _processes())


def card() -> Row:
    """Give the row on the link and on errors: what is broken, not what is busy."""
    return row(
        "The card and its link",
        _link(),
        _link_speed(),
        _replays(),
        _memory_errors(),
        _xids(),
        collapsed=True,
    )


_USUAL = 'reason=~"idle|power_cap|set_clocks|sync_boost|display_clocks"'
_TROUBLE = _USUAL.replace("=~", "!~")


def _temperature() -> Panel:
    threshold = "gpud_gpu_temperature_threshold_celsius"
    return dashed(
        graph(
            Text(
                "Temperature",
                "Dashed is where the GPU begins to slow itself down. Ten degrees below it is good; "
                "at it, look at fans, vents and the power plan.",
                "celsius",
            ),
            Query(of("gpud_gpu_temperature_celsius", by=GPU), EACH),
            Query(of(threshold, 'threshold="slowdown"', by=GPU), f"{EACH} slows down at"),
            Query(of("gpud_gpu_memory_temperature_celsius", by=GPU), f"{EACH} memory"),
        ),
        "B",
    )


def _power() -> Panel:
    return dashed(
        graph(
            Text(
                "Power",
                "The sampled power, the mean from the energy counter, and dashed the limit in "
                "force. A limit that fell is why everything is slower: charger, power plan, vendor "
                "tool.",
                "watt",
            ),
            Query(of("gpud_gpu_power_watts", by=GPU), EACH),
            Query(of("gpud_gpu_power_limit_watts", by=GPU), f"{EACH} limit"),
            Query(rate("gpud_gpu_energy_joules_total", by=GPU), f"{EACH} mean"),
        ),
        "B",
    )


def _throttling() -> Panel:
    return states(
        Text(
            "What holds the clocks down",
            "A line for each reason that NVML gives. Blue is usual: idle, and power_cap under load "
            "on a laptop. Red, such as thermal, hw_thermal and hw_power_brake, is worth a look at "
            "cooling and charger.",
            "none",
        ),
        Query(of("gpud_gpu_throttle_reason", _USUAL, by=GPU), f"{{{{reason}}}} {EACH}"),
        Query(f"2 * {of('gpud_gpu_throttle_reason', _TROUBLE, by=GPU)}", f"{{{{reason}}}} {EACH}"),
        mapped={0: ("no", GREY), 1: ("yes, as usual", BLUE), 2: ("yes", RED)},
        height=10,
    )


def _violations() -> Panel:
    return graph(
        Text(
            "Time below the wanted clocks",
            "Share of the time, from NVML's counters. 0 % is good; thermal above a few per cent "
            "costs throughput.",
            "percentunit",
        ),
        Query(rate("gpud_gpu_violation_seconds_total", by=GPU), f"{{{{cause}}}} {EACH}"),
        width=6,
        height=10,
    )


def _fan() -> Panel:
    return graph(
        Text(
            "Fan",
            "Of the rated speed, which a fan may exceed. Following the temperature is good; full "
            "speed at a low temperature is a sensor, none at a high one a fan.",
            "percentunit",
        ),
        Query(of("gpud_gpu_fan_ratio", by=GPU), EACH),
        width=6,
        height=10,
    )


def _clocks() -> Panel:
    return dashed(
        graph(
            Text(
                "Clocks",
                "Of the multiprocessors and the memory; dashed is the maximum. Low while idle is "
                "good. Low under load: the line of reasons above says what holds them.",
                "hertz",
            ),
            Query(
                of("gpud_gpu_clock_hertz", 'clock=~"sm|memory"', by=GPU), f"{{{{clock}}}} {EACH}"
            ),
            Query(
                of("gpud_gpu_clock_max_hertz", 'clock=~"sm|memory"', by=GPU),
                f"{{{{clock}}}} {EACH} at most",
            ),
        ),
        "B",
    )


def _utilisation() -> Panel:
    return graph(
        Text(
            "Utilisation",
            "Share of the time in which something ran. It says who else uses the GPU: above 5 % "
            "gpud's runs are marked busy and not compared, above 30 % they are skipped. Absent "
            "under older WSL drivers.",
            "percentunit",
        ),
        Query(of("gpud_gpu_utilization_ratio", by=GPU), f"{{{{unit}}}} {EACH}"),
    )


def _memory() -> Panel:
    return graph(
        Text(
            "Memory",
            "Used, kept by the driver, and free. With little free, large probes wait, and in WSL "
            "the driver moves memory to the host: everything becomes slow at once.",
            "bytes",
        ),
        Query(of("gpud_gpu_memory_used_bytes", by=GPU), f"used {EACH}"),
        Query(of("gpud_gpu_memory_reserved_bytes", by=GPU), f"reserved {EACH}"),
        Query(of("gpud_gpu_memory_free_bytes", by=GPU), f"free {EACH}"),
        style=Style.STACKED,
    )


def _pstate() -> Panel:
    return graph(
        Text(
            "Performance state",
            "0 is the fastest, 8 and more is idle. Under load 0 to 2 is good; a GPU that stays at "
            "5 or 8 does not wake up, and its runs are marked low.",
            "none",
        ),
        Query(of("gpud_gpu_pstate", by=GPU), EACH),
        width=6,
    )


def _processes() -> Panel:
    return graph(
        Text(
            "Processes on the GPU",
            "With a context, compute and graphics. Steady is good; a growing number is a program "
            "that leaves processes behind.",
            "none",
        ),
        Query(of("gpud_gpu_processes", by=GPU), EACH),
        width=6,
    )


def _link() -> Panel:
    return rows(
        Text(
            "PCIe link, now and at most",
            "An idle card lowers its link. Under load fewer lanes than at most is a card badly "
            "seated, a shared slot, or a laptop's design.",
            "none",
        ),
        Query(f"max by (gpu) ({of('gpud_gpu_pcie_generation', by=GPU)})"),
        Query(f"max by (gpu) ({of('gpud_gpu_pcie_generation_max', by=GPU)})"),
        Query(f"max by (gpu) ({of('gpud_gpu_pcie_width', by=GPU)})"),
        Query(f"max by (gpu) ({of('gpud_gpu_pcie_width_max', by=GPU)})"),
        named={
            "gpu": "GPU",
            "Value #A": "Generation",
            "Value #B": "at most",
            "Value #C": "Lanes",
            "Value #D": "of",
        },
        height=5,
        absent="not told by this card",
    )


def _link_speed() -> Panel:
    return graph(
        Text(
            "PCIe traffic",
            "Over the last 20 ms, where `[telemetry] pcie_throughput` is on; it is off unless "
            "switched on, because asking for it takes 40 ms. Traffic without work of yours is "
            "somebody else's.",
            "Bps",
        ),
        Query(of("gpud_gpu_pcie_sent_bytes_per_second", by=GPU), f"sent {EACH}"),
        Query(of("gpud_gpu_pcie_received_bytes_per_second", by=GPU), f"received {EACH}"),
    )


def _replays() -> Panel:
    return graph(
        Text(
            "PCIe replays",
            "Packets sent again. None is good; a steady stream is a riser, a slot or a card that "
            "wants seating anew.",
            "none",
        ),
        Query(increase("gpud_gpu_pcie_replays_total", by=GPU), EACH),
        width=8,
        style=Style.BARS,
    )


def _memory_errors() -> Panel:
    return graph(
        Text(
            "Memory errors",
            "ECC errors and rows taken out of use; GeForce cards tell neither. None is good. "
            "Uncorrected errors, or a row that could not be remapped: the card wants replacing.",
            "none",
        ),
        Query(increase("gpud_gpu_ecc_corrected_errors_total", by=GPU), f"corrected {EACH}"),
        Query(increase("gpud_gpu_ecc_uncorrected_errors_total", by=GPU), f"uncorrected {EACH}"),
        Query(increase("gpud_gpu_remapped_rows_total", by=GPU), f"rows, {{{{cause}}}} {EACH}"),
        Query(of("gpud_gpu_remapped_rows_pending", by=GPU), f"row pending {EACH}"),
        Query(of("gpud_gpu_remapped_rows_failed", by=GPU), f"row not remapped {EACH}"),
        width=8,
    )


def _xids() -> Panel:
    return rows(
        Text(
            "Xid errors since the agent started",
            "NVIDIA's numbers; WSL does not pass them on. None is good. 13, 31, 43, 45 are the "
            "mistakes of a program; of the others GpudXid's page says what to do.",
            "none",
        ),
        Query(f"sum by (gpu, xid) ({of('gpud_gpu_xid_errors_total', by=GPU)})"),
        named={"gpu": "GPU", "xid": "Xid", "Value": "Times"},
        width=8,
    )
