"""Faults that only S3 has, and how boto3 is configured."""

from __future__ import annotations

import pickle
import random
from typing import TYPE_CHECKING

import pytest

from sparkcache.config import StorageConfig
from sparkcache.errors import CredentialsError, SourceError
from sparkcache.storage import Traffic, open_storage

if TYPE_CHECKING:
    from sparkcache.connector import ByteStream
    from sparkcache.testing.s3_server import Request, S3Server
    from tests.unit.storage.stores import S3Store

DATA = random.Random(1).randbytes(1 << 20)
SIZE = len(DATA)


def read_all(stream: ByteStream, chunk_bytes: int = 100_000) -> bytes:
    chunks = []
    try:
        while chunk := stream.read(chunk_bytes):
            chunks.append(chunk)
    finally:
        stream.close()
    return b"".join(chunks)


def gets(server: S3Server) -> list[Request]:
    return [request for request in server.requests() if request.key]


def assert_backs_off(pauses: list[float], longest: list[float]) -> None:
    """Each pause is random, from half of the longest one up."""
    assert len(pauses) == len(longest)
    for pause_s, longest_s in zip(pauses, longest, strict=True):
        assert longest_s / 2 <= pause_s <= longest_s


@pytest.fixture
def stored(s3: S3Store) -> S3Store:
    s3.put("name", DATA)
    s3.server.forget()
    return s3


CUTS = [f"{number:02}" for number in range(1, 100)]


def test_a_long_listing_is_made_in_parts(s3: S3Store, server: S3Server) -> None:
    put = sorted({f"{number * 7919 % 10_000:04}" for number in range(120)} | {"20"})
    for name in put:
        s3.put(name, b"x")
    server.behave(page_keys=10)
    server.forget()
    listed = list(s3.storage.list(CUTS))
    assert [stored.uri.rpartition("/")[2] for stored in listed] == put
    assert 12 <= s3.server.counts()[f"{s3.bucket}/"].gets <= 30
    assert listed == list(s3.storage.list())
    server.behave()
    server.forget()
    assert list(s3.storage.list(CUTS)) == listed
    assert s3.server.counts()[f"{s3.bucket}/"].gets == 1


def test_listing_goes_on_from_page_to_page(s3: S3Store) -> None:
    put = [f"{number:02}" for number in range(20)]
    for name in put:
        s3.put(name, b"x")
    s3.server.behave(page_keys=7)
    s3.server.forget()
    listed = [stored.uri[-2:] for stored in s3.storage.list()]
    assert listed == put
    assert s3.server.counts()[f"{s3.bucket}/"].gets == 3


def test_more_keys_than_s3_lists_at_once(s3: S3Store) -> None:
    for number in range(1001):
        s3.put(f"{number:04}", b"")
    s3.server.forget()
    assert [stored.uri[-4:] for stored in s3.storage.list()] == [
        f"{number:04}" for number in range(1001)
    ]
    assert s3.server.counts()[f"{s3.bucket}/"].gets == 2


@pytest.mark.parametrize(
    ("wanted", "pages", "found"),
    [
        pytest.param(range(200), 4, 200, id="side by side"),
        pytest.param([*range(30), *range(170, 200)], 2, 60, id="with a gap"),
        pytest.param(range(0, 200, 2), 4, 100, id="every other one"),
        pytest.param(range(0, 200, 9), 1, 6, id="too few on a page"),
        pytest.param([3], 1, 1, id="one"),
    ],
)
def test_identities_of_names_that_are_listed_in_pages(
    s3: S3Store, wanted: list[int], pages: int, found: int
) -> None:
    for number in range(200):
        s3.put(f"{number:04}", b"x")
    s3.server.behave(page_keys=50)
    s3.server.forget()
    uris = {f"{s3.storage.root}/{number:04}" for number in wanted}
    listed = s3.storage.listed(uris)
    assert len(listed) == found
    assert listed.keys() <= uris
    assert s3.server.counts()[f"{s3.bucket}/"].gets == pages


