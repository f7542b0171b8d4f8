"""Many small reads at once: what every storage does, and what is left to boto3."""

from __future__ import annotations

import os
import signal
from typing import TYPE_CHECKING

import pytest

from sparkcache.connector import ByteRange
from sparkcache.errors import CredentialsError, SourceError
from sparkcache.storage import Traffic, at_once

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sparkcache.testing.s3_server import S3Server
    from tests.unit.storage.stores import LocalStore, S3Store, Store

NAMES = ["a b", "a%20b", "a+b", "ä/ö", "a#b?c=d", "x:y", "~", "a//b", "plain", "a/b"]


def uri(store: Store, name: str) -> str:
    return f"{store.storage.root}/{name}"


def put_many(store: Store, count: int) -> list[str]:
    names = [f"{number:03}" for number in range(count)]
    for name in names:
        store.put(name, name.encode() * 10, {"topic": f"of {name}"})
    return names


def data(found: bytes | SourceError) -> bytes:
    assert isinstance(found, bytes)
    return found


def test_objects_come_in_the_order_in_which_they_are_wanted(store: Store) -> None:
    names = put_many(store, 100)
    wanted = [*reversed(names), names[7], names[7]]
    found = list(store.storage.get_many([uri(store, name) for name in wanted]))
    assert found == [store.storage.get(uri(store, name)) for name in wanted]


@pytest.mark.parametrize("name", NAMES)
def test_names_are_taken_as_they_are(store: Store, name: str) -> None:
    if "//" in name and not store.keeps_metadata:
        pytest.skip("no path has it")
    store.put(name, b"data", {"role": "index"})
    (found,) = store.storage.get_many([uri(store, name)])
    assert found == store.storage.get(uri(store, name))
    assert found.data == b"data"


def test_a_missing_object_is_an_error_in_its_place(store: Store) -> None:
    store.put("a", b"1")
    store.put("c", b"3")
    wanted = [uri(store, name) for name in "abc"]
    first, missing, last = store.storage.get_many(wanted)
    assert [first, last] == [store.storage.get(wanted[0]), store.storage.get(wanted[2])]
    assert isinstance(missing, SourceError)
    assert missing.uri == wanted[1]


def test_an_empty_object_has_no_bytes(store: Store) -> None:
    store.put("empty", b"")
    (found,) = store.storage.get_many([uri(store, "empty")])
    assert found == store.storage.get(uri(store, "empty"))


def test_nothing_is_wanted(store: Store) -> None:
    assert list(store.storage.get_many([])) == []
    assert list(store.storage.read_many([])) == []


def test_ranges_come_in_the_order_in_which_they_are_wanted(store: Store) -> None:
    names = put_many(store, 40)
    ids = [store.storage.get(uri(store, name)).id for name in names]
    wanted = [
        ByteRange(id_, number % 29, 30 - number % 29) for number, id_ in enumerate(ids)
    ]
    found = list(map(data, store.storage.read_many(wanted)))
    assert found == [
        (name.encode() * 10)[number % 29 :] for number, name in enumerate(names)
    ]


def test_a_range_of_no_bytes_costs_no_request(store: Store) -> None:
    store.put("name", b"12345")
    planned = store.find("name")
    store.remove("name")
    assert list(store.storage.read_many([ByteRange(planned, 5, 0)])) == [b""]


def test_ranges_of_other_versions_are_errors_in_their_place(store: Store) -> None:
    for name in "abc":
        store.put(name, b"12345")
    planned = [store.find(name) for name in "abc"]
    store.put("b", b"54321")
    first, changed, last = store.storage.read_many(
        [ByteRange(object_id, 1, 3) for object_id in planned]
    )
    assert (first, last) == (b"234", b"234")
    assert isinstance(changed, SourceError)
    assert "overwritten" in str(changed)


def test_a_range_of_what_may_grow_is_read_of_any_version(store: Store) -> None:
    store.put("name", b"12345")
    planned = store.find("name").may_grow()
    store.put("name", b"1234567")
    (found,) = store.storage.read_many([ByteRange(planned, 2, 3)])
    assert found == b"345"


def test_a_range_beyond_the_end_is_an_error(store: Store, pauses: list[float]) -> None:
    store.put("name", b"12345")
    planned = store.find("name")
    (found,) = store.storage.read_many([ByteRange(planned, 3, 10)])
    assert isinstance(found, SourceError)
    assert found.offset == 5


