"""All that was gathered about one server for `verify`. None: it could not be read, or was not asked for."""

import re
from typing import Any

import msgspec

from watchdog import config
from watchdog.observation import Cgroup, Deps, Gpu, Host, Metrics, Port, Probe, Procs
from watchdog.observation import Server as Engine
from watchdog.sglang import processes
from watchdog.sglang.arguments import ranks_here
from watchdog.systemd import UnitState
from watchdog.verify.life import Life

MAX_MODEL_LEN = re.compile(r'"max_model_len":\s?([1-9]\d{0,9})\b')
"""In the body of GET /v1/models (srt/entrypoints/openai/protocol.py, ModelCard, all versions)."""


class Settings(msgspec.Struct, frozen=True, kw_only=True):
    """Settings of the unit and of journald that matter. Durations are seconds; infinity is float("inf").

    Attributes:
        rate_interval_s: LogRateLimitIntervalSec=; 0 where the unit has none (systemd 252 takes a written 0 for none as well).
        rate_burst: LogRateLimitBurst=; 0 where the unit has none.
        journald_interval_s: RateLimitIntervalSec= of journald, 30 by default.
        journald_burst: RateLimitBurst= of journald, 10000 by default; 0 turns the limit off.
        memlock: LimitMEMLOCK= in bytes.
    """

    kill_mode: str | None = None
    memlock: float | None = None
    rate_interval_s: float | None = None
    rate_burst: int | None = None
    journald_interval_s: float | None = None
    journald_burst: int | None = None
    timeout_stop_s: float | None = None
    restart: str | None = None


class Seen(msgspec.Struct, kw_only=True):
    """The gathered facts.

    Attributes:
        no_systemd: why systemd could not be asked.
        no_journal: why the journal could not be read.
        no_health: why /health was not asked.
        gpus_wanted: whether GPUs are looked at at all.
        starts: how often the unit was started in the last day.
        age_s: how long ago this life of the unit began, in seconds.
        took_s: how long it took to gather all this.
    """

    server: config.Server
    unit: UnitState | None = None
    no_systemd: str | None = None
    settings: Settings = Settings()
    life: Life | None = None
    no_journal: str | None = None
    starts: int | None = None
    age_s: float | None = None
    probes: dict[str, Probe] = {}
    no_health: str | None = None
    engine: Engine | None = None
    metrics: Metrics | None = None
    procs: Procs | None = None
    port: Port | None = None
    cgroup: Cgroup | None = None
    host: Host | None = None
    gpu: Gpu | None = None
    gpus_expected: int = 0
    deps: Deps | None = None
    took_s: float = 0.0

    @property
    def args(self) -> dict[str, Any]:
        """The launch arguments, as far as they are known: what SGLang made of them comes before what was asked for."""
        logged = self.life.args if self.life is not None else {}
        return {**(self.engine.args if self.engine is not None else {}), **logged}

    @property
    def version(self) -> str | None:
        """SGLang's version."""
        return self.engine.version if self.engine is not None else None

    @property
    def ranks(self) -> int | None:
        """How many ranks this host should have; None where the launch arguments are not known."""
        return ranks_here(self.args) if self.args else None

    @property
    def hicache(self) -> bool | None:
        """Whether the server was started with the hierarchical cache; None where that is not known."""
        return bool(self.args.get("enable_hierarchical_cache")) if self.args else None

    @property
    def context(self) -> int | None:
        """Tokens that a prompt may have with its answer: as the engine said, the arguments have it, or /v1/models tells."""
        if self.life is not None and self.life.context is not None:
            return self.life.context
        given = self.args.get("context_length")
        if isinstance(given, int) and given > 0:
            return given
        models = self.probes.get("models")
        found = MAX_MODEL_LEN.search(models.body or "") if models is not None else None
        return int(found[1]) if found is not None else None

    @property
    def announced(self) -> float | None:
        """Bytes of all host pools that the log announced; None where the log was not read."""
        return None if self.life is None else sum(pool.size for pool in self.life.pools)

    @property
    def resident(self) -> int | None:
        """Resident memory of all ranks, in bytes; None where it was not read of each."""
        if self.procs is None:
            return None
        sizes = [p.rss for p in self.procs.procs if processes.role(p.name) == "scheduler"]
        known = [size for size in sizes if size is not None]
        return sum(known) if known and len(known) == len(sizes) else None