def test_neighbours_of_the_prefix_are_not_listed(s3: S3Store) -> None:
    s3.put("name", b"x")
    for key in ("prefix", "prefix-name", "prefiy/name", "name"):
        s3.server.put(s3.bucket, key, b"x")
    (listed,) = s3.storage.list()
    assert listed.uri == f"s3://{s3.bucket}/prefix/name"
    root = open_storage(f"s3://{s3.bucket}", StorageConfig(), Traffic())
    assert len(list(root.list())) == 5


def test_a_range_is_one_get(stored: S3Store, server: S3Server) -> None:
    stored.storage.open(stored.find("name"), 1000, 500_000).close()
    (request,) = gets(server)
    assert request.range == "bytes=1000-500999"


@pytest.mark.parametrize("after_bytes", [0, 1, 150_000, 499_999])
def test_a_body_that_breaks_off_is_resumed(
    stored: S3Store, server: S3Server, pauses: list[float], after_bytes: int
) -> None:
    planned = stored.find("name")
    server.break_off("name", after_bytes=after_bytes)
    data = read_all(stored.storage.open(planned, 1000, 500_000), 100_000)
    assert data == DATA[1000:501_000]
    broken, rest = gets(server)
    assert (broken.range, broken.sent_bytes) == ("bytes=1000-500999", after_bytes)
    assert rest.range == f"bytes={1000 + after_bytes}-500999"
    assert stored.traffic == Traffic(gets=2, received_bytes=500_000, retries=1)
    assert_backs_off(pauses, [0.1])


def test_progress_resets_the_number_of_attempts(
    stored: S3Store, server: S3Server, pauses: list[float]
) -> None:
    planned = stored.find("name")
    server.break_off("name", after_bytes=100_000, times=8)
    assert read_all(stored.storage.open(planned, 0, 900_000)) == DATA[:900_000]
    assert stored.traffic == Traffic(gets=9, received_bytes=900_000, retries=8)
    assert_backs_off(pauses, [0.1] * 8)


def test_single_bytes_are_no_progress(
    stored: S3Store, server: S3Server, pauses: list[float]
) -> None:
    planned = stored.find("name")
    server.break_off("name", after_bytes=1, times=None)
    with pytest.raises(SourceError, match="3 times"):
        read_all(stored.storage.open(planned, 0, 900_000))
    assert len(gets(server)) == 3


def test_pauses_differ_and_have_a_limit(
    stored: S3Store, server: S3Server, pauses: list[float]
) -> None:
    """Requests that failed together must not come back together."""
    planned = stored.find("name")
    server.break_off("name", after_bytes=100_000, times=8)
    read_all(stored.storage.open(planned, 0, 900_000))
    assert len(set(pauses)) > 1
    pauses.clear()
    server.break_off("name", after_bytes=0, times=None)
    with pytest.raises(SourceError):
        read_all(stored.open(storage_attempts=12).open(planned, 0, 10))
    assert 10 <= max(pauses) <= 20


def test_gives_up_after_the_configured_attempts(
    stored: S3Store, server: S3Server, pauses: list[float]
) -> None:
    planned = stored.find("name")
    server.break_off("name", after_bytes=10_000)
    server.break_off("name", after_bytes=0, times=None)
    stream = stored.open(storage_attempts=4).open(planned, 1000, 500_000)
    assert stream.read(100_000) == DATA[1000:11_000]
    with pytest.raises(SourceError) as caught:
        stream.read(100_000)
    stream.close()
    error = caught.value
    assert error.uri == planned.uri
    assert error.offset == 11_000
    assert error.expected == "490000 bytes more"
    assert error.found.endswith(", 4 times")
    assert len(gets(server)) == 4
    assert_backs_off(pauses, [0.1, 0.2, 0.4])
    assert stored.traffic == Traffic(gets=4, received_bytes=10_000, retries=3)


