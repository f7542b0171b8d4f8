"""The contract that every storage fulfils: memory, local directory and S3."""

from __future__ import annotations

import pickle
import time
from contextlib import closing
from typing import TYPE_CHECKING

import pytest

from sparkcache.config import StorageConfig
from sparkcache.errors import SourceError
from sparkcache.fetch.joined import JoinedRanges
from sparkcache.model import ObjectId
from sparkcache.storage import Traffic, open_storage

if TYPE_CHECKING:
    from sparkcache.connector import ByteStream
    from tests.unit.storage.stores import LocalStore, S3Store, Store

DATA = bytes(range(256)) * 40


def read_all(stream: ByteStream, chunk_bytes: int) -> bytes:
    chunks = []
    while chunk := stream.read(chunk_bytes):
        assert len(chunk) <= chunk_bytes
        chunks.append(chunk)
    stream.close()
    return b"".join(chunks)


def read_range(store: Store, planned: ObjectId, offset: int, size_bytes: int) -> bytes:
    with closing(store.storage.open(planned, offset, size_bytes)) as stream:
        return stream.read(size_bytes)


def names(store: Store) -> list[str]:
    root = f"{store.storage.root}/"
    uris = [stored.uri for stored in store.storage.list()]
    assert all(uri.startswith(root) for uri in uris)
    return [uri.removeprefix(root) for uri in uris]


def test_lists_everything_in_the_order_of_names(store: Store) -> None:
    put = ["b", "a/1", "a-1", "a/b/c", "A", "a.1", "a/10", "é", "z", "Ω"]
    for name in put:
        store.put(name, name.encode())
    assert names(store) == sorted(put)  # by code point, so a-1 before a/1


def test_lists_sizes_and_versions(store: Store) -> None:
    store.put("one", b"1")
    store.put("three", b"333")
    one, three = store.storage.list()
    assert (one.size_bytes, three.size_bytes) == (1, 3)
    assert one.version
    assert one.version != three.version
    assert store.find("one") == one


def test_lists_nothing_where_there_is_nothing(store: Store) -> None:
    assert names(store) == []


def test_what_is_removed_while_it_is_listed_is_no_error(store: Store) -> None:
    for name in "abc":
        store.put(name, b"x")
    listing = store.storage.list()
    first = next(listing)
    store.remove("b")
    rest = [stored.uri[-1] for stored in listing]
    assert first.uri[-1] == "a"
    assert rest in (["c"], ["b", "c"])


@pytest.mark.parametrize("name", ["a b", "a%20b", "a+b", "ä/ö", "a#b?c=d", "x:y", "~"])
def test_names_are_taken_as_they_are(store: Store, name: str) -> None:
    store.put(name, DATA)
    assert names(store) == [name]
    listed = store.find(name)
    assert store.storage.get(listed.uri).id == listed
    assert read_all(store.storage.open(listed, 0, 10), 10) == DATA[:10]


def test_gets_a_whole_object(store: Store) -> None:
    store.put("name", DATA, {"role": "index", "topic": "a/b"})
    stored = store.storage.get(f"{store.storage.root}/name")
    assert stored.data == DATA
    assert stored.id == store.find("name")
    wanted = {"role": "index", "topic": "a/b"} if store.keeps_metadata else {}
    assert dict(stored.metadata) == wanted


def test_gets_an_empty_object(store: Store) -> None:
    store.put("empty", b"")
    assert store.storage.get(f"{store.storage.root}/empty").data == b""


@pytest.mark.parametrize(
    ("offset", "size_bytes"),
    [
        pytest.param(0, len(DATA), id="the whole"),
        pytest.param(0, 1, id="the first byte"),
        pytest.param(len(DATA) - 1, 1, id="the last byte"),
        pytest.param(1000, 3000, id="the middle"),
    ],
)
@pytest.mark.parametrize("chunk_bytes", [1 << 20, 999])
def test_reads_a_range(
    store: Store, offset: int, size_bytes: int, chunk_bytes: int
) -> None:
    store.put("name", DATA)
    stream = store.storage.open(store.find("name"), offset, size_bytes)
    assert read_all(stream, chunk_bytes) == DATA[offset : offset + size_bytes]


