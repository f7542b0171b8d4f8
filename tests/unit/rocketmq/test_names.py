"""What users call queues, and what objects are called."""

from __future__ import annotations

import pytest

from sparkcache.errors import ConfigError
from sparkcache.model import Position, qualified_topic
from sparkcache_rocketmq import RocketMQConnector, names
from sparkcache_rocketmq.names import COMMIT_LOG, CONSUME_QUEUE, Key, Queue
from sparkcache_rocketmq.testing import Layout

QUEUE = Queue("DefaultCluster", "broker-a", "TopicA", 3)
POSIX = "212d6b50_DefaultCluster/broker-a/TopicA/3"
CHUNKS = "-1443432837/DefaultCluster/broker-a/TopicA/3"


@pytest.mark.parametrize(
    ("given", "full"),
    [
        ("TopicA", "TopicA"),
        ("TopicA/3", "TopicA/3"),
        ("TopicA/03", "TopicA/3"),
        ("broker-a/TopicA", "broker-a/TopicA"),
        ("broker-a/TopicA/3", "broker-a/TopicA/3"),
        ("DefaultCluster/broker-a/TopicA", "DefaultCluster/broker-a/TopicA"),
        (POSIX, "DefaultCluster/broker-a/TopicA/3"),
        ("212d6b51_DefaultCluster/b/T/3", "212d6b51_DefaultCluster/b/T/3"),
        ("%RETRY%group", "%RETRY%group"),
        ("7", "7"),
    ],
)
def test_names_as_users_give_them(given: str, full: str) -> None:
    assert names.full_name(given) == full
    assert names.full_name(full) == full


@pytest.mark.parametrize("given", ["", "/", "a//3", "/a", "a/", "a/b/c/d", "a/b/c/d/3"])
def test_invalid_names(given: str) -> None:
    with pytest.raises(ConfigError, match="is not a topic's name: give 'TopicA'"):
        names.full_name(given)


@pytest.mark.parametrize(
    ("name", "is_one", "means_it"),
    [
        ("TopicA", False, True),
        ("TopicA/3", False, True),
        ("TopicA/4", False, False),
        ("TopicB", False, False),
        ("broker-a/TopicA", False, True),
        ("broker-a/TopicA/3", False, True),
        ("broker-b/TopicA/3", False, False),
        ("DefaultCluster/broker-a/TopicA", False, True),
        ("DefaultCluster/broker-a/TopicA/3", True, True),
        ("Other/broker-a/TopicA/3", True, False),
    ],
)
def test_which_queues_a_name_means(name: str, is_one: bool, means_it: bool) -> None:
    assert names.is_one(name) == is_one
    assert names.matches(str(QUEUE), name) == means_it


def test_a_shorter_name_is_not_one_of_a_longer_one() -> None:
    assert not names.matches("TopicA", "TopicA/3")
    assert names.matches("TopicA/3", "TopicA")


@pytest.mark.parametrize(
    ("topic", "text", "position"),
    [
        ("c/b/T/3", "100", Position(3, 100)),
        ("c/b/T/3", "3:100", Position(3, 100)),
        ("T", "100", Position(0, 100)),
        ("", "7:100", Position(7, 100)),
    ],
)
def test_positions(topic: str, text: str, position: Position) -> None:
    assert names.position(topic, text) == position


@pytest.mark.parametrize("text", ["", "-1", "x", "3:", ":3", "3:x", "1:3:4", "1.5"])
def test_invalid_positions(text: str) -> None:
    with pytest.raises(ValueError, match="neither a queue offset, such as 100, nor"):
        names.position("c/b/T/3", text)


def test_a_position_of_another_queue() -> None:
    with pytest.raises(ValueError, match="'4:100' is not a position of queue 3"):
        names.position("c/b/T/3", "4:100")


