"""The configuration that `setup` writes: one commented table for each server."""

import ipaddress
import json
import re
from collections.abc import Mapping
from typing import Any

import msgspec

from watchdog.config import profile
from watchdog.config.words import printable
from watchdog.setup.dropin import STOP_S, stop_s
from watchdog.setup.host import Found

PORT = 30000
HEAD = """\
# Written by `sglang-watchdog setup`. Every other key has a default: see docs/configuration.md or the example beside it.
# Check a changed file with `sglang-watchdog check-config`, then `systemctl reload sglang-watchdog`.

[daemon]
# "act" restarts, "alert" only tells people, "observe" only says in the journal what it would do.
mode = {mode}
"""


class Wish(msgspec.Struct, frozen=True, kw_only=True):
    """What a person said of one server; None: as found.

    Attributes:
        key: the name of the credential with the API key.
        stop_s: the stop limit of an earlier run, which never becomes shorter: a server that starts shows less of what it pins.
    """

    url: str | None = None
    name: str | None = None
    key: str | None = None
    stop_s: int = 0


def name_of(unit: str) -> str:
    """A short name for a unit's server: "sglang-kimi.service" → "kimi", "sglang@two.service" → "two"."""
    stem = unit.removesuffix(".service")
    short = re.sub(r"^sglang[-@_.]", "", stem)
    return re.sub(r"[^A-Za-z0-9._-]+", "-", short).strip("-._")[:64] or "sglang"


def url_of(args: Mapping[str, Any]) -> str:
    """Where a server with these arguments is asked: over loopback where it listens on all addresses."""
    host = args.get("host")
    host = host if isinstance(host, str) and host else "127.0.0.1"
    port = args.get("port")
    port = port if isinstance(port, int) and 0 < port < 65536 else PORT
    try:
        address = ipaddress.ip_address(host.strip("[]"))
        if address.is_unspecified:
            host = "127.0.0.1" if address.version == 4 else "[::1]"
        elif address.version == 6:
            host = f"[{address}]"
    except ValueError:
        host = host if re.fullmatch(r"[A-Za-z0-9.-]+", host) else "127.0.0.1"
    return f"{'https' if args.get('ssl_certfile') else 'http'}://{host}:{port}"


def _whole(args: Mapping[str, Any], name: str, default: int) -> int:
    value = args.get(name)
    return value if isinstance(value, int) and not isinstance(value, bool) else default


def nodes(args: Mapping[str, Any]) -> int:
    """Over how many nodes the server runs."""
    return max(1, _whole(args, "nnodes", 1))


def is_worker(args: Mapping[str, Any]) -> bool:
    """Whether this node has no API of its own (--node-rank 1 and later)."""
    return _whole(args, "node_rank", 0) > 0


def head(mode: str, gpus: int) -> str:
    """What stands above the tables of the servers."""
    text = HEAD.format(mode=quoted(mode))
    if gpus:
        text += f"\n[sources]\n# The driver has so many GPUs now; one that is missing later is told.\ngpus_expected = {gpus}\n"
    return text


def table(found: Found, wish: Wish) -> str:
    """The table of one server."""
    args = found.args
    source = {
        "process": "its running process",
        "unit file": "its unit file (it does not run)",
        "nothing": "nothing: its command line was not recognised, so check every line",
    }[found.told_by]
    lines = ["", f"# Taken from {source}.", "[[servers]]", f"name = {quoted(wish.name or name_of(found.unit))}"]
    lines.append(f"unit = {quoted(found.unit)}")
    if is_worker(args):
        lines += [
            f"# Node {_whole(args, 'node_rank', 0)} of a server over {nodes(args)} nodes has no API of its own:",
            "# it is judged by its processes, its journal and its GPUs.",
            "endpoint = false",
        ]
    else:
        lines.append(f"base_url = {quoted(wish.url or url_of(args))}")
        lines += _model(args)
        lines += _profile(args)
        lines += _key(found, wish)
    if found.cgroup is not None:
        lines += ["# Its container is in a slice of its own.", f"cgroup = {quoted(found.cgroup)}"]
    space = found.properties.get("LogNamespace")
    if isinstance(space, str) and space:
        lines += ["# Its unit has LogNamespace=.", f"journal_namespace = {quoted(space)}"]
    if nodes(args) > 1:
        lines += [
            f"# The {nodes(args)} members of this server live and die together: a restart of one alone leaves the others stuck.",
            "# So the watchdog tells people, and they restart all members together.",
            'mode = "alert"',
        ]
    limit = max(stop_s(found.pinned), wish.stop_s)
    if limit > STOP_S:
        lines += ["", "[servers.restart]", "# As long as TimeoutStopSec= of its unit: pinned memory takes time to give back."]
        lines.append(f"stop_limit_s = {limit}")
    return "\n".join(lines) + "\n"


def _model(args: Mapping[str, Any]) -> list[str]:
    model = args.get("served_model_name")
    return [f"model = {quoted(model)}"] if isinstance(model, str) and model else []


def _profile(args: Mapping[str, Any]) -> list[str]:
    found = profile.for_server(args)
    if not found.by:
        return []
    return [f"# Its canary asks as the profile {found.name} has it, told by {printable(found.by)}."]


def misfit(args: Mapping[str, Any]) -> str | None:
    """What of the server's parsers does not go with its model, as one sentence; None if nothing is known to be wrong."""
    return None if is_worker(args) else profile.misfit(profile.for_server(args), args)


def _key(found: Found, wish: Wish) -> list[str]:
    if wish.key:
        return ["# A systemd credential of sglang-watchdog.service.", f"api_key_file = {quoted(wish.key)}"]
    if found.key_in is None:
        return []
    return [
        f"# The server asks for an API key, which lies {found.key_in}. Without it only /health is asked.",
        "# Put it in a file for root alone, and run setup again with --key-file FILE.",
        '#api_key_file = ""',
    ]


def quoted(text: str) -> str:
    """Text as a basic string of TOML; JSON's escapes are a part of TOML's."""
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")
