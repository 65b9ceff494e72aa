"""The reference of the configuration, made from its types: docs/configuration.md and config/sglang-watchdog.toml."""

import inspect
import textwrap
import typing
from typing import Any

import msgspec

from watchdog.config.keys import Config, Section, Server
from watchdog.config.words import bare, choices, expected, meaning, section_of

INTRODUCTION = """\
# Configuration

<!-- Made from watchdog/config/keys.py by `make docs`; a test keeps both in step. -->

`sglang-watchdog run` reads one TOML file: the one named with `--config`, else `/etc/sglang-watchdog/sglang-watchdog.toml`.
Only a `[[servers]]` table with `name` and `unit` is needed; every other key has a default.
`sglang-watchdog check-config` checks a file and reports all its faults at once, each with its key, its value and what mends it.

All durations are seconds. Sizes are MiB (1,048,576 bytes) where a key ends in `_mib`.

`[probe]`, `[metrics]`, `[judge]` and `[restart]` hold for every server. A server overrides single keys of them in tables of
its own, below its `[[servers]]` table: `[servers.probe]`, `[servers.metrics]`, `[servers.judge]`, `[servers.restart]`.
"""

SERVER_INTRODUCTION = "One table for each watched server. `name` and `unit` are required."

TOML_HEAD = """\
# The default configuration of sglang-watchdog.
#
# A line that begins with "#key =" shows a default: remove the "#" to change it. Check the file with
#     sglang-watchdog check-config
# All durations are seconds. docs/configuration.md says the same as a table.
# Made from watchdog/config/keys.py by `make docs`.
"""

TOML_SERVER = """\
# The watched servers: one [[servers]] table each. Change these two lines to yours.
[[servers]]
name = "sglang"
unit = "sglang.service"
"""

TOML_OVERRIDES = """\
# A server overrides single keys of [probe], [metrics], [judge] and [restart] in tables of its own, such as:
#
#     [servers.restart]
#     budget = 1
"""


def markdown() -> str:
    """The text of docs/configuration.md."""
    parts = [INTRODUCTION]
    for name, kind in _sections():
        lead = SERVER_INTRODUCTION if kind is Server else _summary(kind)
        parts += [f"## `{'[[servers]]' if kind is Server else f'[{name}]'}`\n", f"{lead}\n", _table(kind)]
    return "\n".join(parts)


def toml() -> str:
    """The text of config/sglang-watchdog.toml."""
    parts = [TOML_HEAD]
    for name, kind in _sections():
        if kind is not Server:
            parts += [f"# {_summary(kind)}\n[{name}]\n" + "\n".join(_toml_key(f) for f in _plain_keys(kind))]
    required = [f for f in _plain_keys(Server) if f.required]
    others = [f for f in _plain_keys(Server) if not f.required]
    parts += [TOML_SERVER + "".join(_comment(f"{f.encode_name}: {meaning(f.type)}") for f in required)]
    parts[-1] += "".join("\n" + _toml_key(f) for f in others) + "\n" + TOML_OVERRIDES
    return "\n".join(parts)


def _sections() -> list[tuple[str, type[Section]]]:
    return [(f.encode_name, section_of(f.type, Section)) for f in msgspec.structs.fields(Config)]


def _plain_keys(kind: type[Section]) -> list[msgspec.structs.FieldInfo]:
    return [f for f in msgspec.structs.fields(kind) if section_of(f.type, Section) is None]


def _summary(kind: type[Section]) -> str:
    return inspect.cleandoc(kind.__doc__ or "").replace("\n", " ")


def _default(field: msgspec.structs.FieldInfo) -> Any:
    """The default of a key; None where it is not set, msgspec.NODEFAULT where the key is required."""
    if field.default_factory is not msgspec.NODEFAULT:
        return field.default_factory()
    return field.default


def _literal(value: Any) -> str:
    """A value in TOML."""
    if isinstance(value, str):
        return '"' + value.replace("\\", "\\\\").replace('"', '\\"') + '"'
    if isinstance(value, list):
        return f"[{', '.join(map(_literal, value))}]"
    return str(value).lower()


def _table(kind: type[Section]) -> str:
    rows = ["| key | default | takes | meaning |", "|---|---|---|---|"]
    for f in _plain_keys(kind):
        value = _default(f)
        default = "required" if value is msgspec.NODEFAULT else "not set" if value is None else f"`{_literal(value)}`"
        rows.append(f"| `{f.encode_name}` | {default} | {_takes(f.type)} | {meaning(f.type)} |")
    return "\n".join(rows) + "\n"


def _takes(kind: Any) -> str:
    """As `expected`, without the examples that only an error message needs."""
    inner = bare(kind)
    if inner is str and expected(kind).startswith("text"):
        return "text"
    return "list of texts" if typing.get_origin(inner) is list else expected(kind)


def _toml_key(field: msgspec.structs.FieldInfo) -> str:
    value = _default(field)
    words = f" One of {expected(field.type)}." if choices(field.type) else ""
    if value is None:
        return _comment(f"{field.encode_name} (not set): {meaning(field.type)}{words}")
    return _comment(meaning(field.type) + words) + f"#{field.encode_name} = {_literal(value)}\n"


def _comment(text: str) -> str:
    return textwrap.fill(text, 110, initial_indent="# ", subsequent_indent="# ", break_on_hyphens=False) + "\n"
