"""The sections of gpud.toml, but ``[http]``, with their defaults; each refuses what is no use."""

import re
from typing import Literal

import msgspec

from gpud.core import clock
from gpud.core.errors import ConfigError
from gpud.core.http_settings import absolute, absolute_path, between, loopback
from gpud.core.sample import START_LIMIT_S
from gpud.core.telemetry import LEVELS
from gpud.core.wsl import is_wsl2


class PathSettings(msgspec.Struct, frozen=True, kw_only=True):
    """Where gpud keeps things; empty means below the home (``/`` when installed)."""

    state: str = ""
    run: str = ""
    log: str = ""

    def __post_init__(self) -> None:
        """Refuse a relative path."""
        absolute(self, "state", "run", "log", empty=True)


class DockerdSettings(msgspec.Struct, frozen=True, kw_only=True):
    """How dockerd is kept."""

    policy: Literal["auto", "manage", "observe", "off"] = "auto"
    binary: str = "dockerd"  # looked up on root's own PATH
    args: tuple[str, ...] = ()  # appended; daemon.json stays the user's
    socket: str = "/run/docker.sock"
    pidfile: str = "/run/docker.pid"
    ping_interval_s: float = 1.0
    ping_timeout_s: float = 2.0
    start_timeout_s: float = 60.0
    hung_after_s: float = 0.0  # 0: 4 s without an answer and without work
    kill_after_s: float = 0.0  # after SIGTERM; 0: 4 s, or 10 s while it works
    backoff_max_s: float = 60.0

    def __post_init__(self) -> None:
        """Refuse intervals that would spin or never fire, and relative paths."""
        absolute(self, "socket", "pidfile")
        if "/" in self.binary or not self.binary:  # a bare name is looked up
            absolute(self, "binary")
        between(self, "ping_interval_s", "ping_timeout_s", low=0.05, high=3600)
        patience = ["start_timeout_s", "backoff_max_s"]
        patience += [name for name in ("hung_after_s", "kill_after_s") if getattr(self, name)]
        between(self, *patience, low=0.5, high=86400)


class AgentSettings(msgspec.Struct, frozen=True, kw_only=True):
    """The unprivileged process."""

    user: str = ""  # empty: gpud, else the invoking user; never root when root starts it


class LibrarySettings(msgspec.Struct, frozen=True, kw_only=True):
    """A driver library by absolute path; empty means the WSL directory, then the loader's own."""

    library: str = ""

    def __post_init__(self) -> None:
        """Refuse a relative path: what it means would depend on where gpud was started."""
        absolute(self, "library", empty=True)


class CudaSettings(LibrarySettings, frozen=True, kw_only=True):
    """libcuda, how long it may take to start, and what becomes of a child that it never returns to.

    ``auto`` leaves such a child alone on WSL2, where a signal can cost all of the GPU, and ends it
    elsewhere.
    """

    start_limit_s: float = START_LIMIT_S  # library, cuInit, context and kernels together
    hung_child: Literal["auto", "leave", "kill"] = "auto"

    def __post_init__(self) -> None:
        """Refuse a start that no driver makes, and one that nobody waits for."""
        LibrarySettings.__post_init__(self)
        between(self, "start_limit_s", low=0.5, high=600)

    def leaves_hung(self, kernel: str) -> bool:
        """Return whether a process that hangs in the driver gets no signal, by the kernel's name.

        A container in WSL2 has WSL2's kernel, and its GPU.
        """
        return self.hung_child == "leave" or (self.hung_child == "auto" and is_wsl2(kernel))


class TelemetrySettings(msgspec.Struct, frozen=True, kw_only=True):
    """Where numbers about the GPUs come from; ``gpud.core.telemetry.LEVELS`` names the sources."""

    disabled: tuple[str, ...] = ()
    nvidia_smi_exe: str = ""  # Windows' own, as this distribution sees it
    pcie_throughput: bool = False  # costs the GPU 20 ms for each direction

    def __post_init__(self) -> None:
        """Refuse a source that does not exist, and a path that depends on where gpud started."""
        sources = LEVELS[1:]
        for name in self.disabled:
            if name not in sources:
                raise ValueError(f"disabled: there is no source {name}, only {', '.join(sources)}")
        absolute(self, "nvidia_smi_exe", empty=True)


