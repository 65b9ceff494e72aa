"""Carries out the plan of a deep check against one server: never beyond its ceiling, and no longer than nobody else waits."""

import asyncio
import random
from collections.abc import Awaitable, Callable

from watchdog.clean import without_secrets
from watchdog.clock import Clock
from watchdog.observation import Probe
from watchdog.observe.canary import Canary
from watchdog.observe.scrape import ScrapeSource
from watchdog.observe.source import Target
from watchdog.verify.deep import prompts
from watchdog.verify.deep.done import COUNTERS, Counted, Done, growth
from watchdog.verify.deep.lookout import NO_METRICS, Lookout
from watchdog.verify.deep.plan import CACHE, FILL, LOAD, LOAD_BACK, ROUNDS, SPECULATION, TEMPLATE_TOKENS, Plan
from watchdog.verify.life import Life
from watchdog.verify.seen import Seen
from watchdog.wording import span

COUNT_S = 6.0
"""So long after a request has ended its counters may still come."""
POLL_S = 0.25
SPARE = 1.25
"""A prompt may take so many times the tokens that one of its length took before."""

Lines = Callable[[float], Awaitable[Life | None]]


class _OverError(Exception):
    """No more requests; the message says why."""


class Deep:
    """One deep check.

    Args:
        seen: what `verify` has found.
        plan: what is to be done.
        lines: reads what the server has written since a moment (of `clock`); None where it cannot be read.
        force: ask even though the server is busy, or does not tell.
    """

    def __init__(self, seen: Seen, plan: Plan, clock: Clock, rng: random.Random, lines: Lines, *, force: bool = False) -> None:
        self._seen = seen
        self._plan = plan
        self._clock = clock
        self._rng = rng
        self._lines = lines
        self._force = force
        self._canary = Canary(seen.server, rng, clock.now, lambda: seen.args)
        self._lookout = Lookout(ScrapeSource(Target(seen.server), clock).scrape)
        self._done = Done()
        self._prefix = ""

    async def run(self) -> Done:
        """All of it; it returns within the plan's seconds, with what was found until then."""
        begun = self._clock.now()
        try:
            async with asyncio.timeout(self._plan.seconds):
                busy = await self._lookout.busy()
                if busy is None or self._force:
                    await self._watched(blind=busy == NO_METRICS)
                else:
                    self._done.refused = busy
        except TimeoutError:
            self._done.stopped = f"its time of {span(self._plan.seconds)} was over"
        self._done.took_s = round(self._clock.now() - begun, 2)
        return self._done

    async def _watched(self, *, blind: bool) -> None:
        """Do the steps, until somebody else waits. `blind`: there is nothing to see that by."""
        work = asyncio.create_task(self._work())
        look = None if blind else asyncio.create_task(self._lookout.trouble())
        tasks: list[asyncio.Task[str | None]] = [work] if look is None else [work, look]
        try:
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            first = work if work.done() else look
            self._done.stopped = first.result() if first is not None else None
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def _work(self) -> str | None:
        """All steps; why they ended early, or None."""
        steps = {CACHE: self._cache, SPECULATION: self._speculation, LOAD: self._load, LOAD_BACK: self._load_back}
        why = None
        try:
            for name, step in steps.items():
                if self._plan.step(name) is not None:
                    await step()
        except* _OverError as e:
            why = str(e.exceptions[0])
        return why

    # ---- the steps

    async def _cache(self) -> None:
        self._prefix = prompts.asked(prompts.long(self._rng, self._plan.prefix_chars))
        answer = self._answer(CACHE)
        self._done.cold = await self._ask(self._prefix, answer)
        self._done.warm, self._done.warm_counted = await self._counting(self._prefix, answer)

    async def _speculation(self) -> None:
        begun = self._clock.now()
        prompt = prompts.short(self._rng, prompts.COUNT)
        done = self._done
        done.drafted, done.drafted_counted = await self._counting(prompt, self._answer(SPECULATION), exactly=True)
        told = await self._lines(begun)
        if told is not None:
            done.decodes, done.accepting, done.accepted = told.decodes, told.accepting, told.accepted

    async def _load(self) -> None:
        begun = self._clock.now()
        async with asyncio.TaskGroup() as group:
            for _ in range(self._plan.concurrent):
                group.create_task(self._one_after_the_other())
        self._done.load_s = self._clock.now() - begun

    async def _one_after_the_other(self) -> None:
        for _ in range(ROUNDS):
            prompt = prompts.short(self._rng, prompts.TELL)
            await self._ask(prompt, self._answer(LOAD), exactly=True, keep=self._done.load.append)

    async def _load_back(self) -> None:
        cold, pool = self._done.cold, self._plan.pool_tokens
        assert cold is not None and pool is not None  # the plan has no step without them
        took = cold.answer.prompt_tokens if cold.answer is not None else None
        if not took:
            raise _OverError("the server does not tell how many tokens a prompt has")
        per_char = took / len(self._prefix)
        before = await self._lookout.values() or {}
        while self._done.filled < FILL * pool:
            chars = int(min(self._plan.filler_tokens, FILL * pool - self._done.filled + TEMPLATE_TOKENS) / per_char)
            filler = prompts.asked(prompts.long(self._rng, max(chars, 200)))
            probe = await self._ask(filler, 1, worst=int(SPARE * len(filler) * per_char))
            told = probe.answer.prompt_tokens if probe.answer is not None else None
            self._done.filled += told or int(len(filler) * per_char)
        after = await self._lookout.values() or {}
        name = "evicted_tokens_total"
        self._done.evicted = after[name] - before.get(name, 0.0) if name in after else None
        worst, answer = int(SPARE * took), self._answer(LOAD_BACK)
        self._done.again, self._done.again_counted = await self._counting(self._prefix, answer, worst=worst)
        if not self._done.same_answer:
            self._done.settled = await self._ask(self._prefix, answer, worst=worst)

    def _answer(self, name: str) -> int:
        step = self._plan.step(name)
        assert step is not None
        return step.answer

    # ---- one request

    async def _counting(
        self, prompt: str, tokens: int, *, exactly: bool = False, worst: int | None = None
    ) -> tuple[Probe, Counted | None]:
        """Ask, and see what the counters make of it."""
        before = await self._lookout.values()
        probe = await self._ask(prompt, tokens, exactly=exactly, worst=worst)
        if before is None:
            return probe, None
        until = self._clock.now() + COUNT_S
        found = None
        while found is None or (not found.grew.get(COUNTERS[0]) and self._clock.now() < until):
            now = await self._lookout.values()
            if now is None:
                return probe, None
            found = growth(before, now)
            await asyncio.sleep(POLL_S)
        return probe, found

    async def _ask(
        self,
        prompt: str,
        tokens: int,
        *,
        exactly: bool = False,
        worst: int | None = None,
        keep: Callable[[Probe], None] | None = None,
    ) -> Probe:
        """One request below the ceiling; where it fails, all ends.

        Args:
            prompt: sent as it is.
            tokens: to generate at most.
            exactly: generate all of them, even where the answer would end before.
            worst: tokens that the prompt may have; None: one for each of its characters.
            keep: gets the probe, also one that failed.

        Raises:
            _OverError: it failed, or is not below the ceiling.
        """
        done, plan = self._done, self._plan
        reserved = (len(prompt) if worst is None else worst) + TEMPLATE_TOKENS + tokens
        if done.requests + 1 > plan.requests or done.tokens + reserved > plan.tokens:
            raise _OverError(f"it would have gone beyond its ceiling ({plan.ceiling})")
        done.requests += 1
        done.tokens += reserved
        self._lookout.in_flight += 1
        try:
            # The time of the whole check is not the request's: one that is cut off by it has not failed.
            probe = await self._canary.tell(prompt, tokens, self._seen.server.probe.chat_limit_s, exactly=exactly)
        finally:
            self._lookout.in_flight -= 1
        if keep is not None:
            keep(without_secrets(probe))
        if probe.outcome != "ok":
            raise _OverError(f"a request of ours failed: {without_secrets(probe).detail or probe.outcome}")
        answer = probe.answer
        if answer is not None and answer.prompt_tokens is not None and answer.completion_tokens is not None:
            done.tokens += answer.prompt_tokens + answer.completion_tokens - reserved
        return probe
