"""Who listens on the server's port."""

from watchdog.observation import Port


class Listener:
    """Folds what is known of the port. It belongs to no incarnation: a stranger outlives them."""

    def __init__(self) -> None:
        self.port: Port | None = None
        self.stranger_since: float | None = None
        """Since when the same stranger is seen on it."""

    def see(self, o: Port) -> None:
        """Take in who holds the port. A stranger must be seen twice: a life that just ended lets its socket go late."""
        stranger = bool(o.listening) and o.in_unit is False
        if not stranger or self.port is None or self.port.pid != o.pid:
            self.stranger_since = o.t if stranger else None
        elif self.stranger_since is None:
            self.stranger_since = o.t
        self.port = o

    @property
    def held(self) -> bool:
        """Whether the unit itself listened on it when last seen: who is refused all the same is turned away on the way."""
        return self.port is not None and bool(self.port.listening) and bool(self.port.in_unit)

    @property
    def stranger(self) -> Port | None:
        """The port as it was last seen, where somebody outside the unit listens on it."""
        taken = self.port is not None and self.stranger_since is not None and self.port.t - self.stranger_since >= 2.0
        return self.port if taken else None
