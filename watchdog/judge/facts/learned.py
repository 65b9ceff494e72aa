"""What earlier lives of this deployment have taught: kept over restarts of the daemon, empty in a replay."""

import msgspec


class Learned(msgspec.Struct, kw_only=True):
    """Learned figures.

    Attributes:
        start_s: how long a start took (median), in seconds.
        phases: how long each phase of a start took, by its title, in seconds.
        accept_length: the usual accept length of speculation.
    """

    start_s: float | None = None
    phases: dict[str, float] = {}
    accept_length: float | None = None
