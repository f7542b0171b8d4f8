"""Which version was current at a time: the one that Delta chooses."""

from __future__ import annotations

import json
import os
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest

from sparkcache.errors import ConfigError, SourceError
from sparkcache_delta.log import Log
from sparkcache_delta.version_times import CommitTimes, LogFiles

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from tests.unit.delta.lake import Lake

T0 = datetime(2026, 1, 1, tzinfo=UTC)
T0_MS = int(T0.timestamp()) * 1000
BEFORE = "is before the first version that is kept"
AFTER = "is after the newest version"
KEEPS_TIMES = {"delta.enableInCommitTimestamps": "true"}
PROTOCOL = {
    "minReaderVersion": 1,
    "minWriterVersion": 7,
    "writerFeatures": ["inCommitTimestamp"],
}


def at(ms: float) -> datetime:
    return T0 + timedelta(milliseconds=ms)


def written(lake: Lake, times_ms: Sequence[int]) -> None:
    """Write a version for each time, the time of its file; its rows are its number."""
    for version, time_ms in enumerate(times_ms):
        lake.write("t", pa.table({"version": [version]}), mode="overwrite")
        date_file(lake, version, time_ms)


def date_file(lake: Lake, version: int, time_ms: int) -> None:
    ns = (T0_MS + time_ms) * 1_000_000
    os.utime(lake.directory / "t" / "_delta_log" / f"{version:020}.json", ns=(ns, ns))


def keep_times(lake: Lake, properties: Mapping[str, str], **recorded: int) -> None:
    """Give a table in-commit timestamps, which delta-rs does not write."""
    log = sorted((lake.directory / "t" / "_delta_log").glob("*.json"))
    for path in log:
        written = path.stat().st_mtime_ns
        actions = [json.loads(line) for line in path.read_text().splitlines()]
        for action in actions:
            if "protocol" in action:
                action["protocol"] = PROTOCOL
            if "metaData" in action:
                action["metaData"]["configuration"] = KEEPS_TIMES | dict(properties)
            if "commitInfo" in action and f"v{int(path.stem)}" in recorded:
                time_ms = T0_MS + recorded[f"v{int(path.stem)}"]
                action["commitInfo"]["inCommitTimestamp"] = time_ms
        actions.sort(key=lambda action: "commitInfo" not in action)
        path.write_text("\n".join(map(json.dumps, actions)))
        os.utime(path, ns=(written, written))


def version_read(lake: Lake, time: datetime) -> int:
    (row,) = lake.rows("t", timestampAsOf=time.isoformat())
    return int(row["version"])


@pytest.mark.parametrize(
    ("times_ms", "asked_ms", "version"),
    [
        ([0, 1000, 2000], 0, 0),
        ([0, 1000, 2000], 999.9, 0),
        ([0, 1000, 2000], 2000, 2),
        ([0, 1000, 2000], 2000.9, 2),
        ([0, 5000, 1000, 2000, 9000], 2500, 0),
        ([0, 5000, 1000, 2000, 9000], 5000, 1),
        ([0, 5000, 1000, 2000, 9000], 5001, 2),
        ([0, 5000, 1000, 2000, 9000], 8999, 3),
        ([0, 0, 0], 0, 0),
        ([0, 0, 0], 1, 1),
        ([0, 0, 0], 2, 2),
    ],
)
def test_times_that_do_not_rise_are_made_to(
    lake: Lake, times_ms: Sequence[int], asked_ms: float, version: int
) -> None:
    written(lake, times_ms)
    (lake.directory / "t" / "_delta_log" / "_staged_commits" / "x").mkdir(parents=True)
    assert version_read(lake, at(asked_ms)) == version


