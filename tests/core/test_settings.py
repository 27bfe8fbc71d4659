from __future__ import annotations

import string

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpud.core import settings
from gpud.core.errors import ConfigError
from gpud.core.settings import Secrets, Settings, entries, parse, removed_settings

KEYS = [key for key, _ in entries(Settings())]


def refusal(text: bytes | None = None, environ: dict[str, str] | None = None) -> str:
    with pytest.raises(ConfigError) as caught:
        parse(text, environ or {})
    return str(caught.value)


@pytest.mark.parametrize("host", ["127.0.0.1", "127.9.9.9", "[::1]", "localhost"])
def test_a_loopback_address_is_listened_on(host: str) -> None:
    assert parse(f'[http]\nlisten = "{host}:1"'.encode(), {}).http.listen == f"{host}:1"


@pytest.mark.parametrize("host", ["0.0.0.0", "[::]", "192.168.0.7", "laptop", "127.1"])  # noqa: S104
def test_an_address_that_others_can_reach_is_refused(host: str) -> None:
    with pytest.raises(ConfigError, match="can be reached from outside"):
        parse(f'[http]\nlisten = "{host}:1"'.encode(), {})


def test_nothing_at_all_gives_the_defaults() -> None:
    assert parse(None, {"PATH": "/bin", "GPUD_HOME": "/x"}) == Settings()
    assert parse(b"", {}) == Settings()


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (b"[schedule]\nsmal_interval_s = 5", "schedule.smal_interval_s; did you mean"),
        (b"small_interval_s = 5", "did you mean schedule.small_interval_s?"),
        (b"[shedule]\nx = 1", "unknown key shedule; did you mean schedule?"),
        (b"[schedule]\nsmall_interval_s = nan", "small_interval_s must be between"),
        (b"[schedule]\nsmall_interval_s = '5'", "small_interval_s: must be a number, not text"),
        (b"[schedule]\nsmall_interval_s = true", "must be a number, not true or false"),
        (b"[alerts]\nwebhook_urls = 'a'", 'webhook_urls: must be a list, such as ["a", "b"], not'),
        (b"[dockerd]\npolicy = 'mange'", "dockerd.policy"),
        (b"[cuda]\nlibrary = 'libcuda.so.1'", "library must be an absolute path"),
        (b"[export]\ncompat = ['DCGM']", "export.compat[0]: must be \"dcgm\", not 'DCGM'"),
        (b"[http]\nport = 9946", "unknown key http.port; did you mean http.listen?"),
        (b"[telemetry]\npcie = true", "did you mean telemetry.pcie_throughput?"),
        (b"[http]\nlisten = '9945'", "listen must be HOST:PORT"),
        (b"http = 5", "http: must be a table of its own, not a whole number"),
        (b"\xff\xfe", "not UTF-8: byte 0 is 0xff"),
        (b"[schedule", "not valid TOML"),
        (b"home = " + b"[" * 20_000, "nested too deeply"),
        (b"[schedule]\nlarge_interval_s = " + b"9" * 4301, "not valid TOML: Exceeds the limit"),
        (b"[http]\nlisten = '127.0.0.1:" + b"9" * 5000 + b"'", "listen must be HOST:PORT"),
        (b"[" + b".".join([b"a"] * 100_000) + b"]", "is larger than 64 KiB"),
        (b'[dockerd]\nargs = ["a", "b\\u0000"]', "dockerd.args holds a NUL character"),
        (b"home = 'srv'", "home must be an absolute path, not srv"),
        (b"[paths]\nrun = '../x'", "run must be an absolute path, not ../x"),
        (b"[dockerd]\nbinary = 'bin/dockerd'", "binary must be an absolute path"),
        (b"[alerts]\nwebhook_urls = ['http://a', 'http://[::1/']", "address 2 is none"),
        (b"[containers]\ninterval_s = 0", "interval_s must be between"),
        (b"[containers]\nimage = '--privileged'", "image must be an image's name"),
        (b"[gate]\nquiet_hours = ['9-12']", "quiet_hours: 9-12 is not HH:MM-HH:MM"),
        (b"[gate]\nbusy_ratio = 10", "busy_ratio must be between 0 and 1"),
        (b"[alerts]\nwebhook_urls = ['a']", "address 1 is none that begins with http:"),
    ],
)
def test_what_is_wrong_in_the_file_is_said_in_one_line_with_its_key(
    text: bytes, expected: str
) -> None:
    message = refusal(text)
    assert expected in message
    assert message.startswith("gpud.toml")
    assert "\n" not in message


