"""How fast the engine decodes, and how long a first token takes: normalised, so that the mix of requests makes no difference.

One decode step serves all running requests at once and gives each of them (with speculation) accept-length tokens. So the time
of a step is running × accept length ÷ throughput. It depends on how many run: steps are compared within classes of batch size
(1, 2-3, 4-7 …).
"""

import statistics

from watchdog.judge.facts.recent import Recent
from watchdog.observation import Metrics, Probe
from watchdog.sglang.marks import PREFILL, Line

WINDOW_S = 600.0
"""What holds for shorter than this is the mix of requests."""
LEARN_COUNT = 20
FEW = 5
PREFILL_LEAST = 512
"""Prompt tokens between two figures that make the decode steps among them slower than they are."""
LINES_FRESH_S = 120.0
SPELL_S = 60.0
"""Times between tokens are put together over so long."""
SPELL_TOKENS = 100.0
EVEN = 3.0
"""If more than so many times the mean number of requests run at once, the mean does not tell how long a step should take."""
PROMPTS_A_S = 250.0
"""Prompt tokens a second that take no more than a quarter of an engine's time, if it computes 1,000 of them a second."""
FIRST_TOKENS = 50.0
"""So many tokens count as the first one where a request does not stream (SGLang up to 0.5.21)."""


class _Rank:
    """What one rank's lines said since its last decode line."""

    __slots__ = ("idle", "prefilled")

    def __init__(self) -> None:
        self.idle = True
        self.prefilled = 0.0


class Steady:
    """A quantity with its usual value in this life and its last minutes."""

    def __init__(self) -> None:
        self.recent = Recent(WINDOW_S)
        self._first: list[float] = []
        self._usual: float | None = None

    def add(self, t: float, value: float) -> None:
        """Take in one figure."""
        together = self.recent.add(t, value)
        if self._usual is None:
            if together:
                self._first.pop()
            self._first.append(self.recent.figures[-1].value)
            if len(self._first) == LEARN_COUNT:
                self._usual = statistics.median(self._first)

    def usual(self) -> float | None:
        """The median of the first figures of this life; None before there were enough."""
        return self._usual

    def now(self, t: float, quantile: float = 0.5) -> float | None:
        """A quantile of the last minutes; None without enough figures over half of them."""
        since = t - WINDOW_S
        recent = [figure for figure in self.recent.figures if figure.t > since]
        if len(recent) < FEW or recent[-1].t - recent[0].t < WINDOW_S / 2:
            return None
        values = sorted([figure.value for figure in recent])
        return values[int(quantile * (len(values) - 1))]


class _Spell:
    """Scrapes of about a minute: what they tell of the time between two tokens of an answer."""

    def __init__(self, first: Metrics) -> None:
        self.first = self.last = first
        self._most = first.values.get("num_running_reqs", 0.0)

    def see(self, o: Metrics) -> None:
        self.last = o
        self._most = max(self._most, o.values.get("num_running_reqs", 0.0))

    @property
    def lasting(self) -> float:
        return self.last.t - self.first.t

    def figure(self) -> tuple[float, float] | None:
        """Requests that were being answered, in the mean, and seconds of a step; None if there is no telling."""
        between = self._between()
        if between is None:
            return None
        seconds, tokens = between
        if tokens < SPELL_TOKENS or seconds <= 0 or (self._prompts() or 0.0) > PROMPTS_A_S * self.lasting:
            return None
        running = max(1.0, seconds / self.lasting)
        if self._most > EVEN * running:
            return None
        return running, seconds / tokens * (self.last.values.get("spec_accept_length") or 1.0)

    def _between(self) -> tuple[float, float] | None:
        """Seconds between tokens, and how many there were: summed up over all requests, those at once too."""
        seconds, tokens = self._grew("inter_token_latency_seconds_sum"), self._grew("inter_token_latency_seconds_count")
        if seconds is not None and tokens is not None:
            return seconds, tokens
        whole, first = self._grew("e2e_request_latency_seconds_sum"), self._grew("time_to_first_token_seconds_sum")
        made, ended = self._grew("generation_tokens_total"), self._grew("num_requests_total")
        if whole is None or first is None or made is None or ended is None or made < 2.5 * FIRST_TOKENS * ended:
            return None  # of short answers that do not stream, hardly a token comes after the first ones
        return whole - first, made - ended

    def _prompts(self) -> float | None:
        """Prompt tokens that were computed."""
        computed = self._grew("realtime_tokens_total.prefill_compute")
        if computed is not None:
            return computed
        asked, cached = self._grew("prompt_tokens_total"), self._grew("cached_tokens_total")
        return None if asked is None else asked - (cached or 0.0)

    def _grew(self, name: str) -> float | None:
        a, b = self.first.values.get(name), self.last.values.get(name)
        return None if a is None or b is None else b - a


