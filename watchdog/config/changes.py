"""Which keys differ between two configurations. Names only: a value may be an address with a password in it."""

from collections.abc import Iterator

from watchdog.config.keys import Config, Section, Server

SHOWN = 12


def changed(old: Config, new: Config) -> list[str]:
    """The keys, as people write them: "judge.stall_s", "servers.kimi.mode", and servers that came or went."""
    common = [name for name in Config.__struct_fields__ if name != "servers"]
    keys = [key for name in common for key in _differing(getattr(old, name), getattr(new, name), name)]
    before, after = ({s.name: s for s in whole.servers} for whole in (old, new))
    for name in before | after:
        if name not in after:
            keys.append(f"servers.{name} (gone)")
        elif name not in before:
            keys.append(f"servers.{name} (new)")
        else:
            keys += [f"servers.{name}.{key}" for key in _of_server(before[name], after[name]) if key not in keys]
    return keys


def told(keys: list[str]) -> str:
    """The same as a phrase."""
    if not keys:
        return "nothing has changed"
    more = f" and {len(keys) - SHOWN} more" if len(keys) > SHOWN else ""
    return f"changed: {', '.join(keys[:SHOWN])}{more}"


def _of_server(old: Server, new: Server) -> Iterator[str]:
    """The keys of one server. What it has from a section for all servers stands there as well, under the same name."""
    for name in Server.__struct_fields__:
        yield from _differing(getattr(old, name), getattr(new, name), name)


def _differing(old: object, new: object, name: str) -> Iterator[str]:
    if isinstance(old, Section) and isinstance(new, Section):
        fields = type(new).__struct_fields__ if type(old) is type(new) else ()
        for field in fields:
            yield from _differing(getattr(old, field), getattr(new, field), f"{name}.{field}")
    elif old != new:
        yield name
