"""How long an engine may be silent before that is odd: what its own steps, flags, compilers and GPUs explain."""

from watchdog.config import Judging
from watchdog.judge.facts import Facts
from watchdog.wording import span

LONGEST_S = 1800.0
FIRST_USES_S = 600.0
"""So long after readiness, requests bring shapes that no request before them had: each may be the first to use a kernel."""
FIRST_USE_S = 180.0
"""The kernels of the first request may be loaded for so long; a restart would only have them loaded once more."""
FIRST_USE = 1.4
"""So many times as long as usual for those of any later request: whoever sets `hang_s` decides on this with it."""
AT_WORK = 3.0
"""GPUs that draw the power of real work: so many times as long, as one step may hold a prompt of any length."""
AT_WORK_IN_CHUNKS = 1.5
"""The same where the flags say how much a step may hold at most: its time is reckoned with already."""
HARD = 0.8
"""GPUs that draw such a part of the power of the hardest work do not wait for each other."""
HARD_S = 7200.0
"""Where the flags set no bound to a step, one at such power may be a single prompt for so long: on CPUs, an hour was reported."""


def patience(f: Facts, policy: Judging, now: float) -> tuple[float, str]:
    """How long the engine may be silent before that is odd, in seconds, and the reason for it."""
    work = f.work
    if f.ranks.stopped(now):
        return policy.hang_s, "what is stopped works on nothing"
    limit, why = policy.hang_s, "the usual limit"
    gap = work.longest_gap()
    if 3 * gap > limit:
        limit, why = 3 * gap, f"three times its longest pause of late ({span(gap)})"
    at_rest = f.devices.at_rest(now)
    batch = work.batch_in_hand_s(at_rest=at_rest)
    if 3 * batch > limit:
        limit, why = 3 * batch, f"three times what the prefill in hand should take ({span(batch)})"
    chunk = longest_prefill(f)
    longest = 3 * work.prefill_s(chunk)
    if longest > limit and not at_rest:
        limit, why = longest, f"its flags allow prefills of {chunk:.0f} tokens in one step"
    if f.life.ready_at is not None and now - f.life.ready_at < FIRST_USES_S:
        first = work.decode is None and work.ended_at is None and not f.answers.good
        use = FIRST_USE_S if first else FIRST_USE * policy.hang_s
        if limit < use:
            limit, why = use, "kernels may be loaded at their first use"
    if f.senses.deaf(now) and not work.counters_seen and limit < 240:
        limit, why = 240.0, "log lines were lost and there are no metrics"
    if f.ranks.compiling(now) and limit < policy.start_silence_s:
        limit, why = policy.start_silence_s, "a compiler is at work in the unit"
    told = f.ranks.compile_told_at
    if told is not None and told >= max(work.surely_stepped_at or 0.0, f.life.ready_at or 0.0) - 1.0:
        limit, why = LONGEST_S, "its log says that kernels are being compiled"
    chunk_size = f.life.number("chunked_prefill_size")
    on_cpu = f.devices.good is None and f.ranks.computing(now)
    if chunk_size is not None and chunk_size <= 0 and (on_cpu or f.devices.at_work(now, HARD)):
        return max(limit, HARD_S), "its flags set no bound to a step, and it draws the power of hard work"
    if on_cpu:
        return LONGEST_S, "it computes on many cores"
    if f.devices.at_work(now):
        in_chunks = (chunk_size or 0) > 0
        times, said = (AT_WORK_IN_CHUNKS, "half as long again") if in_chunks else (AT_WORK, "threefold")
        limit, why = limit * times, f"{why}, {said} while the GPUs draw the power of real work"
    return min(limit, LONGEST_S), why


def longest_prefill(f: Facts) -> float:
    """How many tokens one prefill step may hold by the server's flags; 0 if they are not known.

    SGLang prints a prefill's line when the step is over (0.5.23, measured), so nothing at all is heard during one.
    """
    chunk = f.life.number("chunked_prefill_size")
    if chunk is None:
        return 0.0
    if chunk > 0:
        return chunk
    bounds = (f.life.number("max_prefill_tokens"), f.life.number("context_length"), f.work.figure("max_total_num_tokens", "-"))
    return min((b for b in bounds if b), default=0.0)
