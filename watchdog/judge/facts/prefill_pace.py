"""How long a prefilled token takes, from the time between one batch line and the next.

The line after a prefill's comes when that prefill is over, at the earliest. Where it is a decode line, or a prefill's of a
request that came later, up to --decode-log-interval steps (40) lie between the two as well: such a time is a bound, and the
quickest come nearest to the truth. Only while a prompt goes on in chunks is nothing else done between two lines.
"""

from collections import deque

CHUNK_LEAST = 2048
"""A prefill of so many tokens, with more to come, is likely to be one chunk of several (--chunked-prefill-size is 2,048 or
more)."""
TOKENS_LEAST = 256
"""A shorter prefill takes no longer than its launch."""
LONGEST_S = 600.0
MOST = 0.9
"""The pace that this part of the chunks' tokens kept: one pause among them is none of it."""
QUICK = 0.25
"""The pace that this part of all other tokens kept: what was slower is steps of decoding."""
ASSUMED = 1 / 1000.0
"""Seconds a token takes at least, until a prompt was seen to go on in chunks."""
UNSEEN, UNSEEN_S = 1 / 100.0, 100.0
"""The same for the first large prefill of a life, which is under way: of an engine that slow, nothing could be known before.
No more is assumed than so many seconds."""
LEAST = 1 / 5000.0

Sample = tuple[float, float]
"""Seconds that a token took, and how many tokens there were."""


class PrefillPace:
    """Learns the pace of the last prefills of one life."""

    def __init__(self) -> None:
        self._chunks: deque[Sample] = deque(maxlen=64)
        self._bounds: deque[Sample] = deque(maxlen=64)

    def see(self, seconds: float, tokens: float, following: float | None, *, waiting: bool) -> None:
        """Take in the time between a prefill's line and the next line.

        Args:
            seconds: that time.
            tokens: what the first line tells of.
            following: tokens of the next line if it is a prefill's, else None. SGLang 0.5.23 prints a prefill's line when the
                step is over, earlier versions when it begins: so the time belongs to one of the two.
            waiting: whether more was to be prefilled at once.
        """
        if tokens < TOKENS_LEAST or not 0 < seconds < LONGEST_S:
            return
        if following is not None and waiting and min(tokens, following) >= CHUNK_LEAST:
            smaller = min(tokens, following)
            self._chunks.append((seconds / smaller, smaller))
        else:
            larger = max(tokens, following or 0.0)
            self._bounds.append((seconds / larger, larger))

    def first_s(self, tokens: float) -> float:
        """Seconds that a prefill of so many tokens may take that is under way: those of `s`, more if none was seen before."""
        return self.s(tokens) if self._chunks or self._bounds else min(tokens * UNSEEN, UNSEEN_S)

    def s(self, tokens: float) -> float:
        """Seconds that a prefill of so many tokens should take."""
        if self._chunks:
            return tokens * max(LEAST, _kept(self._chunks, MOST))
        return tokens * max(ASSUMED, _kept(self._bounds, QUICK))


def _kept(samples: deque[Sample], part: float) -> float:
    """Seconds a token that such a part of all tokens did not exceed; 0 without any."""
    left = part * sum(tokens for _, tokens in samples)
    for each, tokens in sorted(samples):
        left -= tokens
        if left <= 0:
            return each
    return 0.0
