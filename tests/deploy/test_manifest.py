"""The manifest after an interruption: uninstall knows from it what was made."""

from __future__ import annotations

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