def test_has_the_position_of_the_next_byte(store: Store) -> None:
    store.put("name", DATA)
    stream = store.storage.open(store.find("name"), 100, 50)
    assert stream.position == 100
    assert stream.read(20) == DATA[100:120]
    assert stream.position == 120
    assert stream.read(1000) == DATA[120:150]
    assert stream.position == 150
    assert stream.read(1) == b""
    assert stream.position == 150
    stream.close()


def test_reads_nothing_of_no_bytes(store: Store) -> None:
    store.put("name", DATA)
    stream = store.storage.open(store.find("name"), 100, 50)
    assert stream.read(0) == b""
    assert stream.read(1) == DATA[100:101]
    stream.close()


@pytest.mark.parametrize("offset", [0, 100, len(DATA)])
def test_a_range_of_no_bytes_has_none_and_costs_no_request(
    store: Store, offset: int
) -> None:
    store.put("name", DATA)
    planned = store.find("name")
    store.remove("name")
    stream = store.storage.open(planned, offset, 0)
    assert stream.position == offset
    assert stream.read(10) == b""
    assert stream.position == offset
    stream.close()
    assert stream.read(10) == b""


@pytest.mark.parametrize("kind", ["local", "s3"])
def test_a_range_of_no_bytes_is_not_counted(
    kind: str, request: pytest.FixtureRequest
) -> None:
    store: LocalStore | S3Store = request.getfixturevalue(kind)
    store.put("name", DATA)
    store.storage.open(store.find("name"), 0, 0).close()
    assert store.traffic == Traffic()


def test_a_range_can_be_closed_early(store: Store) -> None:
    store.put("name", DATA)
    stream = store.storage.open(store.find("name"), 0, len(DATA))
    stream.read(10)
    stream.close()
    stream.close()
    assert stream.read(10) == b""


def test_an_object_that_was_overwritten_is_refused(store: Store) -> None:
    store.put("name", DATA)
    planned = store.find("name")
    store.put("name", DATA[::-1])
    with pytest.raises(SourceError, match="overwritten") as caught:
        store.storage.open(planned, 0, 10).close()
    assert caught.value.uri == planned.uri
    assert planned.version in caught.value.expected


def test_what_may_grow_is_read_as_far_as_requested(store: Store) -> None:
    store.put("name", DATA)
    planned = store.find("name").may_grow()
    assert planned == ObjectId(f"{store.storage.root}/name", 0, "")
    store.put("name", DATA + b"what came later")
    assert store.find("name").may_grow() == planned
    stream = store.storage.open(planned, 100, len(DATA) - 100)
    assert read_all(stream, 4096) == DATA[100:]


def test_what_may_grow_must_not_be_shorter_than_requested(
    store: Store, pauses: list[float]
) -> None:
    store.put("name", DATA)
    planned = store.find("name").may_grow()
    store.put("name", DATA[:2000])
    stream = store.storage.open(planned, 1000, len(DATA) - 1000)
    with pytest.raises(SourceError, match="end of the") as caught:
        read_all(stream, 4096)
    stream.close()
    assert caught.value.uri == planned.uri
    assert caught.value.offset == 2000


def test_a_range_after_the_end_of_what_may_grow(
    store: Store, pauses: list[float]
) -> None:
    store.put("name", DATA[:2000])
    planned = store.find("name").may_grow()
    with pytest.raises(SourceError) as caught:
        read_range(store, planned, 3000, 10)
    assert caught.value.offset == 3000


def test_a_missing_object_is_an_error(store: Store) -> None:
    store.put("name", DATA)
    planned = store.find("name")
    store.remove("name")
    with pytest.raises(SourceError) as caught:
        store.storage.get(planned.uri)
    assert caught.value.uri == planned.uri
    with pytest.raises(SourceError) as caught:
        store.storage.open(planned, 0, 10).close()
    assert caught.value.uri == planned.uri


def test_a_range_beyond_the_end_is_an_error(store: Store, pauses: list[float]) -> None:
    store.put("name", DATA)
    stream = store.storage.open(store.find("name"), 1000, len(DATA))
    while stream.position < len(DATA):
        assert stream.read(4096)
    with pytest.raises(SourceError, match="end of the") as caught:
        stream.read(4096)
    stream.close()
    assert caught.value.offset == len(DATA)


