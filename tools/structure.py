"""Check of the tree's structure against limits: ``python tools/structure.py``.

Prints every top-level package (room) with its lines, modules and imports of other rooms, then
circular imports, imports that run upwards, the largest room's share of the lines, and the fullest
folders. Exits with 1 if a limit is broken.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import grimp

ROOT = Path(__file__).resolve().parents[1]
# From the bottom up: a room imports only rooms of earlier floors.
FLOORS = (
    ("devices",),
    ("networks",),
    ("profiler", "solver"),
    ("replay",),
    ("campaigns",),
    ("plots",),
    ("server",),
    ("commands", "joulewright"),
)
PACKAGES = tuple(room for floor in FLOORS for room in floor)
# The last room contains C and no Python.
ROOMS = (*PACKAGES, "onboard")
MOST_SHARE = 0.30
MOST_MODULES = 16
CODE = {".py", ".c", ".h"}


def main() -> int:
    """Print the figures, and return 1 if a limit is broken, else 0."""
    sys.path.insert(0, str(ROOT))
    graph = grimp.build_graph(*PACKAGES, cache_dir=None)
    lines = {room: sum(map(_lines, _code(ROOT / room))) for room in ROOMS}
    imports = _imports_between_rooms(graph)
    upwards = [
        f"{importer} imports {imported}"
        for importer, imported in imports
        if not _is_downwards(importer, imported)
    ]
    circles = [
        f"{package}: {importer} and {imported}"
        for package in sorted(graph.modules)
        for importer, imported in sorted(graph.nominate_cycle_breakers(package))
    ]
    largest = max(ROOMS, key=lambda room: lines[room])
    share = lines[largest] / sum(lines.values())
    folders = _modules_by_folder()
    full = [f"{folder}: {count}" for folder, count in folders.items() if count > MOST_MODULES]

    for room in ROOMS:
        others = ", ".join(
            f"{imported} {count}"
            for (importer, imported), count in imports.items()
            if importer == room
        )
        modules = sum(1 for _ in _code(ROOT / room))
        print(f"{room:10}{lines[room]:7} lines {modules:4} modules   imports: {others or '–'}")
    print(f"circles: {len(circles)}")
    print(f"imports upwards: {len(upwards)}")
    print(f"largest room: {largest}, {share:.1%} of {sum(lines.values())} lines")
    fullest = ", ".join(f"{folder} {count}" for folder, count in folders.most_common(3))
    print(f"most modules side by side: {fullest}")

    broken = [
        *(f"circle in {circle}" for circle in circles),
        *upwards,
        *(f"more than {MOST_MODULES} modules in {folder}" for folder in full),
    ]
    if share > MOST_SHARE:
        broken.append(f"{largest} holds more than {MOST_SHARE:.0%} of the lines")
    for sentence in broken:
        print(f"broken: {sentence}", file=sys.stderr)
    return 1 if broken else 0


def _code(folder: Path) -> Iterator[Path]:
    return (path for path in sorted(folder.rglob("*")) if path.suffix in CODE)


def _lines(path: Path) -> int:
    return len(path.read_text().splitlines())


def _imports_between_rooms(graph: grimp.ImportGraph) -> Counter[tuple[str, str]]:
    """Number of imports of modules between two rooms, by pair of importing and imported room."""
    return Counter(
        (importer.split(".")[0], imported.split(".")[0])
        for importer in sorted(graph.modules)
        for imported in sorted(graph.find_modules_directly_imported_by(importer))
        if importer.split(".")[0] != imported.split(".")[0]
    )


def _is_downwards(importer: str, imported: str) -> bool:
    floor = {room: number for number, rooms in enumerate(FLOORS) for room in rooms}
    return floor[imported] < floor[importer] and (importer, imported) != ("profiler", "networks")


def _modules_by_folder() -> Counter[str]:
    """Number of modules in each folder of code; a C file and its header count as one."""
    return Counter(
        str(path.parent.relative_to(ROOT))
        for path in {
            path.with_suffix("")
            for room in (*ROOMS, "tests", "benchmarks")
            for path in _code(ROOT / room)
            if path.name != "__init__.py"
        }
    )


if __name__ == "__main__":
    sys.exit(main())