@pytest.mark.parametrize(
    ("name", "value", "expected"),
    [
        ("GPUD_SCHEDULE__SMAL_INTERVAL_S", "5", "did you mean schedule.small_interval_s?"),
        ("GPUD_SCHEDULE__SMALL_INTERVAL_S", "often", "must be a number, not text"),
        ("GPUD_SCHEDULE__SMALL_INTERVAL_S", "nan", "small_interval_s must be"),
        ("GPUD_HTTP", "127.0.0.1:1", "http: must be a table of its own, not text"),
    ],
)
def test_what_is_wrong_in_the_environment_is_said_with_its_name(
    name: str, value: str, expected: str
) -> None:
    assert expected in refusal(environ={name: value})


def test_the_environment_wins_and_its_text_needs_no_quotes_and_its_lists_are_toml() -> None:
    result = parse(b"[http]\nlisten = '127.0.0.1:1'", {"GPUD_HTTP__LISTEN": "[::1]:2"})
    assert (result.http.host, result.http.port) == ("::1", 2)
    result = parse(None, {"GPUD_DOCKERD__POLICY": "off", "GPUD_PROBES__DISABLED": '["triad"]'})
    assert (result.dockerd.policy, result.probes.disabled) == ("off", ("triad",))


@pytest.mark.parametrize("home", ["/", "/srv/x", "/srv/x/"])
def test_every_directory_lies_below_the_home(home: str) -> None:
    result = parse(None, {}, home=home)
    for place in (result.state_dir, result.run_dir, result.log_dir, settings.config_path(home)):
        assert place.startswith(home)
        assert "//" not in place


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("['http://hooks.example/']", "token of address 1 would cross the network in the clear"),
        ("['https://ada:pw@hooks.example/']", "address 1 has a user, and webhook_credentials_file"),
        ("['https://a.example/', 'https://b.example/']", "1 for 2 addresses in webhook_urls"),
    ],
)
def test_a_token_goes_to_one_address_and_never_in_the_clear(text: str, expected: str) -> None:
    message = refusal(f"[alerts]\nwebhook_urls = {text}\nwebhook_credentials_file = '/t'".encode())
    assert expected in message
    assert "pw" not in message


def test_each_webhook_has_a_token_of_its_own_or_none() -> None:
    text = """
    [alerts]
    webhook_urls = ["https://a.example/", "http://b.example/", "http://127.0.0.1:9093/"]
    webhook_credentials_file = ["/etc/gpud/a", "", "/etc/gpud/c"]
    """
    assert parse(text.encode(), {}).alerts.credentials_files == ("/etc/gpud/a", "", "/etc/gpud/c")
    alone = {"GPUD_ALERTS__WEBHOOK_CREDENTIALS_FILE": "/t"}
    alone["GPUD_ALERTS__WEBHOOK_URLS"] = '["https://a.example/"]'
    assert parse(None, alone).alerts.credentials_files == ("/t",)


HASHED = f"$2b$04${'a' * 53}"


def test_users_and_tokens_are_taken_from_secrets_toml_as_from_gpud_toml() -> None:
    hidden = f"""
    [http.basic_auth_users]
    ada = "{HASHED}"
    [alerts]
    apprise_urls = ["tgram://T0KEN/chat"]
    """
    public = b"[http]\nlisten = '0.0.0.0:1'\nallow_plaintext_auth = true"
    result = parse(public, {}, secrets=Secrets(hidden.encode()))
    assert result.http.basic_auth_users == {"ada": HASHED}
    assert result.alerts.apprise_urls == ("tgram://T0KEN/chat",)
    assert parse(public, {}, secrets=None).http.basic_auth_users == {}, "whoever may not read it"


