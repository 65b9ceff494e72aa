"""What the deep check would do to a server, and what that costs at most. Pure."""

import math
from collections.abc import Sequence

import msgspec

from watchdog.verify.seen import Seen
from watchdog.wording import counted, span

CACHE, SPECULATION, LOAD, LOAD_BACK = "prefix cache", "speculation", "load", "load back"

PREFIX_CHARS = 6000
"""The long prefix: 1,500 to 2,500 tokens of most tokenizers, so many pages of any page size."""
SHORT_CHARS = 300
"""A short prompt is no longer than this."""
TEMPLATE_TOKENS = 200
"""What a chat template may add to a prompt."""
ANSWER_TOKENS = 24
"""Tokens of an answer that is compared with others."""
CONCURRENT, ROUNDS, LOAD_TOKENS = 4, 2, 64
"""The load: so many at once, one after the other so often, and so many tokens each."""
AT_ONCE = ("max_running_requests", "max_queued_requests")
"""Arguments beyond which requests that come at once wait or are refused (each is queued before it runs)."""
FILLER_TOKENS = 8192
"""A request that fills the GPU's cache has no more tokens than this."""
FILL = 1.1
"""So many times the tokens of the GPU's cache push out what was in it."""
DEFAULT_LOG_INTERVAL = 40
"""--decode-log-interval of SGLang, all versions: only then are accept lengths told."""


class Limits(msgspec.Struct, frozen=True, kw_only=True):
    """What a person allows: tokens of prompts and answers together, and seconds."""

    tokens: int
    seconds: float


class Step(msgspec.Struct, frozen=True, kw_only=True):
    """One part of the check.

    Attributes:
        name: CACHE, SPECULATION, LOAD or LOAD_BACK.
        requests, tokens: what it takes at most; tokens are those of prompts and answers.
        answer: tokens of each answer, at most.
        why_not: why it is not done; None where it is.
        cure: what would have to change for it.
    """

    name: str
    requests: int = 0
    tokens: int = 0
    answer: int = ANSWER_TOKENS
    why_not: str | None = None
    cure: str = ""


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    """All that would be done to one server.

    Attributes:
        server: its name.
        steps: in the order in which they are done.
        seconds: the whole takes no longer.
        prefix_chars: length of the long prefix.
        concurrent: requests of the load at the same time.
        filler_tokens: tokens of each request that fills the GPU's cache; `pool_tokens`: of that cache.
        refused: why nothing is asked at all; None where something may be.
    """

    server: str
    steps: Sequence[Step] = ()
    seconds: float = 0.0
    prefix_chars: int = PREFIX_CHARS
    concurrent: int = CONCURRENT
    filler_tokens: int = FILLER_TOKENS
    pool_tokens: int | None = None
    refused: str | None = None

    @property
    def done(self) -> list[Step]:
        """The steps that are done."""
        return [step for step in self.steps if step.why_not is None]

    def step(self, name: str) -> Step | None:
        """A step that is done; None where it is not."""
        return next((step for step in self.done if step.name == name), None)

    @property
    def requests(self) -> int:
        """Requests, at most."""
        return sum(step.requests for step in self.done)

    @property
    def tokens(self) -> int:
        """Tokens of prompts and answers, at most."""
        return sum(step.tokens for step in self.done)

    @property
    def ceiling(self) -> str:
        """The ceiling in words."""
        return f"at most {counted(self.requests, 'request')}, {self.tokens} tokens and {span(self.seconds)}"

    def words(self) -> list[str]:
        """The plan for people, a line for each thing."""
        if self.refused is not None:
            return [f"{self.server}: not tried: {self.refused}"]
        lines = [f"{self.server}: {self.ceiling}"]
        for step in self.steps:
            cost = f"{counted(step.requests, 'request')}, {step.tokens} tokens at most"
            lines.append(f"  {step.name}: {cost if step.why_not is None else f'not tried: {step.why_not}'}")
        if self.step(LOAD_BACK) is not None:
            lines.append("  note: load back pushes what the GPU's prefix cache holds out of it; it stays in the host pool")
        return lines


