"""What names a machine or a person does not survive; what tells how the machine works does."""

from __future__ import annotations

import ipaddress
import re
import string
from typing import Any

import msgspec
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from gpud.agent.capture.record import (
    Capture,
    RecordedCall,
    RecordedNvml,
    RecordedProgram,
    encode,
)
from gpud.agent.capture.scrub import PUBLIC, scrubbed
from gpud.core.sample import Device, Inventory

UUID = "GPU-6d0c5f2e-8a41-4b7d-9e13-000000000000"
STAND_IN = "GPU-00000000-0000-4000-8000-000000000001"
MACHINE = Capture(
    gpud="0.1.0",
    origin="built: NVIDIA's guide to CUDA on WSL",
    machine="a desktop",
    files={"/proc/sys/kernel/osrelease": "5.15.167.4-microsoft-standard-WSL2\n"},
    devices=("/dev/dxg",),
    driver_store={"nvltwi.inf_amd64_08cf6d985207979a": ("libcuda.so.1.1", "nvidia-smi")},
    pci=("0x10de",),
    nvml=RecordedNvml(
        library="/usr/lib/wsl/lib/libnvidia-ml.so.1",
        calls=(
            RecordedCall(call="nvmlDeviceGetUUID", gpu=0, value=UUID),
            RecordedCall(call="nvmlDeviceGetTotalEnergyConsumption", gpu=0, value=2**64 - 1),
        ),
    ),
    programs={"nvidia-smi.exe": RecordedProgram(arguments=("-L",), code=0, stdout=f"({UUID})\r\n")},
    cuda=Inventory(
        (Device(0, UUID, "GeForce", "0000:01:00.0", "8.9", 46, 1 << 20, 8 << 30),), "12.8"
    ),
    status={"state": "ok", "counters": [1, 2]},
)


def document(**changed: Any) -> dict[str, Any]:
    made: dict[str, Any] = msgspec.to_builtins(msgspec.structs.replace(MACHINE, **changed))
    return made


def saying(text: str) -> dict[str, Any]:
    """A machine of which a text was recorded wherever a text can be."""
    folder = re.sub(r"[^A-Za-z0-9]", "", text) or "Public"
    program = RecordedProgram(arguments=("-L",), code=0, stdout=text, stderr=text, error=text)
    call = RecordedCall(call="nvmlDeviceGetName", gpu=0, value=text)
    return document(
        machine=text,
        files={"/etc/wsl.conf": text, f"/mnt/c/Users/{folder}/.wslconfig": ""},
        nvml=RecordedNvml(error=text, calls=(call,)),
        programs={"nvidia-smi.exe": program},
        unanswered={"doctor": text},
        doctor={"checks": [{"name": "port", "verdict": "ok", "evidence": text}]},
        status={"deep": [[{"detail": text}]]},
    )


def scrub(text: str, users: tuple[str, ...] = (), hosts: tuple[str, ...] = ()) -> str:
    """What becomes of one text."""
    made = document(files={"/etc/os-release": text})
    result: str = scrubbed(made, users, hosts)[0]["files"]["/etc/os-release"]
    return result


def remains(
    identifier: str,
    sides: tuple[str, str],
    users: tuple[str, ...] = (),
    hosts: tuple[str, ...] = (),
) -> str:
    """Everything that is left of a machine in which ``identifier`` stood everywhere."""
    assume(identifier.lower() not in BARE)
    made = saying(f"{sides[0]}{identifier}{sides[1]}")
    return encode(scrubbed(made, users, hosts)[0]).decode().lower()


BARE = encode(saying("x")).decode().lower()
names = st.text(string.ascii_letters + string.digits, min_size=3, max_size=12).filter(
    lambda name: name[0].isalpha() and name.lower() not in PUBLIC and name.lower() not in BARE
)
addresses = st.one_of(st.ip_addresses(v=4), st.ip_addresses(v=6)).filter(
    lambda address: (
        not (
            address.is_loopback
            or address.is_unspecified
            or address in ipaddress.ip_network("2001:db8::/32")
            or address in ipaddress.ip_network("192.0.2.0/24")
        )
    )
)
macs = st.binary(min_size=6, max_size=6).map(lambda raw: raw.hex(":"))
around = st.tuples(
    st.sampled_from(["", " ", "(", "'", "=", "@", "see ", "\n", "_", "-"]),
    st.sampled_from(["", " ", ")", "'", ",", "\n", ": no", "_", "-"]),
)


@given(st.uuids(), around, st.sampled_from(["GPU-", "MIG-", "MIG-GPU-", ""]))
def test_no_uuid_survives(uuid: Any, sides: tuple[str, str], prefix: str) -> None:
    assume(not str(uuid).startswith("00000000-0000-4000-8000-0"))
    for text in (str(uuid), str(uuid).upper()):
        assert str(uuid) not in remains(f"{prefix}{text}", sides)


@given(addresses, around)
def test_no_address_survives(address: Any, sides: tuple[str, str]) -> None:
    text = str(address)
    assume(sides[0] != "_" and not sides[1].startswith(("_", ":")))  # a word, another address
    left = remains(text, sides)
    assert re.search(rf"(?<![\w:.]){re.escape(text)}(?![\w:.])", left) is None


@given(macs, around, st.sampled_from(":-"))
def test_no_mac_address_survives(mac: str, sides: tuple[str, str], mark: str) -> None:
    assume(not mac.startswith("02:00:00:00") and "-" not in sides)
    text = mac.replace(":", mark)
    assert text not in remains(text, sides)


