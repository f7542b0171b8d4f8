"""Settings: their valid values, and where these come from."""

from __future__ import annotations

import re
import sys
from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

import hypothesis.strategies as st
import pytest
from hypothesis import given

from sparkcache import config, units
from sparkcache.config import CacheConfig
from sparkcache.errors import ConfigError
from sparkcache.source.options import ScanOptions

if TYPE_CHECKING:
    from collections.abc import Callable

ROOT = Path(__file__).parents[2]


@pytest.fixture(autouse=True)
def no_file(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(config.CONF_FILE_VARIABLE, raising=False)


@pytest.fixture
def conf_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], Path]:
    """Return a function that writes the file in force."""

    def write(text: str) -> Path:
        path = tmp_path / "sparkcache.conf"
        path.write_text(text, encoding="utf-8")
        monkeypatch.setenv(config.CONF_FILE_VARIABLE, str(path))
        return path

    return write


@pytest.mark.parametrize(
    ("text", "size_bytes"),
    [
        ("0", 0),
        ("4096", 4096),
        ("7b", 7),
        ("1k", 1 << 10),
        ("1kb", 1 << 10),
        ("1kib", 1 << 10),
        ("512m", 512 << 20),
        ("512MB", 512 << 20),
        ("2MiB", 2 << 20),
        ("1g", 1 << 30),
        ("1gb", 1 << 30),
        ("1GiB", 1 << 30),
        ("2t", 2 << 40),
        ("2tb", 2 << 40),
        ("2TiB", 2 << 40),
        ("1.5g", 3 << 29),
        (" 8 m ", 8 << 20),
    ],
)
def test_parse_bytes(text: str, size_bytes: int) -> None:
    assert units.parse_bytes(text) == size_bytes


@pytest.mark.parametrize("text", ["", "m", "-1", "1x", "1 mm", "1e3", "1,5g", "1s"])
def test_invalid_sizes(text: str) -> None:
    with pytest.raises(ValueError, match="a size such as 512m"):
        units.parse_bytes(text)


@pytest.mark.parametrize(
    ("text", "time_s"),
    [
        ("0", 0),
        ("15", 15),
        ("500ms", 0.5),
        ("10s", 10),
        ("3m", 180),
        ("3min", 180),
        ("1h", 3600),
        ("1.5H", 5400),
        (" 2 s ", 2),
    ],
)
def test_parse_seconds(text: str, time_s: float) -> None:
    assert units.parse_seconds(text) == time_s


@pytest.mark.parametrize("text", ["", "s", "-1s", "1d", "1e3", "inf", "nan", "1g"])
def test_invalid_durations(text: str) -> None:
    with pytest.raises(ValueError, match="a duration such as 10s"):
        units.parse_seconds(text)


@pytest.mark.parametrize(
    ("text", "value"), [("true", True), ("FALSE", False), (" True ", True)]
)
def test_parse_bool(text: str, value: bool) -> None:
    assert units.parse_bool(text) is value


@pytest.mark.parametrize("text", ["", "yes", "1", "on"])
def test_invalid_booleans(text: str) -> None:
    with pytest.raises(ValueError, match="true or false"):
        units.parse_bool(text)


@given(st.integers(0, 1 << 50))
def test_sizes_are_read_back(size_bytes: int) -> None:
    assert units.parse_bytes(units.format_bytes(size_bytes)) == size_bytes


@given(st.floats(0, 1e9))
def test_durations_are_read_back(time_s: float) -> None:
    assert units.parse_seconds(units.format_seconds(time_s)) == time_s


@given(
    max_bytes=st.integers(0, 1 << 50),
    ttl_s=st.floats(0, 1e9),
    enabled=st.booleans(),
    watermark=st.floats(0.01, 0.98),
    loaders=st.integers(0, 256),
    endpoint=st.sampled_from([None, "http://127.0.0.1:9000", "https://x/?a=b&c=d"]),
)
def test_a_configuration_survives_sparks_conf(**settings: Any) -> None:
    wanted = CacheConfig(**settings)
    conf = wanted.to_conf()
    assert all(key.startswith("spark.sparkcache.") for key in conf)
    assert CacheConfig.resolve(conf=conf, base=CacheConfig()) == wanted


