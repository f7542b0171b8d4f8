"""A declarative pipeline: three flows of one topic, which fetch each byte once.

    python examples/pipeline/run.py [--mib 16] [--unplanned] [--conf NAME=VALUE]...

Takes about half a minute on two cores, most of it the start of Spark. It shows

- `spark-pipelines run` with flows in Python and SQL, three of which read the topic: two
  in batches through a view, and one as a stream;
- that these are counted as the topic's planned consumers before the first one runs; it
  only takes `from sparkcache import pipelines as dp` in the definitions;
- with `--unplanned`, the same definitions with pyspark's own `dp`.

Everything runs on this machine: an S3 server, which counts the bytes it sends, and
Spark. The pipeline runs in a directory that is removed afterwards. The last line of the
output is one JSON object.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import pyarrow.compute as pc
import pyarrow.dataset

from sparkcache.testing.s3_server import S3Server

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE.parent))

from bucket import BUCKET, MIB, offload, sent  # noqa: E402 - in the parent directory

STORAGE = "file:///tmp/sparkcache-pipeline/storage"
PLANNED, UNPLANNED = "from sparkcache import", "from pyspark import"
CONSUMERS = 3
QUIET = "spark.ui.enabled=false", "spark.ui.showConsoleProgress=false"


def install(directory: Path, confs: list[str], *, is_planned: bool) -> Path:
    """Copy the pipeline to a new directory; return the path of its spec."""
    settings = "".join(f"  {name}: {value}\n" for name, value in map(_split, confs))
    shutil.copytree(HERE, directory, ignore=shutil.ignore_patterns("*.pyc", "run.py"))
    spec = directory / "spark-pipeline.yaml"
    storage = (directory / "storage").as_uri()
    spec.write_text(spec.read_text().replace(STORAGE, storage) + settings)
    if not is_planned:
        definitions = directory / "transformations" / "orders.py"
        text = definitions.read_text().replace(PLANNED, UNPLANNED)
        definitions.write_text(text)
    return spec


def run_pipeline(spec: Path) -> None:
    """Run it by `spark-pipelines run`; raises CalledProcessError."""
    command = [str(Path(sys.executable).with_name("spark-pipelines")), "run"]
    command += ["--spec", str(spec), "--remote", "local[2]"]
    for conf in ("spark.python.unix.domain.socket.enabled=true", *QUIET):
        command += ["--conf", conf]
    scratch = spec.parent / "tmp"  # removed with the directory, as Spark leaves files
    scratch.mkdir()
    options = f"{os.environ.get('SPARK_SUBMIT_OPTS', '')} -Djava.io.tmpdir={scratch}"
    environment = {**os.environ, "SPARK_SUBMIT_OPTS": options, "TMPDIR": str(scratch)}
    subprocess.run(command, cwd=spec.parent, env=environment, check=True)


def rows_of(spec: Path) -> dict[str, int]:
    """Return the number of orders that each table covers."""
    counts = {}
    for table in ("fraud", "billing", "turnover", "archive"):
        directory = spec.parent / "spark-warehouse" / table
        rows = pyarrow.dataset.dataset(directory, format="parquet").to_table()
        orders = pc.sum(rows["orders"]).as_py() if "orders" in rows.column_names else 0
        counts[table] = orders or rows.num_rows
    return counts


def _split(conf: str) -> tuple[str, str]:
    name, _, value = conf.partition("=")
    return name, json.dumps(value)


def main() -> int:
    """Run the example; return the exit status."""
    parser = argparse.ArgumentParser(description="A declarative pipeline.")
    parser.add_argument("--mib", type=int, default=16, help="size of the topic")
    parser.add_argument("--unplanned", action="store_true", help="pyspark's own dp")
    parser.add_argument("--conf", action="append", default=[], help="for the pipeline")
    arguments = parser.parse_args()
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    with (
        S3Server() as server,
        server.as_environment(),
        tempfile.TemporaryDirectory(prefix="sparkcache-pipeline-") as directory,
    ):
        server.create_bucket(BUCKET)
        topic_bytes, messages = offload(server, arguments.mib * MIB, range(1, 5))
        spec = install(
            Path(directory) / "shop", arguments.conf, is_planned=not arguments.unplanned
        )
        run_pipeline(spec)
        result: dict[str, Any] = {
            "consumers": CONSUMERS,
            "rows": messages,
            "rows_of": rows_of(spec),
            "topic_bytes": topic_bytes,
            "fetched_bytes": sent(server).sent_bytes,
        }
    print(
        f"{CONSUMERS} flows read {topic_bytes / MIB:.1f} MiB each; the server sent "
        f"{result['fetched_bytes'] / MIB:.1f} MiB in all."
    )
    print(json.dumps(result))
    return 0 if set(result["rows_of"].values()) == {messages} else 1


if __name__ == "__main__":
    sys.exit(main())