def test_one_attempt_is_one_attempt(
    stored: S3Store, server: S3Server, pauses: list[float]
) -> None:
    planned = stored.find("name")
    server.break_off("name", after_bytes=10)
    with pytest.raises(SourceError, match="1 times"):
        read_all(stored.open(storage_attempts=1).open(planned, 0, SIZE))
    assert pauses == []


def test_a_whole_object_that_breaks_off_is_read_again(
    stored: S3Store, server: S3Server, pauses: list[float]
) -> None:
    """An index is read on the driver, where Spark does not retry."""
    server.break_off("name", after_bytes=1000, times=2)
    assert stored.storage.get(f"{stored.storage.root}/name").data == DATA
    assert stored.traffic == Traffic(gets=3, received_bytes=SIZE, retries=2)
    assert_backs_off(pauses, [0.1, 0.2])


def test_a_whole_object_that_always_breaks_off_is_given_up(
    stored: S3Store, server: S3Server, pauses: list[float]
) -> None:
    server.break_off("name", after_bytes=1000, times=None)
    with pytest.raises(SourceError, match=f"expected {SIZE} bytes.*, 3 times"):
        stored.storage.get(f"{stored.storage.root}/name")
    assert len(gets(server)) == 3


@pytest.mark.parametrize(
    ("status", "code"),
    [(500, "InternalError"), (503, "SlowDown"), (503, "ServiceUnavailable")],
)
def test_a_failing_request_is_retried(
    stored: S3Store, server: S3Server, pauses: list[float], status: int, code: str
) -> None:
    planned = stored.find("name")
    server.fail("name", status=status, code=code, times=2)
    assert read_all(stored.storage.open(planned, 0, SIZE)) == DATA
    assert [request.status for request in gets(server)] == [status, status, 206]
    assert stored.traffic == Traffic(gets=3, received_bytes=SIZE, retries=2)
    assert len(pauses) == 2


def test_a_request_that_always_fails_is_given_up(
    stored: S3Store, server: S3Server, pauses: list[float]
) -> None:
    planned = stored.find("name")
    server.fail("name", status=503, code="SlowDown", times=None)
    with pytest.raises(SourceError, match="SlowDown") as caught:
        stored.storage.open(planned, 100, 50)
    assert (caught.value.uri, caught.value.offset) == (planned.uri, 100)
    assert len(gets(server)) == 3
    assert stored.traffic == Traffic(gets=3, retries=2)


def test_listing_is_retried_too(stored: S3Store, pauses: list[float]) -> None:
    stored.server.fail(status=503, code="SlowDown", times=2)
    assert len(list(stored.storage.list())) == 1


def test_a_request_that_times_out_is_retried(
    stored: S3Store, server: S3Server, pauses: list[float]
) -> None:
    planned = stored.find("name")
    storage = stored.open(storage_timeout_s=0.05, storage_attempts=2)
    server.behave(latency_s=0.2)
    with pytest.raises(SourceError, match="timeout"):
        storage.open(planned, 0, 10)
    server.behave()
    assert read_all(storage.open(planned, 0, 10)) == DATA[:10]


def test_overwritten_between_two_gets(
    stored: S3Store, server: S3Server, pauses: list[float]
) -> None:
    """The rest must have the same version; otherwise reading fails."""
    planned = stored.find("name")
    server.break_off("name", after_bytes=200_000)
    stream = stored.storage.open(planned, 0, SIZE)
    stored.put("name", DATA[::-1])
    with pytest.raises(SourceError, match="overwritten"):
        read_all(stream)


@pytest.mark.parametrize(
    ("header", "message"),
    [
        pytest.param("If-Match", "overwritten", id="ignores If-Match"),
        pytest.param("Range", "ignores ranges", id="ignores Range"),
    ],
)
def test_a_server_that_ignores_headers(
    stored: S3Store, server: S3Server, header: str, message: str
) -> None:
    planned = stored.find("name")
    server.ignore(header)
    if header == "If-Match":
        stored.put("name", DATA[::-1])
    with pytest.raises(SourceError, match=message):
        stored.storage.open(planned, 1000, 10)


