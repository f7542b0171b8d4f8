"""A contract for import-linter: an allow-list of what each package may import."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, cast

from importlinter import Contract, ContractCheck, fields, output

if TYPE_CHECKING:
    from collections.abc import Iterator

    from grimp import ImportGraph

Table = dict[str, list[str]]


class TableField(fields.Field[Table]):
    """A table of lists of names, as TOML has it."""

    def parse(self, raw_data: object) -> Table:
        """Return the table, or raise ValidationError if it is none."""
        if not isinstance(raw_data, dict):
            raise fields.ValidationError("Expected a table of lists.")
        return raw_data


class AllowListContract(Contract):
    """Each package may import itself and what its list names, and nothing else.

    A list names modules, each with everything in it, and sets of modules: `stdlib` is
    the standard library; `sets` defines others. A module belongs to the longest name in
    `packages` that covers it. A name that nothing needs is a fault as well.
    """

    # import-linter puts the parsed values in place of the fields.
    packages = cast("Table", TableField())
    sets = cast("Table", TableField(default={}))

    def check(self, graph: ImportGraph, verbose: bool) -> ContractCheck:  # noqa: ARG002
        """Compare all imports with the lists."""
        faults = list(self._faults(graph))
        return ContractCheck(kept=not faults, metadata={"faults": faults})

    def render_broken_contract(self, check: ContractCheck) -> None:
        """Print one line for each fault."""
        for fault in check.metadata["faults"]:
            output.print_error(f"- {fault}", bold=False)
        output.new_line()

    def _faults(self, graph: ImportGraph) -> Iterator[str]:
        unused = {
            (package, name)
            for package, names in self.packages.items()
            for name in names
        }
        for importer, imported in sorted(_direct_imports(graph)):
            covering = [name for name in self.packages if _covers(name, importer)]
            if not covering:
                yield f"{importer} has no list"
                continue
            package = max(covering, key=len)
            allowing = [
                name for name in self.packages[package] if self._allows(name, imported)
            ]
            unused -= {(package, name) for name in allowing}
            if not allowing and not _covers(package, imported):
                details = graph.get_import_details(importer=importer, imported=imported)
                lines = ", ".join(str(detail["line_number"]) for detail in details)
                yield f"{importer} -> {imported} (l.{lines})"
        for package, name in sorted(unused):
            yield f"{package} does not need {name}"

    def _allows(self, name: str, module: str) -> bool:
        if name == "stdlib":
            return module.partition(".")[0] in sys.stdlib_module_names
        return any(_covers(each, module) for each in self.sets.get(name, [name]))


def _direct_imports(graph: ImportGraph) -> Iterator[tuple[str, str]]:
    for importer in graph.modules:
        for imported in graph.find_modules_directly_imported_by(importer):
            yield importer, imported


def _covers(package: str, module: str) -> bool:
    return module == package or module.startswith(f"{package}.")