def plan(seen: Seen, limits: Limits) -> Plan:
    """What can be done for this server within these limits."""
    if (refused := _refused(seen)) is not None:
        return Plan(server=seen.server.name, refused=refused)
    context = seen.context
    chars = PREFIX_CHARS if context is None else max(SHORT_CHARS, min(PREFIX_CHARS, context // 2))
    concurrent = min(CONCURRENT, *(_count(seen, name) or CONCURRENT for name in AT_ONCE))
    pool = pool_tokens(seen)
    filler = min([FILLER_TOKENS, *(max(1, amount // 4) for amount in (context, pool) if amount)])
    asked = chars + TEMPLATE_TOKENS + ANSWER_TOKENS
    steps = [_cache(seen, asked)]
    if seen.args.get("speculative_algorithm"):
        steps.append(_speculation(seen))
    each = SHORT_CHARS + TEMPLATE_TOKENS + LOAD_TOKENS
    count = concurrent * ROUNDS
    steps.append(Step(name=LOAD, requests=count, tokens=count * each, answer=LOAD_TOKENS))
    if seen.hicache:
        steps.append(_load_back(seen, steps[0], asked, pool, filler))
    return Plan(
        server=seen.server.name,
        steps=_within(steps, limits),
        seconds=limits.seconds,
        prefix_chars=chars,
        concurrent=concurrent,
        filler_tokens=filler,
        pool_tokens=pool,
    )


def _refused(seen: Seen) -> str | None:
    if not seen.server.probe.chat:
        return "probe.chat is false: it has no chat to ask"
    canary = seen.probes.get("chat")
    if canary is None or canary.outcome != "ok":
        return "the canary was not answered"
    return None


def pool_tokens(seen: Seen) -> int | None:
    """Tokens of the GPU's KV cache (of one rank: ranks of tensor parallelism hold the same tokens); None if unknown."""
    told = [kv.tokens for kv in seen.life.kv.values()] if seen.life is not None else []
    if seen.engine is not None and seen.engine.max_total_num_tokens:
        told.append(seen.engine.max_total_num_tokens)
    if not told and seen.metrics is not None and (scraped := seen.metrics.values.get("max_total_num_tokens")):
        told.append(int(scraped))
    return max(told, default=None)


def _cache(seen: Seen, asked: int) -> Step:
    if seen.args.get("disable_radix_cache"):
        return Step(name=CACHE, why_not="the prefix cache is off (--disable-radix-cache)")
    if (_count(seen, "dp_size") or 1) > 1:
        return Step(name=CACHE, why_not="with --dp-size above 1 two requests may meet different caches")
    return Step(name=CACHE, requests=2, tokens=2 * asked)


def _speculation(seen: Seen) -> Step:
    interval = _count(seen, "decode_log_interval") or DEFAULT_LOG_INTERVAL
    a_step = (_count(seen, "speculative_num_steps") or 3) + 1
    answer = min(1024, math.ceil(1.2 * interval * a_step))
    return Step(name=SPECULATION, requests=1, tokens=SHORT_CHARS + TEMPLATE_TOKENS + answer, answer=answer)


def _load_back(seen: Seen, cache: Step, asked: int, pool: int | None, filler: int) -> Step:
    if cache.why_not is not None:
        return Step(name=LOAD_BACK, why_not=cache.why_not)
    scraped = seen.metrics.values if seen.metrics is not None and seen.metrics.ok else None
    if scraped is None:
        return Step(name=LOAD_BACK, why_not="no metrics to see it by", cure="start the server with --enable-metrics")
    if pool is None:
        return Step(name=LOAD_BACK, why_not="the size of the GPU's cache is not known")
    host = scraped.get("hicache_host_total_tokens")
    if host is not None and host < FILL * pool + asked:
        return Step(name=LOAD_BACK, why_not="what fills the GPU's cache would fill the host pool too")
    fillers = math.ceil(FILL * pool / filler)
    # A filler is sized by the tokens that the first one took; its own count is only known afterwards.
    tokens = math.ceil(FILL * pool) + 2 * filler + fillers * ANSWER_TOKENS + 2 * asked
    return Step(name=LOAD_BACK, requests=fillers + 3, tokens=tokens)


def _within(steps: Sequence[Step], limits: Limits) -> list[Step]:
    """The steps that fit below the limit, each in its turn; the others say what they would cost."""
    left, out, tried = limits.tokens, [], True
    for step in steps:
        if step.why_not is None and step.tokens > left:
            needed = limits.tokens - left + step.tokens
            step = msgspec.structs.replace(  # noqa: PLW2901  # the step as it is now
                step, why_not=f"would cost {step.tokens} tokens", cure=f"allow it with --max-tokens {needed}"
            )
        if step.name == CACHE:
            tried = step.why_not is None
        elif step.name == LOAD_BACK and step.why_not is None and not tried:
            step = Step(name=LOAD_BACK, why_not="it needs the prefix cache's requests")  # noqa: PLW2901
        left -= step.tokens if step.why_not is None else 0
        out.append(step)
    return out


def _count(seen: Seen, name: str) -> int | None:
    value = seen.args.get(name)
    return value if isinstance(value, int) and not isinstance(value, bool) and value > 0 else None
