"""Is generation paused on purpose? Weight updates and POST /pause_generation stop the engine without a fault."""

from watchdog.judge.facts.work import PROBE_TOKENS
from watchdog.observation import Probe
from watchdog.sglang.loglines import Line

HOLDS = {"/pause_generation": "/continue_generation", "/release_memory_occupation": "/resume_memory_occupation"}
"""What stops the engine until its counterpart is called, through all the updates of weights that it is for (tokenizer_manager.py
0.5.20: an update looks whether generation is paused, and leaves it so)."""
UPDATES = "/init_weights_update_group"
GOES_ON_S = 60.0
LONGEST_S = 1800.0
"""A pause that nobody asked for in so many words is believed for so long; one that somebody did ask for is told after it."""


class Pause:
    """Folds access lines and /ready of this life."""

    def __init__(self) -> None:
        self.begin()

    def begin(self) -> None:
        """A new life is not paused."""
        self.since: float | None = None
        self.said = ""
        self._called = False
        self._held: set[str] = set()
        """The calls that must come before the engine may go on."""
        self.ended_at: float | None = None
        self.updated_at: float | None = None
        """When the weights of this life were last replaced."""
        self._health_ok_at: float | None = None
        self._health_failed_at: float | None = None

    def see_access(self, t: float, line: Line) -> None:
        """Take in an access line."""
        path = line.text.get("path", "").partition("?")[0]
        if line.text.get("method") != "POST":
            return
        done = 200 <= line.fields.get("status", 0) < 300
        if path.startswith("/update_weights"):
            if done:
                self.updated_at = t
            if not self._held:
                self._end(t)
            self.ended_at = t  # said when the update is over, whatever came of it: the engine has answered
        elif not done:
            return
        elif path in HOLDS.values():
            self._let_go(t, path)
        elif path in HOLDS:
            self._held.add(HOLDS[path])
            self.since, self.said, self._called = t, f"somebody called {path}", True
        elif path == UPDATES and not self._held:
            self.since, self.said, self._called = t, f"somebody called {path}", True

    def see_text(self, t: float, message: str) -> None:
        """Take in a line that has no mark: a weight update stops the engine (tokenizer_manager.py, model_runner.py)."""
        if self._held:
            return
        if "Start update_weights." in message or "Update engine weights online from disk begin" in message:
            self.since, self.said, self._called = t, "its weights are being updated", False
        elif "Update weights end." in message:
            self._end(t)

    def see_prefill(self, t: float, tokens: float) -> None:
        """Requests that are let in long after show that there is no pause; before an update those in flight still end."""
        if self.since is not None and tokens > PROBE_TOKENS and t > self.since + GOES_ON_S:
            self._end(t)

    def _let_go(self, t: float, call: str) -> None:
        self._held.discard(call)
        if not self._held:
            self._end(t)

    def _end(self, t: float) -> None:
        self._held.clear()
        if self.since is not None:
            self.since, self.ended_at = None, t

    def see_probe(self, o: Probe) -> None:
        """/ready turns 503 at once in a pause, but in a hang only after a /health has failed (SGLang 0.5.20 and later)."""
        if o.probe == "health":
            if o.outcome == "ok":
                self._health_ok_at = o.t
            elif o.outcome != "skipped":
                self._health_failed_at = o.t
        elif o.probe == "ready" and o.outcome == "ok":
            self._let_go(o.t, HOLDS["/pause_generation"])  # it does not know of memory that was released
        elif o.probe == "chat" and o.outcome == "ok":
            if self.since is not None and o.t - (o.total_s or 0.0) > self.since:
                self._end(o.t)  # a pause answers nobody
        elif o.probe == "ready" and o.status == 503 and self.since is None:
            good = self._health_ok_at
            if good is not None and (self._health_failed_at is None or self._health_failed_at < good):
                self.since, self.said, self._called = o.t, "/ready says 503 though no health check had failed", False

    def holds(self, now: float) -> bool:
        """Whether the engine stands still on purpose."""
        return self.since is not None and (self._called or now - self.since <= LONGEST_S)

    def forgotten(self, now: float) -> bool:
        """Whether somebody may have forgotten to end it."""
        return self.since is not None and self._called and now - self.since > LONGEST_S
