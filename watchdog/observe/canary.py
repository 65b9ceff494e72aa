"""Our own requests, and the observations that come of them: /health, /ready, /v1/models, the chat and the prefix canary."""

import contextlib
import random
from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from watchdog import config
from watchdog.config import profile
from watchdog.observation import Answer, Probe
from watchdog.observe.access import Access
from watchdog.observe.http import BODY_SHOWN, Exchange, Limits, Request, exchange, shortened
from watchdog.sglang import answers
from watchdog.sglang.answers import ProtocolError, Stream

PATHS = {"health": "/health", "ready": "/ready", "models": "/v1/models"}
CHAT = "/v1/chat/completions"
DEFAULT_MODEL = "default"
"""Asked for where no name can be learnt; SGLang answers under any name (ChatCompletionRequest.model, 0.4.6 to 0.5.23)."""

ANSWER_SHOWN = 4096
"""So many characters of an answer are kept: many times what max_tokens allows, in case the server does not heed it."""

NAMES_SHOWN = 100
"""So many names of /v1/models are kept, of models and of adapters each."""

PREFIX = "\n".join(
    f"Item {n}: the warehouse in street {n * 7 % 90 + 1} keeps {n * 13 % 97 + 3} boxes on shelf {n * 5 % 40 + 1}."
    for n in range(1, 61)
)
"""The long fixed prefix: 3,800 characters, so 1,000 to 3,500 tokens: many pages of any page size, within any context."""


