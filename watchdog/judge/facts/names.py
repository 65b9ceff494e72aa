"""Which names the server serves, and which one is asked for. Only /v1/models tells: a chat is answered under any name."""

from watchdog.observation import Probe


class Names:
    """Folds probes of /v1/models of one life."""

    def __init__(self) -> None:
        self.begin()

    def begin(self) -> None:
        """A new life may serve another model."""
        self.served: list[str] = []
        self.adapters: list[str] = []
        self.asked: str | None = None
        """The name that the configuration has the canaries ask for; None: the first that is served."""
        self.seen = 0
        """How many lists in a row said the same."""

    def see(self, o: Probe) -> None:
        """Take in a probe of /v1/models."""
        if o.outcome != "ok" or not o.served:
            return
        same = (o.served, o.asked_model) == (self.served, self.asked)
        self.seen = self.seen + 1 if same else 1
        self.served, self.adapters, self.asked = o.served, o.adapters or [], o.asked_model
