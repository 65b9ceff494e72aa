"""What the stand-in answers: sane, the same for the same prompt, and one word a token."""

import hashlib
import re
from collections.abc import Iterator
from itertools import cycle, islice

CAPITALS = {"france": "Paris", "germany": "Berlin", "italy": "Rome", "japan": "Tokyo", "spain": "Madrid", "england": "London"}
PROSE = (
    "The server answers in plain words. It reads the prompt, thinks about it and gives a short reply. "
    "After that it waits for the next question, and the one after that."
)
END_OF_THINKING = "</think>"
PREFIX_BLOCK = 256
"""Characters of a prompt that are one block of the prefix cache."""
BLOCK_TOKENS = 64
"""Tokens of such a block, at 4 characters a token."""


def count_tokens(text: str) -> int:
    """About what a tokenizer makes of English."""
    return max(1, len(text) // 4)


def prefix_blocks(text: str, salt: str = "", limit: int = 2048) -> list[str]:
    """A key for each full block of a prompt; it stands for all that comes before, and for the salt, too."""
    digest = hashlib.blake2b(salt.encode(), digest_size=6)
    keys = []
    for begin in range(0, min(len(text), limit * PREFIX_BLOCK) - PREFIX_BLOCK + 1, PREFIX_BLOCK):
        digest.update(text[begin : begin + PREFIX_BLOCK].encode())
        keys.append(digest.hexdigest())
    return keys


def reply(question: str) -> str:
    """The answer to a question."""
    lower = question.lower()
    if found := re.search(r"capital of (\w+)", lower):
        return CAPITALS.get(found[1], "Paris") + "."
    if found := re.search(r"(\d{1,6})\s*([-+*x×])\s*(\d{1,6})", lower):
        left, sign, right = int(found[1]), found[2], int(found[3])
        return str(left + right if sign == "+" else left - right if sign == "-" else left * right)
    if found := re.search(
        r"(?:say|reply with|repeat)(?: only| exactly)?(?: the word)?:? [\"']?([\w-]+)", question, re.IGNORECASE
    ):
        return f"{found[1]}."
    if found := re.search(r"item (\d+): .*? keeps (\d+) boxes", lower):
        return found[2]
    return PROSE


def tokens(question: str, *, thinks: bool, fault: str | None = None) -> Iterator[str]:
    """The tokens that the model would give, without end where it would go on.

    Args:
        question: the end of the prompt.
        thinks: whether it reasons first.
        fault: "bang", "repeat" or "control": the ways in which real servers go wrong.
    """
    if fault is not None:
        yield from cycle({"bang": "!", "repeat": " the", "control": "\x14"}.get(fault, "!"))
    if thinks:
        yield from _words("The user wants a short answer.")
        yield END_OF_THINKING
    yield from _words(reply(question))


def never_ending(question: str) -> Iterator[str]:
    """The tokens with ignore_eos."""
    yield from tokens(question, thinks=False)
    yield from cycle(list(_words(" " + PROSE)))


def take(source: Iterator[str], count: int) -> list[str]:
    """The next tokens; fewer only at the end of the answer."""
    return list(islice(source, count))


def _words(text: str) -> Iterator[str]:
    return (found[0] for found in re.finditer(r"\s*\S+", text))
