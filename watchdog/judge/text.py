"""Is this an answer? Grades what a canary got back, and tells when answers have changed their shape.

A wrong "degenerate" costs a restart, a missed one costs a night of garbage. So what is degenerate here is what no model in its
senses writes in reply to any small question: nothing, one unit repeated to the limit, control or replacement characters,
reserved tokens. What is merely odd is suspicious, and stays without consequence unless something else agrees.
"""

import re
import unicodedata
from enum import StrEnum

import msgspec

from watchdog.observation import Answer


class Quality(StrEnum):
    """From well to ill."""

    GOOD = "good"
    SUSPICIOUS = "suspicious"
    DEGENERATE = "degenerate"
    EMPTY = "empty"


class Grade(msgspec.Struct, frozen=True):
    """A quality, and the sentence that says why.

    Attributes:
        lacks_word: nothing but the expected word is missing: the question may not fit the model.
    """

    quality: Quality
    reason: str
    lacks_word: bool = False


RESERVED = re.compile(
    r"<\|[^<>|\n]{1,60}\|>|<｜[^<>｜\n]{1,60}｜>|<(?:pad|unk|mask|unused\d+|reserved_\d+|extra_id_\d+)>"
    r"|\[(?:PAD|UNK|MASK|BOS|EOS|EOT|control_\d+)\]"
)
"""Tokens that structure a prompt and are never part of an answer: <|im_end|>, <｜end▁of▁sentence｜>, <pad>, Kimi's [BOS]."""

ONLY_RESERVED = re.compile(RESERVED.pattern + r"|</?s>|<[be]os>")
"""These too, where they are most of the text; elsewhere they may be markup."""

TAGS = re.compile(r"</?(?:think|tool_call|tool_calls|function_calls)>|◁/?think▷|" + RESERVED.pattern)
"""What a reasoning or tool-call parser should have taken out of the text (srt/parser/reasoning_parser.py, 0.5.23)."""

OPEN_THOUGHT = re.compile(r"^\s*(?:<think>|◁think▷)(?!.*(?:</think>|◁/think▷))", re.DOTALL)
"""A text that is still within its reasoning."""

MARKS_AROUND = re.compile(r"^\W+|\W+$")

MARK_RUN = 4
"""A text that is nothing but one mark (no letter, no digit), at least so many times, is degenerate: "!!!!"."""

LETTER_RUN = 12
"""…nothing but one letter or digit so many times: "aaaaaaaaaaaa". Fewer may be meant ("hmmm", "10000000")."""

UNIT_RUN = 6
UNIT_RUN_STOPPED = 10
"""…nothing but one longer unit so many times, cut by the limit; or, when the model came to an end by itself, so many times."""

TAIL_RUN = 8
TAIL_SHARE = 0.6
"""A text that falls into a loop of words: the loop ends it, so many times, and is at least this share of it."""

LONGEST_UNIT = 60
"""Longer units are not looked for: a canary's answer has few tokens."""

LOOKED_AT = 2000
"""So many characters, from the end, are searched for repetition."""

BAD_SHARE = 0.2
"""So many control or replacement characters, as a share, are degenerate; fewer are suspicious."""


def grade(answer: Answer, expects: str | None = None) -> Grade:
    """Judge one answer.

    Args:
        answer: what came back.
        expects: what a good text contains, in any case, whatever marks stand around it; None or "" for any sensible text.
    """
    text = (answer.text or "").strip()
    reasoning = (answer.reasoning or "").strip()
    if answer.finish_reason == "abort":
        return Grade(Quality.SUSPICIOUS, "the server aborted the answer (finish_reason abort)")
    if not text and not reasoning:
        return _without_text(answer)
    cut = answer.finish_reason == "length"
    odd: list[str] = []
    for name, part in (("text", text), ("reasoning", reasoning)):
        if not part:
            continue
        if sick := _degenerate(part, cut=cut):
            return Grade(Quality.DEGENERATE, f"the {name} {sick}: {_shown(part)}")
        if strange := _odd(part, cut=cut):
            odd.append(f"the {name} {strange}: {_shown(part)}")
    if odd:
        return Grade(Quality.SUSPICIOUS, odd[0])
    # Where the tokens went into reasoning, the answer itself may not have come as far as the word.
    short = cut and (bool(reasoning) or OPEN_THOUGHT.match(text) is not None)
    if expects and text and not _contains(text, expects) and not short:
        return Grade(Quality.SUSPICIOUS, f"the text does not contain {expects!r}: {_shown(text)}", lacks_word=True)
    return Grade(Quality.GOOD, f"a sensible answer: {_shown(text)}" if text else f"sensible reasoning: {_shown(reasoning)}")


