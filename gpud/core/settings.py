"""Settings: bytes and environment in, one frozen value out, or an error that names the key.

Nothing is read here; callers bring the bytes of ``gpud.toml`` and the environment they trust.
Root never passes the invoking user's environment.
"""

import re
from collections.abc import Iterator, Mapping
from typing import Any, Final, Literal, get_args, get_origin, get_type_hints

import msgspec

from gpud.core.errors import ConfigError
from gpud.core.http_settings import HttpSettings, absolute
from gpud.core.sections import (
    AgentSettings,
    AlertSettings,
    ContainerSettings,
    CudaSettings,
    DetectorSettings,
    DockerdSettings,
    ExportSettings,
    GateSettings,
    LibrarySettings,
    LogSettings,
    PathSettings,
    ProbeSettings,
    ScheduleSettings,
    StoreSettings,
    TelemetrySettings,
)

ENV_PREFIX = "GPUD_"
SOCKET: Final = ("api", "api.sock")
"""Folder and file of the agent's socket, below the run directory."""
LOCK: Final = "gpu.lock"
"""The file below the run directory that whoever runs GPU work locks."""
NVML_LOCK: Final = "nvml.lock"
"""In the agent's own directory; NVML's helper has it as long as it lives."""
GROUP: Final = "gpud-users"
"""The people who may ask the agent of an installed gpud, and read its logs."""
CORRECTIONS: Final = dict.fromkeys(("http.port", "http.address", "http.bind"), "http.listen")
"""Settings that people look for under another name."""
REMOVED: Final[Mapping[str, str]] = {
    "http.max_connections": "there are 256 at most",
    "http.max_connections_per_peer": "one address may take all 256",
    "alerts.timeout_s": "it is 10 s",
    "http.read_header_timeout_s": "it is 10 s",
    "http.idle_timeout_s": "it is 65 s",
    "http.write_timeout_s": "it is 30 s",
    "http.tls_server_config.max_version": "TLS 1.3 is spoken where the client can",
    "http.http_server_config.headers": "gpud's own headers hold",
    "telemetry.on_battery_interval_s": "it is 900 s",
    "telemetry.nvidia_smi": "NVML's helper asks the same library",
    "containers.pull": "`docker pull` of containers.image, or `gpud install --gpu-containers`",
    "gate.resume_rest_s": "it is 10 s",
    "gate.resume_grace_s": "it is 120 s",
    "gate.wait_for_idle_s": "a large probe is skipped at once and comes in the next round",
    "gate.look_again_s": "a large probe is skipped at once and comes in the next round",
    "gate.starve_after_s": "it is 2 hours",
}
"""Former settings, and what holds instead: ignored, with a warning."""
RESTRICTED: Final[Mapping[str, tuple[object, str]]] = {
    "http.tls_server_config.client_allowed_sans": (
        [],
        "use a client_ca_file whose authority signs only the clients that may ask",
    ),
    "http.tls_server_config.cipher_suites": (
        [],
        "only suites with forward secrecy are spoken; a reverse proxy can choose among them",
    ),
    "http.tls_server_config.min_version": (
        "TLS12",
        "TLS 1.2 and 1.3 are spoken; a reverse proxy can insist on 1.3",
    ),
}
"""Former settings that restricted access: the value that restricted nothing, and what to use.

Any other value is an error: to ignore it would open what somebody has closed.
"""
NOT_SETTINGS = frozenset({"GPUD_HOME"})
"""Names with our prefix that choose where to look, not what to do."""
LARGEST: Final = 64 << 10
"""Bytes of a settings file: tomllib needs seconds for a long name of many parts."""
SECRET_KEYS: Final = (
    "http.basic_auth_users",
    "alerts.webhook_urls",
    "alerts.webhook_credentials_file",
    "alerts.apprise_urls",
)
"""What secrets.toml takes; root itself needs none of it."""


class Settings(msgspec.Struct, frozen=True, kw_only=True):
    """Everything a person can set. ``home`` is where the tree of files begins."""

    home: str = "/"
    sysroot: str = "/"  # where /proc, /dev/dxg, /usr/lib/wsl are looked up
    paths: PathSettings = PathSettings()
    http: HttpSettings = HttpSettings()
    dockerd: DockerdSettings = DockerdSettings()
    agent: AgentSettings = AgentSettings()
    cuda: CudaSettings = CudaSettings()
    nvml: LibrarySettings = LibrarySettings()
    telemetry: TelemetrySettings = TelemetrySettings()
    export: ExportSettings = ExportSettings()
    schedule: ScheduleSettings = ScheduleSettings()
    probes: ProbeSettings = ProbeSettings()
    gate: GateSettings = GateSettings()
    containers: ContainerSettings = ContainerSettings()
    detector: DetectorSettings = DetectorSettings()
    alerts: AlertSettings = AlertSettings()
    store: StoreSettings = StoreSettings()
    log: LogSettings = LogSettings()

    def __post_init__(self) -> None:
        """Reject a relative path: what it means would depend on where gpud was started."""
        absolute(self, "home", "sysroot")

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