class Canary:
    """Asks one server. Each call is one request (the prefix canary: two or three) and returns one observation; nothing is raised.

    Args:
        server: its configuration.
        rng: where the nonces come from.
        now: the moment of an observation, in seconds since the record's start.
        args: the server's launch arguments as they are known now: they tell the profile that the configuration does not name.
    """

    def __init__(
        self,
        server: config.Server,
        rng: random.Random,
        now: Callable[[], float],
        args: Callable[[], Mapping[str, Any]] = dict,
    ) -> None:
        self.server = server
        self.access = Access(server)
        self.learned_model: str | None = None
        self._rng = rng
        self._now = now
        self._args = args
        self._profile = _configured(server.probe.profile)

    async def ask(self, kind: str, inv: str | None) -> Probe:
        """One probe of the given kind (observation.PROBES), stamped with the life in which it began."""
        if kind == "chat":
            return await self._chat(inv)
        if kind == "prefix":
            return await self._prefix(inv)
        return await self._get(kind, inv)

    def profile(self) -> profile.Found:
        """What is known of the server's model: as configured, or as its arguments and names tell."""
        if self._profile is not None:
            return self._profile
        return profile.for_server(self._args(), self.server.model or self.learned_model or "")

    async def _get(self, kind: str, inv: str | None) -> Probe:
        probing = self.server.probe
        limits = Limits(probing.connect_limit_s, probing.health_limit_s if kind == "health" else probing.static_limit_s)
        got = await exchange(self.access, Request("GET", PATHS[kind], limits))
        found = None
        if got.outcome == "ok" and kind == "models":
            try:
                found = answers.models(got.body)
                self.learned_model = found.served[0]
            except ProtocolError as fault:
                got.failed("malformed", self._said(f"{PATHS[kind]}: {fault}"))
        probe = self._probe(kind, inv, got, limits)
        if found is None:
            return probe
        names = ([self._said(name) for name in each[:NAMES_SHOWN]] for each in found)
        served, adapters = names
        return msgspec.structs.replace(probe, served=served, adapters=adapters, asked_model=self.server.model or None)

    async def _chat(self, inv: str | None) -> Probe:
        await self._model()
        probing, (name, known, _) = self.server.probe, self.profile()
        nonce = self._nonce()
        template = known.template_kwargs if probing.chat_template_kwargs is None else probing.chat_template_kwargs
        expects = known.expects if probing.chat_expects is None else probing.chat_expects
        asked = _Asked(
            # The nonce comes first, so that the radix cache holds nothing of it and the GPU has to work.
            prompt=f"[{nonce}] {probing.chat_prompt or known.prompt}",
            tokens=probing.chat_max_tokens or known.max_tokens,
            limit_s=probing.chat_limit_s,
            template=template,
            profile=name,
        )
        probe = await self._complete("chat", inv, nonce, asked)
        parted = known.thinks_first and not template and self._args().get("reasoning_parser") in known.reasoning_parsers
        return msgspec.structs.replace(probe, expects=expects or None, reasons=True if parted else None)

    async def _prefix(self, inv: str | None) -> Probe:
        await self._model()
        probing, (name, known, _) = self.server.probe, self.profile()
        asked = _Asked(
            prompt=f"{PREFIX}\nHow many boxes are in item 1? Answer with one number.",
            tokens=probing.chat_max_tokens or known.max_tokens,
            limit_s=probing.chat_limit_s,
            template=known.brief_kwargs,
            profile=name,
        )
        first = await self._complete("prefix", inv, self._nonce(), asked)
        if first.outcome != "ok":
            return first
        second = await self._complete("prefix", inv, self._nonce(), asked)
        if second.outcome != "ok":
            return second
        said = f"first ask: {_cache(first)}; second ask: {_cache(second)}"
        fresh = None
        if first.answer is not None and first.answer.cached_host:
            salted = msgspec.structs.replace(asked, salt=self._nonce())
            third = await self._complete("prefix", inv, self._nonce(), salted)
            fresh = third.answer
            said += f"; asked anew: {_cache(third)}"
        return msgspec.structs.replace(second, detail=said, earlier=first.answer, earlier_ttft_s=first.ttft_s, fresh=fresh)

    async def tell(self, prompt: str, tokens: int, limit_s: float, *, exactly: bool = False) -> Probe:
        """One chat request of any prompt, as `verify --deep` makes them; its probe is "chat".

        Args:
            prompt: sent as it is: what must not be cached has to begin with something new.
            tokens: to generate at most.
            limit_s: given up after so long.
            exactly: generate so many tokens, even where the answer would end before (SGLang's ignore_eos).
        """
        return await self._complete("chat", None, self._nonce(), _Asked(prompt, tokens, limit_s, exactly=exactly))

    async def _complete(self, kind: str, inv: str | None, nonce: str, asked: "_Asked") -> Probe:
        limits = Limits(self.server.probe.connect_limit_s, asked.limit_s)
        request_id = f"watchdog-{nonce}"
        listener = _Listener(self._now)
        model = await self._model()
        begun = self._now()
        request = Request(
            "POST",
            CHAT,
            limits,
            payload={
                "model": model,
                "messages": [{"role": "user", "content": asked.prompt}],
                "max_tokens": asked.tokens,
                **({"ignore_eos": True} if asked.exactly else {}),
                **({"cache_salt": asked.salt} if asked.salt else {}),
                **({"chat_template_kwargs": asked.template} if asked.template else {}),
                "temperature": 0,
                "stream": True,
                "stream_options": {"include_usage": True},
                "return_cached_tokens_details": True,
                "rid": request_id,
            },
            headers={"X-Request-Id": request_id},
            take=listener.take,
        )
        got = await exchange(self.access, request)
        answer = None
        if got.outcome == "ok":
            try:
                answer = listener.answer() if got.event_stream else answers.completion(got.body)
            except ProtocolError as fault:
                got.failed("malformed", self._said(str(fault)))
                if fault.status is not None:
                    # An error of a stream cannot change the 200 any more: its status and words stand in an event.
                    got.status = fault.status
                    got.failed("status", self._said(fault.words))
        if got.event_stream:
            # Headers and comments may come long before the model has said anything.
            got.first_s = None if listener.first is None else round(listener.first - begun, 4)
        probe = self._probe(kind, inv, got, limits)
        kept = answer and self._kept(answer)
        return msgspec.structs.replace(probe, answer=kept, request_id=request_id, profile=asked.profile or None)

    async def _model(self) -> str:
        """The name to ask for: always the same in one life, since SGLang repeats it in the answer, whatever it is."""
        if not self.server.model and self.learned_model is None:
            await self._get("models", None)
        return self.server.model or self.learned_model or DEFAULT_MODEL

    def _probe(self, kind: str, inv: str | None, got: Exchange, limits: Limits) -> Probe:
        shown = got.status is not None and (kind in PATHS or got.outcome != "ok")
        return Probe(
            t=self._now(),
            inv=inv,
            probe=kind,
            outcome=got.outcome,
            status=got.status,
            connect_s=got.connect_s,
            ttft_s=got.first_s,
            total_s=got.total_s,
            limit_s=limits.total_s,
            body=got.body.decode("utf-8", "replace")[:BODY_SHOWN] if shown else None,
            why=got.why,
            detail=shortened(self._explained(kind, got)) if got.outcome == "status" else got.detail,
        )

    def _explained(self, kind: str, got: Exchange) -> str:
        """What a status other than 2xx means for people; first whose fault it is."""
        said = got.detail or self._said(answers.complaint(got.body))
        code = got.status or 0
        if code in (401, 403):
            cure = "check api_key_file" if self.server.api_key_file else "the server wants an API key: set api_key_file"
            meaning = f"not allowed ({code}): {cure}"
        elif code in (404, 405) and kind == "ready":
            meaning = f"this server has no /ready ({code}): it comes with SGLang 0.5.20"
        elif code in (404, 405) and kind not in PATHS:
            meaning = f"badly asked ({code}): this server has no {CHAT} or not this model: check model, or set probe.chat = false"
        elif code == 429:
            meaning = "too many requests (429): something limits our rate"
        elif 400 <= code < 500:
            meaning = f"badly asked ({code})"
        elif 300 <= code < 400:
            meaning = f"redirected ({code})"
        elif code == 503 and "queue is full" in said:
            meaning = "saturated (503)"
        elif code == 503:
            meaning = "not serving (503)"
        else:
            meaning = f"failed in the server ({code})" if code >= 500 else f"no answer to such a request ({code}): is it SGLang?"
        by = f" (answered by {self._said(got.server)}, not by SGLang itself)" if got.server and _foreign(got.server) else ""
        return f"{meaning}{by}: {said}" if said else f"{meaning}{by}"

    def _nonce(self) -> str:
        return f"{self._rng.getrandbits(40):010x}"

    def _said(self, text: str) -> str:
        """The server's words, made safe to show."""
        return shortened(self.access.redacted(text))

    def _kept(self, answer: Answer) -> Answer:
        """An answer without our key, and no longer than need be."""
        words = {
            name: self.access.redacted(value)[:ANSWER_SHOWN]
            for name in ("text", "reasoning", "model", "finish_reason")
            if (value := getattr(answer, name)) is not None
        }
        return msgspec.structs.replace(answer, **words)


