"""deploy/uninstall takes away what was made, and gives back what was there."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.deploy.installing import HOME, USER, fresh, install, left_behind, uninstall

if TYPE_CHECKING:
    from pathlib import Path

    from tests.overlay import Machine


def test_uninstall_leaves_the_tree_as_it_was_before(light: Path) -> None:
    with fresh(light) as made:
        before = made.changed()
        made.well(*install(light, "--no-start"))
        assert "opt/gpud/bin/gpud" in made.changed()
        made.well(*uninstall(light, "--purge"))
        assert not left_behind(made, before)


def test_uninstall_without_purge_keeps_history_logs_and_changed_settings(
    small: Machine, light: Path
) -> None:
    with fresh(light, small.changes) as made:
        changed = made.root / "etc/gpud/gpud.toml"
        changed.write_text("[log]\nlevel = 'debug'\n")
        changed.chmod(0o640)
        made.well("install", "-d", "-o", "gpud", "/var/lib/gpud", "/var/lib/gpud/cuda-cache")
        state = made.root / "var/lib/gpud"
        (state / "gpud.db").write_text("figures")
        made.well("chown", "gpud", "/var/lib/gpud/gpud.db")
        said = made.well("/opt/gpud/deploy/uninstall")
        assert not (made.root / "opt/gpud").exists()
        assert changed.read_text() == "[log]\nlevel = 'debug'\n"
        assert {path.stat().st_uid for path in (state, state / "gpud.db")} == {0}, (
            "its user is gone"
        )
        assert "kept: /var/lib/gpud" in said
        assert "kept: /etc/gpud/gpud.toml" in said
        made.well(*install(light, "--no-start"))  # hands it back
        assert (state / "gpud.db").stat().st_uid == state.stat().st_uid != 0
        assert (state / "gpud.db").read_text() == "figures"
        assert made.well("stat", "-c", "%U %G %a", "/etc/gpud/gpud.toml") == "root gpud 640\n"
        assert not list(state.parent.glob("gpud.aside*")), "a cache is nothing to keep"
        made.well(*uninstall(light))
        said = made.well(*uninstall(light, "--purge"))
        assert not (made.root / "etc/gpud").exists(), "what was kept is purged afterwards"
        assert "kept" not in said


def test_secrets_and_hashes_are_for_root_and_the_agent_and_later_for_root(
    small: Machine, light: Path
) -> None:
    with fresh(light, small.changes) as made:
        file = made.root / "etc/gpud/secrets.toml"
        assert made.well("stat", "-c", "%U %G %a", "/etc/gpud/secrets.toml") == "root gpud 640\n"
        file.write_text("[alerts]\nwebhook_urls = ['https://chat.example/T0KEN']\n")
        shown = made.well("gpud", "config", "show")
        assert "<hidden>" in shown
        assert "T0KEN" not in shown
        nobody = ("setpriv", "--reuid=nobody", "--regid=nogroup", "--clear-groups")
        assert "webhook_urls" not in made.well(*nobody, "gpud", "config", "show")
        said = made.well(*install(light, "--no-start"))
        assert "/etc/gpud/secrets.toml (yours)" in said
        assert "T0KEN" in file.read_text()
        file.unlink()
        (made.root / "etc/gpud/gpud.toml").write_text(f"[agent]\nuser = '{USER}'\n")
        made.well(*install(light, "--no-start"))
        assert made.well("stat", "-c", "%U %G %a", "/etc/gpud/secrets.toml") == f"root {USER} 640\n"
        file.write_text("# mine\n")
        said = made.well("/opt/gpud/deploy/uninstall")
        assert "kept: /etc/gpud/secrets.toml" in said
        kept = made.well("stat", "-c", "%U %G %a", "/etc/gpud/secrets.toml")
        assert kept == "root root 640\n"
        made.well(*uninstall(light, "--purge"))
        assert not (made.root / "etc/gpud").exists()


def test_odd_shell_files_get_back_every_byte(small: Machine, light: Path) -> None:
    with fresh(light, small.changes) as made:
        place = "--home-dir=/home/gpud another"
        made.well("useradd", "--create-home", place, "--shell=/usr/bin/zsh", "gpud-another")
        home = made.root / "home/gpud another"
        script = (
            "mkdir dotfiles .config .config/fish && printf 'echo hi' >dotfiles/bashrc &&"
            " ln -sf dotfiles/bashrc .bashrc && printf 'a\\r\\nb\\r\\n' >.zshrc && chmod 400 .zshrc"
        )
        made.well("runuser", "-u", "gpud-another", "--", "sh", "-c", f"cd && {script}")
        before = {
            path.relative_to(home): (path.lstat().st_mode, path.is_file() and path.read_bytes())
            for path in home.rglob("*")
        }
        made.well(*install(light, "--no-start", "--user", "gpud-another"))
        for name in (".bashrc", ".zshrc", ".config/fish/conf.d/gpud.fish"):
            assert b"# >>> gpud >>>" in (home / name).read_bytes(), name
        assert (home / ".bashrc").is_symlink()
        assert (home / "dotfiles/bashrc").stat().st_uid == home.stat().st_uid
        made.well(*uninstall(light))
        after = {
            path.relative_to(home): (path.lstat().st_mode, path.is_file() and path.read_bytes())
            for path in home.rglob("*")
        }
        assert after == before


def test_a_shell_file_with_a_hostile_name_writes_no_control_character_and_stops_no_uninstall(
    small: Machine, light: Path
) -> None:
    with fresh(light, small.changes) as made:
        made.well("useradd", "--create-home", "gpud-another")
        script = 'cd; mkdir "$1"; mkfifo "$1/fifo"; ln -sf "$1/fifo" .bashrc'
        hostile = "\x1b]0;owned\x07\x1b[31m"
        made.well("runuser", "-u", "gpud-another", "--", "sh", "-c", script, "sh", hostile)
        told = made.run(*install(light, "--no-start", "--user", "gpud-another"))
        log = (made.root / "var/log/gpud/install.log").read_text()
        assert "/home/gpud-another/.bashrc could not be changed" in told.stdout
        assert "is not a regular file" in log
        made.well("rm", "-r", "/home/gpud-another/.local")
        made.well("chown", "root", f"{HOME}/.bashrc")
        left = made.run(*uninstall(light))
        assert left.returncode == 1
        assert f"    | '{HOME}/.bashrc' belongs to somebody else\n" in left.stderr
        assert f"still there: the block in {HOME}/.bashrc\n" in left.stderr
        made.well("chown", f"{USER}:", f"{HOME}/.bashrc")
        removed = made.run(*uninstall(light))
        assert "gpud" not in (made.root / HOME[1:] / ".bashrc").read_text()
        assert removed.returncode == 0, removed.stdout + removed.stderr
        assert not (made.root / "etc/gpud").exists()
        for text in (told.stdout, told.stderr, log, removed.stdout, removed.stderr):
            assert "\x1b" not in text


def test_uninstall_without_a_python_of_roots_names_the_package_and_stops_nothing(
    small: Machine, light: Path
) -> None:
    with fresh(light, small.changes) as made:
        made.well("rm", "/opt/gpud/bin/python", "/usr/bin/python3")
        theirs, link = made.root / HOME[1:] / "python3", "/usr/local/bin/python3"
        theirs.write_text("#!/bin/sh\ntouch /var/log/root-ran-it\n")
        theirs.chmod(0o755)
        made.well("chown", USER, f"{HOME}/python3")
        made.well("ln", "-sf", f"{HOME}/python3", link)
        ran = made.run(*uninstall(light))
        assert ran.returncode == 1
        assert "fix: sudo apt-get install python3, then run this again\n" in ran.stderr
        assert "Removing gpud" not in ran.stdout
        assert not (made.root / "var/log/root-ran-it").exists()
        assert (made.root / "opt/gpud/bin/gpud").exists()