def test_every_setting_is_in_sparks_conf() -> None:
    assert len(CacheConfig().to_conf()) == len(fields(CacheConfig))
    assert CacheConfig().to_conf()["spark.sparkcache.ttlAfterRead"] == "10s"
    assert CacheConfig().to_conf()["spark.sparkcache.maxBytes"] == "1g"
    assert CacheConfig().to_conf()["spark.sparkcache.endpoint"] == ""


def test_options_come_before_conf_before_file_before_defaults(
    conf_file: Callable[[str], Path],
) -> None:
    conf_file(
        "spark.sparkcache.runBytes 1k\n"
        "spark.sparkcache.batchBytes 2k\n"
        "spark.sparkcache.partitionBytes 3k\n"
    )
    resolved = CacheConfig.resolve(
        options={"runBytes": "30k"},
        conf={
            "spark.sparkcache.runBytes": "10k",
            "spark.sparkcache.batchBytes": "20k",
        },
    )
    assert resolved.run_bytes == 30 << 10
    assert resolved.batch_bytes == 20 << 10
    assert resolved.partition_bytes == 3 << 10
    assert resolved.max_bytes == CacheConfig().max_bytes


def test_a_base_takes_the_place_of_the_file(conf_file: Callable[[str], Path]) -> None:
    conf_file("spark.sparkcache.runBytes 1k\n")
    assert CacheConfig.resolve().run_bytes == 1 << 10
    assert CacheConfig.resolve(base=CacheConfig()) == CacheConfig()


def test_options_have_no_case_and_others_are_not_ours() -> None:
    resolved = CacheConfig.resolve(
        options={"RUNBYTES": "10k", "topic": "t"},
        conf={"spark.sparkcache.maxBytes": "1m", "spark.sql.shuffle.partitions": "1"},
    )
    assert resolved == CacheConfig(run_bytes=10 << 10, max_bytes=1 << 20)


def test_a_conf_of_ours_has_to_be_known() -> None:
    with pytest.raises(ConfigError, match=r"MaxBytes; did you mean .*\.maxBytes"):
        CacheConfig.resolve(conf={"spark.sparkcache.MaxBytes": "1m"})


LIST = "http://127.0.0.1:9000, https://s3.example.com/"


@pytest.mark.parametrize(
    ("base", "endpoint"),
    [
        pytest.param({"endpoint": "http://h:1"}, "http://h:1", id="that of the base"),
        pytest.param({"endpoint": "http://h:1"}, "http://h:1/", id="with a slash"),
        pytest.param({"endpoint": "http://h:1"}, "", id="that of boto3"),
        pytest.param({"allowed_endpoints": LIST}, "https://s3.example.com", id="one"),
        pytest.param({"allowed_endpoints": LIST}, "http://127.0.0.1:9000", id="two"),
    ],
)
def test_a_scan_may_name_an_endpoint_that_is_allowed(
    base: dict[str, Any], endpoint: str
) -> None:
    config = CacheConfig.resolve(
        options={"endpoint": endpoint}, base=CacheConfig(**base)
    )
    assert config.endpoint == (endpoint or None)


@pytest.mark.parametrize("name", ["endpoint", "Endpoint", "ENDPOINT"])
@pytest.mark.parametrize(
    "endpoint", ["http://evil:9000", "http://127.0.0.1:90000", "http://h:1@evil"]
)
def test_a_scan_may_name_no_other_endpoint(name: str, endpoint: str) -> None:
    """Its server would get the id of the access key and the session token."""
    base = CacheConfig(endpoint="http://h:1", allowed_endpoints=LIST)
    with pytest.raises(ConfigError, match=f"option endpoint='{endpoint}'.*allowedEnd"):
        CacheConfig.resolve(options={name: endpoint}, base=base)


