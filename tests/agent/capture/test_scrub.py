"""What names a machine or a person does not survive; what tells how the machine works does."""

from __future__ import annotations

import ipaddress
import re
import string
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from gpud.agent.capture.document import Call, Capture, Nvml, Program, decode, encode
from gpud.agent.capture.scrub import PUBLIC, Identity, Kind, scrubbed
from gpud.core.sample import Inventory
from tests.agent.capture.test_capture import MACHINE, UUID

NOBODY = Identity()
SHAPE = re.compile(r"(?:GPU|MIG)-00000000-0000-4000-8000-[0-9]{12}")


def saying(text: str) -> Capture:
    """A machine of which a text was recorded wherever a text can be."""
    program = Program(arguments=("-L",), code=0, stdout=text, stderr=text, error=text)
    return replace(
        MACHINE,
        machine=text,
        files={"/etc/wsl.conf": text, f"/mnt/c/Users/{_name(text)}/.wslconfig": ""},
        nvml=Nvml(error=text, calls=(Call(call="nvmlDeviceGetName", gpu=0, value=text),)),
        programs={"nvidia-smi.exe": program},
        cuda=replace(MACHINE.cuda, library="/usr/lib/libcuda.so.1"),
        unanswered={"doctor": text},
        doctor={"checks": [{"name": "port", "verdict": "ok", "evidence": text}]},
        status={"deep": [[{"detail": text}]]},
    )


def _name(text: str) -> str:
    return re.sub(r"[^A-Za-z0-9]", "", text) or "Public"


def scrub(text: str, known: Identity = NOBODY) -> str:
    """What becomes of one text."""
    made = replace(MACHINE, files={"/etc/os-release": text})
    return scrubbed(made, known)[0].files["/etc/os-release"]


BARE = encode(saying("x")).decode().lower()
names = st.text(string.ascii_letters + string.digits, min_size=3, max_size=12).filter(
    lambda name: name[0].isalpha() and name.lower() not in PUBLIC and name.lower() not in BARE
)
addresses = st.one_of(
    st.ip_addresses(v=4).filter(lambda a: not (a.is_loopback or a.is_unspecified)),
    st.ip_addresses(v=6).filter(lambda a: not (a.is_loopback or a.is_unspecified)),
).filter(lambda a: a not in ipaddress.ip_network("2001:db8::/32"))
macs = st.binary(min_size=6, max_size=6).map(lambda raw: raw.hex(":"))
around = st.tuples(
    st.sampled_from(["", " ", "(", "'", "=", "@", "see ", "\n", "_", "-"]),
    st.sampled_from(["", " ", ")", "'", ",", "\n", ": no", "_", "-"]),
)


def in_a_machine(identifier: str, sides: tuple[str, str], known: Identity = NOBODY) -> str:
    """Everything that is left of a machine after it said ``identifier`` everywhere."""
    before, after = sides
    assume(identifier.lower() not in BARE)
    return encode(scrubbed(saying(f"{before}{identifier}{after}"), known)[0]).decode().lower()


@given(st.uuids(), around, st.sampled_from(["GPU-", "MIG-", "MIG-GPU-", ""]))
def test_no_uuid_survives(uuid: Any, sides: tuple[str, str], prefix: str) -> None:
    assume(not str(uuid).startswith("00000000-0000-4000-8000-0"))
    for said in (str(uuid), str(uuid).upper()):
        assert str(uuid) not in in_a_machine(f"{prefix}{said}", sides)


@given(addresses, around)
def test_no_address_survives(address: Any, sides: tuple[str, str]) -> None:
    said = str(address)
    assume(not re.match(r"192\.0\.2\.|198\.51\.100\.|203\.0\.113\.", said))
    assume(sides[0] != "_" and not sides[1].startswith(("_", ":")))  # a word, another address
    left = in_a_machine(said, sides)
    assert re.search(rf"(?<![\w:.]){re.escape(said)}(?![\w:.])", left) is None


@given(macs, around, st.sampled_from(":-"))
def test_no_mac_survives(mac: str, sides: tuple[str, str], mark: str) -> None:
    assume(not mac.startswith("02:00:00:00"))
    said = mac.replace(":", mark)
    assume("-" not in sides)
    assert said not in in_a_machine(said, sides)