@pytest.mark.parametrize(
    ("code", "found"),
    [
        ("AccessDenied", "access denied"),
        ("SignatureDoesNotMatch", "a rejected signature"),
        ("InvalidAccessKeyId", "a rejected access key"),
        ("ExpiredToken", "ExpiredToken"),
    ],
)
def test_refusals_are_distinguished(
    stored: S3Store, server: S3Server, code: str, found: str
) -> None:
    server.fail(status=403, code=code, times=None)
    with pytest.raises(SourceError) as caught:
        list(stored.storage.list())
    assert caught.value.uri == stored.storage.root
    assert found in caught.value.found


@pytest.mark.parametrize(
    ("status", "code"),
    [
        (400, "ExpiredToken"),
        (400, "InvalidToken"),
        (403, "RequestExpired"),
        (403, "InvalidAccessKeyId"),
        (403, "SignatureDoesNotMatch"),
        (403, "AccessDenied"),
        (403, "Forbidden"),
    ],
)
def test_refused_credentials_are_looked_up_again_once(
    stored: S3Store, server: S3Server, status: int, code: str
) -> None:
    planned = stored.find("name")
    server.forget()
    server.fail("name", status=status, code=code)
    assert read_all(stored.storage.open(planned, 0, 10)) == DATA[:10]
    assert [request.status for request in gets(server)] == [status, 206]
    server.fail(status=status, code=code)
    assert list(stored.storage.list()) == [planned]
    server.fail("name", status=status, code=code, times=None)
    server.forget()
    with pytest.raises(CredentialsError) as caught:
        stored.storage.open(planned, 0, 10)
    assert type(pickle.loads(pickle.dumps(caught.value))) is CredentialsError
    assert [request.status for request in gets(server)] == [status, status]


def test_credentials_that_are_refused_on_a_later_page_of_a_listing(
    s3: S3Store, server: S3Server
) -> None:
    for number in range(9):
        s3.put(f"{number}", b"x")
    server.behave(page_keys=4)
    listing = s3.storage.list()
    listed = [next(listing)]
    server.fail(status=400, code="ExpiredToken")
    listed += listing
    assert [stored.uri[-1] for stored in listed] == list("012345678")


