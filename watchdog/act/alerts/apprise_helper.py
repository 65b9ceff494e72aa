"""Sends one message with Apprise, in a process of its own: `python apprise_helper.py <job.json`.

Apprise and its back ends block, and import some 25 MiB; neither may happen in the daemon. Addresses hold secrets, so they come
on standard input, not as arguments. It needs nothing but the standard library and Apprise.
"""

import json
import logging
import sys

OK, FAILED, BAD_ADDRESS, NOT_INSTALLED = 0, 1, 3, 4
"""Exit statuses: sent to all; at least one failed; an address that Apprise does not know; no Apprise."""


def main() -> int:
    """Read {"urls": […], "title": …, "body": …, "kind": "info" | "success" | "warning" | "failure"} and send it."""
    try:
        import apprise  # noqa: PLC0415  (an optional extra)
    except ImportError:
        return NOT_INSTALLED
    logging.disable(logging.CRITICAL)  # its log lines name addresses
    job = json.load(sys.stdin)
    sender = apprise.Apprise(asset=apprise.AppriseAsset(app_id="sglang-watchdog", app_desc="sglang-watchdog", async_mode=False))
    known = [sender.add(url) for url in job["urls"]]
    if not all(known):
        return BAD_ADDRESS
    sent = sender.notify(title=job["title"], body=job["body"], notify_type=job["kind"], body_format="text")
    return OK if sent else FAILED


if __name__ == "__main__":
    sys.exit(main())
