"""The HTTP endpoints that generate text."""

import asyncio
import time
import uuid
from collections.abc import AsyncIterator, Callable

from aiohttp import web

from watchdog.standin import openai
from watchdog.standin.bodies import compact, json_response
from watchdog.standin.channel import Message
from watchdog.standin.engine import Engine, QueueFullError
from watchdog.standin.faults import Faults
from watchdog.standin.model import count_tokens
from watchdog.standin.openai import Answer, Ask, BadRequestError
from watchdog.standin.options import Options

Reader = Callable[[bytes], Ask]


class Completions:
    """Handlers for /v1/chat/completions, /v1/completions and /generate."""

    def __init__(self, options: Options, faults: Faults, engine: Engine) -> None:
        self._options = options
        self._faults = faults
        self._engine = engine

    def routes(self) -> list[web.RouteDef]:
        """The routes."""
        return [
            web.post("/v1/chat/completions", self._chat),
            web.post("/v1/completions", self._completion),
            web.post("/generate", self._generate),
            web.post("/freeze_gc", self._nothing),
        ]

    async def _chat(self, request: web.Request) -> web.StreamResponse:
        return await self._answer(request, lambda raw: openai.read_chat(raw, self._options), "chat")

    async def _completion(self, request: web.Request) -> web.StreamResponse:
        return await self._answer(request, openai.read_completion, "text")

    async def _nothing(self, _request: web.Request) -> web.Response:
        return web.Response()

    async def _generate(self, request: web.Request) -> web.Response:
        try:
            ask = openai.read_generate(await request.read())
            rid, messages = self._begin(ask)
            begun, text, last = time.time(), "", Message()
            async for message in messages:
                text, last = text + message["text"], message
        except (BadRequestError, QueueFullError) as fault:
            return _refusal(fault)
        reason = {"type": last["finish_reason"], "length": last["generated"]}
        meta = {"id": rid, "finish_reason": reason, "prompt_tokens": last["prompt"], "completion_tokens": last["generated"]}
        meta |= {"cached_tokens": last["cached"], "weight_version": "default", "e2e_latency": time.time() - begun}
        return json_response({"text": text, "meta_info": meta})

    def _begin(self, ask: Ask) -> tuple[str, AsyncIterator[Message]]:
        length, limit = count_tokens(ask.prompt), int(self._options.server["context_length"])
        if length > limit:
            text = f"The input ({length} tokens) is longer than the model's context length ({limit} tokens)."
            raise BadRequestError(text, "BadRequestError")
        rid = ask.rid or uuid.uuid4().hex
        # Before 0.5.11 the salt did not reach the scheduler.
        salt = ask.salt if self._options.since(0, 5, 11) else ""
        more = {"thinks": ask.thinks, "ignore_eos": ask.ignore_eos}
        return rid, self._engine.generate(rid, ask.prompt, ask.wanted, streams=ask.stream, salt=salt, **more)

    async def _answer(self, request: web.Request, read: Reader, kind: str) -> web.StreamResponse:
        try:
            ask = read(await request.read())
            late = self._faults.active("slow-first-byte")
            if late is not None:
                await asyncio.sleep(float(late.get("seconds_late", 5)))
            rid, messages = self._begin(ask)
            answer = Answer(self._options, ask, rid, kind)
            # The first message before the first byte: a full queue is a status of its own.
            answer.add(await anext(messages))
            if ask.stream:
                return await self._stream(request, answer, messages)
            async for message in messages:
                answer.add(message)
        except (BadRequestError, QueueFullError) as fault:
            return _refusal(fault)
        if self._faults.active("reset-streams") is not None:
            _cut(request)
        if self._faults.active("empty") is not None:
            answer.empty()
        return json_response(answer.whole())

    async def _stream(self, request: web.Request, answer: Answer, messages: AsyncIterator[Message]) -> web.StreamResponse:
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream; charset=utf-8"})
        await response.prepare(request)
        sent = 0
        try:
            async for chunk in self._chunks(answer, messages):
                cut = self._faults.active("reset-streams")
                if cut is not None and sent >= int(cut.get("after", 2)):
                    _cut(request)
                await response.write(b"data: " + compact(chunk) + b"\n\n")
                sent += 1
            await response.write(b"data: [DONE]\n\n")
        except ConnectionError:
            # The client has gone, or was cut off: nobody is left to tell.
            return response
        return response

    async def _chunks(self, answer: Answer, messages: AsyncIterator[Message]) -> AsyncIterator[openai.Body]:
        """The chunks of an answer of which the first message is known."""
        for chunk in answer.first_chunks():
            yield chunk
        for chunk in self._news(answer):
            yield chunk
        async for message in messages:
            answer.add(message)
            for chunk in self._news(answer):
                yield chunk
        for chunk in answer.last_chunks():
            yield chunk

    def _news(self, answer: Answer) -> list[openai.Body]:
        if self._faults.active("empty") is not None:
            answer.empty()
        return answer.chunks()


def _cut(request: web.Request) -> None:
    """Cut the connection, as a dying server does; whatever is written from now on goes nowhere."""
    if request.transport is not None:
        request.transport.abort()


def _refusal(fault: BadRequestError | QueueFullError) -> web.Response:
    if isinstance(fault, BadRequestError):
        return json_response(openai.error(str(fault), fault.kind, 400), status=400)
    return json_response(openai.error("The request queue is full.", "503", 503), status=503)