@given(
    names, names, st.sampled_from(["", " ", "<", "=", "mailto:", "//"]), st.sampled_from("> ,:/\n")
)
def test_no_mail_address_survives(person: str, host: str, before: str, after: str) -> None:
    for address in (f"{person}@{host}.org", f"x.{person}+wsl@mail.{host}.co.uk"):
        left = in_a_machine(address, (before, after))
        assert f"{person}@".lower() not in left
        assert f"@{host}".lower() not in left
        assert "mail1@example.com" in left


@given(names, around)
def test_no_name_survives_on_its_own_or_in_a_path(name: str, sides: tuple[str, str]) -> None:
    known = Identity(hosts=(f"{name}box",), users=(name,))
    alone = rf"(?<![^\W_]){name.lower()}(?:box)?(?![^\W_])"
    assert re.search(alone, in_a_machine(name, sides, known)) is None
    assert re.search(alone, in_a_machine(f"{name.upper()}box", sides, known)) is None


@given(names, st.sampled_from(["/home/{}", "/mnt/c/Users/{}", r"C:\Users\{}", "d:/users/{}"]))
def test_who_is_named_by_a_home_folder_is_found_everywhere(name: str, path: str) -> None:
    said = f"{path.format(name)}/.cache and then {name.upper()} again"
    left = in_a_machine(said, ("", ""))
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
        ),
        max_size=12,
    )
)
def test_scrubbing_twice_is_scrubbing_once(said: list[str]) -> None:
    known = Identity(hosts=("box",), users=("ada",))
    once, _ = scrubbed(saying("\n".join(said)), known)
    twice, counts = scrubbed(once, known)
    assert (twice, counts) == (once, {})
    assert decode(encode(once)) == once


@given(st.text())
def test_any_text_can_be_scrubbed_and_stays_readable(text: str) -> None:
    assume(not any("\ud800" <= c <= "\udfff" for c in text))
    once, _ = scrubbed(saying(text), Identity(users=(text,)))
    assert decode(encode(once)) == once


def test_one_gpu_is_one_stand_in_wherever_it_is_named() -> None:
    once, counts = scrubbed(MACHINE, NOBODY)
    stand = once.cuda.devices[0].uuid
    assert SHAPE.fullmatch(stand)
    assert once.nvml.calls[1].value == stand
    program = once.programs["nvidia-smi.exe"]
    assert program is not None
    assert program.stdout == f"GPU 0 (UUID: {stand})\r\n"
    assert counts == {Kind.UUID: 1}


def test_what_goes_by_its_uuid_goes_by_its_stand_in() -> None:
    status = {
        "gpus": {UUID.upper(): {"number": 0}},
        "expected": {UUID: {"name": "RTX 4070"}},
        "homes": {"/home" + "/erika/.gpud": {}},
    }
    clean, _ = scrubbed(replace(MACHINE, status=status), Identity(users=("gpus",)))
    left = encode(clean).decode()
    assert UUID.removeprefix("GPU-") not in left.lower()
    assert "erika" not in left
    assert set(clean.status) == set(status), "keys are words of gpud"
    assert list(clean.status["expected"]) == [clean.cuda.devices[0].uuid]


def test_two_gpus_stay_two_also_below_an_old_mig_uuid() -> None:
    other = UUID.replace("GPU-6d", "GPU-7e")
    said = scrub(f"MIG-{UUID}/1/0 {other} {UUID.upper().replace('GPU', 'MIG')}")
    mig, second, same = said.split()
    assert mig.startswith("MIG-GPU-00000000-")
    assert mig.endswith("/1/0")
    assert second[4:] != same[4:] == mig[8:44]