def test_an_empty_text_is_none() -> None:
    base = CacheConfig(endpoint="http://127.0.0.1:1", region="eu-west-1")
    resolved = CacheConfig.resolve(
        options={"endpoint": ""}, conf={"spark.sparkcache.region": ""}, base=base
    )
    assert resolved == CacheConfig()


@pytest.mark.parametrize(
    "line",
    [
        "spark.sparkcache.endpoint http://h/?a=b",
        "spark.sparkcache.endpoint=http://h/?a=b",
        "spark.sparkcache.endpoint = http://h/?a=b",
        "spark.sparkcache.endpoint\thttp://h/?a=b  ",
        "  spark.sparkcache.endpoint   http://h/?a=b",
    ],
)
def test_a_line_of_a_file(conf_file: Callable[[str], Path], line: str) -> None:
    conf_file(f"# a comment = here\n\n{line}\n")
    assert config.from_file() == CacheConfig(endpoint="http://h/?a=b")


def test_a_line_without_a_value(conf_file: Callable[[str], Path]) -> None:
    conf_file("spark.sparkcache.endpoint\n")
    assert config.from_file() == CacheConfig()


@pytest.mark.parametrize(
    ("options", "named", "text", "wanted"),
    [
        ({"runBytes": "lots"}, "runBytes", "'lots'", "a size such as 512m"),
        ({"runBytes": "1"}, "runBytes", "1", "at least 1k"),
        ({"runBytes": ""}, "runBytes", "''", "a size such as 512m"),
        ({"storageTimeout": "soon"}, "storageTimeout", "'soon'", "such as 10s"),
        ({"storageTimeout": "0"}, "storageTimeout", "0s", "0.001s"),
        ({"requestTimeout": "0s"}, "requestTimeout", "0s", "0.001s"),
        ({"startupTimeout": "0"}, "startupTimeout", "0s", "0.001s"),
        ({"storageAttempts": "x"}, "storageAttempts", "'x'", "a whole number"),
        ({"storageAttempts": "1.5"}, "storageAttempts", "'1.5'", "a whole number"),
        ({"storageAttempts": "0"}, "storageAttempts", "0", "at least 1"),
        ({"enabled": "maybe"}, "enabled", "'maybe'", "true or false"),
        ({"trigger": "most"}, "trigger", "'most'", "a number"),
        ({"trigger": "1.1"}, "trigger", "1.1", "0.01 to 1"),
        ({"trigger": "nan"}, "trigger", "nan", "0.01 to 1"),
        ({"watermark": "0"}, "watermark", "0.0", "0.01 to 1"),
        ({"watermark": "0.99"}, "watermark", "0.99", "not be above trigger=0.98"),
        ({"loaders": "257"}, "loaders", "257", "0 to 256"),
        ({"endpoint": "localhost:9000"}, "endpoint", "'localhost:9000'", "a URL"),
    ],
)
def test_errors_name_the_option_its_text_and_valid_values(
    options: dict[str, str], named: str, text: str, wanted: str
) -> None:
    with pytest.raises(ConfigError) as caught:
        CacheConfig.resolve(options=options)
    message = str(caught.value)
    assert message.startswith(f"{named}={text}: must ")
    assert wanted in message


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"max_bytes": "8g"}, "max_bytes='8g': must be int, such as 1073741824"),
        ({"max_bytes": 8e9}, "max_bytes=8000000000.0: must be int"),
        ({"max_bytes": None}, "max_bytes=None: must be int"),
        ({"loaders": True}, "loaders=True: must be int, such as 0"),
        ({"enabled": "false"}, "enabled='false': must be bool, such as True"),
        ({"ttl_s": "10s"}, "ttl_s='10s': must be float, such as 15"),
        ({"endpoint": 9000}, "endpoint=9000: must be str | None"),
    ],
)
def test_values_of_the_wrong_type(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match="^" + re.escape(message)):
        CacheConfig(**settings)


