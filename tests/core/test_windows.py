"""Versions in what Windows programs write, whatever the language and the encoding."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpud.core import windows

ENGLISH = (
    "WSL version: 2.4.13.0\r\nKernel version: 5.15.167.4-1\r\nWindows version: 10.0.26100.3476\r\n"
)
CHINESE = "WSL 版本: 2.4.13.0\r\n内核版本: 5.15.167.4-1\r\n"
VERSIONS = st.lists(st.integers(0, 99999), min_size=3, max_size=4)


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16", "utf-16-le", "utf-16-be"])
@pytest.mark.parametrize("said", [ENGLISH, CHINESE])
def test_wsls_version_is_found_in_every_encoding_and_language(said: str, encoding: str) -> None:
    assert windows.wsl_version(windows.text(said.encode(encoding))) == "2.4.13"


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16", "utf-16-le", "utf-16-be"])
def test_a_text_comes_back_without_its_mark(encoding: str) -> None:
    assert windows.text(CHINESE.encode(encoding)) == CHINESE


@pytest.mark.parametrize("encoding", ["utf-16-le", "utf-16-be"])
def test_a_mark_decides_where_nothing_is_ascii(encoding: str) -> None:
    assert windows.text("\ufeff版本号码".encode(encoding)) == "版本号码"


def test_a_lone_zero_byte_makes_no_utf_16() -> None:
    assert windows.text(b"abc\0defg") == "abc\0defg"


def test_both_programs_are_brought_to_one_spelling() -> None:
    assert windows.wsl_version("2.4.13\n") == windows.wsl_version("WSL version: 2.4.13.0\n")
    assert windows.wsl_version("2.4.13.7\n") == "2.4.13.7"


@pytest.mark.parametrize(
    ("said", "build"),
    [
        (b"\r\nMicrosoft Windows [Version 10.0.26100.3476]\r\n", "10.0.26100.3476"),
        ("\r\nMicrosoft Windows [版本 10.0.19045.5487]\r\n".encode("gbk"), "10.0.19045.5487"),
        ("\r\nMicrosoft Windows [версия 10.0.22631.1]\r\n".encode("cp866"), "10.0.22631.1"),
        ("\r\nMicrosoft Windows [Versión 10.0.22631.1]\r\n".encode("cp850"), "10.0.22631.1"),
        (b"Microsoft Windows 10.0.26100.3476", None),
        (b"[Version ten]", None),
        (b"[1.2]", None),
        (b"[1.2.3.4.5]", None),
        (b"", None),
    ],
)
def test_the_build_of_windows_stands_in_brackets(said: bytes, build: str | None) -> None:
    assert windows.build(windows.text(said)) == build


@given(st.binary(max_size=400))
def test_nothing_but_digits_and_dots_comes_out(data: bytes) -> None:
    said = windows.text(data)
    for found in (windows.wsl_version(said), windows.build(said), windows.build(f"[{said}]")):
        assert found is None or re.fullmatch(r"[0-9]+(\.[0-9]+){2,3}", found)


@given(VERSIONS, st.sampled_from(["cp437", "cp850", "gbk", "cp932", "utf-8", "utf-16-le"]))
def test_a_version_survives_every_code_page(parts: list[int], encoding: str) -> None:
    version = ".".join(map(str, parts))
    said = f"\r\nMicrosoft Windows [Version {version}]\r\n".encode(encoding)
    assert windows.build(windows.text(said)) == version