@pytest.mark.parametrize(
    "kept",
    [
        "nvltwi.inf_amd64_08cf6d985207979a",
        "00000000:01:00.0 0000:01:00.0 95.04.31.00.7f 31.0.15.6603 12.560.35.03",
        "127.0.0.1:9945 [::1]:9945 0.0.0.0",
        "/root/x /home/user1/x C:\\Users\\Public\\x",
        "at 12:30:45 on 2026-01-02T12:30:45",
        "process exited, pid unknown, serial: none, Serial Number: N/A",
        "6.1.0 (root@f9c826d3017f) (debian-kernel@lists.debian.org)",
    ],
)
def test_what_tells_the_kind_of_machine_stays(kept: str) -> None:
    assert scrub(kept) == kept


def test_a_version_that_could_be_an_address_stays_one() -> None:
    kernel = "5.15.167.4-microsoft-standard-WSL2"
    wslinfo = Program(arguments=("--wsl-version",), code=0, stdout="2.3.26.0\n")
    made = replace(
        MACHINE, programs={"wslinfo": wslinfo}, status={"kernel": kernel, "wsl": "2.3.26.0"}
    )
    once, counts = scrubbed(made, NOBODY)
    assert (once.files, once.programs, once.status) == (made.files, made.programs, made.status)
    assert Kind.ADDRESS not in counts


def test_a_process_is_a_number_no_process_has() -> None:
    made = replace(MACHINE, status={"pid": 4711, "holder": "ada's python (process 4711)"})
    once, counts = scrubbed(made, NOBODY)
    assert once.status == {"pid": 9000001, "holder": "ada's python (process 9000001)"}
    assert counts[Kind.PROCESS] == 1


def test_a_serial_number_is_known_again_wherever_it_stands() -> None:
    call = Call(call="nvmlDeviceGetSerial", gpu=0, value="1320221012345")
    made = replace(MACHINE, nvml=Nvml(calls=(call,)), unanswered={"status": "card 1320221012345"})
    once, counts = scrubbed(made, NOBODY)
    assert once.nvml.calls[0].value == "0000000000001"
    assert once.unanswered == {"status": "card 0000000000001"}
    assert counts[Kind.SERIAL] == 1
    assert scrub("<serial>0324518123456</serial>") == "<serial>0000000000001</serial>"


def test_wsl_conf_names_a_person_and_a_host() -> None:
    said = "[user]\ndefault = lovelace\n[network]\nhostname = engine\n"
    made = replace(MACHINE, files={"/etc/wsl.conf": said}, machine="lovelace@engine")
    once, _ = scrubbed(made, NOBODY)
    assert once.machine == "user1@host1"
    assert once.files["/etc/wsl.conf"] == said.replace("lovelace", "user1").replace(
        "engine", "host1"
    )


def test_a_public_or_a_short_name_is_no_identifier_and_a_path_tells_it_all_the_same() -> None:
    short = "al"
    known = Identity(hosts=("debian",), users=("root", short))
    said = 'PRETTY_NAME="Debian GNU/Linux 12", al and root'
    assert scrub(said, known) == said
    assert scrub(f"/home/{short}/x", known) == "/home/user1/x"


def test_a_name_within_a_word_is_none_and_the_longest_of_several_is_meant() -> None:
    known = Identity(hosts=("box",), users=("ada", "ada-lovelace"))
    kept = "the adapter of armada, xada and ada2, inbox and boxes"
    assert scrub(kept, known) == kept
    assert scrub("ada-lovelace and ada_ on box.", known) == "user1 and user2_ on host1."


def test_a_stand_in_that_is_in_the_text_already_is_given_to_nobody_else() -> None:
    assert scrub("user1 met Ada", Identity(users=("ada",))) == "user1 met user2"


def test_words_of_gpud_are_not_taken_for_names() -> None:
    made = replace(MACHINE, doctor={"verdict": "ok", "evidence": "problem"})
    once, _ = scrubbed(made, Identity(users=("nvmlinit_v2", "problem", "geforce")))
    assert [call.call for call in once.nvml.calls] == [call.call for call in MACHINE.nvml.calls]
    assert once.cuda.devices[0].name == "GeForce"
    assert once.doctor == {"verdict": "ok", "evidence": "user1"}


def test_a_machine_of_which_nothing_was_recorded_stays_so() -> None:
    bare = Capture(schema_version=1, gpud="0", origin="recorded", machine="", cuda=Inventory())
    assert scrubbed(bare, NOBODY) == (bare, {})
