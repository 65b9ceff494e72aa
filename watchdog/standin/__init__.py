"""A stand-in SGLang server with faults to order: for the demo, fire drills and tests.

It has SGLang's process tree, endpoints, log lines and metrics, no model and no GPU. Requests really pass from the parent through
the scheduler and the detokenizer, so that stopping or killing one of them has the effect that it has in the real server.
"""

from collections.abc import Sequence


def main(argv: Sequence[str]) -> int:
    """Run the stand-in server (or `fault NAME` to order a fault of a running one) and return the exit status."""
    if argv and argv[0] == "fault":
        from watchdog.standin.faults import order  # noqa: PLC0415 (only the part that is used is loaded)

        return order(argv[1:])
    from watchdog.standin.launch import launch  # noqa: PLC0415

    return launch(argv)
