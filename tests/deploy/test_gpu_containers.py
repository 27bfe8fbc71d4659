"""GPU containers in one step: a stand-in repository and hook, the real apt and the real dockerd."""

from __future__ import annotations

import contextlib
import json
import shlex
import subprocess
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from gpud.install.console import InstallError
from gpud.verbs.gpu_containers import FINGERPRINT, KEYRING, LIST, apt_key
from tests.deploy.installing import USER, fresh, install, settings, uninstall
from tests.deploy.repository import AUTHORITY, Repository, repository, two_keys
from tests.dockerd import PrivateDockerd, private_dockerd
from tests.e2e.program import free_port
from tests.overlay import environment
from tests.root.sample import PRINTED, GpuDocker

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.overlay import Machine

SOURCES = "/etc/apt/sources.list.d"
COMMAND = ("gpud", "install", "--gpu-containers")


@pytest.fixture(scope="module")
def served() -> Iterator[Repository]:
    with (
        tempfile.TemporaryDirectory(prefix="gpud-repository-") as folder,
        repository(Path(folder)) as made,
    ):
        yield made


@contextlib.contextmanager
def machine(shared: Path, served: Repository, *layers: Path) -> Iterator[Machine]:
    """One whose apt knows the stand-in alone."""
    with fresh(shared, *layers) as made:
        made.well("sh", "-c", f"rm -rf {SOURCES}/* /etc/apt/sources.list /var/lib/apt/lists/*")
        (made.root / "etc/apt/apt.conf.d/99stand-in").write_text(served.apt_conf)
        (made.root / AUTHORITY[1:]).write_bytes((served.folder / "ca.pem").read_bytes())
        yield made


def trust(made: Machine, served: Repository) -> None:
    (module,) = (made.root / "opt/gpud/lib").glob("python3*/site-packages/gpud/verbs/gpu_con*.py")
    module.write_text(module.read_text().replace(FINGERPRINT, served.fingerprint))


def answered(made: Machine, answers: str) -> subprocess.CompletedProcess[str]:
    """Run the command on a terminal, with what a person types."""
    line = shlex.join(made.command(*COMMAND))
    return subprocess.run(
        ["script", "--quiet", "--return", "--command", line, "/dev/null"],
        input=answers,
        capture_output=True,
        text=True,
        check=False,
        env=environment({"TERM": "dumb"}),
    )


def with_docker(made: Machine, dockerd: PrivateDockerd, shared: Path) -> PrivateDockerd:
    """Install with a dockerd that gpud keeps; return how it is reached from here."""
    made.well("mkdir", "-p", str(dockerd.root))
    made.well("mount", "-t", "tmpfs", "tmpfs", str(dockerd.root))
    (made.root / "etc/docker").mkdir(exist_ok=True)
    (made.root / "etc/docker/daemon.json").write_text('{"debug": true, "log-level": "warn"}')
    settings(made, free_port(), **dockerd.settings())
    made.well(*install(shared))
    return PrivateDockerd(made.root / dockerd.root.relative_to("/"))


def test_one_command_leads_from_nothing_to_a_figure_out_of_a_container(
    shared: Path, installed: Machine, served: Repository
) -> None:
    with (
        private_dockerd() as dockerd,
        machine(shared, served, installed.changes) as made,
        subprocess.Popen(["true"]) as nothing,
    ):
        docker = GpuDocker(with_docker(made, dockerd, shared), nothing)
        trust(made, served)
        image = docker.printing(PRINTED)
        with (made.root / "etc/gpud/gpud.toml").open("a") as file:
            file.write(f'[containers]\nimage = "{image}"\n')
        dry = made.well(*COMMAND, "--dry-run")
        assert f"would: {KEYRING} ({served.fingerprint})" in dry
        assert not (made.root / str(LIST)[1:]).exists()
        before = (made.root / dockerd.pidfile[1:]).read_text()
        refused = made.run(*COMMAND)
        assert (refused.returncode, "agree on a terminal" in refused.stdout) == (1, True)
        no = answered(made, "y\nn\n")
        assert no.returncode == 1, no.stdout
        assert "dockerd has not seen its toolkit yet" in no.stdout
        assert (made.root / dockerd.pidfile[1:]).read_text() == before, "it was not agreed to"
        merged = json.loads((made.root / "etc/docker/daemon.json").read_text())
        nvidia = {"args": [], "path": "nvidia-container-runtime"}
        assert merged == {"debug": True, "log-level": "warn", "runtimes": {"nvidia": nvidia}}
        done = answered(made, "y\n")
        assert (done.returncode, "left to do" in done.stdout) == (0, False), done.stdout
        assert (made.root / dockerd.pidfile[1:]).read_text() != before
        assert "NVIDIA RTX A2000 Laptop GPU: 3.86 Tflop/s (n-body)" in done.stdout
        again = answered(made, "")
        assert again.returncode == 0, again.stdout
        assert again.stdout.count("nothing to do") == 3
        made.well(*uninstall(shared, "--purge", "--docker"))
        kept = ("etc/docker/daemon.json", str(KEYRING)[1:], str(LIST)[1:])
        assert [name for name in kept if not (made.root / name).exists()] == []
        there = {name for name, what in made.changed().items() if what != "removed"}
        assert {name for name in there if "gpud" in name and not name.startswith("home/")} == set()


