"""What the contract finds in a graph of imports."""

from __future__ import annotations

import grimp
import pytest

from tools.allow_list import AllowListContract

SETS = {"pure": ["math", "typing"]}
PACKAGES = {
    "house.cellar": ["pure", "numpy"],
    "house.roof": ["stdlib", "house.cellar"],
}
KEPT = [
    ("house.cellar.wine", "numpy"),
    ("house.cellar.wine", "math"),
    ("house.cellar.wine", "house.cellar.shelf"),
    ("house.roof", "house.cellar.wine"),
    ("house.roof", "socket"),
]


def faults(imports: list[tuple[str, str]]) -> list[str]:
    graph = grimp.ImportGraph()
    for importer, imported in imports:
        graph.add_import(
            importer=importer, imported=imported, line_number=7, line_contents="..."
        )
    options = {"packages": PACKAGES, "sets": SETS}
    contract = AllowListContract("house", {}, options)
    check = contract.check(graph, verbose=False)
    found: list[str] = check.metadata["faults"]
    assert check.kept == (not found)
    return found


def test_what_is_listed_may_be_imported() -> None:
    assert faults(KEPT) == []


@pytest.mark.parametrize(
    ("importer", "imported", "fault"),
    [
        pytest.param(
            *("house.cellar.wine", "pandas", "house.cellar.wine -> pandas (l.7)"),
            id="an external package",
        ),
        pytest.param(
            *("house.cellar", "socket", "house.cellar -> socket (l.7)"),
            id="a module of the standard library that is not in the set",
        ),
        pytest.param(
            *("house.cellar", "house.roof", "house.cellar -> house.roof (l.7)"),
            id="another package of the house",
        ),
        pytest.param(
            *("house.cellar", "mathematics", "house.cellar -> mathematics (l.7)"),
            id="a name that begins in the same way",
        ),
        pytest.param(
            *("house.garden", "math", "house.garden has no list"),
            id="a package that is not listed",
        ),
    ],
)
def test_everything_else_is_a_fault(importer: str, imported: str, fault: str) -> None:
    assert faults([*KEPT, (importer, imported)]) == [fault]


def test_a_name_that_nothing_needs_is_a_fault() -> None:
    without_numpy = [one for one in KEPT if one[1] != "numpy"]
    assert faults(without_numpy) == ["house.cellar does not need numpy"]
