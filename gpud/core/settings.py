"""Settings: bytes and environment in, one frozen value out, or an error that names the key.

Nothing is read here; callers bring the bytes of ``gpud.toml`` and the environment they trust.
Root never passes the invoking user's environment.
"""

from __future__ import annotations

import re
import tomllib
from dataclasses import dataclass, field, fields, is_dataclass
from difflib import get_close_matches
from typing import TYPE_CHECKING, Any, Final, Literal, get_args, get_origin, get_type_hints

import msgspec

from gpud.core import clock, quiet
from gpud.core.bounds import between as _between
from gpud.core.errors import ConfigError
from gpud.core.http_settings import Http
from gpud.core.telemetry import LEVELS

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

ENV_PREFIX = "GPUD_"
NOT_SETTINGS = frozenset({"GPUD_HOME"})
"""Names with our prefix that choose where to look, not what to do."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Paths:
    """Where gpud keeps things; empty means below the home (``/`` when installed)."""

    state: str = ""
    run: str = ""
    log: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Dockerd:
    """How dockerd is kept."""

    policy: Literal["auto", "manage", "observe", "off"] = "auto"
    binary: str = "dockerd"  # looked up on root's own PATH
    args: tuple[str, ...] = ()  # appended; daemon.json stays the user's
    socket: str = "/run/docker.sock"
    pidfile: str = "/run/docker.pid"
    ping_interval_s: float = 1.0
    ping_timeout_s: float = 2.0
    start_timeout_s: float = 60.0
    hung_after_s: float = 30.0
    kill_after_s: float = 10.0  # told to end, a hung dockerd gets this long
    backoff_max_s: float = 60.0

    def __post_init__(self) -> None:
        """Refuse intervals that would spin or never fire."""
        _between(self, "ping_interval_s", "ping_timeout_s", low=0.05, high=3600)
        patience = ("start_timeout_s", "hung_after_s", "kill_after_s", "backoff_max_s")
        _between(self, *patience, low=0.5, high=86400)


@dataclass(frozen=True, slots=True, kw_only=True)
class Agent:
    """The unprivileged process."""

    user: str = ""  # empty: gpud, else the invoking user; never root when root starts it


@dataclass(frozen=True, slots=True, kw_only=True)
class Library:
    """A driver library by absolute path; empty means the WSL directory, then the loader's own."""

    library: str = ""

    def __post_init__(self) -> None:
        """Refuse a relative path: what it means would depend on where gpud was started."""
        if self.library and not self.library.startswith("/"):
            raise ValueError(f"library must be an absolute path, not {self.library}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Telemetry:
    """Where numbers about the GPUs come from; ``gpud.core.telemetry.LEVELS`` names the sources."""

    disabled: tuple[str, ...] = ()
    nvidia_smi: str = ""  # by absolute path; empty: where WSL, or the system, has it
    nvidia_smi_exe: str = ""  # Windows' own, as this distribution sees it
    pcie_throughput: bool = False  # costs the GPU 20 ms for each direction
    on_battery_interval_s: float = 300.0  # asking keeps a laptop's GPU from sleeping

    def __post_init__(self) -> None:
        """Refuse a source that does not exist, and a path that depends on where gpud started."""
        _between(self, "on_battery_interval_s", low=0.2, high=86400)
        sources = LEVELS[1:]
        for name in self.disabled:
            if name not in sources:
                raise ValueError(f"disabled: there is no source {name}, only {', '.join(sources)}")
        for key in ("nvidia_smi", "nvidia_smi_exe"):
            path = getattr(self, key)
            if path and not path.startswith("/"):
                raise ValueError(f"{key} must be an absolute path, not {path}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Export:
    """What /metrics offers beside gpud's own names."""

    compat: tuple[Literal["dcgm"], ...] = ()
    hostname_label: Literal["Hostname", "hostname"] = "Hostname"  # newer dcgm-exporters: small


@dataclass(frozen=True, slots=True, kw_only=True)
class Schedule:
    """How often things run, by the monotonic clock."""

    telemetry_interval_s: float = 10.0
    small_interval_s: float = 60.0
    large_interval_s: float = 900.0
    jitter_ratio: float = 0.1  # of the interval, on probes: machines of a fleet drift apart

    def __post_init__(self) -> None:
        """Refuse intervals that would leave no idle time between runs."""
        _between(self, "telemetry_interval_s", "small_interval_s", low=0.2, high=86400)
        _between(self, "large_interval_s", low=0.2, high=7 * 86400)
        _between(self, "jitter_ratio", low=0, high=0.5)


@dataclass(frozen=True, slots=True, kw_only=True)
class Probes:
    """Which probes run on schedule."""

    disabled: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Gate:
    """When a due run is not started, because the person or the machine needs the GPU more."""

    busy_ratio: float = 0.1  # of time the GPU works for somebody else
    vram_free_min_bytes: int = 1 << 30
    hot_celsius: float = 85.0
    on_battery: Literal["all", "small", "none"] = "small"  # which probes still run
    quiet_hours: tuple[str, ...] = ()  # local time, "22:00-07:00"
    resume_rest_s: float = clock.REST_S  # after a long pause of the machine
    resume_grace_s: float = 120.0  # so long runs are marked as those of a resumed machine
    wait_for_idle_s: float = 120.0  # large probes only; small ones come again in a minute
    look_again_s: float = 5.0
    starve_after_s: float = 7200.0  # put off for so long, a probe is told of

    def __post_init__(self) -> None:
        """Refuse what would let nothing through or hold nothing back, and hours no clock shows."""
        _between(self, "busy_ratio", low=0, high=1)
        _between(self, "vram_free_min_bytes", low=0, high=2**50)
        _between(self, "hot_celsius", low=30, high=150)
        _between(self, "resume_rest_s", "resume_grace_s", low=0, high=3600)
        _between(self, "wait_for_idle_s", low=0, high=3600)
        _between(self, "look_again_s", low=0.1, high=60)
        _between(self, "starve_after_s", low=1, high=30 * 86400)
        for text in self.quiet_hours:
            try:
                quiet.parsed(text)
            except ValueError as error:
                raise ValueError(f"quiet_hours: {error}") from error


@dataclass(frozen=True, slots=True, kw_only=True)
class Containers:
    """The probe in a GPU container: NVIDIA's n-body sample, through the dockerd that is watched."""

    probe: bool = True  # it runs only where the image is
    image: str = "nvcr.io/nvidia/k8s/cuda-sample:nbody"
    pull: bool = False  # fetch the image when it is not here
    interval_s: float = 21600.0
    first_after_s: float = 300.0
    deadline_s: float = 120.0  # from starting the container to its end

    def __post_init__(self) -> None:
        """Refuse what would never end or never run, and an image that is no image."""
        _between(self, "interval_s", low=1, high=30 * 86400)
        _between(self, "first_after_s", low=0, high=86400)
        _between(self, "deadline_s", low=1, high=3600)
        if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._/:@-]{0,254}", self.image):
            raise ValueError(f"image must be an image's name, such as busybox:1, not {self.image}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Detector:
    """How long figures are watched before they are judged; the number of samples counts as well."""

    update_span_s: float = 1110.0  # of a new driver; 20 minutes, give or take the jitter
    window_span_s: float = 5340.0  # under the same driver; 90 minutes: bursts are shorter

    def __post_init__(self) -> None:
        """Refuse spans in which nothing would ever be judged."""
        _between(self, "update_span_s", "window_span_s", low=0, high=7 * 86400)


@dataclass(frozen=True, slots=True, kw_only=True)
class Alerts:
    """Whom gpud tells, beside the log and the next shell that is opened."""

    disabled: tuple[str, ...] = ()  # sinks by name
    webhook_urls: tuple[str, ...] = ()  # Alertmanager's webhook, version 4
    webhook_credentials_file: str = ""  # its content is sent as a bearer token
    command: tuple[str, ...] = ()  # a program and its arguments; the alerts are on its stdin
    toast: bool = False  # of Windows, on the desktop
    apprise_urls: tuple[str, ...] = ()  # needs the extra: gpud[apprise]
    group_wait_s: float = 30.0  # what has one cause is told together
    repeat_interval_s: float = 14400.0  # of what still fires and nobody has acknowledged
    warm_up_s: float = 300.0  # after a start and a long pause nothing new is told
    timeout_s: float = 10.0  # of one delivery

    def __post_init__(self) -> None:
        """Refuse times that would flood or never come, and what is no address."""
        _between(self, "group_wait_s", "warm_up_s", low=0, high=86400)
        _between(self, "repeat_interval_s", low=1, high=30 * 86400)
        _between(self, "timeout_s", low=0.1, high=60)
        for place, url in enumerate(self.webhook_urls, start=1):  # not quoted: they hold tokens
            if not url.startswith(("http://", "https://")):
                words = "does not begin with http:// or https://"
                raise ValueError(f"webhook_urls: address {place} {words}")
        for name, path in (
            ("webhook_credentials_file", self.webhook_credentials_file),
            ("command", self.command[0] if self.command else ""),
        ):
            if path and not path.startswith("/"):
                raise ValueError(f"{name} must be an absolute path, not {path}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Store:
    """How long figures are kept."""

    raw_days: float = 30.0  # every run
    rollup_days: float = 730.0  # one summary an hour, and what happened

    def __post_init__(self) -> None:
        """Refuse to keep less than the detector learns from, and more than a disk holds."""
        _between(self, "raw_days", low=2, high=3650)
        _between(self, "rollup_days", low=self.raw_days, high=36500)


@dataclass(frozen=True, slots=True, kw_only=True)
class Log:
    """What is written to the log file and the terminal."""

    level: Literal["debug", "info", "warning", "error"] = "info"


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """Everything a person can set. ``home`` is where the tree of files begins."""

    home: str = "/"
    sysroot: str = "/"  # where /proc, /dev/dxg, /usr/lib/wsl are looked up
    paths: Paths = field(default_factory=Paths)
    http: Http = field(default_factory=Http)
    dockerd: Dockerd = field(default_factory=Dockerd)
    agent: Agent = field(default_factory=Agent)
    cuda: Library = field(default_factory=Library)
    nvml: Library = field(default_factory=Library)
    telemetry: Telemetry = field(default_factory=Telemetry)
    export: Export = field(default_factory=Export)
    schedule: Schedule = field(default_factory=Schedule)
    probes: Probes = field(default_factory=Probes)
    gate: Gate = field(default_factory=Gate)
    containers: Containers = field(default_factory=Containers)
    detector: Detector = field(default_factory=Detector)
    alerts: Alerts = field(default_factory=Alerts)
    store: Store = field(default_factory=Store)
    log: Log = field(default_factory=Log)

    @property
    def state_dir(self) -> str:
        """What must survive a reboot: the history."""
        return self.paths.state or _join(self.home, "var/lib/gpud")

    @property
    def run_dir(self) -> str:
        """What must not: pid, status files, locks."""
        return self.paths.run or _join(self.home, "run/gpud")

    @property
    def log_dir(self) -> str:
        """The logs of root, agent and dockerd."""
        return self.paths.log or _join(self.home, "var/log/gpud")


def config_path(home: str) -> str:
    """Name the one configuration file that belongs to ``home``."""
    return _join(home, "etc/gpud/gpud.toml")


def parse(
    text: bytes | None, environ: Mapping[str, str], *, home: str = "/", origin: str = "gpud.toml"
) -> Settings:
    """Merge the file and the ``GPUD_SECTION__KEY`` environment over the defaults.

    Shapes: ``text`` is the whole file, None when there is none.
    Errors: ``ConfigError`` naming the key, the value's trouble and, for a typo, the likely key.
    """
    merged: dict[str, Any] = {"home": home}
    _overlay(merged, _decoded(text, origin) if text is not None else {})
    _overlay(merged, _from_environment(environ))
    _refuse_unknown(merged, Settings, origin)
    try:
        return msgspec.convert(merged, Settings)
    except msgspec.ValidationError as error:
        raise ConfigError(_readable(str(error), origin)) from error


def entries(settings: Settings) -> Iterator[tuple[str, Any]]:
    """Yield every ``section.key`` with its value in force, in the order of declaration."""
    yield from _entries(settings, "")


def _entries(owner: Any, prefix: str) -> Iterator[tuple[str, Any]]:  # noqa: ANN401
    for item in fields(owner):
        value = getattr(owner, item.name)
        if is_dataclass(value):
            yield from _entries(value, f"{prefix}{item.name}.")
        else:
            yield f"{prefix}{item.name}", value


def _join(home: str, rest: str) -> str:
    return f"{home.rstrip('/')}/{rest}"


def _decoded(text: bytes, origin: str) -> dict[str, Any]:
    try:
        return tomllib.loads(text.decode("utf-8"))
    except UnicodeDecodeError as error:
        raise ConfigError(
            f"{origin} is not UTF-8: byte {error.start} is 0x{text[error.start]:02x}",
            fix="save the file as UTF-8",
        ) from error
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(f"{origin} is not valid TOML: {error}") from error
    except RecursionError as error:
        raise ConfigError(f"{origin} is nested too deeply") from error


def _from_environment(environ: Mapping[str, str]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name in sorted(environ):
        if not name.startswith(ENV_PREFIX) or name in NOT_SETTINGS:
            continue
        *sections, key = name.removeprefix(ENV_PREFIX).lower().split("__")
        kind = _kind(sections, key)
        if kind is None:
            known = [_env_name(dotted) for dotted, _ in entries(Settings())]
            raise ConfigError(
                f"the environment sets {name}, which is not a setting" + _suggestion(name, known)
            )
        place = found
        for section in sections:
            place = place.setdefault(section, {})
        place[key] = environ[name] if kind is str else _toml_value(name, environ[name])
    return found


def _env_name(dotted: str) -> str:
    return ENV_PREFIX + dotted.replace(".", "__").upper()


def _kind(sections: list[str], key: str) -> Any:  # noqa: ANN401  # a type, a Literal or None
    """Give the declared type of a setting, ``str`` for anything written as bare text."""
    owner: Any = Settings
    for section in sections:
        owner = get_type_hints(owner).get(section)
        if not is_dataclass(owner):
            return None
    kind = get_type_hints(owner).get(key)
    return str if get_origin(kind) is Literal else None if is_dataclass(kind) else kind


def _toml_value(name: str, raw: str) -> Any:  # noqa: ANN401  # whatever TOML can hold
    try:
        return tomllib.loads(f"value = {raw}")["value"]
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(
            f"{name}={raw!r} is not a TOML value: {error}",
            fix=f"""write it as in the file, such as {name}='["a", "b"]', 60 or true""",
        ) from error
    except RecursionError as error:
        raise ConfigError(f"{name} is nested too deeply") from error


def _overlay(base: dict[str, Any], top: Mapping[str, Any]) -> None:
    for key, value in top.items():
        if isinstance(value, dict) and isinstance(base.get(key), dict):
            _overlay(base[key], value)
        else:
            base[key] = value


def _refuse_unknown(given: Mapping[str, Any], owner: Any, origin: str, prefix: str = "") -> None:  # noqa: ANN401
    hints = get_type_hints(owner)
    for key, value in given.items():
        if key not in hints:
            known = [f"{prefix}{name}" for name in hints]
            everywhere = [dotted for dotted, _ in entries(Settings())]
            raise ConfigError(
                f"{origin}: unknown key {prefix}{key}"
                + _suggestion(f"{prefix}{key}", [*known, *everywhere])
            )
        if isinstance(value, dict) and is_dataclass(hints[key]):
            _refuse_unknown(value, hints[key], origin, f"{prefix}{key}.")


def _suggestion(word: str, known: list[str]) -> str:
    begun = [name for name in known if name.startswith(word)]
    close = begun or get_close_matches(word, known, n=1)
    return f"; did you mean {close[0]}?" if close else ""


def _words_of(key: str) -> tuple[str, ...]:
    """Give the words that ``key``, or an item of its list, takes when those are certain ones."""
    found: Any = Settings
    for part in key.split("."):
        name, _, item = part.partition("[")
        found = get_type_hints(found).get(name) if is_dataclass(found) else None
        found = get_args(found)[0] if item and get_origin(found) is tuple else found
    return get_args(found) if get_origin(found) is Literal else ()


_KINDS: Final = {
    "array": 'a list, such as ["a", "b"]',
    "bool": "true or false",
    "float": "a number",
    "int": "a whole number",
    "object": "a table of its own",
    "str": "text in quotes",
}
"""msgspec's names of types, and TOML's for a person."""
_WRONG_TYPE: Final = re.compile(r"Expected `([\w| ]+)`, got `(\w+)`")


def _readable(message: str, origin: str) -> str:
    """Turn msgspec's ``... - at `$.http.listen` `` into a sentence that begins with the key."""
    text, _, place = message.partition(" - at `$")
    key = place.strip("`").lstrip(".")
    if text.startswith("Invalid enum value") and (words := _words_of(key)):
        shown = " or ".join(f'"{word}"' for word in words)
        text = f"must be {shown}, not {text[19:]}"
    if wrong := _WRONG_TYPE.fullmatch(text):
        wanted = " or ".join(_KINDS.get(kind, kind) for kind in wrong[1].split(" | "))
        given = _KINDS.get(wrong[2], wrong[2]).partition(",")[0]
        text = f"must be {wanted}, not {given}"
    return f"{origin}: {f'{key}: ' if key else ''}{text[:1].lower()}{text[1:]}".replace("`", "")
