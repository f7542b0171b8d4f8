"""The package as users get it, built in isolation and installed alone."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tarfile
import zipfile
from base64 import b64decode
from email import message_from_bytes
from pathlib import Path

import pytest

import sparkcache

pytestmark = pytest.mark.long

ROOT = Path(__file__).parents[2]
GOLDEN = ROOT / "tests" / "golden" / "pulsar" / "filesystem-format"
CONSTRAINTS = ROOT / "constraints.txt"
_CONSTRAINING = ("PIP_CONSTRAINT", "PIP_BUILD_CONSTRAINT")

PROGRAM = """
import sys
from pyspark.sql import SparkSession
import sparkcache

builder = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false")
spark = sparkcache.configure(builder).getOrCreate()
reader = spark.read.format("sparkcache").option("topic", sys.argv[1])
rows = reader.load(sys.argv[2]).orderBy("__ledgerId", "__entryId", "__batchIndex")
print("VALUES", *(bytes(row.value).hex() for row in rows.select("value").collect()))
print("VERSION", sparkcache.__version__)
"""


def run(*command: object, cwd: Path) -> str:
    """Run a program without the paths, settings and packages of this process."""
    kept = {"HOME", "PATH", "JAVA_HOME", "LANG", "TMPDIR"}
    kept |= {name for name in os.environ if name.startswith(("SSL_", "PIP_"))}
    environment = {name: os.environ[name] for name in kept & os.environ.keys()}
    done = subprocess.run(
        list(map(str, command)),
        cwd=cwd,
        env=environment | dict.fromkeys(_CONSTRAINING, str(CONSTRAINTS)),
        capture_output=True,
        text=True,
        check=False,
        timeout=900,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory, jdk: None) -> Path:
    """A directory with the source distribution, and the wheel built from it."""
    directory = tmp_path_factory.mktemp("dist")
    run(sys.executable, "-m", "build", "--outdir", directory, ROOT, cwd=directory)
    return directory


@pytest.fixture(scope="module")
def python(built: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Python of an environment with only the wheel and its dependencies."""
    directory = tmp_path_factory.mktemp("clean")
    run(sys.executable, "-m", "venv", directory, cwd=directory)
    python = directory / "bin" / "python"
    pip = (python, "-m", "pip", "install", "--quiet", "--constraint", CONSTRAINTS)
    run(*pip, "--upgrade", "pip", cwd=directory)
    run(*pip, next(built.glob("*.whl")), cwd=directory)
    run(python, "-m", "pip", "check", cwd=directory)
    return python


def test_metadata_of_both_distributions(built: Path) -> None:
    (wheel,) = built.glob("*.whl")
    (source,) = built.glob("*.tar.gz")
    assert wheel.name == f"sparkcache-{sparkcache.__version__}-py3-none-any.whl"
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
        (path,) = (name for name in names if name.endswith(".dist-info/METADATA"))
        metadata = message_from_bytes(archive.read(path))
    assert "sparkcache/jvm/sparkcache.jar" in names
    assert "sparkcache/jvm/sparkcache_reader.jar" in names
    assert any(name.endswith("licenses/LICENSE") for name in names)
    assert metadata["License-Expression"] == "Apache-2.0"
    assert metadata["Author"] == "The sparkcache developers"
    labels = [url.partition(",")[0] for url in metadata.get_all("Project-URL") or []]
    assert sorted(labels) == ["Changelog", "Homepage", "Issues"]
    with tarfile.open(source) as archive:
        inside = {name.partition("/")[2] for name in archive.getnames()}
    assert {"LICENSE", "CHANGELOG.md", "README.md", "conf/sparkcache.conf"} <= inside
    assert not any(name.startswith(("tests/", "examples/")) for name in inside)


def test_the_wheel_alone_reads_a_topic(python: Path, tmp_path: Path) -> None:
    lines = (GOLDEN / "expected" / "none.jsonl").read_text().splitlines()
    messages = [json.loads(line) for line in lines]
    program = tmp_path / "program.py"
    program.write_text(PROGRAM)
    output = run(
        *(python, program, messages[0]["topic"], GOLDEN / "objects"),
        cwd=tmp_path,
    )
    found = dict(re.findall(r"^(VALUES|VERSION) (.*)$", output, flags=re.MULTILINE))
    wanted = [json.loads(line)["value"] for line in lines]
    assert found["VERSION"] == sparkcache.__version__
    values = [b64decode(value).hex() for value in wanted]
    assert found["VALUES"].split(" ") == values
    assert len(values) > 10


def option(**options: str) -> str:
    return f"SparkCacheSource({ {'topic': 't', 'path': '/tmp', **options}!r})"


AVRO = '{"type": "record", "name": "R", "fields": []}'
PROTOBUF = '{"type": "PROTOBUF_NATIVE", "schema": "e30="}'


@pytest.mark.parametrize(
    ("code", "extra"),
    [
        (option(connector="delta"), "delta"),
        (option(valueSchema=AVRO), "avro"),
        (option(valueSchema=PROTOBUF), "protobuf"),
        (option(privateKey="/no/key.pem"), "encryption"),
        ("import sparkcache.pipelines", "pipelines"),
    ],
)
def test_an_error_names_the_extra_that_is_missing(
    python: Path, tmp_path: Path, code: str, extra: str
) -> None:
    program = f"""
from sparkcache import ConfigError
from sparkcache.source.datasource import SparkCacheSource
try:
    {code}
except ConfigError as error:
    print(error)
"""
    assert f"pip install 'sparkcache[{extra}]'" in run(
        python, "-c", program, cwd=tmp_path
    )