def test_credentials_that_come_later_are_found(
    stored: S3Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    storage = stored.open()
    with monkeypatch.context() as without:
        without.delenv("AWS_ACCESS_KEY_ID")
        with pytest.raises(CredentialsError, match="found none"):
            list(storage.list())
    assert len(list(storage.list())) == 1


def test_objects_without_an_etag_are_an_error(
    stored: S3Store, server: S3Server
) -> None:
    planned = stored.find("name")
    server.hide("ETag")
    for read in (
        lambda: stored.storage.get(planned.uri),
        lambda: stored.storage.get_end(planned.uri, 10),
        lambda: stored.storage.open(planned, 0, 10),
    ):
        with pytest.raises(SourceError, match="an ETag") as caught:
            read()
        assert (caught.value.uri, caught.value.found) == (planned.uri, "none")


@pytest.mark.parametrize("payer", ["", "requester"])
def test_the_requester_pays_where_it_agrees(
    stored: S3Store, server: S3Server, payer: str
) -> None:
    storage = stored.open(requester_pays=bool(payer))
    server.forget()
    (planned,) = storage.list()
    storage.get(planned.uri)
    storage.open(planned, 0, 10).close()
    assert [request.payer for request in server.requests()] == [payer] * 3
    assert ("aws_request_payer" in storage.access()) == bool(payer)


def test_anonymous_requests_are_not_signed(
    stored: S3Store, server: S3Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    key = "prefix/name"
    server.client.put_object_acl(Bucket=stored.bucket, Key=key, ACL="public-read")
    monkeypatch.delenv("AWS_ACCESS_KEY_ID")
    monkeypatch.delenv("AWS_SECRET_ACCESS_KEY")
    storage = stored.open(anonymous=True)
    server.forget()
    (planned,) = storage.list()
    assert read_all(storage.open(planned, 0, 10)) == DATA[:10]
    assert [request.region for request in server.requests()] == ["", ""]
    assert storage.access()["aws_skip_signature"] == "true"
    server.refuse(times=None)
    server.forget()
    with pytest.raises(CredentialsError):
        list(storage.list())
    assert len(server.requests()) == 1  # other credentials would not be used, either


@pytest.mark.parametrize(
    ("status", "code", "message", "found"),
    [
        (
            400,
            "InvalidRequest",
            "The object was stored using a form of Server Side Encryption. The correct "
            "parameters must be provided to retrieve the object.",
            r"a customer's key \(SSE-C\)",
        ),
        (403, "InvalidObjectState", "Not valid for the storage class", "an archived"),
    ],
)
def test_objects_that_cannot_be_read_as_they_are(
    stored: S3Store, server: S3Server, status: int, code: str, message: str, found: str
) -> None:
    planned = stored.find("name")
    server.fail("name", status=status, code=code, message=message, times=None)
    with pytest.raises(SourceError, match=found):
        stored.storage.open(planned, 0, 10)


def test_no_credentials(stored: S3Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("AWS_ACCESS_KEY_ID")
    monkeypatch.delenv("AWS_SECRET_ACCESS_KEY")
    storage = stored.open()
    with pytest.raises(SourceError, match="credentials in the environment"):
        list(storage.list())
    with pytest.raises(SourceError, match="credentials in the environment"):
        storage.get(f"{storage.root}/name")


@pytest.mark.parametrize(
    ("variable", "text"),
    [
        ("AWS_PROFILE", "no-such-profile"),
        ("AWS_DEFAULT_REGION", "no such region"),
        ("AWS_ENDPOINT_URL_S3", "nonsense"),
        ("AWS_ENDPOINT_URL_S3", "http://127.0.0.1:1"),
    ],
)
def test_an_invalid_environment(
    stored: S3Store,
    monkeypatch: pytest.MonkeyPatch,
    pauses: list[float],
    variable: str,
    text: str,
) -> None:
    monkeypatch.setenv(variable, text)
    with pytest.raises(SourceError, match=text) as caught:
        list(stored.open().list())
    assert caught.value.uri == stored.storage.root


def test_region_is_that_of_the_environment(
    stored: S3Store, server: S3Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_DEFAULT_REGION", "eu-west-1")
    list(stored.open().list())
    list(stored.open(region="ap-south-1").list())
    regions = [request.region for request in server.requests()]
    assert regions == ["eu-west-1", "ap-south-1"]


@pytest.mark.usefixtures("server")
def test_endpoint_is_that_of_the_configuration(
    stored: S3Store, server: S3Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A name needs the path style: no host is called bucket.localhost."""
    monkeypatch.setenv("AWS_ENDPOINT_URL_S3", "http://127.0.0.1:1")
    endpoint = server.endpoint.replace("127.0.0.1", "localhost")
    storage = stored.open(endpoint=endpoint, path_style=True)
    assert len(list(storage.list())) == 1
    assert [request.bucket for request in server.requests()] == [stored.bucket]


def test_settings_for_other_libraries(s3: S3Store) -> None:
    settings = s3.storage.access()
    assert settings["aws_endpoint"] == s3.server.endpoint
    assert settings["aws_allow_http"] == "true"
    assert settings["aws_virtual_hosted_style_request"] == "false"
    assert settings["aws_access_key_id"]
    endpoint = "https://s3.eu-west-1.amazonaws.com"
    aws = StorageConfig(endpoint=endpoint, region="eu-west-1")
    settings = open_storage("s3://bucket", aws, Traffic()).access()
    assert settings["aws_region"] == "eu-west-1"
    assert "aws_endpoint" not in settings
