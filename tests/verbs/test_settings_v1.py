"""Settings files of version one: each loads, and every key in it means what it meant.

``settings_v1/full.txt`` is what version one's ``gpud config show`` printed for ``full.toml``, with
FOLDER in the place of the home.
"""

from __future__ import annotations

import json
import os
import pwd
import subprocess
import tempfile
import tomllib
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.verbs.homes import configured, started

if TYPE_CHECKING:
    from collections.abc import Iterator

FILES = Path(__file__).parents[1] / "settings_v1"
OTHER_DEFAULTS = {
    *("dockerd.hung_after_s", "dockerd.kill_after_s", "gate.busy_ratio", "gate.on_battery"),
    *("schedule.small_interval_s", "schedule.large_interval_s", "gate.vram_free_min_bytes"),
}
HIDDEN = {
    "alerts.command",
    "alerts.webhook_urls",
    "alerts.apprise_urls",
}  # version one showed more of them
SECRETS = "http.basic_auth_users and alerts.webhook_urls and alerts.apprise_urls"
RESTRICTING = ("client_allowed_sans", "min_version", "cipher_suites")
"""Settings that keep somebody out, in the order of the file: once they are gone, errors by name."""
MAKE_CERTIFICATE = (
    "openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 2"
    " -subj /CN=box -addext subjectAltName=DNS:box -keyout key.pem -out cert.pem"
)


@pytest.fixture
def home() -> Iterator[Path]:
    """A home with a certificate that the agent's user can read."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        folder.chmod(0o755)
        (folder / "etc/gpud").mkdir(parents=True)
        subprocess.run(MAKE_CERTIFICATE.split(), cwd=folder, check=True, capture_output=True)
        for file in ("key.pem", "cert.pem"):
            os.chown(folder / file, pwd.getpwnam("nobody").pw_uid, -1)
        yield folder


def without_refused(home: Path, config: Path) -> None:
    """Take out settings that restricted access and are refused by name."""
    for key in RESTRICTING:
        check = started(home, "config", "check")
        if f"{key} is no longer a setting, and" in check.err:
            assert check.code == 2
            lines = config.read_text().splitlines()
            config.write_text("\n".join(one for one in lines if not one.startswith(f"{key} = ")))


def values(shown: str) -> dict[str, Any]:
    pairs = (line.split(" = ", 1) for line in shown.splitlines())
    return {key: json.loads(value) for key, value in pairs}


def set_keys(table: dict[str, Any], prefix: str = "") -> Iterator[str]:
    for key, value in table.items():
        yield f"{prefix}{key}"
        if isinstance(value, dict):
            yield from set_keys(value, f"{prefix}{key}.")


def test_settings_of_version_one_keep_their_meaning(home: Path) -> None:
    text = (FILES / "full.toml").read_text().replace("FOLDER", str(home))
    config = configured(home, text)
    os.chown(config, -1, pwd.getpwnam("nobody").pw_gid)
    before = set(set_keys(tomllib.loads(config.read_text())))
    without_refused(home, config)
    config.chmod(0o644)
    exposed = started(home, "config", "check").err
    assert f"{SECRETS} are secret in it" in exposed
    config.chmod(0o640)
    check, show = started(home, "config", "check"), started(home, "config", "show")
    assert (check.code, show.code) == (0, 0), check.err + show.err
    expected = values((FILES / "full.txt").read_text().replace("FOLDER", str(home)))
    set_here = set(set_keys(tomllib.loads(config.read_text()))) & expected.keys()
    today = values(show.out)
    for key, value in expected.items():
        if key not in today:
            assert key not in set_here or key in check.err, f"{key} is ignored without a word"
        elif key in HIDDEN:
            assert len(today[key]) == len(value)
        elif key in set_here or key not in OTHER_DEFAULTS:
            assert today[key] == value, key
    assert before >= expected.keys() - {"home"}
