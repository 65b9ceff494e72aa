"""What the deep check asks: texts that no cache holds, since each begins with something new."""

import random

QUESTION = "How many boxes are in item 3? Answer with one number."
COUNT = "Count from one to two hundred in words, one after the other."
TELL = "Tell a story about a lighthouse and the sea."


def long(rng: random.Random, chars: int) -> str:
    """A list of about so many characters."""
    lines = [_nonce(rng)]
    size, number = len(lines[0]), 0
    while True:
        number += 1
        street, boxes, shelf = rng.randrange(1, 100), rng.randrange(2, 1000), rng.randrange(1, 60)
        line = f"Item {number}: the warehouse in street {street} keeps {boxes} boxes on shelf {shelf}."
        size += len(line) + 1
        if size > chars - len(QUESTION) - 1:
            return "\n".join(lines)
        lines.append(line)


def asked(prefix: str) -> str:
    """The question about a list, which follows it."""
    return f"{prefix}\n{QUESTION}"


def short(rng: random.Random, text: str) -> str:
    """A short prompt."""
    return f"{_nonce(rng)} {text}"


def _nonce(rng: random.Random) -> str:
    return f"[{rng.getrandbits(64):016x}]"