@pytest.mark.parametrize(
    ("public", "hidden", "expected"),
    [
        (
            b"[alerts]\nwebhook_urls = ['https://a/']",
            b"[alerts]\nwebhook_urls = ['https://b/']",
            "secrets.toml: alerts.webhook_urls is set in gpud.toml too",
        ),
        (b"", b"[dockerd]\npolicy = 'off'", "secrets.toml: dockerd.policy does not belong here"),
        (b"", b"[http]\nlisten = ':1'", "secrets.toml: http.listen does not belong here"),
        (b"", b"home = '/x'", "secrets.toml: home does not belong here"),
        (b"", b"[http", "secrets.toml is not valid TOML"),
        (b"", b"http = 5", "secrets.toml: http: must be a table"),
        (b"", b"[http.basic_auth_users]\nada = 'p'", "secrets.toml: http: basic_auth_users: 'ada'"),
        (b"[http]\nlisten = '0.0.0.0:1'", b"", "gpud.toml and secrets.toml: http: listen: 0.0.0.0"),
    ],
)
def test_what_is_wrong_in_secrets_toml_is_said_with_file_and_key(
    public: bytes, hidden: bytes, expected: str
) -> None:
    with pytest.raises(ConfigError) as caught:
        parse(public, {}, secrets=Secrets(hidden))
    assert expected in str(caught.value)


def test_table_that_stands_there_twice_has_a_fix() -> None:
    with pytest.raises(ConfigError) as caught:
        parse(b"[http]\n[dockerd]\n[http]\nlisten = '127.0.0.1:1'\n", {})
    assert "is not valid TOML" in str(caught.value)
    assert "each [table] and each key stands once" in str(caught.value.fix)


@given(st.binary(max_size=60))
def test_no_bytes_end_in_anything_but_settings_or_a_refusal(text: bytes) -> None:
    try:
        parse(text, {})
    except ConfigError as error:
        assert str(error).startswith("gpud.toml")  # noqa: PT017  # either outcome is right


@given(
    st.sampled_from(KEYS),
    st.one_of(st.integers(), st.floats().map(repr), st.text(string.printable, max_size=9)),
)
def test_no_value_of_any_variable_ends_in_anything_but_settings_or_a_refusal(
    key: str, value: object
) -> None:
    name = settings.ENV_PREFIX + key.replace(".", "__").upper()
    try:
        result = parse(None, {name: str(value)})
    except ConfigError as error:
        assert key.rpartition(".")[2] in str(error).lower()  # noqa: PT017
    else:
        assert dict(entries(result)).keys() == set(KEYS)


@pytest.fixture
def former(monkeypatch: pytest.MonkeyPatch) -> None:
    """Give gpud two settings that it had once."""
    monkeypatch.setattr(settings, "REMOVED", {"http.pace": "it is constant"})
    monkeypatch.setattr(settings, "RESTRICTED", {"old.lock": (["all"], "use a client CA")})


@pytest.mark.usefixtures("former")
def test_removed_setting_is_ignored_with_a_warning() -> None:
    text = b'[http]\npace = 3\nlisten = "127.0.0.1:1"\n[old]\nlock = ["all"]'
    assert parse(text, {"GPUD_HTTP__PACE": "3"}) == parse(b'[http]\nlisten = "127.0.0.1:1"', {})
    assert removed_settings(text, {"GPUD_HTTP__PACE": "3"}, "gpud.toml") == [
        "gpud.toml: http.pace is no longer a setting and is ignored; it is constant",
        "gpud.toml: old.lock is no longer a setting and is ignored; use a client CA",
        "the environment: http.pace is no longer a setting and is ignored; it is constant",
    ]
    assert parse(b"[old]", {}) == parse(None, {})


@pytest.mark.usefixtures("former")
@pytest.mark.parametrize(
    ("text", "environ"), [(b'[old]\nlock = ["me"]', {}), (None, {"GPUD_OLD__LOCK": "me"})]
)
def test_removed_setting_that_restricted_access_is_an_error(
    text: bytes | None, environ: dict[str, str]
) -> None:
    with pytest.raises(ConfigError, match=r"old\.lock is no longer a setting") as caught:
        parse(text, environ)
    assert caught.value.fix == "remove it; use a client CA"


@pytest.mark.parametrize(
    ("hung_child", "kernel", "leaves"),
    [
        ("auto", "5.15.167.4-microsoft-standard-WSL2", True),
        ("auto", "4.4.0-19041-Microsoft", False),
        ("auto", "6.8.0-45-generic", False),
        ("auto", "", False),
        ("leave", "6.8.0-45-generic", True),
        ("kill", "5.15.167.4-microsoft-standard-WSL2", False),
    ],
)
def test_hung_child_is_left_alone_on_wsl2_unless_the_settings_say_otherwise(
    hung_child: str, kernel: str, *, leaves: bool
) -> None:
    settings = parse(f"[cuda]\nhung_child = '{hung_child}'".encode(), {})
    assert settings.cuda.leaves_hung(kernel) is leaves
