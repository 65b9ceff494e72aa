"""JSON answers in the form that SGLang gives them: compact, and without a charset."""

import json
from typing import Any

from aiohttp import web


def compact(body: Any) -> bytes:
    """JSON without spaces."""
    return json.dumps(body, separators=(",", ":"), ensure_ascii=False).encode()


def json_response(body: Any, status: int = 200, headers: dict[str, str] | None = None) -> web.Response:
    """An answer with a JSON body."""
    return web.Response(body=compact(body), status=status, headers={"Content-Type": "application/json", **(headers or {})})
