"""Rules of the source that no linter knows: who may import whom, what pure code may touch, sizes, open ends, names."""

import ast
import os
import re
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest
from packaging.requirements import Requirement

PROJECT = Path(__file__).resolve().parent.parent
SOURCE = PROJECT / "watchdog"
MODULES = sorted(SOURCE.rglob("*.py"))

MAX_LINES = 450
CODE = {".py", ".sh", ".c", ".js", ".css", ".html", ""}
MADE_HERE = {
    ".git",
    ".venv",
    ".cache",
    ".mypy_cache",
    ".ruff_cache",
    ".pytest_cache",
    ".hypothesis",
    "build",
    "dist",
    "__pycache__",
}

BASE = {"observation", "clock", "units", "wording", "regular", "keyring", "certificates"}
MAY_IMPORT = {
    "observation": set(),
    "clock": set(),
    "units": set(),
    "wording": set(),
    "regular": set(),
    "keyring": {"observation"},
    "certificates": {"regular"},
    "durable": {"regular"},
    "config": {"regular"},
    "systemd": {"clock"},
    "sglang": {"observation", "units"},
    "judge": {"observation", "units", "wording", "sglang", "config"},
    "stacks": {"config", "observe.cgroup"},
    "observe": BASE | {"config", "sglang", "systemd", "worker"},
    "act": BASE | {"durable", "config", "systemd", "worker", "judge.verdict"},
}
"""Part of watchdog/ → the other parts that it may import. Parts that are not named here, such as the daemon, may import all."""

MAY_BE_IMPORTED_BY = {"cli": {"__main__"}, "daemon": {"cli"}}
"""What wires the parts together, and the only ones that may import it."""

PURE = {"judge", "sglang"}
WORLD = {
    *("asyncio", "time", "os", "pathlib", "socket", "random", "subprocess", "threading", "multiprocessing", "signal", "select"),
    *("io", "shutil", "tempfile", "glob", "logging", "urllib", "http", "ssl", "secrets", "uuid"),
    *("aiohttp", "dbus_fast", "psutil", "pynvml", "systemd", "structlog"),
}
"""Modules with which one reaches the world outside, or its clock."""


def part_of(module: str) -> str:
    """The part of watchdog that a module belongs to: "judge" for "watchdog.judge.verdict"."""
    return [*module.split("."), ""][1]


def name_of(path: Path) -> str:
    """The dotted name of a module."""
    return ".".join(path.relative_to(PROJECT).with_suffix("").parts).removesuffix(".__init__")


def is_ours(name: str) -> bool:
    """Whether this is a module or a package of this project (watchdog itself left out)."""
    path = PROJECT.joinpath(*name.split("."))
    return name.startswith("watchdog.") and (path.is_dir() or path.with_suffix(".py").is_file())