class Secrets(msgspec.Struct, frozen=True):
    """The content of secrets.toml, None when there is no such file."""

    text: bytes | None = None
    origin: str = "secrets.toml"


NO_SECRETS: Final = Secrets()


def config_path(home: str) -> str:
    """Name the one configuration file that belongs to ``home``."""
    return _join(home, "etc/gpud/gpud.toml")


def secrets_path(home: str) -> str:
    """Name the file of ``home`` that holds hashes and tokens, and that few can read."""
    return _join(home, "etc/gpud/secrets.toml")


def parse(
    text: bytes | None,
    environ: Mapping[str, str],
    *,
    home: str = "/",
    origin: str = "gpud.toml",
    secrets: Secrets | None = NO_SECRETS,
) -> Settings:
    """Merge both files and the ``GPUD_SECTION__KEY`` environment over the defaults.

    Shapes: ``text`` is the whole file, None when there is none; ``secrets`` is None where
    secrets.toml was not read: then what needs both files is not checked.
    Errors: ``ConfigError`` naming the key, the value's trouble and, for a typo, the likely key.
    """
    public, _ = _without_removed(_decoded(text, origin) if text is not None else {}, origin)
    variables, _ = _without_removed(_from_environment(environ), "the environment")
    _refuse_unknown(variables, Settings, "the environment")
    settings = _converted(_merged({"home": home}, public, variables), origin)
    if secrets is None:
        return settings
    if secrets.text is not None:
        hidden = _decoded(secrets.text, secrets.origin)
        for key in _dotted(hidden, secrets.origin):
            section, _, name = key.partition(".")
            if name in public.get(section, {}):
                raise ConfigError(
                    f"{secrets.origin}: {key} is set in {origin} too", fix="leave it in one of them"
                )
        settings = _converted(_merged({"home": home}, public, hidden, variables), secrets.origin)
    files = origin if secrets.text is None else f"{origin} and {secrets.origin}"
    for section, check in (
        ("http", settings.http.check_access),
        ("alerts", settings.alerts.check_credentials),
    ):
        try:
            check()
        except ConfigError as error:
            raise ConfigError(f"{files}: {section}: {error}", fix=error.fix) from error
    return settings


def removed_settings(text: bytes | None, environ: Mapping[str, str], origin: str) -> list[str]:
    """Warn of each setting that no longer exists. Errors: ``ConfigError``, as ``parse``."""
    _, warnings = _without_removed(_decoded(text, origin) if text is not None else {}, origin)
    return warnings + _without_removed(_from_environment(environ), "the environment")[1]


def secret_keys(text: bytes, origin: str) -> tuple[str, ...]:
    """Name the keys that a secrets.toml sets. Errors: ``ConfigError``, also for any other key."""
    return _dotted(_decoded(text, origin), origin)


