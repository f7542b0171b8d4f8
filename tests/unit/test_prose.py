"""Words that a newcomer stumbles over stay out of code, tests and documentation."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
FOLDERS = ("sparkcache", "connectors", "examples", "docs", "conf", "tests", "tools")
OWN = {"test_prose.py", "test_docs.py"}  # they name the words
READ = {".py", ".java", ".md", ".html", ".toml", ".ipynb", ".conf", ".yml", ".yaml"}

# What stands on the left is found whole, in any case, also as a part of a name; the
# right says what to write.
INSTEAD = {
    "told": "reported, shipped, known",
    "anew": "again, new",
    "whoever": "the reader, the caller",
    "whatever way": "however",
    "of two, the one": "the one that",
    "comes behind": "comes after",
    "lies behind": "follows",
}


def texts() -> list[Path]:
    found = [ROOT / "README.md", ROOT / "CHANGELOG.md", ROOT / "Makefile"]
    for folder in FOLDERS:
        found += (p for p in (ROOT / folder).rglob("*") if p.suffix in READ)
    return [path for path in found if path.name not in OWN]


def faults(text: str) -> list[str]:
    return [
        f"line {number}: {word!r}: write {instead}"
        for number, line in enumerate(text.splitlines(), 1)
        for word, instead in INSTEAD.items()
        if re.search(rf"(?<![^\W_]){word}(?![^\W_])", line, re.IGNORECASE)
    ]


@pytest.mark.parametrize(
    ("text", "count"),
    [
        ("The node is told of it.", 1),
        ("It starts\nAnew, whoever asks.", 2),
        ("def test_a_loss_is_told() -> None:", 1),
        ("untold, renewed, behind the scenes", 0),
    ],
)
def test_a_fault_is_found(text: str, count: int) -> None:
    assert len(faults(text)) == count


def test_texts_use_the_words_of_the_field() -> None:
    found = {
        str(path.relative_to(ROOT)): lines
        for path in texts()
        if (lines := faults(path.read_text(encoding="utf-8")))
    }
    assert not found