def _configured(name: str) -> profile.Found | None:
    """The profile that the configuration names, if it does; it was there when the configuration was read."""
    with contextlib.suppress(profile.ProfileError):
        return profile.Found(name, profile.named(name), "the configuration") if name else None
    return None


class _Asked(msgspec.Struct, frozen=True):
    """One chat request: what is asked, and how much it may take."""

    prompt: str
    tokens: int
    limit_s: float
    exactly: bool = False
    template: dict[str, bool | int | float | str] = {}
    profile: str = ""
    salt: str = ""
    """Prompts of different salts share no cache (heeded from SGLang 0.5.11 on; before, the field changes nothing)."""


class _Listener:
    """Hears an event stream and notes when its first token came."""

    def __init__(self, now: Callable[[], float]) -> None:
        self.first: float | None = None
        self._now = now
        self._stream = Stream()
        self._fault: ProtocolError | None = None

    def take(self, piece: bytes) -> bool:
        try:
            self._stream.feed(piece)
        except ProtocolError as fault:
            self._fault = fault
            return True
        if self.first is None and self._stream.started:
            self.first = self._now()
        return self._stream.done

    def answer(self) -> Answer:
        """The whole answer.

        Raises:
            ProtocolError: what was wrong with the stream.
        """
        if self._fault is not None:
            raise self._fault
        return self._stream.end()


def _foreign(server: str) -> bool:
    """Whether the Server header names something that SGLang does not answer with (uvicorn; granian with HTTP/2, 0.5.10)."""
    return not server.lower().startswith(("uvicorn", "granian", "sglang"))


def _cache(probe: Probe) -> str:
    answer = probe.answer
    cached = "cached tokens not told"
    if answer is not None and (answer.cached_device is not None or answer.cached_host is not None):
        on, back = answer.cached_device or 0, answer.cached_host or 0
        cached = f"{on + back} of {answer.prompt_tokens} tokens cached" + (f" ({back} loaded back from the host)" if back else "")
    elif answer is not None and answer.cached_tokens is not None:
        cached = f"{answer.cached_tokens} of {answer.prompt_tokens} tokens cached"
    return f"{cached}, first token after {probe.ttft_s:.3f} s" if probe.ttft_s is not None else cached