def entries(owner: msgspec.Struct, prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Yield every ``section.key`` with its value in force, in the order of declaration."""
    for name in owner.__struct_fields__:
        value = getattr(owner, name)
        if isinstance(value, msgspec.Struct):
            yield from entries(value, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}", value


def _join(home: str, rest: str) -> str:
    return f"{home.rstrip('/')}/{rest}"


def _dotted(hidden: Mapping[str, Any], origin: str) -> tuple[str, ...]:
    keys = []
    for section, value in hidden.items():
        names = value if isinstance(value, dict) and value else {"": None}
        keys += [f"{section}.{name}".rstrip(".") for name in names]
    for key in keys:
        if key not in SECRET_KEYS and key not in {"http", "alerts"}:
            raise ConfigError(
                f"{origin}: {key} does not belong here, only {', '.join(SECRET_KEYS)}",
                fix="put it into gpud.toml",
            )
    return tuple(key for key in keys if "." in key)


def _converted(merged: dict[str, Any], origin: str) -> Settings:
    _refuse_unknown(merged, Settings, origin)
    try:
        settings = msgspec.convert(merged, Settings)
    except msgspec.ValidationError as error:
        raise ConfigError(_readable(str(error), origin)) from error
    for key, value in entries(settings):
        if "\\x00" in repr(value):
            raise ConfigError(f"{origin}: {key} holds a NUL character", fix=f"correct {key}")
    return settings


def _decoded(text: bytes, origin: str) -> dict[str, Any]:
    import tomllib

    if len(text) > LARGEST:
        raise ConfigError(f"{origin} is larger than {LARGEST >> 10} KiB", fix="make it shorter")
    try:
        return tomllib.loads(text.decode("utf-8-sig"))  # Notepad begins files with a mark
    except UnicodeDecodeError as error:
        raise ConfigError(
            f"{origin} is not UTF-8: byte {error.start} is 0x{text[error.start]:02x}",
            fix="save the file as UTF-8",
        ) from error
    except ValueError as error:  # TOMLDecodeError, and int() of thousands of digits
        raise ConfigError(
            f"{origin} is not valid TOML: {error}",
            fix="mend that line; each [table] and each key stands once; then `sudo gpud restart`",
        ) from error
    except RecursionError as error:
        raise ConfigError(f"{origin} is nested too deeply") from error


def _without_removed(
    table: dict[str, Any], origin: str, prefix: str = ""
) -> tuple[dict[str, Any], list[str]]:
    """Leave out former settings, and tables that hold nothing else; also gives the warnings."""
    remaining: dict[str, Any] = {}
    warnings: list[str] = []
    for name, value in table.items():
        key = f"{prefix}{name}"
        if key in REMOVED or key in RESTRICTED:
            harmless, instead = RESTRICTED.get(key, (value, REMOVED.get(key, "")))
            if value != harmless:
                raise ConfigError(
                    f"{origin}: {key} is no longer a setting, and without it others get access",
                    fix=f"remove it; {instead}",
                )
            warnings.append(f"{origin}: {key} is no longer a setting and is ignored; {instead}")
        elif isinstance(value, dict) and _has_removed(key):
            inner, more = _without_removed(value, origin, f"{key}.")
            remaining |= {name: inner} if inner else {}
            warnings += more
        else:
            remaining[name] = value
    return remaining, warnings


def _has_removed(table: str) -> bool:
    return any(key.startswith(f"{table}.") for key in (*REMOVED, *RESTRICTED))


def _from_environment(environ: Mapping[str, str]) -> dict[str, Any]:
    table: dict[str, Any] = {}
    for name in sorted(environ):
        if name.startswith(ENV_PREFIX) and name not in NOT_SETTINGS:
            value = _toml_or_text(environ[name])
            for key in reversed(name.removeprefix(ENV_PREFIX).lower().split("__")):
                value = {key: value}
            table = _merged(table, value)
    return table


def _is_section(kind: object) -> bool:
    return isinstance(kind, type) and issubclass(kind, msgspec.Struct)


def _toml_or_text(raw: str) -> Any:  # noqa: ANN401  # whatever TOML can hold
    """Read a number, a list or a word of TOML; text needs no quotes."""
    import tomllib

    try:
        return tomllib.loads(f"value = {raw}")["value"]
    except (ValueError, RecursionError):
        return raw


def _merged(base: dict[str, Any], *tops: Mapping[str, Any]) -> dict[str, Any]:
    merged = dict(base)
    for top in tops:
        for key, value in top.items():
            before = merged.get(key)
            if isinstance(value, dict) and isinstance(before, dict):
                merged[key] = _merged(before, value)
            else:
                merged[key] = value
    return merged


def _refuse_unknown(table: Mapping[str, Any], owner: Any, origin: str, prefix: str = "") -> None:  # noqa: ANN401
    hints = get_type_hints(owner)
    for key, value in table.items():
        if key not in hints:
            valid = [f"{prefix}{name}" for name in hints]
            everywhere = [dotted for dotted, _ in entries(Settings())]
            raise ConfigError(
                f"{origin}: unknown key {prefix}{key}"
                + suggestion(f"{prefix}{key}", [*valid, *everywhere])
            )
        if isinstance(value, dict) and _is_section(hints[key]):
            _refuse_unknown(value, hints[key], origin, f"{prefix}{key}.")


def suggestion(word: str, valid: list[str]) -> str:
    """Return "; did you mean NAME?" for a word that is nearly a valid one, else nothing."""
    from difflib import get_close_matches

    begun = (
        [CORRECTIONS[word]]
        if word in CORRECTIONS
        else [name for name in valid if name.startswith(word)]
    )
    close = begun or get_close_matches(word, valid, n=1)
    return f"; did you mean {close[0]}?" if close else ""


def _words_of(key: str) -> tuple[str, ...]:
    """Give the words that ``key``, or an item of its list, takes when those are certain ones."""
    type_hint: Any = Settings
    for part in key.split("."):
        name, _, item = part.partition("[")
        type_hint = get_type_hints(type_hint).get(name) if _is_section(type_hint) else None
        type_hint = get_args(type_hint)[0] if item and get_origin(type_hint) is tuple else type_hint
    return get_args(type_hint) if get_origin(type_hint) is Literal else ()


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
        expected = " or ".join(_KINDS.get(kind, kind) for kind in wrong[1].split(" | "))
        actual = _KINDS.get(wrong[2], wrong[2]).partition(",")[0]
        text = f"must be {expected}, not {actual}"
    return f"{origin}: {f'{key}: ' if key else ''}{text[:1].lower()}{text[1:]}".replace("`", "")