def test_errors_name_sparks_key() -> None:
    conf = {"spark.sparkcache.maxBytes": "-1"}
    with pytest.raises(ConfigError, match=r"spark\.sparkcache\.maxBytes='-1'"):
        CacheConfig.resolve(conf=conf)


def test_errors_name_the_line_of_a_file(conf_file: Callable[[str], Path]) -> None:
    path = conf_file("\nspark.sparkcache.maxBytes all\n")
    with pytest.raises(ConfigError) as caught:
        CacheConfig.resolve()
    assert str(caught.value).startswith(f"{path}:2: spark.sparkcache.maxBytes='all'")


def test_a_misspelt_key_in_a_file(conf_file: Callable[[str], Path]) -> None:
    path = conf_file("spark.sparkcache.maxByte 1g\n")
    with pytest.raises(ConfigError) as caught:
        CacheConfig.resolve()
    assert str(caught.value) == (
        f"{path}:1: unknown option spark.sparkcache.maxByte; "
        "did you mean spark.sparkcache.maxBytes?"
    )


def test_a_missing_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(config.CONF_FILE_VARIABLE, str(tmp_path / "none"))
    with pytest.raises(ConfigError, match=r"SPARKCACHE_CONF=.*none.*No such file"):
        CacheConfig.resolve()


def test_a_file_that_is_not_text(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "binary").write_bytes(b"\xff\xfe")
    monkeypatch.setenv(config.CONF_FILE_VARIABLE, str(tmp_path / "binary"))
    with pytest.raises(ConfigError, match=r"SPARKCACHE_CONF=.*binary"):
        CacheConfig.resolve()


def test_conf_file_in_the_repository_is_the_generated_one() -> None:
    """To generate it: python -m sparkcache.config > conf/sparkcache.conf."""
    stored = (ROOT / "conf" / "sparkcache.conf").read_text(encoding="utf-8")
    assert stored == config.conf_file()


def test_conf_file_has_the_defaults(conf_file: Callable[[str], Path]) -> None:
    """With every line uncommented, the file changes nothing."""
    conf_file(config.conf_file().replace("\n#spark.", "\nspark."))
    assert config.from_file() == CacheConfig()


def test_conf_file_marks_settings_of_a_scan() -> None:
    for setting in config.settings_of(CacheConfig):
        name = setting.option
        text, _, _ = config.conf_file().partition(f"\n#spark.sparkcache.{name}")
        is_marked = text.endswith("(scan)")
        assert is_marked == (name in config.scan_option_names())
        wider = config.node_option_names() | config.session_option_names()
        assert is_marked != (name in wider)


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("runbyte", "unknown option runbyte; did you mean runBytes?"),
        ("xyz", "unknown option xyz; known: ['endpoint', 'runBytes']"),
    ],
)
def test_suggest(name: str, message: str) -> None:
    assert config.suggest(name, frozenset({"runBytes", "endpoint"})) == message


@pytest.mark.parametrize(
    ("name", "scope"), [("maxbytes", "node"), ("allowedEndpoints", "session")]
)
def test_a_scan_cannot_set_what_holds_for_more_than_itself(
    name: str, scope: str
) -> None:
    options = {"path": "/data", "topic": "t", name: "1"}
    with pytest.raises(ConfigError, match=f"{name} is a setting of the whole {scope}"):
        ScanOptions.parse(options)


def test_all_settings_of_a_session_are_cheap_to_resolve() -> None:
    """Each task does this, and for each one in the JVM the node does."""
    base = CacheConfig()
    conf = base.to_conf()
    calls = 0

    def count(_frame: object, event: str, _arg: object) -> None:
        nonlocal calls
        calls += event == "call"

    assert CacheConfig.resolve(conf=conf, base=base) == base
    before = sys.getprofile()
    sys.setprofile(count)
    try:
        CacheConfig.resolve(conf=conf, base=base)
    finally:
        sys.setprofile(before)
    assert calls < 50 * len(conf)