class Speed:
    """Folds batch lines, scrapes and canaries of one life."""

    def __init__(self) -> None:
        self.begin()

    def begin(self) -> None:
        """A new life learns anew."""
        self.steps: dict[int, Steady] = {}
        """Seconds of a decode step, by batch size (the power of two at or below it)."""
        self.between: dict[int, Steady] = {}
        """The same by the times between tokens that its histograms tell. Prompts and pauses are in it: it is compared with
        itself alone, and only where nothing else tells."""
        self.per_request = Steady()
        """Tokens a second of one request."""
        self.first_token: dict[str, Steady] = {}
        """Seconds to the first token of our own requests: "chat" has a short prompt, "prefix" a long one."""
        self.pin_budget: str | None = None
        """The line that says that the pin budget is zero, where it was printed."""
        self._ranks: dict[str, _Rank] = {}
        self._line_at = -1e18
        self._scrape: Metrics | None = None
        self._spell: _Spell | None = None

    def see_batch(self, t: float, line: Line) -> None:
        """Take in a batch line that was written at `t`."""
        f = line.fields
        rank = self._ranks.get(line.rank or "")
        if rank is None:
            rank = self._ranks[line.rank or ""] = _Rank()
        running = f.get("running", 0.0)
        if line.mark is PREFILL:
            rank.prefilled += f.get("new_token", 0.0)
            rank.idle = rank.idle or running <= 0
            return
        speed = f.get("gen_throughput", 0.0)
        # After idleness the printed speed counts the idle time too (all versions), and prompts take their time from steps.
        if not rank.idle and rank.prefilled < PREFILL_LEAST and running > 0 and speed > 0:
            self._line_at = t
            self._step(t, running, speed / running, f.get("accept_len") or 1.0)
        rank.idle, rank.prefilled = running <= 0, 0.0

    def see_metrics(self, o: Metrics) -> None:
        """Take in a scrape: between two of them tokens were made, and if no request ended meanwhile, nothing was idle."""
        before, self._scrape = self._scrape, o
        self._see_between(o)
        if before is None or o.t - self._line_at < LINES_FRESH_S or not 0 < o.t - before.t <= 60.0:
            return
        a, b = before.values, o.values
        running = min(a.get("num_running_reqs", 0.0), b.get("num_running_reqs", 0.0))
        names = ("realtime_tokens_total.decode", "num_requests_total")
        if (
            running <= 0
            or running != a.get("num_running_reqs")
            or running != b.get("num_running_reqs")
            or any(n not in a or n not in b for n in names)
        ):
            return
        made = b["realtime_tokens_total.decode"] - a["realtime_tokens_total.decode"]
        prompt = b.get("realtime_tokens_total.prefill_compute", 0.0) - a.get("realtime_tokens_total.prefill_compute", 0.0)
        if made <= 0 or b["num_requests_total"] != a["num_requests_total"] or prompt >= PREFILL_LEAST:
            return
        self._step(o.t, running, made / (o.t - before.t) / running, b.get("spec_accept_length") or 1.0)

    def _see_between(self, o: Metrics) -> None:
        spell = self._spell
        if spell is None or not 0 < o.t - spell.last.t <= SPELL_S:
            self._spell = _Spell(o)
            return
        spell.see(o)
        if spell.lasting < SPELL_S:
            return
        figure, self._spell = spell.figure(), _Spell(o)
        if figure is not None:
            _of_size(self.between, figure[0]).add(o.t, figure[1])

    def see_probe(self, o: Probe, *, alone: bool) -> None:
        """Take in a canary that was answered; `alone`: nothing else was running or waiting."""
        answer = o.answer
        if o.outcome != "ok" or answer is None or o.ttft_s is None or o.total_s is None:
            return
        tokens, took = answer.completion_tokens or 0, o.total_s - o.ttft_s
        if tokens >= 4 and took > 0:
            # A fast answer comes in one piece: the time after its first byte then says nothing, and is not needed.
            self.per_request.add(o.t, min(1e6, (tokens - 1) / took))
        if alone:
            self.first_token.setdefault(o.probe, Steady()).add(o.t, o.ttft_s)

    def _step(self, t: float, running: float, per_request: float, accept: float) -> None:
        _of_size(self.steps, running).add(t, accept / per_request)
        self.per_request.add(t, per_request)

    def usual(self) -> dict[int, float]:
        """Usual seconds of a step in this life, by batch size, where enough was seen."""
        return {size: usual for size, steps in self.steps.items() if (usual := steps.usual()) is not None}


def _of_size(steps: dict[int, Steady], running: float) -> Steady:
    """The figures of a batch of such a size."""
    size = 1 << (int(running).bit_length() - 1) if running >= 1 else 1
    found = steps.get(size)
    if found is None:  # setdefault() would make one for each line
        found = steps[size] = Steady()
    return found
