"""The vocabulary: one frozen type for each kind of observation (docs/flight-record.md).

Sources make these, judges read nothing else, the recorder writes them, a replay reads them back. Moments (`t`) are seconds
since the record's start, bytes are bytes, durations are seconds, ratios are 0…1, power is watts, temperature is °C.

A value that could not be read is None and is written as `null`, never as 0; a field that a source cannot know is left out.
`unread()` marks the fields of the first sort: they are always written.
"""

from typing import Any, Literal

import msgspec

STRUCK = "…"
"""Stands in the place of a key, a token, a password or a login, in whatever is kept or told. It looks like no secret itself:
what is struck again stays as it is."""


def unread() -> Any:
    """A field that is None, and written as `null`, until it has been read."""
    return msgspec.field(default_factory=type(None))


class Observation(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, tag_field="kind"):
    """A fact with a time.

    Attributes:
        t: the moment at which the daemon learnt of it, in seconds since the record's start; never decreases in a record.
        inv: the unit's systemd InvocationID at that moment; None for host-wide kinds and for a unit that never ran.
    """

    t: float
    inv: str | None = None


class Unit(Observation, frozen=True, kw_only=True, omit_defaults=True, tag="unit"):
    """systemd's view of the server's unit (org.freedesktop.systemd1(5)); on change, and every 30 s."""

    load_state: str | None = unread()
    active_state: str | None = unread()
    sub_state: str | None = unread()
    result: str | None = unread()
    main_pid: int | None = unread()
    exec_main_status: int | None = unread()
    exec_main_code: str | None = unread()
    """exited, killed or dumped; None while the main process runs."""
    n_restarts: int | None = unread()
    since: float | None = unread()
    """The moment of InactiveExitTimestamp: the beginning of this life. May be negative."""
    start_limit_burst: int | None = unread()
    start_limit_interval_s: float | None = unread()
    restart: str | None = unread()
    timeout_start_s: float | None = unread()
    timeout_stop_s: float | None = unread()
    watchdog_s: float | None = unread()


class Job(Observation, frozen=True, kw_only=True, omit_defaults=True, tag="job"):
    """A systemd job on the unit began or ended."""

    phase: Literal["new", "removed"]
    job: str = ""
    result: str | None = None
    mine: bool = False
    auto: bool = False


class Log(Observation, frozen=True, kw_only=True, omit_defaults=True, tag="log"):
    """One line of the unit's journal.

    Attributes:
        origin: who wrote it ("from" in a record): "server" the unit itself, "systemd" PID 1 about the unit, "journald".
        at: the moment at which the line was written, where that is more than 1 s before `t` (history, a backlog).
        dropped: how many messages journald says it dropped.
    """

    message: str
    pid: int | None = None
    ident: str | None = None
    priority: int | None = None
    origin: str = msgspec.field(default="server", name="from")
    at: float | None = None
    dropped: int | None = None

    @property
    def written(self) -> float:
        """When the line was written, as far as is known."""
        return self.t if self.at is None else self.at


class Kernel(Observation, frozen=True, kw_only=True, omit_defaults=True, tag="kernel"):
    """One line of the kernel log."""

    message: str
    priority: int | None = None
    at: float | None = None

    @property
    def written(self) -> float:
        """When the line was written, as far as is known."""
        return self.t if self.at is None else self.at


class Answer(msgspec.Struct, frozen=True, kw_only=True):
    """What a canary got back, when it was answered.

    Attributes:
        cached_tokens: tokens of the prompt that were not computed anew, wherever they lay.
        cached_device, cached_host: how many of them the GPU held, and how many were loaded back from the host pool; None
            where the server does not tell (in streams before SGLang 0.5.12), and where it had none of them.
    """

    text: str | None = None
    reasoning: str | None = None
    finish_reason: str | None = None
    model: str | None = None
    prompt_tokens: int | None = None
    cached_tokens: int | None = None
    completion_tokens: int | None = None
    tool_calls: int = 0
    cached_device: int | None = None
    cached_host: int | None = None


PROBES = ("health", "ready", "models", "chat", "prefix")
OUTCOMES = ("ok", "refused", "connect_timeout", "timeout", "reset", "status", "malformed", "skipped")