@pytest.mark.parametrize(
    ("asked_ms", "says"), [(-1, BEFORE), (5003, AFTER)], ids=["before", "after"]
)
def test_a_time_outside_the_log_is_named_with_that_of_the_nearest_version(
    lake: Lake, asked_ms: int, says: str
) -> None:
    written(lake, [0, 5000, 1000, 2000])
    nearest_ms = 0 if asked_ms < 0 else 5002
    with pytest.raises(ConfigError, match=says) as raised:
        lake.pin("t", timestampAsOf=at(asked_ms).isoformat())
    assert at(asked_ms).isoformat() in str(raised.value)
    assert at(nearest_ms).isoformat() in str(raised.value)


def test_the_first_version_is_the_first_that_can_still_be_read(lake: Lake) -> None:
    for version in range(6):
        table = lake.write("t", pa.table({"version": [version]}), mode="overwrite")
        if version == 4:
            table.create_checkpoint()
    for version in range(6):
        date_file(lake, version, 1000 * version)
    for version in (0, 1):
        path = lake.directory / "t" / "_delta_log" / f"{version:020}.json"
        path.unlink()
    with pytest.raises(ConfigError, match=BEFORE):
        lake.pin("t", timestampAsOf=at(3500).isoformat())
    assert version_read(lake, at(4500)) == 4
    since = Log.first_version_since
    uri = f"file://{lake.directory}/t"
    assert since(lake.storage(), uri, at(-1)) == 2
    assert since(lake.storage(), uri, at(2500)) == 3


def test_times_that_commits_record_take_precedence(lake: Lake) -> None:
    properties = {
        "delta.inCommitTimestampEnablementVersion": "2",
        "delta.inCommitTimestampEnablementTimestamp": str(T0_MS + 6000),
    }
    # The files of the last two were written long before the table had these times.
    written(lake, [1000, 0, -9000, -8000])
    keep_times(lake, properties, v2=6000, v3=7000)
    for asked_ms, version in (
        (1000, 0),
        (1001, 1),
        (5999, 1),
        (6000, 2),
        (6999, 2),
        (7000, 3),
    ):
        assert version_read(lake, at(asked_ms)) == version, asked_ms
    for asked_ms, says in ((999, BEFORE), (7001, AFTER)):
        with pytest.raises(ConfigError, match=says):
            lake.pin("t", timestampAsOf=at(asked_ms).isoformat())


def test_a_commit_that_should_record_its_time_and_does_not(lake: Lake) -> None:
    written(lake, [0])
    keep_times(lake, {})
    with pytest.raises(SourceError, match=r"0\.json: expected the time of the commit"):
        lake.pin("t", timestampAsOf=T0.isoformat())


def test_few_commits_are_read_for_the_times_that_they_record() -> None:
    read: list[int] = []

    def recorded_ms(version: int) -> int:
        read.append(version)
        return T0_MS + 10 * version

    times = CommitTimes(dict.fromkeys(range(1000), 0), KEEPS_TIMES, recorded_ms)
    assert times.current(at(5005)).version == 500
    assert times.first_since(at(5005)) == 501
    assert times.first_since(at(99_999)) == 1000
    assert len(read) < 40


def test_other_files_of_a_log() -> None:
    names = [
        "00000000000000000003.checkpoint.0000000001.0000000002.parquet",
        "00000000000000000004.checkpoint.0000000001.0000000002.parquet",
        "00000000000000000004.checkpoint.0000000002.0000000002.parquet",
        "00000000000000000006.checkpoint.80a083e8-7026-4e79-81be-64bd76c43a11.json",
        "00000000000000000002.json",
        "00000000000000000003.00000000000000000005.compacted.json",
        "00000000000000000004.crc",
        "00000000000000000005.json",
        ".00000000000000000004.json.crc",
        "_last_checkpoint",
    ]
    files = LogFiles.parse((name, 7) for name in names)
    assert files == LogFiles({2: 7, 5: 7}, frozenset({4, 6}))
    assert files.readable().modified_ms == {5: 7}
    with pytest.raises(ValueError, match="no commits"):
        CommitTimes({}, {}, int)
