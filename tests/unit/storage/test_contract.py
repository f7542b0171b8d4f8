"""What every storage does, wherever its objects lie."""

from __future__ import annotations

import pickle
from contextlib import closing
from typing import TYPE_CHECKING

import pytest

from sparkcache.config import CacheConfig
from sparkcache.errors import SourceError
from sparkcache.fetch.joined import JoinedRanges
from sparkcache.model import ObjectId
from sparkcache.storage import Traffic, open_storage

if TYPE_CHECKING:
    from sparkcache.connector import ByteStream
    from tests.unit.storage.conftest import LocalPlace, Place, S3Place

DATA = bytes(range(256)) * 40


def read_all(stream: ByteStream, chunk_bytes: int) -> bytes:
    chunks = []
    while chunk := stream.read(chunk_bytes):
        assert len(chunk) <= chunk_bytes
        chunks.append(chunk)
    stream.close()
    return b"".join(chunks)


def read_range(place: Place, planned: ObjectId, offset: int, size_bytes: int) -> bytes:
    with closing(place.storage.open(planned, offset, size_bytes)) as stream:
        return stream.read(size_bytes)


def names(place: Place) -> list[str]:
    root = f"{place.storage.root}/"
    uris = [found.uri for found in place.storage.list()]
    assert all(uri.startswith(root) for uri in uris)
    return [uri.removeprefix(root) for uri in uris]


def test_lists_everything_in_the_order_of_names(place: Place) -> None:
    put = ["b", "a/1", "a-1", "a/b/c", "A", "a.1", "a/10", "é", "z", "Ω"]
    for name in put:
        place.put(name, name.encode())
    assert names(place) == sorted(put)  # by code point, so a-1 before a/1


def test_lists_sizes_and_versions(place: Place) -> None:
    place.put("one", b"1")
    place.put("three", b"333")
    one, three = place.storage.list()
    assert (one.size_bytes, three.size_bytes) == (1, 3)
    assert one.version
    assert one.version != three.version
    assert place.find("one") == one


def test_lists_nothing_where_there_is_nothing(place: Place) -> None:
    assert names(place) == []


def test_what_is_removed_while_it_is_listed_is_no_error(place: Place) -> None:
    for name in "abc":
        place.put(name, b"x")
    listing = place.storage.list()
    first = next(listing)
    place.remove("b")
    rest = [found.uri[-1] for found in listing]
    assert first.uri[-1] == "a"
    assert rest in (["c"], ["b", "c"])


@pytest.mark.parametrize("name", ["a b", "a%20b", "a+b", "ä/ö", "a#b?c=d", "x:y", "~"])
def test_names_are_taken_as_they_are(place: Place, name: str) -> None:
    place.put(name, DATA)
    assert names(place) == [name]
    found = place.find(name)
    assert place.storage.get(found.uri).id == found
    assert read_all(place.storage.open(found, 0, 10), 10) == DATA[:10]


def test_gets_a_whole_object(place: Place) -> None:
    place.put("name", DATA, {"role": "index", "topic": "a/b"})
    stored = place.storage.get(f"{place.storage.root}/name")
    assert stored.data == DATA
    assert stored.id == place.find("name")
    wanted = {"role": "index", "topic": "a/b"} if place.keeps_metadata else {}
    assert dict(stored.metadata) == wanted


def test_gets_an_empty_object(place: Place) -> None:
    place.put("empty", b"")
    assert place.storage.get(f"{place.storage.root}/empty").data == b""


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
    place: Place, offset: int, size_bytes: int, chunk_bytes: int
) -> None:
    place.put("name", DATA)
    stream = place.storage.open(place.find("name"), offset, size_bytes)
    assert read_all(stream, chunk_bytes) == DATA[offset : offset + size_bytes]


def test_tells_the_position(place: Place) -> None:
    place.put("name", DATA)
    stream = place.storage.open(place.find("name"), 100, 50)
    assert stream.position == 100
    assert stream.read(20) == DATA[100:120]
    assert stream.position == 120
    assert stream.read(1000) == DATA[120:150]
    assert stream.position == 150
    assert stream.read(1) == b""
    assert stream.position == 150
    stream.close()


def test_reads_nothing_of_no_bytes(place: Place) -> None:
    place.put("name", DATA)
    stream = place.storage.open(place.find("name"), 100, 50)
    assert stream.read(0) == b""
    assert stream.read(1) == DATA[100:101]
    stream.close()


@pytest.mark.parametrize("offset", [0, 100, len(DATA)])
def test_a_range_of_no_bytes_has_none_and_costs_no_request(
    place: Place, offset: int
) -> None:
    place.put("name", DATA)
    planned = place.find("name")
    place.remove("name")
    stream = place.storage.open(planned, offset, 0)
    assert stream.position == offset
    assert stream.read(10) == b""
    assert stream.position == offset
    stream.close()
    assert stream.read(10) == b""


@pytest.mark.parametrize("kind", ["local", "s3"])
def test_a_range_of_no_bytes_is_not_counted(
    kind: str, request: pytest.FixtureRequest
) -> None:
    place: LocalPlace | S3Place = request.getfixturevalue(kind)
    place.put("name", DATA)
    place.storage.open(place.find("name"), 0, 0).close()
    assert place.traffic == Traffic()


def test_a_range_can_be_given_up(place: Place) -> None:
    place.put("name", DATA)
    stream = place.storage.open(place.find("name"), 0, len(DATA))
    stream.read(10)
    stream.close()
    stream.close()
    assert stream.read(10) == b""