@given(names, names, st.sampled_from(["", " ", "<", "mailto:"]), st.sampled_from("> ,:/\n"))
def test_no_mail_address_survives(person: str, host: str, before: str, after: str) -> None:
    for address in (f"{person}@{host}.org", f"x.{person}+wsl@mail.{host}.co.uk"):
        left = remains(address, (before, after))
        assert f"{person}@".lower() not in left
        assert f"@{host}".lower() not in left
        assert "mail1@example.com" in left


@given(names, around)
def test_no_name_survives_on_its_own_or_in_a_path(name: str, sides: tuple[str, str]) -> None:
    users, hosts = (name,), (f"{name}box",)
    alone = rf"(?<![^\W_]){name.lower()}(?:box)?(?![^\W_])"
    assert re.search(alone, remains(name, sides, users, hosts)) is None
    assert re.search(alone, remains(f"{name.upper()}box", sides, users, hosts)) is None


@given(names, st.sampled_from(["/home/{}", "/mnt/c/Users/{}", r"C:\Users\{}", "d:/users/{}"]))
def test_the_owner_of_a_home_folder_is_replaced_everywhere(name: str, path: str) -> None:
    left = remains(f"{path.format(name)}/.cache and then {name.upper()} again", ("", ""))
    assert re.search(rf"(?<![^\W_]){name.lower()}(?![^\W_])", left) is None


@given(
    st.lists(
        st.one_of(
            st.uuids().map(lambda u: f"GPU-{u}"),
            addresses.map(str),
            macs,
            names.map(lambda n: f"/home/{n}/x"),
            names.map(lambda n: rf"C:\Users\{n} {n}\x"),
            st.integers(1, 4_000_000).map(lambda n: f"python (process {n})"),
            st.integers(10**9, 10**13).map(lambda n: f"Serial Number : {n}"),
            st.sampled_from(["user1", "host1", UUID, "192.0.2.1", "ada", "box"]),
            st.text().filter(lambda text: not any("\ud800" <= c <= "\udfff" for c in text)),
        ),
        max_size=12,
    )
)
def test_scrubbing_twice_is_scrubbing_once(texts: list[str]) -> None:
    once, _ = scrubbed(saying("\n".join(texts)), ("ada",), ("box",))
    assert scrubbed(once, ("ada",), ("box",)) == (once, {})
    assert encode(msgspec.convert(once, Capture)) == encode(once)


def test_one_gpu_is_one_stand_in_wherever_it_is_named() -> None:
    made = document(status={"expected": {UUID: {}}, "homes": {"/home" + "/erika/.gpud": {}}})
    clean, counts = scrubbed(made)
    assert clean["cuda"]["devices"][0]["uuid"] == clean["nvml"]["calls"][0]["value"] == STAND_IN
    assert clean["programs"]["nvidia-smi.exe"]["stdout"] == f"({STAND_IN})\r\n"
    assert list(clean["status"]["expected"]) == [STAND_IN]
    assert "erika" not in str(clean)
    assert counts == {"UUIDs": 1, "user names": 1}
    assert clean["nvml"]["calls"][1]["value"] == 2**64 - 1, "with all its bits"


@pytest.mark.parametrize(
    "text",
    [
        "nvltwi.inf_amd64_08cf6d985207979a",
        "00000000:01:00.0 0000:01:00.0 95.04.31.00.7f 31.0.15.6603 12.560.35.03",
        "127.0.0.1:9945 [::1]:9945 0.0.0.0",
        "/root/x /home/user1/x C:\\Users\\Public\\x",
        "at 12:30:45 on 2026-01-02T12:30:45",
        "process exited, pid unknown, serial: none, Serial Number: N/A",
        "6.1.0 (root@f9c826d3017f) (debian-kernel@lists.debian.org)",
        "a public name such as debian, a short one such as al, and root",
        "a name within a word: the adapter of armada, xada and ada2, inbox and boxes",
    ],
)
def test_what_tells_the_kind_of_machine_stays(text: str) -> None:
    assert scrub(text, ("root", "al", "ada"), ("debian", "box")) == text


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (
            f"MIG-{UUID}/1/0 {UUID.replace('GPU-6d', 'GPU-7e')}",
            f"MIG-{STAND_IN}/1/0 {STAND_IN[:-1]}2",
        ),
        ("/home/someone/x", "/home/user1/x"),
        ("ada-lovelace and ada_ on box.", "user1 and user2_ on host1."),
        ("user1 met Ada", "user1 met user2"),  # a stand-in that is in the text is given to no one
        ("<serial>0324518123456</serial>", "<serial>0000000000001</serial>"),
        ("ada's python (process 4711)", "user1's python (process 9000001)"),
    ],
)
def test_each_identifier_has_a_stand_in_of_its_shape(text: str, expected: str) -> None:
    assert scrub(text, ("ada", "ada-lovelace"), ("box",)) == expected


def test_a_version_that_could_be_an_address_and_a_process_id_that_is_a_number() -> None:
    wslinfo = RecordedProgram(arguments=("--wsl-version",), code=0, stdout="2.3.26.0\n")
    status = {"kernel": "5.15.167.4-microsoft-standard-WSL2", "wsl": "2.3.26.0", "pid": 4711}
    clean, counts = scrubbed(document(programs={"wslinfo": wslinfo}, status=status))
    assert clean["status"] == status | {"pid": 9000001}
    assert "IP addresses" not in counts


def test_wsl_conf_names_a_person_and_a_host() -> None:
    conf = "[user]\ndefault = lovelace\n[network]\nhostname = engine\n"
    clean, _ = scrubbed(document(files={"/etc/wsl.conf": conf}, machine="lovelace@engine"))
    assert clean["machine"] == "user1@host1"
    expected = conf.replace("lovelace", "user1").replace("engine", "host1")
    assert clean["files"]["/etc/wsl.conf"] == expected
