"""The manifest after an interruption: uninstall knows from it what was made."""

from __future__ import annotations

import resource
from pathlib import Path

import pytest

from gpud.install import manifest


def test_interruption_while_a_line_is_taken_out_loses_no_other_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "manifest"
    lines = "tree /opt/gpud\nwith apprise\n"
    file.write_text(lines)
    monkeypatch.setattr(manifest, "MANIFEST", file)
    write = Path.write_text

    def interrupted(path: Path, text: str, **options: str) -> int:
        write(path, text[:3], **options)
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(Path, "write_text", interrupted)
        with pytest.raises(KeyboardInterrupt):
            manifest.forget("with apprise")
    assert file.read_text() == lines
    manifest.forget("with apprise")
    assert file.read_text() == "tree /opt/gpud\n"
    assert list(tmp_path.iterdir()) == [file]


def test_line_that_the_disk_has_no_room_for_is_not_written_by_halves(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """``file /etc`` out of ``file /etc/sudoers.d/gpud`` would be removed some day."""
    file = tmp_path / "manifest"
    file.write_text("tree /opt/gpud\n")
    monkeypatch.setattr(manifest, "MANIFEST", file)
    before, most = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (len("tree /opt/gpud\nfile /etc"), most))
    try:
        with pytest.raises(OSError, match="File too large"):
            manifest.note("file /etc/sudoers.d/gpud")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (before, most))
    assert manifest.lines() == ["tree /opt/gpud"]
    manifest.note("file /etc/sudoers.d/gpud")
    assert manifest.lines() == ["tree /opt/gpud", "file /etc/sudoers.d/gpud"]
