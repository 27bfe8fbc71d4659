"""deploy/install as a person calls it, on an overlay of this machine."""

from __future__ import annotations

import contextlib
import re
import shutil
import socket
from typing import TYPE_CHECKING

import pytest

from tests.deploy.installing import (
    HOME,
    ROOT,
    RULE,
    USER,
    fresh,
    install,
    settings,
    uninstall,
    whole,
)
from tests.dockerd import PrivateDockerd, private_dockerd
from tests.e2e.program import free_port

if TYPE_CHECKING:
    from pathlib import Path

    from tests.overlay import Machine


APT_CACHE = """#!/bin/sh
case $2 in
  python3) echo "  Candidate: 3.10.6-1~22.04" ;;
  python3.11) echo "  Candidate: 3.11.0~rc1-1~22.04" ;;
  *) echo "  Candidate: (none)" ;;
esac
"""


REFUSED = """
[alerts]
webhook_urls = ["https://a.example/", "https://b.example/"]
webhook_credentials_file = "/etc/gpud/token"
"""


def with_apt(made: Machine, install: str) -> None:
    """Put package tools in place whose lists are those of Ubuntu 22.04."""
    for name, text in (("apt-cache", APT_CACHE), ("apt-get", f"#!/bin/sh\n{install}\n")):
        path = made.root / "usr/local/sbin" / name
        path.write_text(text)
        path.chmod(0o755)


def test_a_dry_run_needs_no_root_and_lists_all_that_the_installation_does(shared: Path) -> None:
    with whole(shared), fresh(shared) as made:
        with_apt(made, 'case "$*" in *install*) mv /usr/bin/gone /usr/bin/python3.11 ;; esac')
        made.well("mv", "/usr/bin/python3.11", "/usr/bin/gone")
        line = install(shared, "--no-start", "--with", "apprise")
        as_user = ("setpriv", f"--reuid={USER}", f"--regid={USER}", "--init-groups")
        made.well("chmod", "750", "/etc/sudoers.d")
        before = made.changed()
        dry = made.well(*as_user, "env", f"HOME={HOME}", *line, "--dry-run")
        assert made.changed() == before
        assert "would: apt-get install python3.11 python3.11-venv\n" in dry
        assert "would: build /opt/gpud" in dry
        assert "/etc/sudoers.d/gpud: only root can look" in dry
        real = made.well(*line)
        steps = re.findall(r"^  (.*?) +\d+\.\d s$", real, re.MULTILINE)
        built = [step for step in steps if step.startswith(("/opt/gpud: ", "tools to build"))]
        assert [step for step in steps if step not in dry] == built
        assert len(built) > 4
        made.well("/opt/gpud/bin/python", "-Ic", "import apprise, numpy, textual")
        assert "with apprise" in (made.root / "etc/gpud/manifest").read_text().splitlines()


def test_a_python_without_venv_gets_its_package_or_a_plain_error_or_takes_a_wheelhouse(
    light: Path,
) -> None:
    with fresh(light) as made:
        with_apt(made, 'echo "$@" >>/var/log/asked')
        dpkg = made.root / "usr/local/sbin/dpkg"
        dpkg.write_text(
            '#!/bin/sh\necho dpkg "$@" >>/var/log/asked; rm /var/lib/dpkg/updates/0001\n'
        )
        dpkg.chmod(0o755)
        made.well("touch", "/var/lib/dpkg/updates/0001")  # as a machine that stopped leaves it
        python = made.well("readlink", "-e", "/usr/bin/python3").strip()
        where = "import ensurepip; print(ensurepip.__path__[0])"
        made.well("rm", "-r", made.well(python, "-I", "-c", where).strip())
        line = [str(light / "checkout/deploy/install"), "--user", USER, "--no-start"]
        package = f"{python.rpartition('/')[2]}-venv"
        assert f"would: apt-get install {package}\n" in made.well(*line, "--dry-run")
        told = made.run(*line)
        assert told.returncode == 1
        asked = (made.root / "var/log/asked").read_text()
        assert asked.startswith("dpkg --configure -a\n")
        assert asked.count("dpkg ") == 1
        assert f" {package}\n" in asked
        assert f"error: {python} has no module ensurepip\n" in told.stderr
        assert f"{package} has it on Debian and Ubuntu" in told.stderr
        bashrc = (made.root / HOME[1:] / ".bashrc").read_bytes()
        made.well(*install(light, "--no-start", "--no-bashrc"))  # pip is in the wheelhouse
        assert made.well("gpud", "version").startswith("gpud ")
        assert (made.root / HOME[1:] / ".bashrc").read_bytes() == bashrc


