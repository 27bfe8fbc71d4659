"""Writes docs/settings.md, and a JSON Schema for editors, from the settings themselves.

.venv/bin/python deploy/settings_reference.py

Keys, types and defaults are those of ``gpud.core.settings``, what a key means is its comment in
deploy/gpud.toml. A test fails while the committed files are older, and where an example is refused.
"""

from __future__ import annotations

import functools
import itertools
import json
import re
import sys
from pathlib import Path
from typing import Any, Final, Literal, get_args, get_origin, get_type_hints

import msgspec

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from gpud.core.settings import SECRET_KEYS, Settings, entries

TOP: Final = Path(__file__).resolve().parent.parent
PAGE: Final = TOP / "docs/settings.md"
SCHEMA: Final = TOP / "docs/gpud.schema.json"
UNITS: Final = {
    "_s": "seconds",
    "_days": "days",
    "_bytes": "bytes",
    "_celsius": "°C",
    "_ratio": "share, 1 is all",
}
KINDS: Final = {str: "text", bool: "true or false", int: "whole number", float: "number"}
HASH: Final = "$2b$10$X0h1gDsPszWURQaxFh.zoubFi6DXncSjhoQNJgRrnGs7EsimhC7zG"
EXAMPLES: Final = {
    "http.listen": '"127.0.0.1:9946"',
    "http.hosts": '["gpu.example"]',
    "http.basic_auth_users": f'{{ alice = "{HASH}" }}',
    "http.allow_plaintext_auth": "true",
    "http.tls_server_config.cert_file": '"/etc/gpud/tls/lab1.pem"',
    "http.tls_server_config.key_file": '"/etc/gpud/tls/lab1.key"',
    "http.tls_server_config.client_auth_type": '"RequireAndVerifyClientCert"',
    "http.tls_server_config.client_ca_file": '"/etc/gpud/tls/clients.pem"',
    "dockerd.policy": '"observe"',
    "dockerd.binary": '"/opt/docker/dockerd"',
    "dockerd.args": '["--registry-mirror=https://mirror.example"]',
    "dockerd.socket": '"/srv/docker/docker.sock"',
    "dockerd.pidfile": '"/srv/docker/docker.pid"',
    "dockerd.ping_interval_s": "5.0",
    "dockerd.ping_timeout_s": "5.0",
    "dockerd.start_timeout_s": "120.0",
    "dockerd.hung_after_s": "30.0",
    "dockerd.kill_after_s": "15.0",
    "dockerd.backoff_max_s": "300.0",
    "agent.user": '"alice"',
    "cuda.library": '"/usr/lib/wsl/lib/libcuda.so.1"',
    "cuda.start_limit_s": "200.0",
    "cuda.hung_child": '"leave"',
    "nvml.library": '"/usr/lib/wsl/lib/libnvidia-ml.so.1"',
    "telemetry.disabled": '["nvidia_smi_exe"]',
    "telemetry.nvidia_smi_exe": '"/mnt/c/Windows/System32/nvidia-smi.exe"',
    "telemetry.pcie_throughput": "true",
    "export.compat": '["dcgm"]',
    "export.hostname_label": '"hostname"',
    "schedule.telemetry_interval_s": "30.0",
    "schedule.small_interval_s": "300.0",
    "schedule.large_interval_s": "3600.0",
    "schedule.context_budget": "100",
    "schedule.jitter_ratio": "0.2",
    "probes.disabled": '["peer_copy", "crossover"]',
    "gate.busy_ratio": "0.5",
    "gate.vram_free_min_bytes": "4294967296",
    "gate.hot_celsius": "80.0",
    "gate.on_battery": '"none"',
    "gate.quiet_hours": '["09:00-12:00", "22:00-07:00"]',
    "gate.boot_grace_s": "120.0",
    "containers.probe": "false",
    "containers.image": '"registry.example/nbody:1"',
    "containers.interval_s": "86400.0",
    "containers.first_after_s": "60.0",
    "containers.deadline_s": "300.0",
    "detector.update_span_s": "3600.0",
    "detector.window_span_s": "10800.0",
    "alerts.disabled": '["notice"]',
    "alerts.webhook_urls": '["https://alerts.example/hook"]',
    "alerts.webhook_credentials_file": '"/etc/gpud/token"',
    "alerts.command": '["/usr/local/bin/on-alert", "--to", "desk"]',
    "alerts.toast": "true",
    "alerts.apprise_urls": '["ntfy://topic"]',
    "alerts.group_wait_s": "60.0",
    "alerts.repeat_interval_s": "86400.0",
    "alerts.warm_up_s": "600.0",
    "store.raw_days": "60.0",
    "store.rollup_days": "365.0",
    "log.level": '"debug"',
    "paths.state": '"/srv/gpud/state"',
    "paths.run": '"/run/gpud-lab"',
    "paths.log": '"/srv/gpud/log"',
}
INTRODUCTION: Final = """\
# Settings

Made from the program by `deploy/settings_reference.py`; edit the comments in `deploy/gpud.toml`.

`/etc/gpud/gpud.toml` has every key with its default, commented out. Remove the `#`, change the
value, then:

```bash
sudo gpud config check     # names what is wrong; nothing else changes
sudo gpud restart          # puts it in force; dockerd and containers keep running
gpud config show           # every value in force, secrets hidden
```

An unknown key, or a value that cannot be used, is an error that names the key, and gpud does not
start with it. A key that only an older gpud had is ignored with a warning that says what holds now,
unless that would let somebody in.

The keys marked *secret* belong in `/etc/gpud/secrets.toml`, which only root and the agent can read
([http.md](http.md#for-others)). For a run out of a checkout, both files are below
`.gpud/etc/gpud`, and a variable such as `GPUD_HTTP__LISTEN=127.0.0.1:9946` sets one key. Root
reads no variables.

An editor that knows TOML and JSON Schema (such as Even Better TOML for VS Code) checks the file as
you type: make `#:schema /PATH/TO/docs/gpud.schema.json` its first line.
"""