def _without_text(answer: Answer) -> Grade:
    if answer.tool_calls:
        return Grade(Quality.GOOD, f"an answer of {answer.tool_calls} tool call{'' if answer.tool_calls == 1 else 's'}")
    counted = answer.completion_tokens
    said = "no token count" if counted is None else f"{counted} token{'' if counted == 1 else 's'} counted"
    blank = "only white space" if answer.text or answer.reasoning else "neither text nor reasoning nor tool calls"
    return Grade(Quality.EMPTY, f"an answer without content ({blank}, {said}, finish_reason {answer.finish_reason})")


def _degenerate(text: str, *, cut: bool) -> str | None:
    """What no model in its senses writes, as the rest of a sentence; None if it is not that."""
    length = len(text)
    bad = _bad_characters(text, cut=cut)
    if bad >= 2 and bad / length >= BAD_SHARE:
        return f"has {bad} control or replacement characters in {length}"
    reserved = ONLY_RESERVED.findall(text)
    if reserved and sum(map(len, reserved)) / length >= 0.5:
        return f"is made of reserved tokens such as {reserved[0]}"
    unit, times = _whole_unit(text)
    if unit and _too_often(unit, times, cut=cut):
        return f"is {unit!r} {times} times"
    unit, times, covered = _looped_tail(text)
    if cut and times >= TAIL_RUN and covered >= TAIL_SHARE * length and _has_letters(unit) and len(unit) >= 2:
        return f"ends in a loop of {unit!r}, {times} times"
    return None


def _odd(text: str, *, cut: bool) -> str | None:
    """What is strange but may be meant, as the rest of a sentence."""
    bad = _bad_characters(text, cut=cut)
    if bad:
        return f"has {bad} control or replacement character{'s' if bad > 1 else ''}"
    if found := RESERVED.search(text):
        return f"has a reserved token in it ({found[0]})"
    mixed = [word for word in re.findall(r"[^\W\d_]+", text[:LOOKED_AT]) if _mixed(word)]
    if len(mixed) >= 2:
        return f"mixes scripts within words ({mixed[0]}, {mixed[1]})"
    return None


def _bad_characters(text: str, *, cut: bool) -> int:
    """Control and replacement characters; not those at the end of a cut text, where half a character is normal."""
    if cut:
        text = text.rstrip("\ufffd") or text
    return sum(c == "\ufffd" or (unicodedata.category(c) == "Cc" and c not in "\t\n\r\f") for c in text)


