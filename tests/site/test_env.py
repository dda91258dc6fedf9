"""Settings: what is read, from where, and what is refused in which words."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from corvus_site import env, setting_documents
from corvus_site.env import SETTINGS, BadSetting, HostPort, Kind, Source
from corvus_site.secrets_file import derive, ensure_secret
from proxy.gateway.snapshot import GatewaySettings
from queueing.config import RoomConfig, RoomId


def test_without_any_environment_every_setting_has_its_default() -> None:
    effective = env.load({})
    assert effective.value("CORVUS_CAPACITY") == 434
    assert effective.value("CORVUS_LISTEN") == HostPort("", 8080)
    assert effective.value("CORVUS_LISTEN_TLS") is None
    assert effective.value("CORVUS_ACTIVE_TTL") == 300.0
    assert effective.value("CORVUS_MAX_HEADER_BYTES") == 32768
    assert {effective.source(name) for name in SETTINGS} == {Source.DEFAULT}


def test_room_and_gateway_have_the_same_defaults_as_the_settings() -> None:
    effective = env.load({})
    assert RoomConfig(id=RoomId("x"), **effective.room_fields()) == RoomConfig(id=RoomId("x"))
    fields = effective.gateway_fields()
    assert fields["asset_cap"] == 0  # derived from the rooms when the configuration is compiled
    derived = RoomConfig(id=RoomId("x")).capacity * fields["asset_user_cap_h2"]
    assert GatewaySettings(**{**fields, "asset_cap": derived}) == GatewaySettings()


def test_a_flag_counts_above_the_environment_and_a_saved_value_above_both() -> None:
    effective = env.load({"CORVUS_CAPACITY": "10"}, {"CORVUS_CAPACITY": "20"})
    assert (effective.value("CORVUS_CAPACITY"), effective.source("CORVUS_CAPACITY")) == (
        20,
        Source.FLAG,
    )
    saved = effective.overlaid({"CORVUS_CAPACITY": "30"})
    assert (saved.value("CORVUS_CAPACITY"), saved.source("CORVUS_CAPACITY")) == (30, Source.SAVED)
    assert effective.value("CORVUS_CAPACITY") == 20


@pytest.mark.parametrize("blank", ["", "  ", "\t"])
def test_a_blank_variable_is_unset(blank: str) -> None:
    effective = env.load({"CORVUS_CAPACITY": blank})
    assert effective.source("CORVUS_CAPACITY") is Source.DEFAULT


def test_flags_stay_flags_in_the_supervisors_children() -> None:
    child = {"CORVUS_CAPACITY": "10", **env.export_flags({"CORVUS_CAPACITY": "20"})}
    assert env.load(child).source("CORVUS_CAPACITY") is Source.FLAG
    assert env.unknown_names(child) == []


@pytest.mark.parametrize(
    ("name", "text", "said"),
    [
        ("CORVUS_CAPACITY", "many", "“many” is not allowed: it must be a whole number between 0"),
        ("CORVUS_CAPACITY", "-1", "between 0 and 2147483647"),
        ("CORVUS_CAPACITY_UNIT", "people", "visitors or requests"),
        ("CORVUS_API_JSON", "maybe", "true or false"),
        ("CORVUS_GRANT_TTL", "a minute", "a span of time such as"),
        ("CORVUS_GRANT_TTL", "2h", "between 1s and 1h"),
        ("CORVUS_MAX_BODY", "10 elephants", "bytes such as"),
        ("CORVUS_UPSTREAM", "localhost:3000", "http://host:port"),
        ("CORVUS_UPSTREAM", "http://a/path", "without a path"),
        ("CORVUS_UPSTREAM", "http://a:99999", "http://host:port"),
        ("CORVUS_LISTEN", "8080", "host:port or :port"),
        ("CORVUS_LISTEN", ":65536", "host:port or :port"),
        ("CORVUS_TRUSTED_PROXIES", "10.0.0.1/8", "no bits set beyond the prefix"),
        ("CORVUS_TRUSTED_PROXIES", "10.0.0.1,10.0.0.1", "each once"),
        ("CORVUS_BYPASS", "robots.txt", "paths that begin with /"),
        ("CORVUS_COOKIE_PATH", "/;x", "without spaces and semicolons"),
        ("CORVUS_COOKIE_DOMAIN", "a b", "a domain such as"),
        ("CORVUS_CONSOLE_HOSTS", "http://a", "host names or addresses"),
        ("CORVUS_REDIS_URL", "http://store", "redis:// or rediss:// or unix://"),
        ("CORVUS_RETRY_AFTER", "0", "between 1s and 1h"),
        ("CORVUS_PRIORITY_CAP", "-1", "between 0 and 2147483647"),
        ("CORVUS_PRIORITY_LANE_RANK", "0", "a rank from 1 to 7, or its name: member, prospect"),
        ("CORVUS_PRIORITY_LANE_RANK", "8", "a rank from 1 to 7"),
        ("CORVUS_PRIORITY_LANE_RANK", "guest", "a rank from 1 to 7"),
        ("CORVUS_PRIORITY_LANE_RANK", "king", "checkout, staff or nobody"),
        ("CORVUS_PRIORITY_WAIT", "61s", "between 0 and 1m"),
        ("CORVUS_PRIORITY_FORMS", "some", "true or false"),
        ("CORVUS_RATE", "-0.5", "a number from 0 to 1000000 with at most 6 decimals"),
        ("CORVUS_RATE", "inf", "a number from 0 to 1000000"),
        ("CORVUS_SURGE", "1000001", "a number from 0 to 1000000"),
        ("CORVUS_SKIP_URL", "//evil.example", "a path that begins with one /"),
        ("CORVUS_SKIP_URL", "javascript:alert(1)", "http:// or https://"),
        ("CORVUS_SKIP_CURRENCY", "EURO", "three letters of ISO 4217"),
        ("CORVUS_PASS_DURATION", "25h", "between 0 and 1d"),
        ("CORVUS_ORDER", "price", "arrival or rank"),
        ("CORVUS_MAX_OVERTAKE", "91", "between 0 and 90"),
        ("CORVUS_LEASE_TTL", "1s", "between 2s and 10m"),
        ("CORVUS_REAPER", "4s", "between 5s and 1d"),
        ("CORVUS_REAPER", "25h", "between 5s and 1d"),
    ],
)
def test_a_bad_value_is_one_line_with_name_value_and_what_is_allowed(
    name: str, text: str, said: str
) -> None:
    with pytest.raises(BadSetting) as refusal:
        env.load({name: text})
    line = str(refusal.value)
    assert line.startswith(f"{name}: ")
    assert said in line
    assert "\n" not in line
    if not SETTINGS[name].secret:
        assert text in line


@pytest.mark.parametrize("name", [s.name for s in SETTINGS.values() if s.secret])
def test_no_message_and_no_text_shows_a_secret(name: str) -> None:
    secret = "hunter2"
    try:
        effective = env.load({name: secret})
    except BadSetting as refusal:
        shown = str(refusal)
    else:
        shown = effective.text(name)
    assert secret not in shown
    assert SETTINGS[name].flag == ""
    assert not SETTINGS[name].savable


def test_a_short_secret_is_refused_with_the_length_that_is_wanted() -> None:
    with pytest.raises(BadSetting, match="at least 32 characters"):
        env.load({"CORVUS_SECRET": "x" * 31})
    with pytest.raises(BadSetting, match="at least 12 characters"):
        env.load({"CORVUS_SETUP_TOKEN": "x" * 11})
    with pytest.raises(BadSetting, match=r"CORVUS_PROMOTE_SECRET: .*at least 32 characters"):
        env.load({"CORVUS_PROMOTE_SECRET": "x" * 31})


def test_a_secret_comes_from_a_file(tmp_path: Path) -> None:
    file = tmp_path / "secret"
    file.write_text("s" * 40 + "\n")
    effective = env.load({"CORVUS_SECRET_FILE": str(file)})
    assert effective.value("CORVUS_SECRET") == "s" * 40
    assert effective.source("CORVUS_SECRET") is Source.ENVIRONMENT


def test_a_secrets_file_that_cannot_be_read_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(BadSetting, match=r"CORVUS_SECRET_FILE: “.*nowhere” cannot be read"):
        env.load({"CORVUS_SECRET_FILE": str(tmp_path / "nowhere")})


def test_a_secret_and_its_file_together_are_an_error(tmp_path: Path) -> None:
    with pytest.raises(BadSetting, match="not both"):
        env.load({"CORVUS_SECRET": "s" * 40, "CORVUS_SECRET_FILE": "/x"})


def test_a_secret_is_no_flag() -> None:
    with pytest.raises(BadSetting, match="process lists"):
        env.load({}, {"CORVUS_SECRET": "s" * 40})


@pytest.mark.parametrize(
    ("text", "rank"),
    [("1", 1), ("3", 3), ("customer", 3), ("STAFF", 6), ("nobody", 7), ("7", 7)],
)
def test_the_lanes_rank_is_a_number_or_a_name(text: str, rank: int) -> None:
    effective = env.load({"CORVUS_PRIORITY_LANE_RANK": text})
    assert effective.room_fields()["lane_rank"] == rank


def test_prices_are_exact_and_currencies_may_be_written_small() -> None:
    effective = env.load(
        {
            "CORVUS_RATE": "0.10",
            "CORVUS_SURGE": "0.000001",
            "CORVUS_SKIP_CURRENCY": "usd",
            "CORVUS_SKIP_URL": "https://pay.example/line?shop=1",
        }
    )
    fields = effective.room_fields()
    assert (fields["skip_rate"], fields["skip_surge"]) == ("0.1", "0.000001")
    assert fields["skip_currency"] == "USD"


def test_values_that_cannot_stand_together_are_refused_by_the_setting_to_change() -> None:
    with pytest.raises(BadSetting, match="CORVUS_ACTIVE_TTL: 20 s is not allowed"):
        env.load({"CORVUS_ACTIVE_TTL": "20s"})
    with pytest.raises(BadSetting, match="CORVUS_RETURN_WINDOW"):
        env.load({"CORVUS_RETURN_WINDOW": "60s"})
    with pytest.raises(BadSetting, match=r"CORVUS_SKIP_URL: .*where it is paid"):
        env.load({"CORVUS_RATE": "1"})
    with pytest.raises(
        BadSetting, match=r"CORVUS_PASS_DURATION: 59 s is not allowed: .*at least 60 s"
    ):
        env.load({"CORVUS_PASS_DURATION": "59s"})
    with pytest.raises(BadSetting, match="CORVUS_LEASE_TTL: 300 s is not allowed"):
        env.load({"CORVUS_LEASE_TTL": "5m", "CORVUS_ADMIT_TTL": "1m"})
    with pytest.raises(BadSetting, match="CORVUS_TLS_KEY: it must be set too"):
        env.load({"CORVUS_TLS_CERT": "/x"})


def test_every_problem_of_a_save_is_named_at_once() -> None:
    found = env.load({}).problems({"CORVUS_CAPACITY": "x", "CORVUS_LISTEN": ":1", "CORVUS_NO": "1"})
    assert [p.name for p in found] == ["CORVUS_CAPACITY", "CORVUS_LISTEN", "CORVUS_NO"]


def test_a_misspelt_variable_is_noticed() -> None:
    known = {"CORVUS_CAPACITY": "1", "CORVUS_SECRET_FILE": "/x", "CORVUS_STORE_URL": "x"}
    assert env.unknown_names({**known, "CORVUS_CAPACTIY": "1"}) == ["CORVUS_CAPACTIY"]


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("127.0.0.1:80", HostPort("127.0.0.1", 80)),
        ("[::1]:8081", HostPort("::1", 8081)),
        (":0", HostPort("", 0)),
        ("localhost:1", HostPort("localhost", 1)),
    ],
)
def test_an_address_is_read_and_written_the_same(text: str, value: HostPort) -> None:
    assert env.load({"CORVUS_LISTEN": text}).value("CORVUS_LISTEN") == value
    assert str(value) == text


@pytest.mark.parametrize(
    ("host", "loopback"),
    [
        ("127.0.0.1", True),
        ("127.9.9.9", True),
        ("::1", True),
        ("localhost", True),
        ("", False),
        ("0.0.0.0", False),  # noqa: S104
        ("10.0.0.1", False),
        ("example.org", False),
    ],
)
def test_loopback_is_what_only_this_machine_reaches(host: str, loopback: bool) -> None:
    assert HostPort(host, 1).is_loopback is loopback


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("32KB", 32768),
        ("32k", 32768),
        ("1 MiB", 1 << 20),
        ("2GB", 2 << 30),
        ("65536", 65536),
        ("10b", 10),
        ("0", 0),
    ],
)
def test_sizes_are_read_as_people_write_them(text: str, size: int) -> None:
    assert env.load({"CORVUS_MAX_BODY": text}).value("CORVUS_MAX_BODY") == size


@given(st.sampled_from(sorted(SETTINGS)), st.text(max_size=60))
def test_whatever_is_set_gives_a_value_or_one_clear_line(name: str, text: str) -> None:
    try:
        env.load({name: text})
    except BadSetting as refusal:
        line = str(refusal)
    else:
        return
    assert line.split(":")[0] in SETTINGS
    assert line.isprintable()
    assert len(line) < 400


@given(st.sampled_from([s for s in SETTINGS.values() if s.kind is Kind.INTEGER]), st.integers())
def test_a_number_counts_exactly_within_its_bounds(setting: env.Setting, number: int) -> None:
    low, high = setting.bounds.low, setting.bounds.high
    assert low is not None
    assert high is not None
    if low <= number <= high:
        assert env.load({setting.name: str(number)}).value(setting.name) == number
    else:
        with pytest.raises(BadSetting):
            env.load({setting.name: str(number)})


def test_every_default_is_allowed_and_every_setting_has_help_and_group() -> None:
    for setting in SETTINGS.values():
        env.read(setting, setting.default)
        assert setting.help.endswith(".")
        assert setting.group
        assert setting.allowed


def test_the_example_file_is_in_step_with_the_settings() -> None:
    assert setting_documents.EXAMPLE.read_text("utf-8") == setting_documents.example(), (
        "run python -m corvus_site.setting_documents"
    )


def test_the_example_file_with_every_line_active_changes_nothing() -> None:
    active = dict(
        line[1:].split("=", 1)
        for line in setting_documents.example().splitlines()
        if line.startswith("#") and not line.startswith("# ")
    )
    assert active.keys() == SETTINGS.keys()
    assert env.load(active).room_fields() == env.load({}).room_fields()


def test_the_settings_page_is_in_step_with_the_settings() -> None:
    assert setting_documents.PAGE.read_text("utf-8") == setting_documents.page(), (
        "run python -m corvus_site.setting_documents"
    )


def test_the_generated_secret_is_private_and_stays(tmp_path: Path) -> None:
    folder = tmp_path / "new" / "folder"
    secret = ensure_secret(folder)
    assert len(secret) >= 32
    assert ensure_secret(folder) == secret
    assert [f.name for f in folder.iterdir()] == ["secret"]
    assert (folder / "secret").stat().st_mode & 0o777 == 0o600
    assert folder.stat().st_mode & 0o777 == 0o700


def test_derived_keys_differ_by_purpose_and_do_not_tell_the_secret() -> None:
    keys = {derive("s" * 40, purpose) for purpose in ("django", "passes")}
    assert len(keys) == 2
    assert not any("s" * 10 in key for key in keys)