def page() -> str:
    """Return docs/settings.md."""
    parts = [INTRODUCTION]
    section = ""
    for meaning, keys in itertools.groupby(_meanings(), key=_meanings().__getitem__):
        neighbours = list(keys)
        table = neighbours[0].rpartition(".")[0]
        if table != section:
            section = table
            parts.append(f"## [{table}]\n")
        parts.append("  \n".join([*map(_facts, neighbours), meaning]) + "\n")
    return "\n".join(parts)


def schema() -> str:
    """Return the JSON Schema of gpud.toml, draft 7, which every editor's plug-in reads."""
    top: dict[str, Any] = {
        "$schema": "http://json-schema.org/draft-07/schema#",
        "title": "gpud.toml",
        **_table(),
    }
    defaults = dict(entries(Settings()))
    for key in _meanings():
        *sections, name = key.split(".")
        place = top
        for section in sections:
            place = place["properties"].setdefault(section, _table())
        place["properties"][name] = {
            **msgspec.json.schema(_hint(key)),
            "description": _meanings()[key],
            "default": msgspec.to_builtins(defaults[key]),
        }
    return json.dumps(top, indent=2, ensure_ascii=False) + "\n"


def _table() -> dict[str, Any]:
    return {"type": "object", "additionalProperties": False, "properties": {}}


@functools.cache
def _meanings() -> dict[str, str]:
    """Give the comment above each key of deploy/gpud.toml, in its order.

    Neighbours without a comment of their own share the one above them.
    """
    meanings: dict[str, str] = {}
    section, comment, complete = "", [""], False
    for line in (TOP / "deploy/gpud.toml").read_text().splitlines():
        if match := re.fullmatch(r"\[([\w.]+)\]", line):
            section, comment = match[1], []
        elif line.startswith("# "):
            comment = [line[2:]] if complete else [*comment, line[2:]]
            complete = False
        elif match := re.match(r"#(\w+) = ", line):
            meanings[f"{section}.{match[1]}"] = " ".join(comment)
            complete = True
    return meanings


def _hint(key: str) -> Any:  # noqa: ANN401  # any setting's type
    owner: Any = Settings
    for part in key.split("."):
        owner = get_type_hints(owner)[part]
    return owner


def _facts(key: str) -> str:
    name = key.rpartition(".")[2]
    default = json.dumps(msgspec.to_builtins(dict(entries(Settings()))[key]))
    unit = next((f" ({unit})" for end, unit in UNITS.items() if name.endswith(end)), "")
    facts = [
        _kind(_hint(key)) + unit,
        f"default `{default}`",
        f"example `{EXAMPLES[key]}`",
        *(["*secret*"] if key in SECRET_KEYS else []),
    ]
    return f"**`{name}`**: {', '.join(facts)}."


def _kind(hint: Any) -> str:  # noqa: ANN401
    arguments = get_args(hint)
    if get_origin(hint) is Literal:
        return "one of " + ", ".join(f'`"{word}"`' for word in arguments)
    if get_origin(hint) is tuple:
        inner = arguments[0]
        return "list of texts" if inner is str else f"list, each {_kind(inner)}"
    if get_origin(hint) is dict:
        return "table of texts"
    return KINDS[hint] if hint in KINDS else " or ".join(_kind(each) for each in arguments)


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
    SCHEMA.write_text(schema(), encoding="utf-8")