class Probe(Observation, frozen=True, kw_only=True, omit_defaults=True, tag="probe"):
    """One active request that ended (or was skipped, with `why`).

    The fields from `earlier` on are an extension of version 1.

    Attributes:
        earlier, earlier_ttft_s: of the prefix canary: what came of the first of its two requests; the others are the second's.
        fresh: of the prefix canary, where the first request was loaded back from the host pool: what the same prompt gave when
            it was computed anew (cache_salt).
        profile: of canaries: the model's profile (config/profiles) by which it was asked.
        reasons: whether reasoning should come apart from the text, as the model's profile has it; None: not known.
        served: of /v1/models: the names of the models; `adapters`: those of LoRA adapters of one of them.
        asked_model: of /v1/models: the name that our configuration has the canaries ask for.
    """

    probe: str
    outcome: str
    status: int | None = None
    connect_s: float | None = None
    ttft_s: float | None = None
    total_s: float | None = None
    limit_s: float | None = None
    answer: Answer | None = None
    expects: str | None = None
    body: str | None = None
    why: str | None = None
    detail: str | None = None
    """What exactly was wrong, for outcomes "malformed" and "status": one sentence for people."""
    request_id: str | None = None
    """The id that this canary carried, where the API takes one."""
    earlier: Answer | None = None
    earlier_ttft_s: float | None = None
    fresh: Answer | None = None
    profile: str | None = None
    reasons: bool | None = None
    served: list[str] | None = None
    adapters: list[str] | None = None
    asked_model: str | None = None

    @property
    def connected(self) -> bool:
        """Whether somebody accepted the connection."""
        timed = self.connect_s is not None and self.outcome not in ("refused", "connect_timeout")
        return timed or self.outcome in ("ok", "status", "malformed")


class Metrics(Observation, frozen=True, kw_only=True, omit_defaults=True, tag="metrics"):
    """One scrape of the server's Prometheus endpoint."""

    ok: bool
    error: str | None = None
    values: dict[str, float] = {}
    by_rank: dict[str, dict[str, float]] | None = None


class Server(Observation, frozen=True, kw_only=True, omit_defaults=True, tag="server"):
    """What the engine says of itself, after each start."""

    version: str | None = None
    args: dict[str, Any] = {}
    env: dict[str, str] = {}
    max_total_num_tokens: int | None = None
    memory_usage: dict[str, Any] | None = None


class Proc(msgspec.Struct, frozen=True, kw_only=True):
    """One process of the unit."""

    pid: int
    ppid: int | None = None
    name: str = ""
    state: str | None = None
    cpu_s: float | None = None
    rss: int | None = None
    wchan: str | None = None


class Procs(Observation, frozen=True, kw_only=True, omit_defaults=True, tag="procs"):
    """The processes in the unit's cgroup (every 10 s)."""

    procs: list[Proc] = msgspec.field(default_factory=list)
    cpu_s: float | None = unread()


class Cgroup(Observation, frozen=True, kw_only=True, omit_defaults=True, tag="cgroup"):
    """The unit's memory (every 10 s); psi_… in % of time (0…100), as the kernel prints it."""

    memory_current: int | None = unread()
    anon: int | None = unread()
    file: int | None = unread()
    shmem: int | None = unread()
    unevictable: int | None = unread()
    kernel: int | None = unread()
    memory_max: int | None = unread()
    oom_kill: int | None = unread()
    io_read: int | None = unread()
    psi_some_avg10: float | None = unread()
    psi_full_avg10: float | None = unread()


class Host(Observation, frozen=True, kw_only=True, omit_defaults=True, tag="host"):
    """The host's memory (every 10 s); psi_… in % of time (0…100), as the kernel prints it."""

    mem_total: int | None = unread()
    mem_available: int | None = unread()
    mem_free: int | None = unread()
    shmem: int | None = unread()
    mlocked: int | None = unread()
    unevictable: int | None = unread()
    swap_used: int | None = unread()
    hugepages_total: int | None = unread()
    hugepages_free: int | None = unread()
    hugepage_size: int | None = unread()
    shm_total: int | None = unread()
    shm_free: int | None = unread()
    psi_some_avg10: float | None = unread()
    psi_full_avg10: float | None = unread()
    load1: float | None = unread()
    cpus: int | None = unread()


class GpuProc(msgspec.Struct, frozen=True, kw_only=True):
    """A process that holds memory of a GPU."""

    pid: int
    mem: int | None = None
    in_unit: bool | None = None


class GpuDevice(msgspec.Struct, frozen=True, kw_only=True):
    """One GPU as NVML shows it."""

    index: int
    uuid: str | None = None
    pci: str | None = None
    util: float | None = None
    mem_used: int | None = None
    mem_total: int | None = None
    power_w: float | None = None
    power_limit_w: float | None = None
    temp_c: float | None = None
    sm_mhz: float | None = None
    sm_max_mhz: float | None = None
    throttle: list[str] | None = None
    throttle_s: dict[str, float] | None = None
    """Seconds in which the clock was held down so far, by reason ("power", "thermal"): NVML's violation times."""
    ecc_uncorrected: int | None = None
    retired_pending: bool | None = None
    fabric: str | None = None
    nvlinks_down: int | None = None
    mig: bool | None = None
    procs: list[GpuProc] | None = None


