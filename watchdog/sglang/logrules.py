"""How a rule about a log line is written, and how it is carried out."""

import re
from collections.abc import Mapping
from functools import cache
from typing import NamedTuple

from watchdog.sglang.marks import Line, Mark
from watchdog.units import from_gb, from_gib

MESSAGE_LIMIT = 500


class Rule(NamedTuple):
    """One wording of SGLang, matched from the beginning of the line's own text (prefix and colours taken off).

    The name of a group says what becomes of it: `text_NAME` goes to the texts, `NAME_gib` and `NAME_gb` become bytes under
    `NAME_bytes` (plain `gib`, `gb`: `bytes`), all others are numbers.

    Attributes:
        mark: what the line means.
        pattern: the wording, as a regular expression that is compiled when it is first needed: most never are. Every quantifier
            over free text is the last thing in it or bounded, so that a match stays linear.
        fatal: no server survives the event.
        says: texts that the wording itself implies.
    """

    mark: Mark
    pattern: str
    fatal: bool = False
    says: Mapping[str, str] = {}

    def match(self, text: str) -> re.Match[str] | None:
        """How the wording fits the beginning of `text`; None where it does not."""
        return _compiled(self.pattern).match(text)


_compiled = cache(re.compile)


def rule(mark: Mark, pattern: str, *, fatal: bool = False, **says: str) -> Rule:
    """A rule, and what its wording implies."""
    return Rule(mark, pattern, fatal, says)


def first_match(rules: tuple[Rule, ...], body: str, rank: str | None) -> Line | None:
    """The line that the first fitting rule makes of `body`; None where none fits."""
    for candidate in rules:
        match = candidate.match(body)
        if match is not None:
            return line_of(candidate, match, body, rank)
    return None


def line_of(matched: Rule, match: re.Match[str], body: str, rank: str | None) -> Line:
    """The line of a rule that fits."""
    fields: dict[str, float] = {}
    text = dict(matched.says)
    for group, value in match.groupdict().items():
        if value is None:
            continue
        if group.startswith("text_"):
            text[group[5:]] = value[:MESSAGE_LIMIT]
        else:
            read_number(fields, group, value)
    return Line(mark=matched.mark, rank=rank, fields=fields, text=text, fatal=matched.fatal, message=body[:MESSAGE_LIMIT])


def read_number(fields: dict[str, float], group: str, value: str) -> None:
    """Put a number into `fields`; one that cannot be read ("None", "?") is left out: unknown."""
    try:
        if group.endswith("gib"):
            fields[group[:-3] + "bytes"] = float(from_gib(value))
        elif group.endswith("gb"):
            fields[group[:-2] + "bytes"] = float(from_gb(value))
        else:
            fields[group] = float(value)
    except ValueError:
        return