def test_an_upgrade_keeps_apprise_that_was_installed(small: Machine, light: Path) -> None:
    with fresh(light, small.changes) as made:
        manifest = made.root / "etc/gpud/manifest"
        before = manifest.read_text()
        made.well("mkdir", "/root/wheels")
        asked = install(light, "--with", "apprise", "--wheelhouse", "/root/wheels")
        assert "packages of deploy/requirements.txt: exit status" in made.run(*asked).stderr
        assert manifest.read_text() == before, "what failed is not asked for again"
        manifest.write_text(f"{before}with apprise\nmember {USER}\n")
        made.well("groupadd", "--force", "docker")
        made.well("rm", f"{HOME}/.bashrc")
        wanted = "would: Apprise from deploy/requirements-apprise.txt"
        assert wanted in made.well(*install(light, "--dry-run"))
        manifest.write_text(f"{before}member {USER}\n")
        said = made.well(*install(light, "--no-start"))
        lacking = f"the group docker, gpud in {HOME}/.bashrc"
        assert said.endswith(f"\nOpen a new shell; open ones lack: {lacking}.\n")
        (made.root / "etc/gpud/gpud.toml").write_text(REFUSED)
        mark = made.root / "opt/gpud/.fingerprint"
        mark.write_text("of an older version\n")
        ran = made.run(*install(light))
        assert ran.returncode == 1
        assert "webhook_credentials_file: 1 for 2 addresses in webhook_urls" in ran.stderr
        assert "  fix: write a list in their order" in ran.stderr
        assert "does not start with these settings" in ran.stderr
        assert mark.read_text() == "of an older version\n", "what runs is not replaced"


def test_what_is_installed_belongs_to_root_and_only_root_can_change_it(small: Machine) -> None:
    tree = small.changes / "opt/gpud"
    loose = [
        path
        for path in [tree, *tree.rglob("*")]
        if path.lstat().st_uid != 0 or (not path.is_symlink() and path.stat().st_mode & 0o022)
    ]
    assert not loose
    sources = [path for path in tree.rglob("*.py") if "site-packages" in path.parts]
    bare = [path for path in sources if not list(path.parent.glob(f"__pycache__/{path.stem}.*pyc"))]
    assert not bare, "a root-owned tree cannot cache its bytecode later"
    assert b".gpud-new" not in (tree / "pyvenv.cfg").read_bytes()
    compiled = next(tree.rglob("site-packages/gpud/__pycache__/cli.*.pyc"))
    assert b"/opt/gpud/lib" in compiled.read_bytes()
    assert b".gpud-new" not in compiled.read_bytes()


def test_the_command_is_for_everybody_with_completion_and_man_page(small: Machine) -> None:
    said = small.well("setpriv", "--reuid=nobody", "--clear-groups", "gpud", "version")
    assert said.startswith("gpud ")
    for file, shell in {
        "bash-completion/completions/gpud": ["bash", "-n"],
        "zsh/site-functions/_gpud": ["zsh", "-n"],
        "fish/vendor_completions.d/gpud.fish": ["fish", "--no-execute"],
    }.items():
        if shutil.which(shell[0]):
            small.well(*shell, f"/usr/local/share/{file}")
        assert (small.changes / "usr/local/share" / file).stat().st_size > 500
    page = "usr/local/share/man/man1/gpud.1"
    assert (small.changes / page).read_bytes() == (ROOT / "deploy/gpud.1").read_bytes()
    if shutil.which("man"):
        place = small.well("man", "-M", "/usr/local/share/man", "-w", "gpud")
        assert place.endswith(f"/{page}\n")


def test_a_second_run_changes_nothing(small: Machine, light: Path) -> None:
    before = {k: v for k, v in small.changed().items() if not k.startswith("var/log")}
    said = small.well(*install(light, "--no-start"))
    assert {k: v for k, v in small.changed().items() if not k.startswith("var/log")} == before
    assert "nothing to do" in said
    assert "new shell" not in said
    assert "would:" not in small.well(*install(light, "--dry-run", "--no-start"))


def test_a_dry_run_leaves_even_what_an_interrupted_run_left(small: Machine, light: Path) -> None:
    with fresh(light, small.changes) as made:
        left = made.root / "opt/gpud.gpud-build"
        left.mkdir()
        assert "would: build" not in made.well(*install(light, "--dry-run"))
        assert left.is_dir()
        for file in ("bashrc.snippet", "deploy/uninstall", "gpud/cli.py"):
            changed = light / "checkout" / file
            original = changed.read_bytes()
            try:
                changed.write_bytes(original + b"# changed\n")
                assert "would: build /opt/gpud" in made.well(*install(light, "--dry-run")), file
            finally:
                changed.write_bytes(original)
        (lost,) = (made.root / "opt/gpud/lib").glob("python3*/site-packages/structlog/__init__.py")
        lost.unlink()
        assert "would: build /opt/gpud" in made.well(*install(light, "--dry-run"))


