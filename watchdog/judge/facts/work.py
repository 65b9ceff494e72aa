"""The engine's work as it shows itself: batches, counters, requests that end. And its own pace, learned while it works."""

from collections import deque

from watchdog.judge.facts.gaps import Gaps
from watchdog.judge.facts.prefill_pace import CHUNK_LEAST, PrefillPace
from watchdog.judge.facts.queue import Queue
from watchdog.judge.facts.turned_away import TurnedAway
from watchdog.observation import Metrics
from watchdog.sglang.marks import DECODE, PREFILL, Line

STEP_COUNTERS = (
    "realtime_tokens_total",
    "prompt_tokens_total",
    "generation_tokens_total",
    "num_requests_total",
    "load_back_tokens_total",
)
END_COUNTERS = ("num_requests_total", "e2e_request_latency_seconds_count")
ADMIT_COUNTERS = ("realtime_tokens_total.prefill_compute", "realtime_tokens_total.prefill_cache")
PACE_MEMORY_S = 1800.0
"""A gap between two steps counts for the server's pace for so long."""
LEAST_GAP_S = 5.0
IDLE_S = 35.0
"""Gauges of an idle engine are right after 30 s at the latest (SGLang, all versions)."""
SAME_S = 15.0
"""A batch line and a scrape that are no further apart may tell of the same step."""
PROBE_TOKENS = 64
"""A prefill of no more tokens may be one of our own probes (/health has one token, the canary some thirty)."""
STILL_S = 60.0
"""A pause of the engine that is longer parts one stretch of motion from the next: it may have been one long prefill."""
DATED_S = 1.0
"""A line that was read sooner after it was written is dated by its reading (docs/flight-record.md, `at`)."""
FRESH_S = 45.0
"""A gauge is believed for so long after the scrape in which it last moved with a counter: idle gauges lag by 30 s
(SGLang, all versions)."""


class Batch:
    """The last batch line of one kind."""

    __slots__ = ("fields", "t")

    def __init__(self, t: float, fields: dict[str, float]) -> None:
        self.t = t
        self.fields = fields


