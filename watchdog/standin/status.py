"""What the parent knows of itself."""

from dataclasses import dataclass


@dataclass
class Status:
    """The flags that /health, /ready and /ping look at.

    Attributes:
        starting: until the warm-up is done.
        healthy: False from a /health that failed to one that succeeds.
        draining: since SIGTERM.
        paused: between /pause_generation and /continue_generation.
    """

    starting: bool = True
    healthy: bool = True
    draining: bool = False
    paused: bool = False
