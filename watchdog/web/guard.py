"""What every request and answer passes: who may ask under which name, for what, and what browsers may do with the answer."""

import ipaddress
import re
from collections.abc import Awaitable, Callable, Iterable

from aiohttp import web
from aiohttp.typedefs import Middleware

from watchdog.log import get

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]

POLICY = "; ".join(
    (
        "default-src 'none'",
        "script-src 'self'",
        "style-src 'self'",
        "img-src 'self'",
        "connect-src 'self'",
        "base-uri 'none'",
        "form-action 'none'",
        "frame-ancestors 'none'",
        "require-trusted-types-for 'script'",
        "trusted-types 'none'",
    )
)
"""Content-Security-Policy: our own files only, nothing inline; trusted types forbid innerHTML and its like altogether."""

HEADERS = {
    "Content-Security-Policy": POLICY,
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Permissions-Policy": "camera=(), geolocation=(), microphone=()",
    "Cache-Control": "no-store",
    "Server": "sglang-watchdog",
}


_HOST = re.compile(r"(?:\[([0-9A-Fa-f:.]+)\]|([^\[\]:]+))(?::\d{0,5})?")


def hostname(host: str) -> str:
    """The name or address in a Host header (RFC 9110, 7.2), without its port: "[::1]:9430" → "::1"; "" if it is malformed."""
    found = _HOST.fullmatch(host)
    return "" if found is None else found[1] or found[2]


def is_ours(host: str, names: Iterable[str]) -> bool:
    """Whether we answer under this name.

    A page of a stranger whose name was made to resolve to our address (DNS rebinding) asks under the stranger's name; nobody
    can do that under an IP address or "localhost".
    """
    name = hostname(host).rstrip(".").lower()
    if name == "localhost" or name in {n.rstrip(".").lower() for n in names}:
        return True
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True


def guard(names: Iterable[str]) -> Middleware:
    """The middleware that refuses what is not for us.

    Args:
        names: host names to answer under, besides localhost and any IP address.
    """
    ours = frozenset(names)

    @web.middleware
    async def check(request: web.Request, handler: Handler) -> web.StreamResponse:
        hosts = request.headers.getall("Host", [])
        if len(hosts) != 1 or not is_ours(hosts[0], ours):
            return _refuse(421, "asked under a name that is not known here: add it to web.names, or use localhost\n")
        if request.method not in ("GET", "HEAD"):
            return _refuse(405, "this page only tells; nothing can be changed here\n", {"Allow": "GET, HEAD"})
        if request.can_read_body:
            return _refuse(413, "a request here has no body\n")
        if request.headers.get("Sec-Fetch-Site") == "cross-site" and request.headers.get("Sec-Fetch-Mode") != "navigate":
            return _refuse(403, "not for pages of other sites\n")
        try:
            response = await handler(request)
        except web.HTTPException as e:
            e.force_close()
            raise
        except ConnectionResetError:
            raise
        except Exception as e:  # noqa: BLE001  # one line in our journal, not a traceback for each request
            get().error("page", message=f"{request.path[:100]} could not be answered: {type(e).__name__}: {e}")
            return _refuse(500, "this could not be answered; the watchdog's journal says why\n")
        response.force_close()  # one request a connection: door.py
        return response

    return check


def _refuse(status: int, text: str, headers: dict[str, str] | None = None) -> web.Response:
    response = web.Response(status=status, text=text, headers=headers)
    response.force_close()
    return response


async def dress(_request: web.Request, response: web.StreamResponse) -> None:
    """Put our headers on every answer, also on errors (for aiohttp's signal on_response_prepare)."""
    response.headers.update(HEADERS)