def test_installation_lets_gpud_run_first_and_a_later_one_does_this_alone(
    shared: Path, served: Repository
) -> None:
    with machine(shared, served) as made:
        settings(made, free_port())
        line = install(shared, "--gpu-containers")
        dry = made.well(*line, "--dry-run")
        assert "would: NVIDIA's repository, if you agree, and its container toolkit" in dry
        told = made.run(*line)
        assert told.returncode == 1
        assert told.stdout.index("  gpud up ") < told.stdout.index("agree on a terminal")
        assert "left to do: containers do not use the GPU yet" in told.stdout
        assert made.run("gpud", "status").returncode != 3, "it runs all the same"
        later = made.run(*line)
        assert later.returncode == 1
        assert later.stdout.startswith("GPU containers; details: ")
        made.well(*uninstall(shared, "--purge"))


def test_person_becomes_root_through_sudo_and_a_dry_run_asks_for_nothing(
    light: Path, small: Machine, served: Repository
) -> None:
    with machine(light, served, small.changes) as made:
        person = ("setpriv", f"--reuid={USER}", f"--regid={USER}", "--init-groups")
        before = made.changed()
        dry = made.well(*person, *COMMAND, "--dry-run")
        assert f"would: {KEYRING} ({FINGERPRINT})" in dry
        assert made.changed() == before
        refused = made.run(*person, "sudo", "-n", *COMMAND)
        assert refused.returncode != 0, "the rule of the installation is for three verbs"
        rule = made.root / "etc/sudoers.d/person"
        rule.write_text(f"{USER} ALL=(ALL) NOPASSWD: ALL\n")
        rule.chmod(0o440)
        told = made.run(*person, *COMMAND)
        assert (told.returncode, told.stderr) == (1, "")
        assert told.stdout.startswith("GPU containers; details: ")
        assert "agree on a terminal" in told.stdout


def test_key_that_is_not_the_known_one_adds_nothing(
    light: Path, small: Machine, served: Repository
) -> None:
    with machine(light, served, small.changes) as made:
        told = answered(made, "y\n")
        assert told.returncode == 1
        assert f"not the key {FINGERPRINT} alone" in told.stdout
        assert "nothing was added" in told.stdout
        assert not (made.root / str(LIST)[1:]).exists()
        assert not (made.root / str(KEYRING)[1:]).exists()


def test_machine_without_a_network_is_told_so_and_stays_as_it_was(
    light: Path, small: Machine, served: Repository
) -> None:
    with machine(light, served, small.changes) as made:
        conf = made.root / "etc/apt/apt.conf.d/99stand-in"
        conf.write_text(f'Acquire::https::Proxy "http://127.0.0.1:{free_port()}";\n')
        told = answered(made, "y\n")
        assert told.returncode == 1
        assert "Check that the network reaches https://nvidia.github.io" in told.stdout
        assert not (made.root / str(LIST)[1:]).exists()


def test_settings_of_docker_that_are_not_roots_json_are_left_alone(
    light: Path, small: Machine, served: Repository
) -> None:
    with machine(light, served, small.changes) as made:
        made.well("install", "-m", "755", "/bin/true", "/usr/bin/nvidia-container-runtime-hook")
        made.well("mkdir", "-p", "/etc/docker")
        file = made.root / "etc/docker/daemon.json"
        for text, mode in (("{not json", 0o644), ('{"debug": true}', 0o666)):
            file.write_text(text)
            file.chmod(mode)
            told = made.run(*COMMAND)
            assert told.returncode == 1
            assert "daemon.json is no JSON object of root's" in told.stdout
            assert file.read_text() == text


def test_only_the_known_key_alone_is_taken(served: Repository) -> None:
    text, mine = served.key.read_bytes(), served.fingerprint
    assert apt_key(text, mine) == apt_key(text.replace(b"\n", b"\r\n"), mine)
    both = two_keys(served.folder).encode()
    for wrong in (both, text + text, text[:200] + text[-100:], b"", b"x" * 100_000):
        with pytest.raises(InstallError, match=f"not the key {mine} alone"):
            apt_key(wrong, mine)
    with pytest.raises(InstallError, match="alone"):
        apt_key(text, FINGERPRINT)