class ExportSettings(msgspec.Struct, frozen=True, kw_only=True):
    """What /metrics offers beside gpud's own names."""

    compat: tuple[Literal["dcgm"], ...] = ()
    hostname_label: Literal["Hostname", "hostname"] = "Hostname"  # newer dcgm-exporters: small


class ScheduleSettings(msgspec.Struct, frozen=True, kw_only=True):
    """How often things run, by the monotonic clock."""

    telemetry_interval_s: float = 10.0
    small_interval_s: float = 0.0  # 0: each minute; in WSL2 every ten, and every two at first
    large_interval_s: float = 0.0  # 0: every 15 minutes, in the next round
    context_budget: int = -1  # GPU contexts of one boot; -1: 250 in WSL2, else any; 0: any
    jitter_ratio: float = 0.1  # of the interval, on probes: machines of a fleet drift apart

    def __post_init__(self) -> None:
        """Refuse intervals that would leave no idle time between runs."""
        between(self, "telemetry_interval_s", low=0.2, high=86400)
        if self.small_interval_s:
            between(self, "small_interval_s", low=0.2, high=86400)
        if self.large_interval_s:
            between(self, "large_interval_s", low=0.2, high=7 * 86400)
        between(self, "context_budget", low=-1, high=10**6)
        between(self, "jitter_ratio", low=0, high=0.5)


class ProbeSettings(msgspec.Struct, frozen=True, kw_only=True):
    """Which probes run on schedule."""

    disabled: tuple[str, ...] = ()


class GateSettings(msgspec.Struct, frozen=True, kw_only=True):
    """When a due run is not started, because the person or the machine needs the GPU more."""

    busy_ratio: float = 0.3  # of time the GPU works for somebody else
    vram_free_min_bytes: int = -1  # -1: 15 % and 2 GiB beside the run's own, half of a small card
    hot_celsius: float = 85.0
    on_battery: Literal["all", "small", "seldom", "none"] = "seldom"  # which probes still run
    quiet_hours: tuple[str, ...] = ()  # local time, "22:00-07:00"
    boot_grace_s: float = 60.0  # in WSL2, by the age of the virtual machine

    def __post_init__(self) -> None:
        """Refuse what would let nothing through or hold nothing back, and hours no clock shows."""
        between(self, "busy_ratio", low=0, high=1)
        between(self, "vram_free_min_bytes", low=-1, high=2**50)
        between(self, "hot_celsius", low=30, high=150)
        between(self, "boot_grace_s", low=0, high=3600)
        for text in self.quiet_hours:
            try:
                clock.quiet_span(text)
            except ValueError as error:
                raise ValueError(f"quiet_hours: {error}") from error


class ContainerSettings(msgspec.Struct, frozen=True, kw_only=True):
    """The probe in a GPU container: NVIDIA's n-body sample, through the dockerd that is watched."""

    probe: bool = True  # it runs only where the image is
    image: str = "nvcr.io/nvidia/k8s/cuda-sample:nbody"
    interval_s: float = 21600.0
    first_after_s: float = 300.0
    deadline_s: float = 120.0  # from starting the container to its end

    def __post_init__(self) -> None:
        """Refuse what would never end or never run, and an image that is no image."""
        between(self, "interval_s", low=1, high=30 * 86400)
        between(self, "first_after_s", low=0, high=86400)
        between(self, "deadline_s", low=1, high=3600)
        if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._/:@-]{0,254}", self.image):
            raise ValueError(
                f"image must be an image's name, such as busybox:1, not {self.image!r}"
            )


class DetectorSettings(msgspec.Struct, frozen=True, kw_only=True):
    """How long figures are watched before they are judged; the number of samples counts as well."""

    update_span_s: float = 1110.0  # of a new driver; 20 minutes, give or take the jitter
    window_span_s: float = 5340.0  # under the same driver; 90 minutes: bursts are shorter

    def __post_init__(self) -> None:
        """Refuse spans in which nothing would ever be judged."""
        between(self, "update_span_s", "window_span_s", low=0, high=7 * 86400)


