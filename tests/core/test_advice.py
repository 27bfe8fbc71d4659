"""Advice fits the machine: nobody on plain Linux is sent to Windows, nobody in WSL2 to modprobe."""

from __future__ import annotations

import pytest

from gpud.child.cuda_errors import MEANING, failure
from gpud.core import advice
from gpud.core.advice import Platform, Situation, words
from gpud.core.sample import Failure, Reason

EVERYWHERE = [(situation, platform) for situation in Situation for platform in Platform]


@pytest.mark.parametrize(("situation", "platform"), EVERYWHERE)
def test_every_situation_has_a_word_for_every_platform(
    situation: Situation, platform: Platform
) -> None:
    text = words(situation, platform)
    assert text
    assert "{" not in text
    assert text[-1] not in ".;, "
    assert "nvidia-smi -r" not in text
    assert "--gpu-reset" not in text
    if platform in {Platform.LINUX, Platform.CONTAINER}:
        assert "windows" not in text.lower()
        assert "wsl" not in text.lower()
    if platform is not Platform.LINUX:
        assert "modprobe" not in text
        assert "dmesg | grep" not in text
    if platform is Platform.CONTAINER:
        assert "sudo" not in text


@pytest.mark.parametrize("situation", [Situation.BLOCKED, Situation.MISMATCH])
def test_a_driver_package_is_removed_and_the_container_toolkit_kept(situation: Situation) -> None:
    text = words(situation, Platform.WSL2)
    assert "remove nvidia-driver-*, libnvidia-* and libcuda1 from the distribution" in text
    assert "not libnvidia-container* (the container toolkit), then run `wsl --shutdown`" in text


@pytest.mark.parametrize("code", MEANING)
@pytest.mark.parametrize("platform", Platform)
def test_every_code_of_the_driver_is_advised_for_the_platform(
    code: int, platform: Platform
) -> None:
    result = advice.worded(failure("cuInit", code, name=None, text=None), platform)
    assert (result.advice is None) == (MEANING[code][1] is None)
    if result.advice is not None:
        assert result.advice == words(Situation(MEANING[code][1] or ""), platform)
        assert not isinstance(result.advice, Situation)


def test_a_reboot_is_what_a_replaced_driver_needs_on_plain_linux() -> None:
    for code in (803, 804):
        result = advice.worded(failure("cuInit", code, name=None, text=None), Platform.LINUX)
        assert (result.advice or "").endswith("reboot")


def test_words_that_are_no_situation_stay_as_they_are() -> None:
    own = Failure(Reason.DEPENDENCY_MISSING, "numpy", advice="deploy/run sets it up again")
    assert advice.worded(own, Platform.LINUX) == own
    none = Failure(Reason.INTERNAL, "x")
    assert advice.worded(none, Platform.WSL2) == none


@pytest.mark.parametrize(
    ("facts", "platform"),
    [
        ({"kernel": "5.15.167.4-microsoft-standard-WSL2", "wsl": "2"}, Platform.WSL2),
        ({"kernel": "4.4.0-19041-Microsoft"}, Platform.WSL1),
        ({"kernel": "6.1.0-28-amd64", "wsl": ""}, Platform.LINUX),
        ({"kernel": "5.15.167.4-microsoft-standard-WSL2", "container": "1"}, Platform.CONTAINER),
        ({"kernel": "6.1.0-28-amd64", "container": "1"}, Platform.CONTAINER),
        ({}, Platform.LINUX),
    ],
)
def test_the_platform_is_told_by_kernel_and_container(
    facts: dict[str, str], platform: Platform
) -> None:
    assert advice.of(facts) is platform