class Work:
    """Folds batch lines and counters of this life into moments of progress."""

    def __init__(self) -> None:
        self.begin()

    def begin(self) -> None:
        """A new life: nothing was seen of it yet."""
        self.stepped_at: float | None = None
        """When the engine last moved: a batch line, or a counter of steps or tokens that grew."""
        self.surely_stepped_at: float | None = None
        """The same at the earliest: what a scrape shows may have happened just after the scrape before it."""
        self.moving_since: float | None = None
        """Since when it has moved without a long pause."""
        self.ended_at: float | None = None
        """When a request was last seen to end (counters), and so reached its user."""
        self.surely_ended_at: float | None = None
        """The same at the earliest: it may have ended just after the scrape before."""
        self.ends_seen = False
        self.admitted_at: float | None = None
        """When a request was last taken into a batch (a prefill line, or prefill counters)."""
        self.worked_at: float | None = None
        """When a batch line last told of more work than a probe of ours."""
        self.heartbeat_at: float | None = None
        """The newest heartbeat of which a failed health check told."""
        self.health_failed: deque[float] = deque(maxlen=20)
        """When the server said that a health check had failed, whoever made it."""
        self.prefill: Batch | None = None
        self._prefill_before: Batch | None = None
        """The prefill before the newest line."""
        self.decode: Batch | None = None
        self._rested = False
        """Whether a prefill began from rest since the newest decode line: the speed of the next one counts the rest, too."""
        self._step_s: float | None = None
        self.scrape: Metrics | None = None
        self.scrape_moved_at: float | None = None
        self.counters_seen = False
        self._counters: dict[str, float] = {}
        self._gaps = Gaps(PACE_MEMORY_S)
        self._sure_gaps = Gaps(PACE_MEMORY_S)
        """The same at the least: a scrape that comes late makes no gap of the engine."""
        self._pauses: deque[tuple[float, float]] = deque(maxlen=200)
        """Pauses between two steps that a probe may have failed in: (the step before, the step after)."""
        self._still_at: float | None = None
        """When a scrape last showed that nothing had moved since the one before."""
        self._largest = 0.0
        """Tokens of the largest prefill so far: a full chunk, where prompts are longer than one."""
        self._prefill_pace = PrefillPace()
        self.turned_away = TurnedAway()
        self.loaded_at: float | None = None
        """When a line or a scrape last told of a request that runs or waits."""
        self.queue = Queue()
        self.running_since: float | None = None

    # ---- folding

    def see_batch(self, t: float, line: Line) -> None:
        """Take in a Prefill or Decode line that was written at `t`."""
        f = line.fields
        if line.mark is PREFILL:
            self._learn_prefill(t, line)
            self._largest = max(self._largest, f.get("new_token", 0.0))
            self._prefill_before, self.prefill = self.prefill, Batch(t, f)
            self._rested = self._rested or f.get("running", 1) <= 0
            if f.get("new_token", 0) > 1 or f.get("new_seq", 0) > 1:
                self.admitted_at = t
        else:
            self._learn_prefill(t, line)
            self._prefill_before, self.decode = self.prefill, Batch(t, f)
            speed, running = f.get("gen_throughput", 0.0), f.get("running", 0.0)
            self._step_s = running / speed if speed > 0 and running > 0 and not self._rested else None
            self._rested = False
        if f.get("new_token", 0) > PROBE_TOKENS or f.get("running", 0) > 0 or f.get("queue", 0) > 1:
            self.worked_at = t
        if any(f.get(name, 0) > 0 for name in ("running", "queue", "pending_token")) or f.get("new_token", 0) > PROBE_TOKENS:
            self.loaded_at = t
        self._step(t, line)
        if self.surely_stepped_at is None or t > self.surely_stepped_at:
            self.surely_stepped_at = t
        if "queue" in f:
            self.queue.see(t, f["queue"])

    def _learn_prefill(self, t: float, line: Line) -> None:
        """A line after a prefill line says how long that prefill took at most, if there was no pause between them."""
        last = self.prefill
        if last is None or last.t != self.stepped_at:
            return
        waiting = last.fields.get("queue", 0) > 0 or last.fields.get("pending_token", 0) > 0
        if line.mark is DECODE or line.fields.get("running", 0) > 0 or waiting:
            following = line.fields.get("new_token", 0.0) if line.mark is PREFILL else None
            self._prefill_pace.see(t - last.t, last.fields.get("new_token", 0.0), following, waiting=waiting)

    def see_metrics(self, o: Metrics) -> None:
        """Take in a scrape: progress is what counters do, never what gauges say."""
        if not o.ok:
            return
        self.turned_away.see(o)
        values = o.values
        moved = False
        for name in STEP_COUNTERS:
            now = values.get(name)
            if now is None:
                continue
            self.counters_seen = True
            before = self._counters.get(name)
            if before is not None and now != before:
                moved = True
        if any(self._grew(values, name) for name in END_COUNTERS):
            self.ended_at = o.t
            self.surely_ended_at = o.t if self.scrape is None else self.scrape.t
            self.ends_seen = True
        if any(self._grew(values, name) for name in ADMIT_COUNTERS):
            self.admitted_at = o.t
        for name in (*STEP_COUNTERS, *END_COUNTERS, *ADMIT_COUNTERS):
            if name in values:
                self._counters[name] = values[name]
        if moved:
            self._step(o.t)
            self.scrape_moved_at = o.t
            self._still_at = None
            if self.scrape is not None and self.scrape.t > (self.surely_stepped_at or -1e18):
                self.surely_stepped_at = self.scrape.t
        else:
            self._still_at = o.t
        self.scrape = o
        if "num_queue_reqs" in values:
            self.queue.see(o.t, values["num_queue_reqs"])
        running = values.get("num_running_reqs")
        if (running or values.get("num_queue_reqs")) and o.t - self._last_line_at() > FRESH_S:
            # A line tells it better: gauges go on to tell of requests that have ended.
            self.loaded_at = o.t
        if running is not None:
            if running <= 0:
                self.running_since = None
            elif self.running_since is None:
                self.running_since = o.t

    def _grew(self, values: dict[str, float], name: str) -> bool:
        now, before = values.get(name), self._counters.get(name)
        return now is not None and before is not None and now > before

    def see_health_failed(self, t: float, silence_s: float) -> None:
        """A health check failed at `t`: the front end had heard from the engine so long before."""
        self.health_failed.append(t)
        self.heartbeat_at = max(t - silence_s, self.heartbeat_at or -1e18)

    def _step(self, t: float, line: Line | None = None) -> None:
        last = self.stepped_at
        if last is not None and t - last > LEAST_GAP_S and self._busy_before(t, line):
            self._gaps.add(t, t - last)
            still_at = t if line is not None else self._still_at
            if still_at is not None and still_at - last > LEAST_GAP_S:
                self._sure_gaps.add(t, still_at - last)
        if last is None or t - last > STILL_S:
            self.moving_since = t
        if last is not None and t - last > LEAST_GAP_S:
            self._pauses.append((last, t))
        if last is None or t > last:
            self.stepped_at = t

    def _busy_before(self, t: float, line: Line | None) -> bool:
        """Whether the engine worked all through the gap that ends at `t`, so that the gap is its pace and not idleness.

        The last decode line before a pause often shows a request that ended a moment later: only what comes next can tell.
        """
        s = self.scrape
        fresh = s is not None and s.ok and t - s.t < FRESH_S and "num_running_reqs" in s.values
        if line is None:
            if s is None or not fresh or (self.stepped_at or 0.0) > s.t:
                return False  # a line since the last scrape has told of this step
            return s.values["num_running_reqs"] > 0 or s.values.get("num_queue_reqs", 0) > 0
        if line.mark is DECODE or line.fields.get("running", 0) > 0:
            # The line itself tells what runs; a gauge goes on to tell of a request that has ended (30 s, SGLang, all versions).
            return s is None or not fresh or s.values["num_running_reqs"] > 0 or s.values.get("num_queue_reqs", 0) > 0
        before = max((b for b in (self.decode, self._prefill_before) if b is not None), key=lambda b: b.t, default=None)
        if before is None:
            return False
        f = before.fields
        return f.get("queue", 0) > 0 or f.get("pending_token", 0) > 0 or f.get("new_token", 0) >= max(CHUNK_LEAST, self._largest)

    def forgive(self, t: float) -> None:
        """We did not run until `t`: silence before it proves nothing."""
        if self.stepped_at is not None and self.stepped_at < t:
            self.stepped_at = t
        for name in ("ended_at", "surely_ended_at", "admitted_at"):
            if getattr(self, name) is not None:
                setattr(self, name, max(getattr(self, name), t))
        self.queue.forgive(t)
        if self.running_since is not None:
            self.running_since = t

    # ---- what judges ask

    def still(self, began: float, ended: float) -> bool:
        """Whether the engine took no step between two moments, but went on with one that had begun before."""
        if self.stepped_at is None:
            return False
        return self.stepped_at < began - DATED_S or any(
            since < began - DATED_S and until > ended for since, until in self._pauses
        )

    def in_hand(self, now: float) -> bool:
        """Whether the engine had requests to work on when it was last seen to move."""
        if self.scrape is not None and self.scrape.ok and now - self.scrape.t < FRESH_S:
            v = self.scrape.values
            if v.get("num_running_reqs", 0) > 0 or v.get("num_queue_reqs", 0) > 0:
                return True
            if self.scrape.t - (self.stepped_at or self.scrape.t) > IDLE_S and "num_running_reqs" in v:
                return False
        batches = [b for b in (self.decode, self.prefill) if b is not None]
        last = max(batches, key=lambda b: b.t, default=None)
        # A scrape that shows the same step comes a little later than its line.
        if last is None or self.stepped_at is None or self.stepped_at - last.t > SAME_S:
            return False
        f = last.fields
        return f.get("running", 0) > 0 or f.get("queue", 0) > 0 or f.get("pending_token", 0) > 0 or f.get("new_token", 0) > 1

    def at_rest(self, now: float) -> bool:
        """Whether nothing has run and nothing has waited for longer than gauges of an idle engine lag."""
        told = max((x for x in (self.stepped_at, self.scrape.t if self.scrape else None) if x is not None), default=None)
        if told is None or now - told > FRESH_S or self.figure("num_running_reqs", "running") is None:
            return False
        return self.loaded_at is None or now - self.loaded_at > FRESH_S

    def _last_line_at(self) -> float:
        return max((b.t for b in (self.prefill, self.decode) if b is not None), default=-1e18)

    def over(self, answered: float | None, tokens: float) -> bool:
        """Whether a request ended after the newest batch line, and so the batch of which that line told.

        Args:
            answered: when a canary of ours was last answered; None: never.
            tokens: its prompt's. Its own line may be dated after its answer.
        """
        last = max((b for b in (self.prefill, self.decode) if b is not None), key=lambda b: b.t, default=None)
        if last is None:
            return False
        own = last.fields.get("new_token", 0) <= tokens and last.fields.get("running", 0) <= 1
        ends = (self.surely_ended_at, answered + DATED_S if answered is not None and own else answered)
        return any(t is not None and t > last.t for t in ends)

    def only_probed(self) -> bool:
        """Whether the newest batch line may tell of nothing but a probe of ours."""
        last = self._last_line_at()
        return last > -1e18 and (self.worked_at is None or self.worked_at < last)

    def counters_frozen(self, now: float) -> bool:
        """Whether fresh scrapes say: requests are running, and no counter moves."""
        s = self.scrape
        return (
            s is not None
            and s.ok
            and now - s.t < FRESH_S
            and self.counters_seen
            and s.values.get("num_running_reqs", 0) > 0
            and self.stepped_at is not None
            and s.t > self.stepped_at
            and not self.only_probed()  # a gauge that tells of others is stale then
        )

    @property
    def counts_steps(self) -> bool:
        """Whether its scrapes have a counter that moves with each decode step (SGLang 0.5.7 and later)."""
        return "realtime_tokens_total" in self._counters

    def longest_gap(self) -> float:
        """The longest gap between two steps with work in hand, of late, in seconds."""
        return self._gaps.longest(self.stepped_at or -1e18)

    def longest_sure_gap(self) -> float:
        """The same at the least, where it was seen by scrapes only."""
        return self._sure_gaps.longest(self.stepped_at or -1e18)

    def batch_in_hand_s(self, *, at_rest: bool = False) -> float:
        """How long the prefill that was begun last should take at the pace seen so far, in seconds; 0 if none is in hand.

        Args:
            at_rest: whether the GPUs are seen to do nothing: then it need not be one of an engine that is slow.
        """
        p = self.prefill
        if p is None or self.stepped_at is None or p.t < self._last_line_at() or self.stepped_at - p.t > SAME_S:
            return 0.0
        tokens = p.fields.get("new_token", 0.0)
        if tokens < 1024:
            return 0.0
        return self.prefill_s(tokens) if at_rest else self._prefill_pace.first_s(tokens)

    def prefill_s(self, tokens: float) -> float:
        """How long a prefill of so many tokens takes at the pace seen in this life, in seconds.

        1,000 tokens a second are assumed until a prefill was seen.
        """
        return self._prefill_pace.s(tokens)

    def step_s(self) -> float | None:
        """Seconds one decode step takes for one request at the speed last printed; None if unknown.

        The speed of a decode line is that of all the time since the line before: an idle server's says nothing.
        """
        return self._step_s

    def figure(self, metric: str, field: str) -> float | None:
        """A count from the last scrape, or else from the last batch line; None if neither has it."""
        if self.scrape is not None and self.scrape.ok and metric in self.scrape.values:
            return self.scrape.values[metric]
        batches = [b for b in (self.prefill, self.decode) if b is not None and field in b.fields]
        return max(batches, key=lambda b: b.t).fields[field] if batches else None