def state(dockerd: PrivateDockerd, container: str) -> tuple[int, str]:
    """The pid of a running container's first process, and when it was started."""
    with contextlib.closing(dockerd.client()) as client:
        said = client.inspect_container(container)["State"]
    assert said["Running"]
    return said["Pid"], said["StartedAt"]


def _owns_nothing_that_could_hurt(made: Machine) -> None:
    """The user gpud writes its own figures and logs, and nothing that anybody runs or trusts."""
    places = ("/etc", "/opt", "/usr", "/run", "/var", "/home", "/root")
    mine = ("-user", "gpud", "-o", "-group", "gpud", "-perm", "/g+w")
    owned = made.well("find", *places, "-xdev", "(", *mine, ")", "-print").split()
    assert "/var/lib/gpud" in owned
    own = ("/var/lib/gpud", "/run/gpud/agent", "/run/gpud/api", "/var/log/gpud/agent")
    handed = ("/run/gpud/agent.json", "/run/gpud/notice")
    assert [path for path in owned if not path.startswith(own) and path not in handed] == []
    as_gpud = ("setpriv", "--reuid=gpud", "--regid=gpud", "--clear-groups")
    for path in ("/etc/gpud", "/etc/gpud/gpud.toml", "/etc/sudoers.d", "/opt/gpud", "/run/gpud"):
        assert made.run(*as_gpud, "test", "-w", path).returncode == 1, path
    # A key as docs/http.md has it: the agent reads it, and nobody else but root.
    made.well("install", "-d", "-o", "root", "-g", "gpud", "-m", "750", "/etc/gpud/tls")
    made.well(
        "install", "-o", "root", "-g", "gpud", "-m", "640", "/etc/hostname", "/etc/gpud/tls/k"
    )
    made.well(*as_gpud, "cat", "/etc/gpud/tls/k")
    assert made.run(*as_gpud, "test", "-w", "/etc/gpud/tls/k").returncode == 1
    others = ("setpriv", "--reuid=nobody", "--regid=nogroup", "--clear-groups")
    assert made.run(*others, "cat", "/etc/gpud/tls/k").returncode != 0


def test_gpud_runs_afterwards_and_an_upgrade_restarts_it_but_neither_dockerd_nor_containers(
    shared: Path, installed: Machine
) -> None:
    with private_dockerd() as dockerd, fresh(shared, installed.changes) as made:
        made.well("mkdir", "-p", str(dockerd.root))
        made.well("mount", "-t", "tmpfs", "tmpfs", str(dockerd.root))
        settings(made, free_port(), **dockerd.settings())
        before = (made.root / "etc/gpud/gpud.toml").read_bytes()
        said = made.well(*install(shared))
        assert (made.root / "etc/gpud/gpud.toml").read_bytes() == before
        assert "gpud up" in said
        assert "the agent has not looked yet" not in said, "doctor is asked once there is an answer"
        assert "gpud status, or in a browser http://127.0.0.1:" in said
        pidfile = made.root / "run/gpud/root.pid"
        first = pidfile.read_text()
        _owns_nothing_that_could_hurt(made)
        docker = made.root / dockerd.pidfile.lstrip("/")
        made.well(
            "timeout", "300", "sh", "-c", f"until [ -s {dockerd.pidfile} ]; do sleep 0.05; done"
        )
        running = docker.read_text()
        inside = PrivateDockerd(made.root / dockerd.root.relative_to("/"))
        container = inside.run_container()
        before_upgrade = state(inside, container)
        checkout = shared / "checkout/gpud/core/text.py"
        original = checkout.read_text()
        try:
            checkout.write_text(original + "\n# changed\n")
            said = made.well(*install(shared))
        finally:
            checkout.write_text(original)
        assert "gpud restart" in said
        assert pidfile.read_text() != first
        assert docker.read_text() == running
        assert state(inside, container) == before_upgrade
        made.well(*uninstall(shared, "--purge"))
        assert not pidfile.exists()
        assert made.run("kill", "-0", running).returncode == 0, "dockerd runs on"
        assert state(inside, container) == before_upgrade, "and so does what runs in it"