@pytest.mark.parametrize("root", ["file:///no/such/directory", "s3://no-such-bucket"])
@pytest.mark.usefixtures("server")
def test_a_missing_root_is_an_error(root: str) -> None:
    storage = open_storage(root, StorageConfig(), Traffic())
    with pytest.raises(SourceError) as caught:
        list(storage.list())
    assert caught.value.uri == root
    with pytest.raises(SourceError):
        storage.get(f"{root}/name")


@pytest.mark.parametrize("kind", ["local", "s3"])
def test_what_is_refused_is_an_error(kind: str, request: pytest.FixtureRequest) -> None:
    store: LocalStore | S3Store = request.getfixturevalue(kind)
    store.put("name", DATA)
    planned = store.find("name")
    with store.refused():
        for attempt in (
            lambda: list(store.storage.list()),
            lambda: store.storage.get(planned.uri),
            lambda: store.storage.open(planned, 0, 1),
        ):
            with pytest.raises(SourceError, match=r"denied"):
                attempt()


@pytest.mark.parametrize("kind", ["local", "s3"])
def test_counts_what_was_read(kind: str, request: pytest.FixtureRequest) -> None:
    store: LocalStore | S3Store = request.getfixturevalue(kind)
    store.put("name", DATA)
    planned = store.find("name")
    assert store.traffic == Traffic()
    store.storage.get(planned.uri)
    read_all(store.storage.open(planned, 100, 1000), 300)
    assert store.traffic == Traffic(gets=2, received_bytes=len(DATA) + 1000)


def test_errors_can_be_pickled(store: Store) -> None:
    """They are sent from a loader to a task, and on to the driver."""
    with pytest.raises(SourceError) as caught:
        store.storage.get(f"{store.storage.root}/none")
    unpickled = pickle.loads(pickle.dumps(caught.value))
    assert str(unpickled) == str(caught.value)


def test_repr_has_the_root(store: Store) -> None:
    assert store.storage.root in repr(store.storage)


@pytest.mark.parametrize("size_bytes", [1, 100, len(DATA), 2 * len(DATA)])
def test_the_end_of_an_object_comes_with_its_identity(
    store: Store, size_bytes: int
) -> None:
    store.put("name", DATA)
    planned = store.find("name")
    end = store.storage.get_end(planned.uri, size_bytes)
    assert end.id == planned
    assert end.data == DATA[-size_bytes:]
    with pytest.raises(SourceError):
        store.storage.get_end(f"{store.storage.root}/nothing", size_bytes)


def test_an_object_comes_with_the_time_when_it_was_written(store: Store) -> None:
    before = time.time()
    store.put("name", DATA)
    after = time.time()
    uri = store.find("name").uri
    for stored in (store.storage.get(uri), store.storage.get_end(uri, 1)):
        # S3 tells whole seconds.
        assert int(before) - 1 <= stored.modified_ms / 1e3 <= after + 1


def test_ranges_are_read_as_one(store: Store) -> None:
    store.put("name", DATA)
    planned = store.find("name")
    ranges = ((100, 50), (1000, 0), (5000, 3000), (len(DATA) - 1, 1))
    joined = JoinedRanges(store.storage, planned, ranges)
    assert joined.position == 100
    expected = b"".join(DATA[offset : offset + size] for offset, size in ranges)
    assert read_all(joined, 77) == expected
    assert joined.read(10) == b""
    closed = JoinedRanges(store.storage, planned, ranges)
    closed.close()
    assert closed.read(10) == b""


def test_identities_are_those_of_the_listing(store: Store) -> None:
    put = ["a/b c", "a/é+%20", "a-1", "b"]
    for name in put:
        store.put(name, name.encode())
    uris = {name: f"{store.storage.root}/{name}" for name in (*put, "a/c", "none/d")}
    assert store.storage.listed([]) == {}
    assert store.storage.listed(uris.values()) == {
        uris[name]: store.find(name) for name in put
    }
