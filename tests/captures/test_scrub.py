"""What names a machine or a person does not survive; what tells how the machine works does."""

from __future__ import annotations

import ipaddress
import json
import re
import string
from typing import Any

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from gpud.verbs.scrub import PUBLIC, scrubbed

UUID = "GPU-6d0c5f2e-8a41-4b7d-9e13-000000000000"
STAND_IN = "GPU-00000000-0000-4000-8000-000000000001"


def saying(text: str) -> dict[str, Any]:
    """Return a machine of which a text was recorded wherever a text can be."""
    return {
        "files": {"/etc/wsl.conf": text},
        "nvml": {"error": text, "calls": [{"value": text}]},
        "unanswered": {"doctor": text},
        "status": {"deep": [[{"detail": text}]]},
    }


def scrub(text: str, users: tuple[str, ...] = (), hosts: tuple[str, ...] = ()) -> str:
    """Return what becomes of one text."""
    result: str = scrubbed({"files": {"/etc/os-release": text}}, users, hosts)[0]["files"][
        "/etc/os-release"
    ]
    return result


def remains(
    identifier: str,
    sides: tuple[str, str],
    users: tuple[str, ...] = (),
    hosts: tuple[str, ...] = (),
) -> str:
    """Return everything that is left of a machine in which ``identifier`` stood everywhere."""
    made = saying(f"{sides[0]}{identifier}{sides[1]}")
    return json.dumps(scrubbed(made, users, hosts)[0], ensure_ascii=False).lower()


BARE = json.dumps(saying("x")).lower()
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


def test_one_gpu_is_one_stand_in_wherever_it_is_named() -> None:
    made = saying(UUID) | {
        "energy": 2**64 - 1,
        "expected": {UUID: {}},
        "homes": {"/home" + "/erika/.gpud": {}},
    }
    clean, counts = scrubbed(made)
    assert clean["nvml"] == {"error": STAND_IN, "calls": [{"value": STAND_IN}]}
    assert list(clean["expected"]) == [STAND_IN]
    assert "erika" not in str(clean)
    assert counts == {"UUIDs": 1, "user names": 1}
    assert clean["energy"] == 2**64 - 1, "with all its bits"
    assert scrubbed(clean) == (clean, {})


@pytest.mark.parametrize(
    "text",
    [
        "nvltwi.inf_amd64_08cf6d985207979a",
        "00000000:01:00.0 0000:01:00.0 95.04.31.00.7f 31.0.15.6603 12.560.35.03",
        "127.0.0.1:9945 [::1]:9945 0.0.0.0 5.15.167.4-microsoft-standard-WSL2",
        "/root/x /home/user1/x C:\\Users\\Public\\x",
        "at 12:30:45 on 2026-01-02T12:30:45",
        "serial: none, Serial Number: N/A",
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
        ("<serial>0324518123456</serial>", "<serial>0000000000001</serial>"),
    ],
)
def test_each_identifier_has_a_stand_in_of_its_shape(text: str, expected: str) -> None:
    assert scrub(text, ("ada", "ada-lovelace"), ("box",)) == expected


def test_wsl_conf_names_a_person_and_a_host() -> None:
    conf = "[user]\ndefault = lovelace\n[network]\nhostname = engine\n"
    clean, _ = scrubbed({"files": {"/etc/wsl.conf": conf}, "machine": "lovelace@engine"})
    assert clean["machine"] == "user1@host1"
    assert clean["files"]["/etc/wsl.conf"] == conf.replace("lovelace", "user1").replace(
        "engine", "host1"
    )
