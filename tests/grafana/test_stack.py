"""The files for Grafana and the stack: valid, about what there is, and open to nobody.

No image can be had here, so no container of them has run.
"""

from __future__ import annotations

import re
import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pytest
from compose_spec import PyOptions

from tests.grafana import dashboards
from tests.prometheus.rules import said

if TYPE_CHECKING:
    from collections.abc import Iterator

STACK: Final = dashboards.ROOT / "deploy/stack"
GRAFANA: Final = dashboards.ROOT / "deploy/grafana"
FILES: Final = sorted(STACK.glob("*.yaml"))
HOST: Final = STACK / "compose.yaml"
PINNED: Final = re.compile(r"[a-z]+/[a-z]+:v?\d+\.\d+\.\d+")
LOOPBACK: Final = "127.0.0.1"
VOLUMES: Final = re.compile(r"(?P<source>[^:]+):(?P<target>/[^:]+)(?::(?P<mode>ro))?")


def read(text: str) -> dict[str, Any]:
    """Read a file as docker compose does, merge keys included.

    Errors: ``ValueError`` for what the Compose Specification does not allow.
    """
    options = PyOptions(apply_merge=True)
    found = options.from_yaml(text)
    found.validate()
    document: dict[str, Any] = found.to_dict()
    return document


def services(file: Path) -> dict[str, dict[str, Any]]:
    found: dict[str, dict[str, Any]] = read(file.read_text())["services"]
    assert set(found) == {"alertmanager", "grafana", "prometheus"}
    return found


def mounts(file: Path) -> Iterator[tuple[str, str, str, bool]]:
    """Each volume: service, source, target, whether it is for reading only."""
    for name, service in services(file).items():
        for line in service["volumes"]:
            matched = VOLUMES.fullmatch(line)
            assert matched, line
            yield name, matched["source"], matched["target"], matched["mode"] == "ro"


def test_services_are_the_same_in_both_files_pinned_bounded_and_without_rights() -> None:
    images = [{n: s["image"] for n, s in services(file).items()} for file in FILES]
    assert len(images) == 2
    assert images[0] == images[1]
    for name, service in (item for file in FILES for item in services(file).items()):
        assert PINNED.fullmatch(service["image"]), name
        assert service["restart"] == "unless-stopped"
        assert service["mem_limit"]
        assert service["healthcheck"]["test"]
        assert service["cap_drop"] == ["ALL"]
        assert service["security_opt"] == ["no-new-privileges:true"]
        assert service["logging"]["options"]["max-size"]
        assert not {"privileged", "devices", "pid"} & set(service)
    for file in FILES:  # Grafana has no account, and shows to who reaches it
        environment = services(file)["grafana"]["environment"]
        assert environment["GF_AUTH_ANONYMOUS_ORG_ROLE"] == "Viewer"
        for name in (
            *("SECURITY_DISABLE_INITIAL_ADMIN_CREATION", "AUTH_ANONYMOUS_ENABLED"),
            *("AUTH_DISABLE_LOGIN_FORM", "SERVER_ENFORCE_DOMAIN"),
        ):
            assert environment[f"GF_{name}"] == "true"
        assert "password" not in file.read_text().replace("no password that everybody knows", "")


def test_nothing_listens_on_more_than_the_loopback_address() -> None:
    host = services(HOST)
    assert {service["network_mode"] for service in host.values()} == {"host"}
    addresses = {
        name: re.findall(
            r"--(?:web|cluster)\.listen-address=(.*)", "\n".join(host[name]["command"])
        )
        for name in ("alertmanager", "prometheus")
    }
    assert addresses == {
        "alertmanager": [f"{LOOPBACK}:9093", ""],
        "prometheus": [f"{LOOPBACK}:9090"],
    }
    assert host["grafana"]["environment"]["GF_SERVER_HTTP_ADDR"] == LOOPBACK
    desktop = services(STACK / "desktop.yaml")
    ports = {str(port) for service in desktop.values() for port in service.get("ports", [])}
    assert ports
    assert all(port.startswith(f"{LOOPBACK}:") for port in ports)


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.name)
def test_the_mounted_configurations_are_read_by_their_programs(file: Path, tmp_path: Path) -> None:
    declared = read(file.read_text())["volumes"]
    for name, source, target, read_only in mounts(file):
        if source in declared:
            assert source == name
            continue
        assert (STACK / source).resolve().exists(), f"{name}: {source}"
        assert read_only, f"{name}: {target}"
        if name in {"alertmanager", "prometheus"} and source.startswith("."):
            place = tmp_path / target.lstrip("/")
            place.parent.mkdir(parents=True, exist_ok=True)
            copy = shutil.copytree if (STACK / source).is_dir() else shutil.copy
            copy(STACK / source, place)
    prometheus, alertmanager = tmp_path / "etc/prometheus", tmp_path / "etc/alertmanager"
    checked = said("promtool", "check", "config", f"{prometheus}/prometheus.yml")
    assert "3 rule files found" in checked
    said("amtool", "check-config", f"{alertmanager}/alertmanager.yml")


def test_the_provider_finds_the_dashboards_and_the_data_source_the_prometheus() -> None:
    targets = {source: target for _, source, target, _ in mounts(HOST)}
    provider = (GRAFANA / "provisioning/dashboards/gpud.yml").read_text()
    assert f"path: {targets['../grafana/dashboards']}\n" in provider
    assert "allowUiUpdates: false\n" in provider
    assert re.search(r"^ +type: file$", provider, re.MULTILINE)
    home = services(HOST)["grafana"]["environment"]["GF_DASHBOARDS_DEFAULT_HOME_DASHBOARD_PATH"]
    assert (dashboards.FOLDER / Path(home).name).is_file()
    datasource = (GRAFANA / "provisioning/datasources/gpud.yml").read_text()
    [address] = re.findall(r"url: http://(\S+)", datasource)
    assert f"--web.listen-address={address}" in services(HOST)["prometheus"]["command"]
    scrapes = (dashboards.ROOT / "deploy/prometheus/prometheus.yml").read_text()
    [interval] = re.findall(r"timeInterval: (\w+)", datasource)
    assert f"scrape_interval: {interval}\n" in scrapes
