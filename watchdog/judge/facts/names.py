"""Which names the server serves, and which one is asked for. Only /v1/models tells: a chat is answered under any name."""

from watchdog.observation import Probe
from watchdog.sglang.answers import listed


class Names:
    """Folds probes of /v1/models of one life. Where a probe does not name the models (`served`), its body does."""

    def __init__(self) -> None:
        self.begin()

    def begin(self) -> None:
        """A new life may serve another model."""
        self.served: list[str] = []
        self.adapters: list[str] = []
        self.cut = False
        """Whether more adapters may be listed than are known."""
        self.asked: str | None = None
        """The name that the configuration has the canaries ask for; None: the first that is served, or not known."""
        self.by_body = False
        """Whether the names were read in a body: then no probe tells which one is asked for."""
        self.seen = 0
        """How many lists in a row said the same."""

    def see(self, o: Probe) -> None:
        """Take in a probe of /v1/models."""
        if o.outcome != "ok":
            return
        served, adapters, cut = o.served or [], o.adapters or [], False
        if not served:
            served, adapters, cut = listed(o.body or "")
            if not served or (cut and len(served) > 1):
                # SGLang lists its one model before all adapters; of a router's list, what was cut off may be the one that counts.
                return
        same = (served, o.asked_model) == (self.served, self.asked)
        self.seen = self.seen + 1 if same else 1
        self.served, self.adapters, self.cut, self.asked = served, adapters, cut, o.asked_model
        self.by_body = not o.served
