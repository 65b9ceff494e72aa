"""A case: one kind of incident, how to play it on the simulation, what should be made of it, and in which variants."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from tests.incidents.sim import Setup, Sim

ACTIONS = ("restart", "plan_restart", "withhold", "alert")


@dataclass(frozen=True)
class Wish:
    """What should become of one action: "must" between `after` and `by` (seconds), "must_not", or "may"."""

    verdict: str
    after: float = 0.0
    by: float = 1e18
    words: tuple[str, ...] = ()


MAY = Wish("may")
NOT = Wish("must_not")


def must(after: float, by: float, *words: str) -> Wish:
    return Wish("must", after, by, words)


VARIANTS: dict[str, dict[str, Any]] = {
    "plain": {},
    "no-metrics": {"metrics": False},
    "0.5.9": {"version": "0.5.9", "tz_h": -5},
    "0.5.5": {"version": "0.5.5.post3", "tz_h": 8},
    "one-gpu": {"ranks": 1, "spec": False, "hicache": False},
    "one-gpu-no-metrics": {"ranks": 1, "spec": False, "hicache": False, "metrics": False, "tz_h": 2},
    "no-gpu-source": {"gpu": False},
    "bare": {"gpu": False, "procs": False, "metrics": False},
    "slow-probes": {"health_gap_s": 35.0, "chat_s": 240.0},
    "quick-probes": {"health_gap_s": 10.0, "chat_s": 60.0, "chat_limit_s": 30.0},
    "watchdog-off": {"watchdog_s": 20000.0},
    "two-nodes": {"nnodes": 2},
    "busy": {"rate": 1.5},
    "idle": {"rate": 0.0},
}
ALL = tuple(VARIANTS)


@dataclass(frozen=True)
class Case:
    """One kind of incident."""

    name: str
    incidents: tuple[str, ...]
    play: Callable[[Sim], None]
    wishes: dict[str, Wish]
    until: float
    base: dict[str, Any]
    variants: tuple[str, ...]

    def setup(self, variant: str) -> Setup:
        return replace(Setup(), **{**VARIANTS[variant], **self.base})

    def sim(self, variant: str, seed: int) -> Sim:
        """The played record; its observations are in `out`."""
        s = Sim(self.setup(variant), seed)
        self.play(s)
        s.run(self.until)
        return s


CASES: dict[str, Case] = {}


def case(
    *incidents: str,
    until: float = 1500.0,
    variants: tuple[str, ...] = ("plain",),
    restart: Wish = NOT,
    plan_restart: Wish = NOT,
    withhold: Wish = NOT,
    alert: Wish = MAY,
    **base: Any,
) -> Callable[[Callable[[Sim], None]], Callable[[Sim], None]]:
    """Make a case of a function that sets the faults on a simulation; further keywords are fields of its Setup."""

    def make(play: Callable[[Sim], None]) -> Callable[[Sim], None]:
        name = play.__name__.replace("_", "-")
        wishes = {"restart": restart, "plan_restart": plan_restart, "withhold": withhold, "alert": alert}
        assert name not in CASES, name
        CASES[name] = Case(name, incidents, play, wishes, until, base, variants)
        return play

    return make


def judge(wishes: dict[str, Wish], intents: list[dict[str, Any]]) -> list[str]:
    """What is wrong with these intents, a sentence each. Only the first intent of an action counts, and of alerts only those that matter."""
    wrong = []
    for action, wish in wishes.items():
        said = [i for i in intents if i["action"] == action and not (action == "alert" and i["severity"] == "info")]
        if wish.verdict == "must_not":
            wrong += [f"{action} at {i['t']:.0f}: {i['reason']}: {i['message']}" for i in said if not _past(i, intents)][:1]
        if wish.verdict != "must":
            continue
        if not said:
            wrong.append(f"no {action}")
        elif said[0]["t"] < wish.after:
            wrong.append(f"{action} at {said[0]['t']:.0f} is rash (from {wish.after:.0f}): {said[0]['message']}")
        elif said[0]["t"] > wish.by:
            wrong.append(f"{action} at {said[0]['t']:.0f} is late (by {wish.by:.0f}): {said[0]['message']}")
        elif wish.words and not any(w in f"{i['message']} {i['advice']}".lower() for i in said for w in wish.words):
            wrong.append(f"{action} lacks the advice ({'/'.join(wish.words)}): {said[0]['message']} / {said[0]['advice']}")
    return wrong


def _past(intent: dict[str, Any], intents: list[dict[str, Any]]) -> bool:
    """Whether a restart of the same life was ordered before: the record cannot show it, so nothing after it counts."""
    restarts = [i for i in intents if i["action"] == "restart" and i["inv"] == intent["inv"]]
    return bool(restarts) and restarts[0] is not intent and restarts[0]["t"] <= intent["t"]
