"""The requests that the server makes to itself before it says that it is ready."""

import asyncio

import aiohttp

from watchdog.standin.log import Log
from watchdog.standin.options import Options

PROMPT = "The capital city of France is"
LIMIT = 600.0


async def warm_up(options: Options, log: Log, address: str) -> str | None:
    """GET /model_info, then one chat; None if all went well, else what failed.

    The phase "warmup" is spent before the chat, as the real one spends it compiling kernels in its first batch.
    """
    key = options.server["api_key"]
    headers = {"Authorization": f"Bearer {key}"} if key else {}
    info = "/model_info" if options.since(0, 5, 6) else "/get_model_info"
    timeout = aiohttp.ClientTimeout(total=LIMIT)
    async with aiohttp.ClientSession(address, headers=headers, timeout=timeout, trust_env=False) as session:
        try:
            async with session.get(info) as response:
                await response.read()
            if options.server["skip_server_warmup"]:
                return None
            if options.since(0, 5, 23):
                log.line("Using a 512x512 image for Kimi VLM startup warmup to compile MoonViT position interpolation.")
            await asyncio.sleep(options.phases["warmup"])
            body = {"messages": [{"role": "user", "content": PROMPT}], "max_tokens": 8, "temperature": 0}
            async with session.post("/v1/chat/completions", json=body) as response:
                if response.status != 200:
                    return f"{response.status} {await response.text()}"
            if options.since(0, 5, 18):
                async with session.post("/freeze_gc") as response:
                    await response.read()
        except (aiohttp.ClientError, TimeoutError) as fault:
            return f"{type(fault).__name__}: {fault}"
    return None