class Gpu(Observation, frozen=True, kw_only=True, omit_defaults=True, tag="gpu"):
    """NVML (every 5 s).

    `error` when not ok: "driver_timeout", "version_mismatch", "lost", "no_driver", or other text.
    """

    ok: bool
    error: str | None = None
    gpus: list[GpuDevice] = msgspec.field(default_factory=list)
    expected: int | None = None


class Deps(Observation, frozen=True, kw_only=True, omit_defaults=True, tag="deps"):
    """Units that the server leans on: name → ActiveState (on change)."""

    units: dict[str, str] = {}


class Port(Observation, frozen=True, kw_only=True, omit_defaults=True, tag="port"):
    """Who holds the server's port (at each start, and when a probe is refused)."""

    listening: bool | None = unread()
    address: str | None = unread()
    pid: int | None = unread()
    in_unit: bool | None = unread()
    established: int | None = unread()


class Self(Observation, frozen=True, kw_only=True, omit_defaults=True, tag="self"):
    """The daemon about itself (every 30 s, and when something happens)."""

    loop_lag_s: float | None = unread()
    paused_s: float = 0.0
    journal_ok: bool | None = None
    bus_ok: bool | None = None
    nvml_ok: bool | None = None
    dropped: int = 0
    control_probe: str | None = None
    shutting_down: bool | None = None
    """True while systemd says that the host goes down (Manager.SystemState "stopping")."""
    may_restart: bool | None = None
    """False where the right to restart the unit is missing (polkit)."""
    fallen: list[str] = []
    """Sources of this server that fall again and again, each with why; an extension of version 1."""


class Operator(Observation, frozen=True, kw_only=True, omit_defaults=True, tag="operator"):
    """A person's word.

    `action`: "pause", "resume", "acknowledge" or "repaired"; `until` is a moment (t), None for "until resumed".
    """

    action: str
    until: float | None = None
    reason: str | None = None


class Acted(Observation, frozen=True, kw_only=True, omit_defaults=True, tag="acted"):
    """What came of an intent that this daemon carried out: an extension of version 1, written only by a live daemon.

    Attributes:
        action: the intent's action ("restart", "diagnose", "stop_kill", "alert").
        result: "begun", "done", "failed", "canceled", "timeout", "dry" …; for a restart the result of the job. "refused":
            systemd, polkit or the bus said no before it was begun; "dropped": it was given up before it was begun.
        detail: one sentence for people.
    """

    action: str
    result: str
    reason: str | None = None
    detail: str | None = None


AnyObservation = (
    Unit | Job | Log | Kernel | Probe | Metrics | Server | Procs | Cgroup | Host | Gpu | Deps | Port | Self | Operator | Acted
)
KINDS: dict[str, type[Observation]] = {
    str(kind.__struct_config__.tag): kind
    for kind in (
        Unit,
        Job,
        Log,
        Kernel,
        Probe,
        Metrics,
        Server,
        Procs,
        Cgroup,
        Host,
        Gpu,
        Deps,
        Port,
        Self,
        Operator,
        Acted,
    )
}


class Header(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The first line of a flight record.

    Attributes:
        started: wall-clock moment (RFC 3339, UTC) of t = 0.
        config: settings that the record is to be judged with, laid over the defaults (keys of the configuration file).
        history: "mid-life" where the record begins in the middle of the server's life.
        until: the moment to which it is complete, where it was cut out of a longer one: it was judged then too.
    """

    record: Literal["flight"] = msgspec.field(default_factory=lambda: "flight")
    version: int = msgspec.field(default_factory=lambda: 1)
    server: str = ""
    unit: str = ""
    base_url: str = ""
    started: str = ""
    boot_id: str | None = None
    config: dict[str, Any] = msgspec.field(default_factory=dict)
    history: str | None = None
    until: float | None = None


WHOLE = 2.0**53
"""Below this a whole number is exact in JSON's double precision."""

_decoder = msgspec.json.Decoder(AnyObservation)
_encoder = msgspec.json.Encoder()


def decode(line: bytes | str) -> Observation:
    """One line of a record. What is `null`, in whatever field, could not be read; whole numbers may be written as 1.0 or 1e9.

    Raises:
        msgspec.ValidationError: an unknown kind, or a field of the wrong type; the message names the field.
        msgspec.DecodeError: no JSON.
    """
    try:
        return _decoder.decode(line)
    except msgspec.ValidationError:
        read: Observation = msgspec.convert(_plain(msgspec.json.decode(line)), AnyObservation)
        return read


def _plain(value: Any) -> Any:
    """A decoded value without what could not be read, and with whole numbers as such."""
    if isinstance(value, dict):
        return {key: _plain(each) for key, each in value.items() if each is not None}
    if isinstance(value, list):
        return [_plain(each) for each in value if each is not None]
    return int(value) if isinstance(value, float) and value.is_integer() and abs(value) < WHOLE else value


def encode(observation: Observation | Header) -> bytes:
    """One line of a record, without its newline."""
    return _encoder.encode(observation)
