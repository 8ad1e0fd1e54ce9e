"""The package's shape: imports go one way, without cycles, and no module is long."""

import ast
from collections.abc import Iterator
from graphlib import TopologicalSorter
from pathlib import Path

import pytest

import kvsim

PACKAGE = Path(kvsim.__file__).parent
ROOMS = ("traces", "cache", "analysis", "report", "experiments", "cli")  # each imports leftwards
LONGEST = 600

FILES = {
    ".".join(path.relative_to(PACKAGE).with_suffix("").parts).removesuffix(".__init__"): path
    for path in sorted(PACKAGE.rglob("*.py"))
    if path.parent != PACKAGE  # the package's face and its entry point import anything
}


def imports(tree: ast.AST) -> Iterator[str]:
    """Yield what is imported from this package, in functions too, but for TYPE_CHECKING."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING":
            continue
        if isinstance(node, ast.Import):
            yield from (alias.name.removeprefix("kvsim.") for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, "imports are absolute"
            of = (node.module or "").removeprefix("kvsim").removeprefix(".")
            parts = (f"{of}.{alias.name}".removeprefix(".") for alias in node.names)
            if (node.module or "").split(".")[0] == "kvsim":
                yield from (part if part in FILES else of for part in parts)
        else:
            yield from imports(node)


GRAPH = {
    name: {one for one in imports(ast.parse(path.read_text())) if one in FILES} - {name}
    for name, path in FILES.items()
}


def test_there_are_no_import_cycles() -> None:
    *_, last = TopologicalSorter(GRAPH).static_order()
    assert last in FILES


@pytest.mark.parametrize("name", FILES)
def test_imports_go_one_way(name: str) -> None:
    room = ROOMS.index(name.split(".")[0])
    later = {one for one in GRAPH[name] if ROOMS.index(one.split(".")[0]) > room}
    assert later == set()


def test_policies_do_not_know_the_engine() -> None:
    own = {name for name in FILES if name.startswith("cache.policies.")}
    allowed = own | {"cache.policy", "cache.result", "cache.costs", "traces.trace", "traces.radix"}
    assert {name: GRAPH[name] - allowed for name in own if GRAPH[name] - allowed} == {}


@pytest.mark.parametrize("name", FILES)
def test_no_module_is_long(name: str) -> None:
    lines = len(FILES[name].read_text().splitlines())
    assert lines <= LONGEST


def test_compiled_code_is_keyed_by_every_room_that_compiles() -> None:
    compiling = {name.split(".")[0] for name, path in FILES.items() if "njit" in path.read_text()}
    assert compiling <= set(kvsim.COMPILED)
