"""What came of a deep check: requests with their answers, and what the server's counters made of them."""

from collections.abc import Mapping

import msgspec

from watchdog.observation import Probe

COUNTERS = (
    *("num_requests_total", "cached_tokens_total", "cached_tokens_total.host", "load_back_tokens_total"),
    *("evicted_tokens_total", "generation_tokens_total", "spec_verify_calls_total", "realtime_tokens_total.decode"),
)
GAUGES = ("spec_accept_length",)


class Counted(msgspec.Struct, frozen=True):
    """How much the server's counters grew while one request of ours was served, and gauges after it.

    Attributes:
        grew: by counter; a counter that is not there counts nothing, or does not exist in this version.
        gauges: their last values.
    """

    grew: Mapping[str, float]
    gauges: Mapping[str, float]

    @property
    def alone(self) -> bool:
        """Whether no other request ended meanwhile, so that all growth is ours."""
        return self.grew.get("num_requests_total") == 1.0


def growth(before: Mapping[str, float], after: Mapping[str, float]) -> Counted:
    """What happened between two scrapes. A labelled counter appears with its first increment: it was zero before."""
    grew = {name: max(0.0, after[name] - before.get(name, 0.0)) for name in COUNTERS if name in after}
    return Counted(grew, {name: after[name] for name in GAUGES if name in after})


class Done(msgspec.Struct, kw_only=True):
    """The facts of a deep check. None: it did not come to that, or could not be read.

    Attributes:
        refused: why nothing was asked at all.
        stopped: why it ended early.
        requests, tokens, took_s: what it cost; tokens of a request that did not tell its own are those it might have had.
        cold, warm, again: the long prefix asked first, asked again at once, and asked after the GPU's cache was filled.
        warm_counted, again_counted: what the counters made of the last two.
        settled: and asked once more, where that answer was another one.
        filled: tokens of the requests that filled the cache; evicted: what the cache gave up meanwhile.
        drafted, drafted_counted: the request of the speculation check.
        decodes, accepting, accepted: decode lines of the journal since then, those with an accept length, and the last such.
        load, load_s: requests of the load, and how long it took.
    """

    refused: str | None = None
    stopped: str | None = None
    requests: int = 0
    tokens: int = 0
    took_s: float = 0.0
    cold: Probe | None = None
    warm: Probe | None = None
    warm_counted: Counted | None = None
    again: Probe | None = None
    again_counted: Counted | None = None
    settled: Probe | None = None
    filled: int = 0
    evicted: float | None = None
    drafted: Probe | None = None
    drafted_counted: Counted | None = None
    decodes: int = 0
    accepting: int = 0
    accepted: float | None = None
    load: list[Probe] = []
    load_s: float | None = None

    @property
    def same_answer(self) -> bool:
        """Whether the prompt that came back was answered as one of the times before."""
        before = [said(probe) for probe in (self.cold, self.warm) if probe is not None]
        return self.again is not None and said(self.again) in before


def said(probe: Probe) -> tuple[str | None, str | None]:
    """What was answered: reasoning and text."""
    return (None, None) if probe.answer is None else (probe.answer.reasoning, probe.answer.text)