def imports_of(path: Path) -> Iterator[str]:
    """Dotted names of the modules that a file imports, also inside functions."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}:{node.lineno}: write the import with its full name"
            for name in (f"{node.module}.{alias.name}" for alias in node.names):
                yield name if is_ours(name) else str(node.module)


def forbidden_imports(module: str, imported: set[str]) -> set[str]:
    """Those of the imports that the table above does not allow to this module."""
    part = part_of(module)
    if part not in MAY_IMPORT:
        return {name for name in imported if part not in MAY_BE_IMPORTED_BY.get(part_of(name), {part}) | {part_of(name)}}
    allowed = MAY_IMPORT[part] | {part}
    return {name for name in imported if not any(f"{name}.".startswith(f"watchdog.{other}.") for other in allowed)}


def by_name(path: Path) -> str:
    return str(path.relative_to(PROJECT))


@pytest.mark.parametrize("path", MODULES, ids=by_name)
def test_imports_go_one_way(path: Path) -> None:
    assert forbidden_imports(name_of(path), {name for name in imports_of(path) if is_ours(name)}) == set()


@pytest.mark.parametrize(
    ("module", "imported", "forbidden"),
    [
        ("watchdog.judge.progress", {"watchdog.observation", "watchdog.judge.facts"}, set()),
        ("watchdog.judge.progress", {"watchdog.clock"}, {"watchdog.clock"}),
        ("watchdog.act.restart", {"watchdog.judge.verdict"}, set()),
        ("watchdog.act.restart", {"watchdog.judge.decide", "watchdog.observe"}, {"watchdog.judge.decide", "watchdog.observe"}),
        ("watchdog.observe.unit", {"watchdog.act.restart"}, {"watchdog.act.restart"}),
        ("watchdog.replay", {"watchdog.daemon"}, {"watchdog.daemon"}),
        ("watchdog.cli.run", {"watchdog.daemon"}, set()),
        ("watchdog.observation", {"watchdog.units"}, {"watchdog.units"}),
    ],
)
def test_the_import_table_means_what_it_says(module: str, imported: set[str], forbidden: set[str]) -> None:
    assert forbidden_imports(module, imported) == forbidden


@pytest.mark.parametrize("path", [p for p in MODULES if part_of(name_of(p)) in PURE], ids=by_name)
def test_judges_and_sglang_are_pure(path: Path) -> None:
    assert {name for name in imports_of(path) if name.split(".")[0] in WORLD} == set()
    nodes = list(ast.walk(ast.parse(path.read_text(encoding="utf-8"))))
    impure = re.compile(r"(open|input|(.*\.)?(datetime|date)\.(now|utcnow|today))")
    assert [call for call in calls_in(nodes) if impure.fullmatch(call)] == []
    assert [node.lineno for node in nodes if isinstance(node, ast.AsyncFunctionDef)] == []


def calls_in(nodes: list[ast.AST]) -> list[str]:
    """What is called, as it is written: "print", "time.sleep" …."""
    return [ast.unparse(node.func) for node in nodes if isinstance(node, ast.Call)]


@pytest.mark.parametrize("path", MODULES, ids=by_name)
def test_nothing_sleeps_in_the_event_loop_or_prints(path: Path) -> None:
    """The stand-in may sleep: it blocks where the real server does."""
    nodes = list(ast.walk(ast.parse(path.read_text(encoding="utf-8"))))
    calls = calls_in(nodes)
    part = part_of(name_of(path))
    if part != "standin" and any(isinstance(node, ast.AsyncFunctionDef) for node in nodes):
        assert not {"time.sleep", "sleep"} & set(calls)
    if part not in {"cli", "standin"}:
        assert "print" not in calls


@pytest.mark.parametrize("path", MODULES, ids=by_name)
def test_what_is_public_is_documented(path: Path) -> None:
    tree = ast.parse(path.read_text(encoding="utf-8"))
    public = [
        node
        for node in tree.body
        if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef) and not node.name.startswith("_")
    ]
    assert ast.get_docstring(tree)
    assert [node.name for node in public if not ast.get_docstring(node)] == []


def files_of_the_project() -> list[Path]:
    """All files of the checkout but those that were made in it."""
    found = []
    for folder, folders, files in os.walk(PROJECT):
        folders[:] = [name for name in folders if name not in MADE_HERE and not name.endswith(".egg-info")]
        found += [Path(folder, name) for name in files if name != ".coverage"]
    return sorted(found)


def texts() -> Iterator[tuple[Path, str]]:
    """The text files of the project and what stands in them."""
    for path in files_of_the_project():
        if path.is_file() and path != Path(__file__).resolve():
            try:
                yield path, path.read_text(encoding="utf-8")
            except UnicodeDecodeError:
                continue


def test_no_room_is_too_large() -> None:
    long = {by_name(p): text.count("\n") for p, text in texts() if p.suffix in CODE and p.name != "LICENSE"}
    assert {name: lines for name, lines in long.items() if lines > MAX_LINES} == {}


def test_no_open_ends() -> None:
    open_end = re.compile(r"\b(TODO|FIXME|NotImplementedError)\b")
    code = [(path, text) for path, text in texts() if path.suffix in CODE | {".toml", ".md"}]
    assert [by_name(path) for path, text in code if open_end.search(text)] == []


def test_nothing_names_the_machine_it_was_written_on() -> None:
    """No package registry (a person's own settings choose it), no place of this checkout."""
    names = ["pypi.org", "pythonhosted.org", "deb.debian.org", "npmjs.org"]
    if len(PROJECT.parts) > 2 and PROJECT.parts[1] not in {"home", "root", "srv", "opt", "usr", "var", "tmp"}:
        names.append(f"{PROJECT.parent}/")
    assert {by_name(path): name for path, text in texts() for name in names if name in text} == {}


def test_the_lock_files_hold_what_the_project_asks_for() -> None:
    project = tomllib.loads((PROJECT / "pyproject.toml").read_text(encoding="utf-8"))
    groups = project["dependency-groups"]
    wanted = {
        "requirements.txt": project["project"]["dependencies"],
        "requirements-dev.txt": project["project"]["dependencies"] + groups["dev"],
        "requirements-build.txt": groups["build"] + project["build-system"]["requires"],
        "requirements-external.txt": groups["external"],
    }
    for name, requirements in wanted.items():
        text = (PROJECT / "packaging" / name).read_text(encoding="utf-8")
        pinned = dict(re.findall(r"^([a-z0-9-]+)==(\S+)", text, re.MULTILINE))
        assert "://" not in text
        for requirement in map(Requirement, requirements):
            assert requirement.specifier.contains(pinned.get(requirement.name, "0")), f"{name}: {requirement}; run: make lock"