def _is_address(url: str) -> bool:
    from urllib.parse import urlsplit

    try:
        address = urlsplit(url)
        return address.scheme in {"http", "https"} and bool(address.hostname) and address.port != 0
    except ValueError:
        return False


class AlertSettings(msgspec.Struct, frozen=True, kw_only=True):
    """Whom gpud tells, beside the log and the next shell that is opened."""

    disabled: tuple[str, ...] = ()  # sinks by name
    webhook_urls: tuple[str, ...] = ()  # Alertmanager's webhook, version 4
    # Its content is sent as a bearer token; a list has one file, or "", for each address.
    webhook_credentials_file: str | tuple[str, ...] = ""
    command: tuple[str, ...] = ()  # a program and its arguments; the alerts are on its stdin
    toast: bool = False  # of Windows, on the desktop
    apprise_urls: tuple[str, ...] = ()  # needs `deploy/install --with apprise`
    group_wait_s: float = 30.0  # what has one cause is told together
    repeat_interval_s: float = 14400.0  # of what still fires and nobody has acknowledged
    warm_up_s: float = 300.0  # after a start and a long pause nothing new is told

    def __post_init__(self) -> None:
        """Refuse times that would flood or never come, and what is no address."""
        between(self, "group_wait_s", "warm_up_s", low=0, high=86400)
        between(self, "repeat_interval_s", low=1, high=30 * 86400)
        for place, url in enumerate(self.webhook_urls, start=1):  # not quoted: they hold tokens
            if not _is_address(url):
                words = "is none that begins with http:// or https:// and a host"
                raise ValueError(f"webhook_urls: address {place} {words}")
        for path in self.credentials_files:
            absolute_path("webhook_credentials_file", path, empty=True)
        absolute_path("command", self.command[0] if self.command else "", empty=True)

    @property
    def credentials_files(self) -> tuple[str, ...]:
        """The file with the token of each webhook, in the order of the addresses; "" for none."""
        files = self.webhook_credentials_file
        if not files:
            return ("",) * len(self.webhook_urls)
        return (files,) if isinstance(files, str) else files

    def check_credentials(self) -> None:
        """Reject a token that would go to whom it was not meant for, or in the clear.

        Apart from the other checks: addresses may stand in secrets.toml, which not everybody reads.
        Errors: ``ConfigError`` with a fix.
        """
        from urllib.parse import urlsplit

        if self.webhook_urls and len(self.credentials_files) != len(self.webhook_urls):
            raise ConfigError(
                f"webhook_credentials_file: {len(self.credentials_files)} for "
                f"{len(self.webhook_urls)} addresses in webhook_urls",
                fix='write a list in their order, with "" for an address without a token, '
                'such as ["/etc/gpud/token", ""]',
            )
        pairs = zip(self.webhook_urls, self.credentials_files, strict=False)
        for place, (url, file) in enumerate(pairs, start=1):
            address = urlsplit(url)
            if file and address.scheme == "http" and not loopback(address.hostname or ""):
                raise ConfigError(
                    f"webhook_urls: the token of address {place} would cross the network in the "
                    "clear",
                    fix="let the address begin with https://",
                )
            if file and address.username is not None:
                raise ConfigError(
                    f"webhook_urls: address {place} has a user, and webhook_credentials_file a "
                    "token for it",
                    fix="leave one of them",
                )


class StoreSettings(msgspec.Struct, frozen=True, kw_only=True):
    """How long figures are kept."""

    raw_days: float = 30.0  # every run
    rollup_days: float = 730.0  # one summary an hour, and what happened

    def __post_init__(self) -> None:
        """Refuse to keep less than the detector learns from, and more than a disk holds."""
        between(self, "raw_days", low=2, high=3650)
        between(self, "rollup_days", low=self.raw_days, high=36500)


class LogSettings(msgspec.Struct, frozen=True, kw_only=True):
    """What is written to the log file and the terminal."""

    level: Literal["debug", "info", "warning", "error"] = "info"