@pytest.mark.parametrize(
    ("options", "word"),
    [
        (["--user", "nobody-here"], "there is no user nobody-here"),
        (["--user"], "argument --user: expected one argument"),
        (["--wheelhouse"], "argument --wheelhouse: expected one argument"),
        (["--colour"], "unrecognized arguments: --colour"),
    ],
)
def test_bad_options_are_named_and_nothing_happens(
    light: Path, small: Machine, options: list[str], word: str
) -> None:
    before = small.changed()
    told = small.run(light / "checkout/deploy/install", *options)
    assert told.returncode != 0
    assert word in told.stderr
    assert small.changed() == before


def test_the_documented_table_is_what_the_manifest_says(small: Machine) -> None:
    made = set()
    for line in (small.changes / "etc/gpud/manifest").read_text().splitlines():
        kind, _, value = line.partition(" ")
        if kind in {"tree", "file", "link"}:
            made.add(value)
        elif kind == "settings":
            made.add("/etc/gpud/gpud.toml")
        elif kind == "secrets":
            made.add("/etc/gpud/secrets.toml")
        elif kind == "user":
            made.add(f"user {value}")
        elif kind == "group":
            made.add(f"group {value}")
        elif kind in {"hook", "userstate"}:
            made.add(value.rpartition(" ")[2].replace(HOME, "~"))
        else:
            assert kind in {"dir", "userdir", "rule", "person", "owner"}, line
    rows = (ROOT / "docs/install.md").read_text().split("|---|---|---|\n")[1].split("\n\n")[0]
    documented = {row.split("|")[1].strip().replace("`", "") for row in rows.splitlines()}
    assert documented == made


def test_a_tree_or_a_file_of_somebody_else_is_not_replaced(light: Path) -> None:
    with fresh(light) as made:
        made.well("mkdir", "-p", "/opt/gpud")
        (made.root / "opt/gpud/theirs").write_text("precious")
        told = made.run(*install(light, "--no-start"))
        assert told.returncode == 1
        assert "/opt/gpud is there and was not made by this" in told.stderr
        assert (made.root / "opt/gpud/theirs").read_text() == "precious"
        made.well("rm", "-r", "/opt/gpud")
        theirs = made.root / "usr/local/share/zsh/site-functions/_gpud"
        theirs.parent.mkdir(parents=True, exist_ok=True)
        theirs.write_text("of another program\n")
        told = made.run(*install(light, "--no-start"))
        assert told.returncode == 1
        assert "_gpud is there and was not made by this" in told.stdout
        made.well(*uninstall(light, "--purge"))
        assert theirs.read_text() == "of another program\n"
        made.well("install", "-D", "/etc/hostname", "/opt/gpud/theirs")
        made.well(*uninstall(light))  # once more, and now no manifest says what was made
        assert (made.root / "opt/gpud/theirs").exists()


def test_a_read_only_disk_a_reader_who_is_gone_and_a_closed_terminal_are_no_traceback(
    small: Machine, light: Path
) -> None:
    read_only = "mount --bind $0 $0; mount -o remount,bind,ro $0; "
    with fresh(light, small.changes) as made:
        asked = install(light, "--no-start", "--no-bashrc")
        for folder in ("/opt", "/run", "/var/log"):
            line = ("unshare", "--mount", "sh", "-c", read_only + '"$@"', folder, *asked)
            told = made.run(*line)
            assert told.returncode == 1
            assert f"error: [Errno 30] Read-only file system: '{folder}/" in told.stderr
            assert "  fix: let it be written there" in told.stderr
            assert "Traceback" not in told.stderr
        told = made.run("bash", "-c", '"$0" "$@" | true; exit ${PIPESTATUS[0]}', *asked)
        assert (told.returncode, "Traceback" in told.stderr) == (1, False)
        assert made.well("sh", "-c", '"$0" "$@" >&- 2>&-', *asked) == ""


def test_pip_reads_no_settings_of_roots_home(small: Machine, light: Path) -> None:
    with fresh(light, small.changes) as made:
        made.well("mkdir", "-p", "/root/.config/pip")
        (made.root / "root/.config/pip/pip.conf").write_text("[global]\ntarget = /root/astray\n")
        made.well("rm", "/opt/gpud/.fingerprint")
        assert "/opt/gpud: put in place" in made.well(*install(light, "--no-start"))
        assert not (made.root / "root/astray").exists()


