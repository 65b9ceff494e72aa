"""Profiles of models: what the canary has to know to ask one, and to judge its answer. They are data (config/profiles/*.toml)."""

import functools
import re
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple

import msgspec
from msgspec import Meta

from watchdog import regular

GENERIC = "generic"
QUESTION = "What is the capital of France? Answer with one word."
MAX_BYTES = 1 << 16
BY_REASONING, BY_NAME, BY_TOOLS = 4, 2, 1
"""What tells a model best: its reasoning parser, then its name (which a person chose), then its tool-call parser."""

Kwargs = dict[str, bool | int | float | str]


class ProfileError(Exception):
    """A profile that cannot be used; the message continues a sentence that begins with its name."""


class Profile(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One file. config/profiles/generic.toml says what each key means."""

    title: str
    thinks: Literal["always", "by default", "on request", "never", "varies"]
    reasoning_parsers: list[str] = []
    tool_call_parsers: list[str] = []
    models: list[str] = []
    max_tokens: Annotated[int, Meta(ge=1, le=256)] = 16
    prompt: Annotated[str, Meta(min_length=1, max_length=2000)] = QUESTION
    expects: str = ""
    template_kwargs: Kwargs = {}
    brief_kwargs: Kwargs = {}
    sources: list[str] = []

    @property
    def thinks_first(self) -> bool:
        """Whether it surely reasons before it answers, unless a request says otherwise."""
        return self.thinks in ("always", "by default")


class Found(NamedTuple):
    """A profile for a server, its name, and what of the server's arguments told it ("" for the generic one)."""

    name: str
    profile: Profile
    by: str


@functools.cache
def names() -> tuple[str, ...]:
    """The profiles that come with the program."""
    return tuple(sorted(each.name.removesuffix(".toml") for each in _folder().iterdir() if each.name.endswith(".toml")))


def named(name: str) -> Profile:
    """The profile of this name, or of the file at this absolute path.

    Raises:
        ProfileError: there is none, or it is damaged.
    """
    if "/" in name:
        if not Path(name).is_absolute():
            raise ProfileError("is no absolute path")
        return _read(Path(name))
    return _shipped(name)


@functools.cache
def _shipped(name: str) -> Profile:
    if name not in names():
        raise ProfileError("is no profile")
    return _read(_folder() / f"{name}.toml")


def for_server(args: Mapping[str, Any], model: str = "") -> Found:
    """The profile that fits a server best; the generic one where none does, or two do equally.

    Args:
        args: its launch arguments (srt/server_args.py), as far as they are known.
        model: a name that it serves.
    """
    best, rank = [Found(GENERIC, named(GENERIC), "")], 0
    for name in names():
        each = Found(name, named(name), "")
        points, by = _fit(each.profile, args, model)
        if points > rank:
            best, rank = [each._replace(by=by)], points
        elif points == rank and points > 0:
            best.append(each)
    return best[0] if len(best) == 1 else Found(GENERIC, named(GENERIC), "")


def misfit(found: Found, args: Mapping[str, Any]) -> str | None:
    """What of the server's parsers does not go with its model, as one sentence; None if nothing is known to be wrong."""
    profile, parser = found.profile, args.get("reasoning_parser")
    fitting = " or ".join(profile.reasoning_parsers)
    if not profile.reasoning_parsers or parser in (*profile.reasoning_parsers, "auto"):
        return None
    if parser:
        return f"--reasoning-parser {parser} is not made for {profile.title}, {fitting} is: reasoning may land in the text"
    if profile.thinks_first:
        return f"{profile.title} thinks first, and without --reasoning-parser {fitting} its reasoning lands in the text"
    return None


def _fit(profile: Profile, args: Mapping[str, Any], model: str) -> tuple[int, str]:
    """How well it fits, and by what."""
    told: list[tuple[int, str]] = []
    for points, key, values in (
        (BY_REASONING, "reasoning_parser", profile.reasoning_parsers),
        (BY_TOOLS, "tool_call_parser", profile.tool_call_parsers),
    ):
        if args.get(key) in values:
            told.append((points, f"--{key.replace('_', '-')} {args[key]}"))
    for title, name in (("--model-path", args.get("model_path")), ("name", args.get("served_model_name")), ("name", model)):
        if isinstance(name, str) and any(re.search(pattern, name.lower()) for pattern in profile.models):
            told.append((BY_NAME, f"the {title} {name}" if title == "name" else f"{title} {name}"))
            break
    return sum(points for points, _ in told), max(told, default=(0, ""))[1]


def _folder() -> Path:
    """In an installed package beside this module, in a checkout at its top."""
    packed = Path(__file__).with_name("profiles")
    return packed if packed.is_dir() else Path(__file__).parents[2] / "config" / "profiles"


def _read(file: Path) -> Profile:
    try:
        data = regular.read(file, MAX_BYTES + 1)
        if len(data) > MAX_BYTES:
            raise ProfileError("is larger than 64 KiB")
        profile = msgspec.convert(tomllib.loads(data.decode("utf-8-sig")), Profile)
        for pattern in profile.models:
            re.compile(pattern)
    except OSError as e:
        raise ProfileError(f"cannot be read ({e.strerror})") from e
    except (UnicodeDecodeError, tomllib.TOMLDecodeError, RecursionError) as e:
        raise ProfileError(f"is no valid TOML ({e})") from e
    except msgspec.ValidationError as e:
        raise ProfileError(f"is no profile ({str(e)[:1].lower()}{str(e)[1:]})") from e
    except re.error as e:
        raise ProfileError(f"has no valid regular expression in models ({e})") from e
    return profile
