"""The parent's link to its children: what SGLang's TokenizerManager does."""

import asyncio
import time
import uuid
from collections.abc import AsyncIterator
from typing import Any

from watchdog.standin.channel import Channel, Message
from watchdog.standin.launch import Tree
from watchdog.standin.metrics import Finished, Totals
from watchdog.standin.model import count_tokens, prefix_blocks
from watchdog.standin.options import Options


class QueueFullError(Exception):
    """The scheduler refuses: too many requests wait."""


class Engine:
    """Sends requests to the scheduler and hands the detokenizer's answers to those who wait.

    Attributes:
        pending: requests without an answer to the end; a request that nobody waits for any more stays until the scheduler has
            let it go, as in SGLang: what a drain waits for.
        last_received: when anything came from the scheduler or the detokenizer: what /health looks at.
    """

    def __init__(self, options: Options, tree: Tree, totals: Totals) -> None:
        self._options = options
        self._scheduler = tree.to_scheduler
        self._detokenizer = tree.from_detokenizer
        self._totals = totals
        self.pending: dict[str, asyncio.Queue[Message]] = {}
        self._replies: dict[str, asyncio.Future[Message]] = {}
        self.last_received = time.monotonic()

    def attach(self) -> None:
        """Listen to the children from now on."""
        loop = asyncio.get_running_loop()
        for channel in (self._scheduler, self._detokenizer):
            loop.add_reader(channel, self._received, channel)

    def send(self, message: Message) -> None:
        """To the scheduler; what a stuck scheduler does not take is kept."""
        self._scheduler.send(message)
        if self._scheduler.unsent:
            asyncio.get_running_loop().add_writer(self._scheduler, self._flush)

    def probe(self) -> None:
        """The request of one token that /health makes; nobody waits for its answer, only for a sign of life."""
        self.send({"op": "generate", "rid": f"HEALTH_CHECK_{uuid.uuid4().hex}", "health": True, "prompt": 1, "wanted": 1})

    async def ask(self, operation: str) -> Message:
        """A round trip through the scheduler's loop, without a limit: it hangs when the scheduler does."""
        rid = uuid.uuid4().hex
        self._replies[rid] = asyncio.get_running_loop().create_future()
        try:
            self.send({"op": operation, "rid": rid})
            return await self._replies[rid]
        finally:
            del self._replies[rid]

    async def generate(
        self, rid: str, prompt: str, wanted: int, *, streams: bool, salt: str = "", **more: Any
    ) -> AsyncIterator[Message]:
        """One request: the detokenizer's messages, the last of which has a `finish_reason`.

        Args:
            rid: its id.
            prompt: the whole prompt, of which the scheduler gets the end, the length and the keys of its cache blocks.
            wanted: tokens to generate at most.
            streams: whether the client gets a stream, for the counters.
            salt: prompts of different salts share no cache.
            more: `thinks`, `ignore_eos`, `busy` (see requests.py).

        Raises:
            QueueFullError: refused by the scheduler.
        """
        inbox = self.pending[rid] = asyncio.Queue()
        request = {"op": "generate", "rid": rid, "question": prompt[-2048:], "wanted": max(wanted, 1)}
        request |= {"prompt": count_tokens(prompt), "blocks": prefix_blocks(prompt, salt), **more}
        begun, first, done = time.monotonic(), None, False
        self.send(request)
        try:
            while not done:
                message = await inbox.get()
                if message["op"] == "refused":
                    done = True
                    raise QueueFullError
                first = first or time.monotonic()
                done = message["finish_reason"] is not None
                if done:
                    self._totals.finished(Finished.of(message, streams, first - begun, time.monotonic() - begun))
                yield message
        finally:
            if not done:
                self._totals.aborted += 1
                self.send({"op": "abort", "rid": rid})

    def _flush(self) -> None:
        self._scheduler.flush()
        if not self._scheduler.unsent:
            asyncio.get_running_loop().remove_writer(self._scheduler)

    def _received(self, channel: Channel) -> None:
        for message in channel.receive():
            self.last_received = time.monotonic()
            rid = message.get("rid", "")
            if rid in self._replies:
                if not self._replies[rid].done():
                    self._replies[rid].set_result(message)
            elif rid in self.pending:
                self.pending[rid].put_nowait(message)
                if message["op"] == "refused" or message["finish_reason"] is not None:
                    del self.pending[rid]
        if channel.closed:
            asyncio.get_running_loop().remove_reader(channel)
            asyncio.get_running_loop().remove_writer(channel)