def _whole_unit(text: str) -> tuple[str, int]:
    """The smallest unit that the whole text repeats (its last repetition may be cut), and how often it stands there whole.

    The unit is "" if there is none of at most `LONGEST_UNIT` characters that stands there twice.
    """
    text = text[-LOOKED_AT:]
    for size in range(1, min(LONGEST_UNIT, len(text) // 2) + 1):
        if text[size:] == text[:-size]:
            return text[:size], len(text) // size
    return "", 0


def _looped_tail(text: str) -> tuple[str, int, int]:
    """The unit that the end of the text repeats, how often, and how many characters that covers; the widest loop."""
    text = text[-LOOKED_AT:]
    best = ("", 0, 0)
    for size in range(1, min(LONGEST_UNIT, len(text) // 2) + 1):
        run = 0
        while run + size < len(text) and text[-1 - run] == text[-1 - run - size]:
            run += 1
        covered = run + size
        if run >= size and covered > best[2]:
            best = (text[len(text) - size :], covered // size, covered)
    return best


def _too_often(unit: str, times: int, *, cut: bool) -> bool:
    if len(unit) == 1:
        return times >= (LETTER_RUN if unit.isalnum() or unicodedata.category(unit) == "So" else MARK_RUN)
    return times >= (UNIT_RUN if cut and _has_letters(unit) else UNIT_RUN_STOPPED)


def _has_letters(unit: str) -> bool:
    return any(c.isalpha() for c in unit)


SCRIPTS = ("LATIN", "CYRILLIC", "ARABIC", "HEBREW", "DEVANAGARI", "THAI", "BENGALI", "TAMIL", "GEORGIAN", "ARMENIAN", "ETHIOPIC")
"""Scripts of which no two meet within a word. Greek is left out (formulas), and so are the East Asian ones ("使用Python")."""


def _mixed(word: str) -> bool:
    """Whether a word has letters of two such scripts."""
    if word.isascii():
        return False
    found = {unicodedata.name(c, "").partition(" ")[0] for c in word}
    return len(found.intersection(SCRIPTS)) > 1


def _contains(text: str, word: str) -> bool:
    known = _plain(word)
    # A known answer may be a whole one ("Paris."): the marks around it are no part of what is asked.
    return (MARKS_AROUND.sub("", known) or known) in _plain(text)


def _plain(text: str) -> str:
    return " ".join(unicodedata.normalize("NFKC", text).casefold().split())


def _shown(text: str) -> str:
    """The beginning of a text, made safe for a journal line and a page."""
    beginning = repr(text[:60])
    return beginning if len(text) <= 60 else f"{beginning}…"


class Shape(msgspec.Struct, frozen=True, kw_only=True):
    """Where an answer's parts landed, whatever they say.

    Attributes:
        text: whether there is any; likewise `reasoning` and `tool_calls`.
        usage: whether tokens were counted.
        tags: what a parser should have taken out of the text, sorted, at most five.
        model: the name in the answer, which is the one that was asked for, whatever it is.
        served: the first name of /v1/models then; None: not known.
    """

    text: bool
    reasoning: bool
    tool_calls: bool
    usage: bool
    tags: tuple[str, ...] = ()
    model: str | None = None
    finish_reason: str | None = None
    served: str | None = None

    def __str__(self) -> str:
        parts = [name for name in ("text", "reasoning", "tool_calls") if getattr(self, name)] or ["nothing"]
        tags = f", tags {' '.join(self.tags)} in the text" if self.tags else ""
        usage = "" if self.usage else ", no usage"
        model = f"model {self.model}" + (f" (served: {self.served})" if self.served not in (None, self.model) else "")
        return f"{' and '.join(parts)}, finish_reason {self.finish_reason}, {model}{usage}{tags}"


def shape(answer: Answer, served: str | None = None) -> Shape:
    """The shape of an answer, of a server with this model."""
    text = answer.text or ""
    return Shape(
        text=bool(text.strip()),
        reasoning=bool((answer.reasoning or "").strip()),
        tool_calls=answer.tool_calls > 0,
        usage=answer.completion_tokens is not None,
        tags=tuple(sorted(set(TAGS.findall(text)))[:5]),
        model=answer.model,
        finish_reason=answer.finish_reason,
        served=served,
    )


def drift(before: Shape, after: Shape) -> str | None:
    """What changed for the worse between two answers to the same question, as one sentence with both shapes; None if nothing did.

    Shapes that differ as a limit of tokens falls are not drift: text that is missing because the reasoning was cut.
    """
    changes: list[str] = []
    if before.reasoning and not after.reasoning:
        changes.append("the reasoning moved into the text" if after.text else "the reasoning is gone")
    if after.reasoning and not before.reasoning:
        changes.append("reasoning is split off, which was not so")
    if before.text and not after.text and not (after.reasoning and after.finish_reason == "length"):
        changes.append("the text is gone")
    if after.tool_calls and not before.tool_calls:
        changes.append("tool calls come where none were asked for")
    if leaked := sorted(set(after.tags) - set(before.tags)):
        changes.append(f"{' '.join(leaked)} leaks into the text")
    if before.usage and not after.usage:
        changes.append("usage is missing")
    if before.served and after.served and before.served != after.served:
        changes.append("another model is served")
    elif before.model != after.model:
        changes.append("the model has another name")
    cut = after.finish_reason == "length" and before.reasoning and after.reasoning
    if before.finish_reason == "stop" and after.finish_reason != "stop" and not cut:
        changes.append(f"it ends with {after.finish_reason} where it ended with stop")
    return f"{'; '.join(changes)} (before: {before}; now: {after})" if changes else None
