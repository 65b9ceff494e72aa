"""Answers to the long fixed prefix, by where its KV cache came from: computed, held by the GPU, or loaded back from the host.

At temperature 0 the same prompt has the same answer, but for the noise of batching. So a load-back that changes answers shows as
answers that differ after load-backs more often than they differ by themselves. Known faults of that kind: SGLang issues 38031
(DSA models) and 39830 (hybrid models: 20 of 20 host hits wrong, 10 of 10 GPU hits right); a race that spoils only the request
that loads back: pull request 22811.
"""

import hashlib
from collections import deque
from enum import StrEnum

import msgspec

from watchdog.judge import text
from watchdog.observation import Answer, Metrics, Probe

NEARLY_ALL, NEARLY_NONE = 0.8, 0.2
"""Whole pages are cached (page_size is at most some hundred tokens), and the head of a chat template is shared by all prompts."""

BACK = "load_back_tokens_total"
CACHED = "cached_tokens_total"
ENDED = "num_requests_total"
KEPT = 24
"""So many load-backs count: a day of hourly askings."""


class Origin(StrEnum):
    """Where the KV cache of a prompt came from."""

    COMPUTED = "computed"
    HELD = "held by the GPU"
    LOADED = "loaded back from the host pool"
    UNKNOWN = "unknown"


class Reply(msgspec.Struct, frozen=True):
    """One answer, without its words.

    Attributes:
        digest: the first 8 hexadecimal digits of the SHA-256 of text and reasoning.
        shape: where its parts landed.
    """

    t: float
    digest: str
    shape: str

    def __str__(self) -> str:
        return f"{self.digest} ({self.shape})"


class Pair(msgspec.Struct, frozen=True):
    """An answer beside the one that it should equal."""

    computed: Reply
    reply: Reply

    @property
    def same(self) -> bool:
        return self.computed.digest == self.reply.digest


class Prefix:
    """Folds probes of the prefix canary, and the scrapes around them."""

    def __init__(self) -> None:
        self.begin()

    def begin(self) -> None:
        """A new life: another deployment may answer otherwise, and its cache is empty."""
        self.computed: Reply | None = None
        self.steady: deque[Pair] = deque(maxlen=2 * KEPT)
        """Answers that no load-back can have changed: what they differ is noise."""
        self.loaded: deque[Pair] = deque(maxlen=KEPT)
        """Answers to a prompt that was loaded back for them."""
        self._copy = Origin.UNKNOWN
        """How what the GPU holds of the prefix got there: computed or loaded back."""
        self._told = False
        self._scrapes: deque[tuple[float, dict[str, float]]] = deque(maxlen=6)
        self._waiting: Probe | None = None

    def see(self, o: Probe) -> None:
        """Take in a prefix probe."""
        self._waiting = None
        if o.outcome != "ok" or o.answer is None or o.earlier is None:
            self._copy = Origin.UNKNOWN
            return
        self._told = self._told or any(_told(each) for each in (o.earlier, o.answer))
        if self._told:
            self._take(o, origin(o.earlier), origin(o.answer))
        else:
            self._waiting = o

    def see_metrics(self, o: Metrics) -> None:
        """Take in a good scrape: where streams do not tell of the cache (before SGLang 0.5.12), its counters do."""
        values = {name: o.values.get(name, 0.0) for name in (BACK, CACHED, ENDED)} if ENDED in o.values else None
        probe = self._waiting
        if probe is not None and o.t > probe.t + 1.0:
            self._waiting = None
            if values is not None:
                self._take(probe, *self._by_counters(probe, values))
        if values is not None:
            self._scrapes.append((o.t, values))

    def _by_counters(self, o: Probe, after: dict[str, float]) -> tuple[Origin, Origin]:
        """The origins of both requests, where no other request ended between two scrapes around them."""
        begun = o.t - 2 * (o.total_s or 60.0) - (o.earlier_ttft_s or 60.0) - 1.0
        before = next((values for t, values in reversed(self._scrapes) if t < begun), None)
        size = o.answer.prompt_tokens if o.answer is not None else None
        if before is None or not size or after[ENDED] - before[ENDED] != 2:
            return Origin.UNKNOWN, Origin.UNKNOWN
        if after[BACK] - before[BACK] >= NEARLY_NONE * size:
            return Origin.LOADED, Origin.HELD
        cached = (after[CACHED] - before[CACHED]) / size
        if cached >= 2 * NEARLY_ALL:
            return Origin.HELD, Origin.HELD
        if cached <= 2 * NEARLY_NONE:
            return Origin.COMPUTED, Origin.COMPUTED
        return (Origin.COMPUTED, Origin.HELD) if NEARLY_ALL <= cached <= 1.0 + NEARLY_NONE else (Origin.UNKNOWN, Origin.UNKNOWN)

    def _take(self, o: Probe, first: Origin, second: Origin) -> None:
        assert o.answer is not None
        assert o.earlier is not None
        fresh = None
        if o.fresh is not None and origin(o.fresh) is Origin.COMPUTED:
            # Computed in the same minute as the load-back: nothing is nearer to it.
            fresh = _reply(o.t, o.fresh)
            self._compare(self.steady, fresh)
            self.computed = fresh
        for answer, where in ((o.earlier, first), (o.answer, second)):
            reply = _reply(o.t, answer)
            if where is Origin.COMPUTED:
                self._compare(self.steady, reply)
                self.computed = self.computed or reply
                self._copy = where
            elif where is Origin.LOADED:
                self._compare(self.loaded, reply)
                self._copy = where
            elif where is Origin.HELD and self._copy is Origin.COMPUTED:
                self._compare(self.steady, reply)
            elif where is Origin.UNKNOWN:
                self._copy = where

    def _compare(self, pairs: deque[Pair], reply: Reply) -> None:
        if self.computed is not None:
            pairs.append(Pair(self.computed, reply))


def origin(answer: Answer) -> Origin:
    """Where an answer says that its prompt's KV cache came from; of a server that tells of cached tokens at all."""
    size, held, back = answer.prompt_tokens, answer.cached_device or 0, answer.cached_host or 0
    if answer.finish_reason not in ("stop", "length"):
        return Origin.UNKNOWN  # an answer that was broken off equals none
    if back > 0:
        return Origin.LOADED
    if not size:
        return Origin.UNKNOWN
    share = held / size
    return Origin.HELD if share >= NEARLY_ALL else Origin.COMPUTED if share <= NEARLY_NONE else Origin.UNKNOWN


def _told(answer: Answer) -> bool:
    return answer.cached_device is not None or answer.cached_host is not None


def _reply(t: float, answer: Answer) -> Reply:
    words = f"{answer.text or ''}\0{answer.reasoning or ''}".encode("utf-8", "surrogatepass")
    return Reply(t, hashlib.sha256(words).hexdigest()[:8], str(text.shape(answer)))
