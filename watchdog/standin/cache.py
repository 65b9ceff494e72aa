"""The prefix cache: what the GPU holds, and the host pool behind it."""

from collections import OrderedDict
from collections.abc import Sequence
from typing import NamedTuple

from watchdog.standin.model import BLOCK_TOKENS


class Hit(NamedTuple):
    """Tokens of a prompt that need not be computed, by where they were found; and what the GPU gave up to make room."""

    device: int
    host: int
    evicted: int


class PrefixCache:
    """Blocks of prompts; all are written to the host pool as well; where one of the two is full, it loses the least recent."""

    def __init__(self, device_tokens: int, host_tokens: int) -> None:
        self._device: OrderedDict[str, None] = OrderedDict()
        self._host: OrderedDict[str, None] = OrderedDict()
        self._device_blocks = device_tokens // BLOCK_TOKENS
        self._host_blocks = host_tokens // BLOCK_TOKENS

    @property
    def device_tokens(self) -> int:
        return len(self._device) * BLOCK_TOKENS

    @property
    def host_tokens(self) -> int:
        return len(self._host) * BLOCK_TOKENS

    def use(self, blocks: Sequence[str]) -> Hit:
        """Look a prompt up, and keep it from now on."""
        device = host = 0
        for block in blocks:
            if block in self._device and not host:
                device += 1
            elif block in self._device or block in self._host:
                host += 1
            else:
                break
        for block in blocks:
            self._device[block] = None
            self._device.move_to_end(block)
        evicted = max(0, len(self._device) - self._device_blocks)
        for _ in range(evicted):
            self._device.popitem(last=False)
        self._write_through(blocks)
        return Hit(device * BLOCK_TOKENS, host * BLOCK_TOKENS, evicted * BLOCK_TOKENS)

    def evict(self) -> int:
        """Empty the GPU's part and say how many tokens went."""
        gone = self.device_tokens
        self._device.clear()
        return gone

    def clear(self) -> None:
        """Forget all."""
        self._device.clear()
        self._host.clear()

    def _write_through(self, blocks: Sequence[str]) -> None:
        for block in blocks:
            self._host[block] = None
            self._host.move_to_end(block)
        while len(self._host) > self._host_blocks:
            self._host.popitem(last=False)
