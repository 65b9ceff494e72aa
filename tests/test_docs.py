"""The documentation says what the code does."""

import argparse
import re
import tomllib
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from watchdog import config, observation
from watchdog.cli import exits, parser
from watchdog.config import reference

PROJECT = Path(__file__).resolve().parent.parent
PAGES = [*sorted(PROJECT.glob("*.md")), *sorted((PROJECT / "docs").rglob("*.md"))]
EXAMPLES = sorted((PROJECT / "config").glob("*.toml"))
DEFAULT = PROJECT / "config/sglang-watchdog.toml"


def by_name(path: Path) -> str:
    return str(path.relative_to(PROJECT))


def test_the_reference_is_in_step_with_the_keys() -> None:
    assert (PROJECT / "docs/configuration.md").read_text(encoding="utf-8") == reference.markdown(), "run: make docs"
    assert DEFAULT.read_text(encoding="utf-8") == reference.toml(), "run: make docs"


def test_the_default_file_shows_the_defaults() -> None:
    text = DEFAULT.read_text(encoding="utf-8")
    shown = tomllib.loads(re.sub(r"(?m)^#(?=[a-z_]+ = )", "", text))
    got = config.parse(shown)
    name, unit = shown["servers"][0]["name"], shown["servers"][0]["unit"]
    assert got == config.Config(servers=[config.Server(name=name, unit=unit)])
    for section in msgspec.structs.fields(config.Config):
        if section.encode_name != "servers":
            fields = msgspec.structs.fields(section.type.__origin__)
            unset = {f.encode_name for f in fields if f.default is None}
            assert shown[section.encode_name].keys() == {f.encode_name for f in fields} - unset
            assert all(f"# {key} (not set): " in text for key in unset)


@pytest.mark.parametrize("path", EXAMPLES, ids=by_name)
def test_every_example_is_a_good_configuration(path: Path) -> None:
    assert config.load(path).servers


def test_every_key_has_a_meaning() -> None:
    rows = re.findall(r"(?m)^\| `(\w+)` \| (.*) \| (.*) \| (.*) \|$", reference.markdown())
    assert len(rows) > 60
    assert [key for key, *cells in rows if not all(cells)] == []


@pytest.mark.parametrize("path", PAGES, ids=by_name)
def test_links_lead_somewhere(path: Path) -> None:
    links = re.findall(r"\]\(([^)#]+)(?:#[^)]*)?\)", path.read_text(encoding="utf-8"))
    assert [link for link in links if "://" not in link and not (path.parent / link).exists()] == []


@pytest.mark.parametrize("path", PAGES, ids=by_name)
def test_make_targets_that_are_named_exist(path: Path) -> None:
    targets = set(re.findall(r"(?m)^([a-z-]+):", (PROJECT / "Makefile").read_text(encoding="utf-8")))
    named = re.findall(r"(?m)(?:`|^)make ([a-z-]+)", path.read_text(encoding="utf-8"))
    assert set(named) <= targets


@pytest.mark.parametrize("kind", observation.KINDS)
def test_the_contract_names_every_field(kind: str) -> None:
    text = (PROJECT / "docs/flight-record.md").read_text(encoding="utf-8")
    found = re.search(rf"(?ms)^### `{kind}`.*?(?=^##)", text)
    assert found, f"docs/flight-record.md has no section on {kind}"
    nested = {"procs": [observation.Proc], "gpu": [observation.GpuDevice, observation.GpuProc], "probe": [observation.Answer]}
    for part in [observation.KINDS[kind], *nested.get(kind, [])]:
        names = {f.encode_name for f in msgspec.structs.fields(part)} - {"t", "inv"}
        assert {name for name in names if f"`{name}`" not in found[0]} == set()


def test_the_changelog_tells_of_this_version() -> None:
    project = tomllib.loads((PROJECT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert f"## {project['version']}" in (PROJECT / "CHANGELOG.md").read_text(encoding="utf-8")


def test_every_exit_status_is_told() -> None:
    text = (PROJECT / "docs/exit-codes.md").read_text(encoding="utf-8")
    told = {int(status) for status in re.findall(r"(?m)^\| (\d+) \|", text)}
    assert told == {value for value in vars(exits).values() if isinstance(value, int)}


def test_every_command_is_in_the_readme() -> None:
    table = (PROJECT / "README.md").read_text(encoding="utf-8").split("## Commands")[1].split("\n## ")[0]
    told = {name for row in re.findall(r"(?m)^\| (`.*?) \|", table) for name in re.findall(r"`([a-z-]+)`", row)}
    commands = next(action for action in parser()._actions if isinstance(action, argparse._SubParsersAction))
    assert set(commands.choices) <= told


def helps(p: argparse.ArgumentParser, name: str = "") -> Iterator[tuple[str, str]]:
    """Each command with its help, and that of each of its own commands."""
    if name:
        yield name, " ".join(p.format_help().split())
    for sub in (action for action in p._actions if isinstance(action, argparse._SubParsersAction)):
        for word, each in sub.choices.items():
            yield from helps(each, name or word)


def test_every_command_that_can_say_no_is_among_the_exit_statuses() -> None:
    rows = dict(re.findall(r"(?m)^\| (\d+) \| (.*) \|$", (PROJECT / "docs/exit-codes.md").read_text(encoding="utf-8")))
    said: dict[str, set[str]] = {}
    for name, text in helps(parser()):
        said.setdefault(name, set()).update(re.findall(r"(?:Exit status: |[,;] )(\d+)\b", text.partition("Exit status: ")[2]))
    assert {name for name, statuses in said.items() if "1" in statuses} >= {"setup", "baseline", "verify", "alert"}
    for status in ("1", "3", "75"):
        missing = {name for name, statuses in said.items() if status in statuses and f"`{name}" not in rows[status]}
        assert missing == set(), f"docs/exit-codes.md, {status}"


def test_every_command_has_its_place_in_the_commands_page() -> None:
    text = (PROJECT / "docs/commands.md").read_text(encoding="utf-8")
    heads = {name for head in re.findall(r"(?m)^### (.*)$", text) for name in head.split(", ")}
    rows = set(re.findall(r"(?m)^\| `([a-z-]+)", text.partition("## Asks the daemon")[2]))
    assert {name for name, _ in helps(parser())} - heads - rows == set()


def test_every_folder_of_the_program_has_its_row() -> None:
    told = set(re.findall(r"(?m)^\| `watchdog/(\w+)/`", (PROJECT / "CONTRIBUTING.md").read_text(encoding="utf-8")))
    assert told == {path.parent.name for path in PROJECT.glob("watchdog/*/__init__.py")}