@pytest.mark.parametrize("kind", ["local", "s3"])
def test_counts_what_was_read(kind: str, request: pytest.FixtureRequest) -> None:
    store: LocalStore | S3Store = request.getfixturevalue(kind)
    names = put_many(store, 20)
    found = [store.find(name) for name in names]
    list(store.storage.get_many([each.uri for each in found]))
    assert store.traffic == Traffic(gets=20, received_bytes=20 * 30)
    list(store.storage.read_many([ByteRange(each, 1, 5) for each in found]))
    assert store.traffic == Traffic(gets=40, received_bytes=20 * 35)


def test_boto3_repeats_what_fails(
    s3: S3Store, server: S3Server, pauses: list[float]
) -> None:
    names = put_many(s3, 8)
    server.fail("003", status=503, code="SlowDown", times=3)
    server.break_off("005", after_bytes=10, times=1)
    wanted = [uri(s3, name) for name in names]
    found = list(s3.open().get_many(wanted))
    assert found == [s3.storage.get(each) for each in wanted]
    counted = s3.traffic
    assert (counted.gets, counted.retries) == (8 + 3 + 1 + 8, 4)
    assert len(pauses) == 2  # obstore does not wait for boto3's first attempt


def test_what_is_refused_is_an_error(s3: S3Store, server: S3Server) -> None:
    names = put_many(s3, 3)
    server.refuse()
    found = list(s3.open().get_many([uri(s3, name) for name in names]))
    assert all(isinstance(each, CredentialsError) for each in found)


def test_credentials_that_come_later_are_used(
    s3: S3Store, server: S3Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = put_many(s3, 3)
    wanted = [uri(s3, name) for name in names]
    storage = s3.open()
    with monkeypatch.context() as without:
        without.delenv("AWS_ACCESS_KEY_ID")
        found = list(storage.get_many(wanted))
        assert all(isinstance(each, CredentialsError) for each in found)
    assert list(storage.get_many(wanted)) == [s3.storage.get(each) for each in wanted]


def test_a_server_that_obstore_cannot_read_from(
    s3: S3Store, server: S3Server, caplog: pytest.LogCaptureFixture
) -> None:
    """Without Content-Range it takes no range for one; boto3 reads what it gets."""
    names = put_many(s3, 30)
    ranges = [ByteRange(s3.find(name), 0, 3) for name in names]
    server.hide("Content-Range")
    server.forget()
    storage = s3.open()
    for wanted in ranges:
        assert list(storage.read_many([wanted])) == [wanted.object.uri[-3:].encode()]
    assert len(server.requests()) == 30 + 3
    (warned,) = [record.getMessage() for record in caplog.records]
    assert "read with boto3" in warned


def test_the_requester_pays_where_it_agrees(s3: S3Store, server: S3Server) -> None:
    names = put_many(s3, 2)
    server.forget()
    list(s3.open(requester_pays=True).get_many([uri(s3, name) for name in names]))
    assert [request.payer for request in server.requests()] == ["requester"] * 2


def test_anonymous_requests_are_not_signed(
    s3: S3Store, server: S3Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    s3.put("name", b"data")
    server.client.put_object_acl(Bucket=s3.bucket, Key="prefix/name", ACL="public-read")
    monkeypatch.delenv("AWS_ACCESS_KEY_ID")
    server.forget()
    (found,) = s3.open(anonymous=True).get_many([uri(s3, "name")])
    assert not isinstance(found, SourceError)
    assert [request.region for request in server.requests()] == [""]


@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded")
def test_a_forked_process_reads_with_boto3(s3: S3Store) -> None:
    """The threads of obstore are not there after a fork, so it would wait for ever."""
    names = put_many(s3, 3)
    wanted = [uri(s3, name) for name in names]
    expected = list(s3.storage.get_many(wanted))
    child = os.fork()
    if not child:
        signal.alarm(30)
        os._exit(0 if list(s3.storage.get_many(wanted)) == expected else 1)
    _, status = os.waitpid(child, 0)
    assert os.waitstatus_to_exitcode(status) == 0


def test_results_come_in_order_and_no_call_is_made_in_vain() -> None:
    calls: list[int] = []

    def call(numbers: Sequence[int]) -> list[int]:
        calls.extend(numbers)
        return [-number for number in numbers]

    found = list(at_once.results(call, range(1000), 20))
    assert found == [-number for number in range(1000)]
    calls.clear()
    some = at_once.results(call, range(100_000), 20)
    assert next(some) == 0
    some.close()
    assert len(calls) <= 2 * 20 * 16