@pytest.mark.parametrize(
    ("key", "found"),
    [
        (f"{POSIX}/COMMIT_LOG/cfcd2084{0:020}", Key(QUEUE, COMMIT_LOG, 0)),
        (f"{POSIX}/CONSUME_QUEUE/08f90c1a{2000:020}", Key(QUEUE, CONSUME_QUEUE, 2000)),
        (f"{POSIX}/COMMIT_LOG/952eb029{1 << 30:020}", Key(QUEUE, COMMIT_LOG, 1 << 30)),
        (
            f"broker-a/TopicA/3/COMMIT_LOG/b10da568{4294937144:020}",
            Key(Queue("", "broker-a", "TopicA", 3), COMMIT_LOG, 4294937144),
        ),
        (
            f"x/broker-a/%RETRY%g/0/COMMIT_LOG/cfcd2084{0:020}",
            Key(Queue("x", "broker-a", "%RETRY%g", 0), COMMIT_LOG, 0),
        ),
        (
            f"{CHUNKS}/COMMIT_LOG/seg-0/chunk/chunk-0",
            Key(QUEUE, COMMIT_LOG, 0, 0),
        ),
        (
            f"{CHUNKS}/CONSUME_QUEUE/seg-2000/chunk/chunk-40",
            Key(QUEUE, CONSUME_QUEUE, 2000, 40),
        ),
        (
            f"{CHUNKS}/COMMIT_LOG/seg-77/segment/segment-0",
            Key(QUEUE, COMMIT_LOG, 77, None, is_merged=True),
        ),
        (
            "broker-a/TopicA/3/COMMIT_LOG/seg-77/chunk/chunk-5",
            Key(Queue("", "broker-a", "TopicA", 3), COMMIT_LOG, 77, 5),
        ),
    ],
)
def test_names_of_objects(key: str, found: Key) -> None:
    assert Key.parse(key) == found
    assert found.start == found.base + (found.chunk_offset or 0)


@pytest.mark.parametrize(
    "key",
    [
        f"{POSIX}/INDEX/cfcd2084{0:020}",
        f"{POSIX}/COMMIT_LOG/cfcd2085{0:020}",
        f"{POSIX}/COMMIT_LOG/cfcd2084{0:019}",
        f"{POSIX}/COMMIT_LOG/cfcd2084{0:020}.tmp",
        f"212d6b50_DefaultCluster/broker-a/rmq_sys_INDEX/0/COMMIT_LOG/cfcd2084{0:020}",
        f"a/b/c/d/3/COMMIT_LOG/cfcd2084{0:020}",
        f"TopicA/3/COMMIT_LOG/cfcd2084{0:020}",
        f"b/TopicA/x/COMMIT_LOG/cfcd2084{0:020}",
        f"b/T/3/COMMIT_LOG/seg-{1 << 63}/chunk/chunk-0",
        f"{CHUNKS}/COMMIT_LOG/seg-0/segment/segment-1",
        "config/tieredStoreMetadata.json",
        "",
    ],
)
def test_names_of_other_objects(key: str) -> None:
    assert Key.parse(key) is None


@pytest.mark.parametrize("cluster", ["DefaultCluster", ""])
@pytest.mark.parametrize("root", ["s3://bucket", "file:///a#b/c"])
def test_queues_are_counted_with_those_of_their_topic(cluster: str, root: str) -> None:
    queue = Queue(cluster, "broker-a", "%RETRY%group", 3)
    group = RocketMQConnector().group(qualified_topic(str(queue), root))
    assert group == f"{cluster}/%RETRY%group".lstrip("/")


@pytest.mark.parametrize("layout", Layout)
def test_names_are_those_that_are_written(layout: Layout) -> None:
    folder = layout.folder("DefaultCluster", "broker-a", "TopicA", 3)
    key = Key.parse(f"{folder}/COMMIT_LOG/{layout.object_name(1 << 40, 0)}")
    assert key is not None
    assert (key.queue, key.start) == (QUEUE, 1 << 40)
    assert str(key.queue) == "DefaultCluster/broker-a/TopicA/3"
    assert key.queue.path == "broker-a/TopicA/3"
