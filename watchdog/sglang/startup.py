"""The phases of a start, in order, with what each of them usually takes.

Sources: model_executor/model_runner.py, managers/scheduler.py, entrypoints/http_server.py. Up to 0.5.13 the target model
is built as a whole and then the draft model; from 0.5.14 on all weights come first, then all KV pools, then all graphs. The host
pool comes last in both.
"""

from collections.abc import Mapping, Sequence
from enum import StrEnum

import msgspec

from watchdog.sglang.marks import Line, Mark
from watchdog.sglang.version import is_new


class Phase(StrEnum):
    """A phase of a start; the value is its name for people."""

    LAUNCH = "launch"
    WEIGHTS = "weights"
    KV_CACHE = "KV cache"
    GRAPHS = "graphs"
    HOST_POOL = "host pool"
    WARM_UP = "warm-up"
    READY = "ready"


PHASES: tuple[Phase, ...] = tuple(Phase)

_PHASE_OF: dict[Mark, Phase] = {
    Mark.ARGS: Phase.LAUNCH,
    Mark.INIT_BEGIN: Phase.LAUNCH,
    Mark.WEIGHTS_BEGIN: Phase.WEIGHTS,
    Mark.WEIGHTS_PROGRESS: Phase.WEIGHTS,
    Mark.WEIGHTS_END: Phase.WEIGHTS,
    Mark.KV_CACHE: Phase.KV_CACHE,
    Mark.MEMORY_POOL: Phase.KV_CACHE,
    Mark.GRAPHS_BEGIN: Phase.GRAPHS,
    Mark.GRAPHS_PROGRESS: Phase.GRAPHS,
    Mark.GRAPHS_END: Phase.GRAPHS,
    Mark.HOST_POOL: Phase.HOST_POOL,
    Mark.HOST_POOL_DONE: Phase.HOST_POOL,
    Mark.RANKS_UP: Phase.WARM_UP,
    Mark.HTTP_UP: Phase.WARM_UP,
    Mark.WARMUP: Phase.WARM_UP,
    Mark.READY: Phase.READY,
}


def phase_of(mark: Mark) -> Phase | None:
    """The phase that a line with this mark belongs to; None where the mark belongs to none in particular."""
    return _PHASE_OF.get(mark)


class Step(msgspec.Struct, frozen=True):
    """One phase of one start.

    Attributes:
        phase: the phase.
        draft: it is the draft model's.
        seconds: what it takes on a big deployment (1T parameters in INT4 on 8 GPUs, files in the page cache or on fast disks),
            where nothing has been learned yet. Disks that are slow make "weights" ten times as long.
    """

    phase: Phase
    draft: bool
    seconds: float

    @property
    def name(self) -> str:
        """The step's name for people: "weights", "draft weights" …."""
        return f"draft {self.phase}" if self.draft else str(self.phase)


_LAUNCH = Step(Phase.LAUNCH, False, 30)
_WEIGHTS = Step(Phase.WEIGHTS, False, 180)
_KV_CACHE = Step(Phase.KV_CACHE, False, 4)
_GRAPHS = Step(Phase.GRAPHS, False, 36)
_DRAFT_WEIGHTS = Step(Phase.WEIGHTS, True, 5)
_DRAFT_KV_CACHE = Step(Phase.KV_CACHE, True, 2)
_DRAFT_GRAPHS = Step(Phase.GRAPHS, True, 15)
_HOST_POOL = Step(Phase.HOST_POOL, False, 90)
_WARM_UP = Step(Phase.WARM_UP, False, 10)
_READY = Step(Phase.READY, False, 0)


def steps(version: str | None, *, draft: bool, host_pool: bool) -> tuple[Step, ...]:
    """The steps of a start in their order.

    Args:
        version: SGLang's version; the newer order where it is unknown.
        draft: the server has a draft model with weights of its own.
        host_pool: the server has a hierarchical cache.
    """
    model: tuple[Step, ...]
    if not draft:
        model = (_WEIGHTS, _KV_CACHE, _GRAPHS)
    elif is_new(version, "0.5.13.post1", "0.5.14") is False:
        model = (_WEIGHTS, _KV_CACHE, _GRAPHS, _DRAFT_WEIGHTS, _DRAFT_KV_CACHE, _DRAFT_GRAPHS)
    else:
        model = (_WEIGHTS, _DRAFT_WEIGHTS, _KV_CACHE, _DRAFT_KV_CACHE, _GRAPHS, _DRAFT_GRAPHS)
    return (_LAUNCH, *model, *((_HOST_POOL,) if host_pool else ()), _WARM_UP, _READY)


def advance(plan: Sequence[Step], current: int, line: Line) -> int:
    """The index in `plan` of the step that a start is in after `line`, being in step `current` before; it never goes back.

    Ranks log interleaved: feed the lines of one rank (the first) and of the main process only.
    """
    phase = phase_of(line.mark)
    if phase is None:
        return current
    places = [index for index in range(current, len(plan)) if plan[index].phase is phase]
    if places[:1] == [current] and line.mark is Mark.WEIGHTS_BEGIN:
        places = places[1:]
    elif places[:2] == [current, current + 1] and line.mark is Mark.KV_CACHE:
        # The draft's pool comes right after the target's (0.5.14 on). Elsewhere a second line is one more pool of a hybrid model.
        places = places[1:]
    elif phase is Phase.GRAPHS and line.text.get("what", "").startswith("draft"):
        places = [index for index in places if plan[index].draft] or places
    return places[0] if places else current


def remaining_s(
    plan: Sequence[Step],
    current: int,
    in_step_s: float,
    *,
    eta_s: float | None = None,
    learned: Mapping[str, float] | None = None,
) -> float:
    """How long a start will still take, in seconds: an estimate, at least 0.

    Args:
        plan: its steps.
        current: the index of the step that it is in.
        in_step_s: for how long it has been in it.
        eta_s: what the step's own progress bar says is left of it, where it has one.
        learned: durations of this server's own earlier starts by `Step.name`; the defaults where there is none.
    """
    known = learned or {}
    usual = [known.get(step.name, step.seconds) for step in plan]
    here = max(0.0, usual[current] - in_step_s) if eta_s is None else max(0.0, eta_s)
    return here + sum(usual[current + 1 :])


def done_ratio(plan: Sequence[Step], current: int, remaining: float, *, learned: Mapping[str, float] | None = None) -> float:
    """How much of a start is done, 0…1, for a progress bar; 1 only in the last step."""
    if current >= len(plan) - 1:
        return 1.0
    known = learned or {}
    total = sum(known.get(step.name, step.seconds) for step in plan)
    behind = sum(known.get(step.name, step.seconds) for step in plan[:current])
    if total <= 0:
        return 0.0
    return min(0.99, max(behind / total, 1 - remaining / total))