def test_an_object_that_was_overwritten_is_refused(place: Place) -> None:
    place.put("name", DATA)
    planned = place.find("name")
    place.put("name", DATA[::-1])
    with pytest.raises(SourceError, match="overwritten") as caught:
        place.storage.open(planned, 0, 10).close()
    assert caught.value.uri == planned.uri
    assert planned.version in caught.value.expected


def test_what_may_grow_is_read_as_far_as_it_is_asked_for(place: Place) -> None:
    place.put("name", DATA)
    planned = place.find("name").may_grow()
    assert planned == ObjectId(f"{place.storage.root}/name", 0, "")
    place.put("name", DATA + b"what came later")
    assert place.find("name").may_grow() == planned
    stream = place.storage.open(planned, 100, len(DATA) - 100)
    assert read_all(stream, 4096) == DATA[100:]


def test_what_may_grow_is_not_shorter_than_asked_for(
    place: Place, pauses: list[float]
) -> None:
    place.put("name", DATA)
    planned = place.find("name").may_grow()
    place.put("name", DATA[:2000])
    stream = place.storage.open(planned, 1000, len(DATA) - 1000)
    with pytest.raises(SourceError, match="end of the") as caught:
        read_all(stream, 4096)
    stream.close()
    assert caught.value.uri == planned.uri
    assert caught.value.offset == 2000


def test_a_range_behind_the_end_of_what_may_grow(
    place: Place, pauses: list[float]
) -> None:
    place.put("name", DATA[:2000])
    planned = place.find("name").may_grow()
    with pytest.raises(SourceError) as caught:
        read_range(place, planned, 3000, 10)
    assert caught.value.offset == 3000


def test_a_missing_object_is_an_error(place: Place) -> None:
    place.put("name", DATA)
    planned = place.find("name")
    place.remove("name")
    with pytest.raises(SourceError) as caught:
        place.storage.get(planned.uri)
    assert caught.value.uri == planned.uri
    with pytest.raises(SourceError) as caught:
        place.storage.open(planned, 0, 10).close()
    assert caught.value.uri == planned.uri


def test_a_range_beyond_the_end_is_an_error(place: Place, pauses: list[float]) -> None:
    place.put("name", DATA)
    stream = place.storage.open(place.find("name"), 1000, len(DATA))
    while stream.position < len(DATA):
        assert stream.read(4096)
    with pytest.raises(SourceError, match="end of the") as caught:
        stream.read(4096)
    stream.close()
    assert caught.value.offset == len(DATA)


@pytest.mark.parametrize("root", ["file:///no/such/directory", "s3://no-such-bucket"])
@pytest.mark.usefixtures("server")
def test_a_missing_root_is_an_error(root: str) -> None:
    storage = open_storage(root, CacheConfig(), Traffic())
    with pytest.raises(SourceError) as caught:
        list(storage.list())
    assert caught.value.uri == root
    with pytest.raises(SourceError):
        storage.get(f"{root}/name")


@pytest.mark.parametrize("kind", ["local", "s3"])
def test_what_is_refused_is_an_error(kind: str, request: pytest.FixtureRequest) -> None:
    place: LocalPlace | S3Place = request.getfixturevalue(kind)
    place.put("name", DATA)
    planned = place.find("name")
    with place.refused():
        for attempt in (
            lambda: list(place.storage.list()),
            lambda: place.storage.get(planned.uri),
            lambda: place.storage.open(planned, 0, 1),
        ):
            with pytest.raises(SourceError, match=r"denied"):
                attempt()


@pytest.mark.parametrize("kind", ["local", "s3"])
def test_counts_what_was_read(kind: str, request: pytest.FixtureRequest) -> None:
    place: LocalPlace | S3Place = request.getfixturevalue(kind)
    place.put("name", DATA)
    planned = place.find("name")
    assert place.traffic == Traffic()
    place.storage.get(planned.uri)
    read_all(place.storage.open(planned, 100, 1000), 300)
    assert place.traffic == Traffic(gets=2, received_bytes=len(DATA) + 1000)


def test_errors_travel(place: Place) -> None:
    """From a loader to a task, and on to the driver."""
    with pytest.raises(SourceError) as caught:
        place.storage.get(f"{place.storage.root}/none")
    travelled = pickle.loads(pickle.dumps(caught.value))
    assert str(travelled) == str(caught.value)


def test_says_what_it_is(place: Place) -> None:
    assert place.storage.root in repr(place.storage)


@pytest.mark.parametrize("size_bytes", [1, 100, len(DATA), 2 * len(DATA)])
def test_the_end_of_an_object_comes_with_its_identity(
    place: Place, size_bytes: int
) -> None:
    place.put("name", DATA)
    planned = place.find("name")
    found = place.storage.get_end(planned.uri, size_bytes)
    assert found.id == planned
    assert found.data == DATA[-size_bytes:]
    with pytest.raises(SourceError):
        place.storage.get_end(f"{place.storage.root}/nothing", size_bytes)


def test_ranges_are_read_as_one(place: Place) -> None:
    place.put("name", DATA)
    planned = place.find("name")
    ranges = ((100, 50), (1000, 0), (5000, 3000), (len(DATA) - 1, 1))
    joined = JoinedRanges(place.storage, planned, ranges)
    assert joined.position == 100
    expected = b"".join(DATA[offset : offset + size] for offset, size in ranges)
    assert read_all(joined, 77) == expected
    assert joined.read(10) == b""
    given_up = JoinedRanges(place.storage, planned, ranges)
    given_up.close()
    assert given_up.read(10) == b""