def test_somebody_without_a_home_is_told_what_is_left_to_do(small: Machine, light: Path) -> None:
    with fresh(light, small.changes) as made:
        made.well("usermod", "--home", "/nonexistent", USER)
        told = made.run(*install(light, "--no-start"))
        assert (told.returncode, told.stderr) == (1, "")
        for name in (".local/state/gpud", ".bashrc"):
            assert f"left to do: /nonexistent/{name} could not be " in told.stdout


def test_installation_that_waited_keeps_the_apprise_of_the_one_before(
    small: Machine, light: Path
) -> None:
    hold = "echo held; until [ -e /tmp/go ]; do sleep 0.05; done"
    with fresh(light, small.changes) as made:
        before = made.start("flock", "/run/gpud-install.lock", "sh", "-c", hold)
        assert before.stdout is not None
        assert before.stdout.readline() == "held\n"
        waits = made.start(*install(light, "--no-start"))
        assert waits.stdout is not None
        assert waits.stdout.readline() == "another installation is running; waiting for it\n"
        with (made.root / "etc/gpud/manifest").open("a") as manifest:
            manifest.write("with apprise\n")
        made.well("touch", "/tmp/go")
        said, _ = waits.communicate()
        assert "packages of deploy/requirements.txt" in said, "Apprise is wanted too"
        before.communicate()


def test_the_sudo_rule_is_for_each_person_and_sudo_reads_it(small: Machine, light: Path) -> None:
    with fresh(light, small.changes) as made:
        for login in ("ALL", "FULLTIME"):  # sudoers would read them otherwise
            made.well("useradd", "--create-home", "--badname", login)
            before = (made.root / RULE).read_text()
            told = made.run(*install(light, "--no-start", "--user", login))
            assert "cannot be written safely" in told.stdout
            assert (made.root / RULE).read_text() == before
        made.well("useradd", "--create-home", "gpud-another")
        made.well(*install(light, "--no-start", "--user", "gpud-another"))
        assert made.well("stat", "-c", "%a", f"/{RULE}") == "440\n"
        for person in (USER, "gpud-another"):
            said = made.well("sudo", "-l", "-U", person)
            rules = ", ".join(f"/opt/gpud/bin/gpud {verb}" for verb in ("up", "down", "restart"))
            assert f"NOPASSWD: {rules}" in said
        people = f"\ngpud-another, {USER} ALL=(root) NOPASSWD: GPUD\n"
        assert people in (made.root / RULE).read_text()
        # Nobody else can hold the lock of the installer and keep it waiting.
        assert made.well("stat", "-c", "%a %U", "/run/gpud-install.lock") == "600 root\n"
        call = [*install(light, "--no-start")]
        del call[1:3]  # --user NAME: a root whom nobody called
        assert "root needs none" in made.well(*call)
        assert "gpud-start" in (made.root / "root/.bashrc").read_text()
        assert people in (made.root / RULE).read_text()
        made.well(*uninstall(light))
        for home in (HOME, "/home/gpud-another"):
            assert "gpud" not in (made.root / home[1:] / ".bashrc").read_text()


def test_a_tree_whose_python_a_distribution_upgrade_removed_is_built_anew(
    small: Machine, light: Path
) -> None:
    with fresh(light, small.changes) as made:
        old = made.well("readlink", "-e", "/usr/bin/python3").strip()
        made.well("mv", old, "/usr/bin/python3.14")  # the newer one that an upgrade brings
        gone = made.run("gpud", "version")
        assert (gone.returncode, gone.stdout) == (1, "")
        assert gone.stderr.startswith("gpud: the Python that gpud was installed with is gone.")
        said = made.well(*install(light, "--dry-run", "--no-start"))
        assert "would: build /opt/gpud with /usr/bin/python3.14" in said
        assert f"the Python it was built with ({old}) is gone" in said
        assert "Nothing was changed." in said
        assert f"({old}) is gone" in made.well(*install(light, "--no-start"))
        assert made.well("gpud", "version").startswith("gpud ")
        assert made.well("readlink", "-e", "/opt/gpud/bin/python") == "/usr/bin/python3.14\n"


def test_a_home_in_the_callers_environment_and_a_taken_port_lead_nobody_astray(
    installed: Machine, shared: Path
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken, fresh(shared, installed.changes) as made:
        settings(made, taken.getsockname()[1])
        done = made.run(*install(shared), GPUD_HOME="/tmp/elsewhere", PYTHONPATH="/tmp/theirs")
        assert done.returncode == 0, done.stdout + done.stderr
        assert done.stdout.endswith("\nHow it is: gpud status\n"), "without an address of a page"
        assert (made.root / "run/gpud/root.pid").exists()
        assert not (made.root / "tmp/elsewhere").exists()
        made.well(*uninstall(shared))
