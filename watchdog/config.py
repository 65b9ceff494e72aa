"""The configuration: every key with its default, unit, range and meaning.

`load` reads a TOML file and reports all faults at once, each with its key, its value and its cure. The same types carry
the settings inside the program; docs/configuration.md is made from them (a test keeps the two alike).
"""

import difflib
import tomllib
import typing
from pathlib import Path
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta


def _doc(text: str) -> Meta:
    return Meta(description=text)


Seconds = Annotated[float, Meta(ge=0.1, le=7 * 86400)]
Count = Annotated[int, Meta(ge=1, le=1_000_000)]
Ratio = Annotated[float, Meta(ge=0.0, le=1.0)]
MiB = Annotated[int, Meta(ge=1, le=1_000_000)]
Mode = Literal["observe", "alert", "act"]


class Section(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A table of the configuration file."""


class Daemon(Section, frozen=True, kw_only=True):
    """The daemon itself."""

    mode: Annotated[
        Mode,
        _doc("`act` restarts, `alert` only tells people, `observe` only says in the journal and in its diary what it would do."),
    ] = "act"
    state_dir: Annotated[
        str, _doc("Where state, flight records and incident bundles are kept; systemd's StateDirectory= comes first.")
    ] = "/var/lib/sglang-watchdog"
    runtime_dir: Annotated[str, _doc("Where the control socket lies; systemd's RuntimeDirectory= comes first.")] = (
        "/run/sglang-watchdog"
    )
    tick_s: Annotated[
        float, Meta(ge=0.5, le=30), _doc("How often the judges look, in seconds; urgent facts are judged at once.")
    ] = 2.0


class Probing(Section, frozen=True, kw_only=True):
    """How the endpoint is asked. Limits of /health lie above the server's own 20 s, so that its 503 is seen."""

    health_interval_s: Annotated[Seconds, _doc("Between two GET /health, in seconds.")] = 27.0
    health_limit_s: Annotated[
        Seconds, _doc("Deadline of one GET /health, in seconds; must be above SGLANG_HEALTH_CHECK_TIMEOUT (20).")
    ] = 25.0
    models_interval_s: Annotated[Seconds, _doc("Between two GET /v1/models, in seconds.")] = 60.0
    ready_interval_s: Annotated[Seconds, _doc("Between two GET /ready (SGLang 0.5.20 and later), in seconds.")] = 60.0
    static_limit_s: Annotated[Seconds, _doc("Deadline of GET /v1/models and GET /ready, in seconds.")] = 5.0
    connect_limit_s: Annotated[Seconds, _doc("Deadline of a TCP (and TLS) connection, in seconds.")] = 5.0
    chat: Annotated[bool, _doc("Whether the chat canary is sent at all.")] = True
    chat_interval_s: Annotated[Seconds, _doc("Between two canaries, in seconds, while no real traffic proves health.")] = 60.0
    chat_limit_s: Annotated[Seconds, _doc("Deadline of the chat canary, in seconds.")] = 60.0
    chat_max_tokens: Annotated[int, Meta(ge=1, le=256), _doc("max_tokens of the chat canary.")] = 16
    chat_prompt: Annotated[str, _doc("What the canary asks; a unique prefix is put before it, so that no cache answers.")] = (
        "What is the capital of France? Answer with one word."
    )
    chat_expects: Annotated[str, _doc("A word that a good answer contains; empty: any sensible text is good.")] = ""
    chat_per_hour: Annotated[int, Meta(ge=1, le=3600), _doc("At most so many canaries an hour.")] = 90
    prefix: Annotated[bool, _doc("Whether the long-prefix canary, which tells cache hits, is sent.")] = False
    prefix_interval_s: Annotated[Seconds, _doc("Between two prefix canaries, in seconds.")] = 3600.0


class Metrics(Section, frozen=True, kw_only=True):
    """The scrape of the server's Prometheus endpoint."""

    enabled: Annotated[bool, _doc("Whether GET /metrics is scraped; a server without it is a supported case.")] = True
    path: Annotated[str, Meta(pattern="^/"), _doc("The path of the endpoint.")] = "/metrics"
    interval_s: Annotated[Seconds, _doc("Between two scrapes, in seconds.")] = 10.0
    limit_s: Annotated[Seconds, _doc("Deadline of one scrape, in seconds.")] = 5.0


class Judging(Section, frozen=True, kw_only=True):
    """What the judges hold against what. All are floors: what the server itself shows of its pace extends them."""

    hang_s: Annotated[
        float,
        Meta(ge=20, le=86400),
        _doc("Without any progress, with requests to serve and failing probes, for so long: hung. In seconds."),
    ] = 60.0
    stall_s: Annotated[
        float,
        Meta(ge=60, le=86400),
        _doc(
            "Batches go on but nothing reaches a user (no request ends, no canary is answered) for so long: stalled. In seconds."
        ),
    ] = 300.0
    start_silence_s: Annotated[
        float,
        Meta(ge=60, le=86400),
        _doc("No sign of progress in a start-up phase for so long: stuck; learned start-ups extend it. In seconds."),
    ] = 600.0
    garbage_count: Annotated[Count, _doc("So many degenerate canaries in a row: the server answers garbage.")] = 3
    leak_horizon_s: Annotated[Seconds, _doc("A forecast of full memory nearer than this is told, in seconds.")] = 86400.0


class Restarting(Section, frozen=True, kw_only=True):
    """What bounds our restarts. The budget outlives the daemon and is stricter than systemd's own limit."""

    budget: Annotated[int, Meta(ge=0, le=100), _doc("At most so many restarts within `budget_s`.")] = 2
    budget_s: Annotated[Seconds, _doc("The short window of the budget, in seconds.")] = 6 * 3600.0
    budget_long: Annotated[int, Meta(ge=0, le=1000), _doc("At most so many restarts within `budget_long_s`.")] = 4
    budget_long_s: Annotated[Seconds, _doc("The long window of the budget, in seconds.")] = 3 * 86400.0
    backoff_s: Annotated[
        Seconds, _doc("After a restart, the next one not before so many seconds; doubled each time within `budget_s`.")
    ] = 300.0
    evidence_limit_s: Annotated[Seconds, _doc("Evidence is gathered for at most so many seconds before a restart.")] = 15.0
    stop_limit_s: Annotated[
        float,
        Meta(ge=30, le=7200),
        _doc("A stop that we ordered and that has not ended after so many seconds is ended with SIGKILL."),
    ] = 180.0
    recover_limit_s: Annotated[
        Seconds, _doc("A start-up without a learned duration is expected to be verified within so many seconds.")
    ] = 3600.0


class Sources(Section, frozen=True, kw_only=True):
    """How often the host is looked at."""

    processes_interval_s: Annotated[Seconds, _doc("Between two looks at the unit's processes, in seconds.")] = 10.0
    memory_interval_s: Annotated[Seconds, _doc("Between two looks at the unit's and the host's memory, in seconds.")] = 10.0
    unit_interval_s: Annotated[Seconds, _doc("Between two full looks at the unit, in seconds; changes come by signal.")] = 30.0
    gpu: Annotated[Literal["auto", "off"], _doc("`auto` reads NVML where there is a driver; `off` never does.")] = "auto"
    gpu_interval_s: Annotated[Seconds, _doc("Between two NVML rounds, in seconds.")] = 5.0
    gpu_limit_s: Annotated[
        Seconds, _doc("An NVML round that takes longer than so many seconds means: the driver does not answer.")
    ] = 10.0
    gpus_expected: Annotated[int, Meta(ge=0, le=1024), _doc("How many GPUs there should be; 0: learned.")] = 0
    deps: Annotated[list[str], _doc("Units that the server leans on.")] = msgspec.field(
        default_factory=lambda: ["nvidia-fabricmanager.service", "nvidia-persistenced.service"]
    )


class Recording(Section, frozen=True, kw_only=True):
    """The flight recorder and the incident bundles."""

    enabled: Annotated[bool, _doc("Whether observations are kept on disk.")] = True
    memory_s: Annotated[Seconds, _doc("So many seconds of observations are kept in memory.")] = 3600.0
    memory_mib: Annotated[MiB, _doc("…but at most so many MiB of them.")] = 4
    disk_mib: Annotated[MiB, _doc("At most so many MiB of flight record on disk for each server.")] = 256
    incidents_mib: Annotated[MiB, _doc("At most so many MiB of incident bundles for each server.")] = 512
    incidents_days: Annotated[Count, _doc("Incident bundles are kept for at most so many days.")] = 90


class Alerting(Section, frozen=True, kw_only=True):
    """Where alerts go besides the journal."""

    webhook_url: Annotated[str, _doc("Alerts are sent there as JSON with POST; empty: nowhere.")] = ""
    webhook_headers_file: Annotated[str, _doc("A file of `Name: value` lines that are sent along (secrets live here).")] = ""
    alertmanager_url: Annotated[str, _doc("Base address of an Alertmanager (v2 API); empty: none.")] = ""
    apprise_urls_file: Annotated[str, _doc("A file with one Apprise address a line (needs the extra `apprise`).")] = ""
    repeat_s: Annotated[Seconds, _doc("An alert that still holds is repeated after so many seconds.")] = 4 * 3600.0


class Web(Section, frozen=True, kw_only=True):
    """The status page and the metrics exporter, on loopback."""

    enabled: Annotated[bool, _doc("Whether the page and the exporter are served.")] = False
    host: Annotated[str, _doc("The address to listen on.")] = "127.0.0.1"
    port: Annotated[int, Meta(ge=0, le=65535), _doc("The port to listen on.")] = 9430


class Server(Section, frozen=True, kw_only=True):
    """One watched server."""

    name: Annotated[
        str,
        Meta(pattern="^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$"),
        _doc("A short name: in status lines, file names and metrics."),
    ]
    unit: Annotated[str, Meta(pattern=r"^[A-Za-z0-9:_.\\@-]+\.service$"), _doc("The systemd unit of the server.")]
    base_url: Annotated[str, _doc("Where its API is, without /v1.")] = "http://127.0.0.1:30000"
    model: Annotated[str, _doc("The served model name to ask for; empty: the first of GET /v1/models.")] = ""
    api_key_file: Annotated[
        str,
        _doc("A file with the API key; a bare name is looked up in systemd's credentials ($CREDENTIALS_DIRECTORY)."),
    ] = ""
    ca_file: Annotated[str, _doc("A PEM file with the CA of an https server; empty: the system's.")] = ""
    journal_namespace: Annotated[str, _doc("The unit's LogNamespace=, where it has one.")] = ""
    endpoint: Annotated[
        bool,
        _doc("False for a node without an API of its own (node_rank ≥ 1): it is judged by processes, journal and GPUs."),
    ] = True
    mode: Annotated[Mode | None, _doc("Overrides daemon.mode for this server.")] = None
    probe: Annotated[Probing, _doc("Overrides keys of [probe] for this server.")] = Probing()
    metrics: Annotated[Metrics, _doc("Overrides keys of [metrics] for this server.")] = Metrics()
    judge: Annotated[Judging, _doc("Overrides keys of [judge] for this server.")] = Judging()
    restart: Annotated[Restarting, _doc("Overrides keys of [restart] for this server.")] = Restarting()


class Config(Section, frozen=True, kw_only=True):
    """The whole file."""

    daemon: Annotated[Daemon, _doc("The daemon itself.")] = Daemon()
    probe: Annotated[Probing, _doc("How the endpoint is asked.")] = Probing()
    metrics: Annotated[Metrics, _doc("The scrape of the server's metrics.")] = Metrics()
    judge: Annotated[Judging, _doc("When something is held to be so.")] = Judging()
    restart: Annotated[Restarting, _doc("What bounds our restarts.")] = Restarting()
    sources: Annotated[Sources, _doc("How often the host is looked at.")] = Sources()
    record: Annotated[Recording, _doc("Flight recorder and incident bundles.")] = Recording()
    alert: Annotated[Alerting, _doc("Where alerts go.")] = Alerting()
    web: Annotated[Web, _doc("Status page and exporter.")] = Web()
    servers: Annotated[list[Server], _doc("The watched servers, one [[servers]] table each.")] = msgspec.field(
        default_factory=list
    )


class Fault(msgspec.Struct, frozen=True):
    """One fault of a configuration: where, what stands there, what is wrong and how it is mended."""

    key: str
    value: str
    problem: str

    def __str__(self) -> str:
        shown = f" = {self.value}" if self.value else ""
        return f"{self.key}{shown}: {self.problem}"


class ConfigError(Exception):
    """A configuration that cannot be used; `faults` has every reason."""

    def __init__(self, faults: list[Fault], source: str) -> None:
        super().__init__(f"{source}: " + "; ".join(map(str, faults)))
        self.faults = faults
        self.source = source


SHARED_SECTIONS = ("probe", "metrics", "judge", "restart")


def load(path: Path) -> Config:
    """Read and check a configuration file.

    Raises:
        ConfigError: with every fault that was found; also for a file that cannot be read or is no TOML.
    """
    try:
        table = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as e:
        raise ConfigError(
            [Fault(str(path), "", f"cannot be read: {e.strerror}; name another file with --config")], str(path)
        ) from e
    except UnicodeDecodeError as e:
        raise ConfigError([Fault(str(path), "", f"is not UTF-8 (byte {e.start}); save it as UTF-8")], str(path)) from e
    except tomllib.TOMLDecodeError as e:
        raise ConfigError([Fault(str(path), "", f"is not TOML: {e}")], str(path)) from e
    return parse(table, str(path))


def parse(table: dict[str, Any], source: str = "configuration", *, need_servers: bool = True) -> Config:
    """Check a parsed configuration and lay the shared sections under each server.

    Raises:
        ConfigError: with every fault that was found.
    """
    faults: list[Fault] = []
    shared = {key: table[key] for key in SHARED_SECTIONS if isinstance(table.get(key), dict)}
    servers = table.get("servers")
    if isinstance(servers, list):
        table = {**table, "servers": [_laid_over(shared, s) if isinstance(s, dict) else s for s in servers]}
    config: Config | None = _convert(Config, table, "", faults)
    if config is not None:
        _check(config, faults, need_servers=need_servers)
    if faults or config is None:
        unique = list(dict.fromkeys(faults))
        raise ConfigError(unique, source)
    return config


def _laid_over(shared: dict[str, dict[str, Any]], server: dict[str, Any]) -> dict[str, Any]:
    out = dict(server)
    for key, section in shared.items():
        own = server.get(key, {})
        out[key] = {**section, **own} if isinstance(own, dict) else own
    return out


def _convert(kind: type[Any], table: Any, where: str, faults: list[Fault]) -> Any:
    """`table` as a `kind` (a Section), or None; every fault below it is appended."""
    if not isinstance(table, dict):
        faults.append(Fault(where or "configuration", _shown(table), "must be a table"))
        return None
    before = len(faults)
    fields = {f.encode_name: f for f in msgspec.structs.fields(kind)}
    values: dict[str, Any] = {}
    for key, value in table.items():
        name = f"{where}.{key}" if where else key
        if key not in fields:
            near = difflib.get_close_matches(key, fields, n=1)
            faults.append(
                Fault(name, _shown(value), f"unknown key; did you mean {near[0]!r}?" if near else "unknown key; remove it")
            )
            continue
        inner = _bare(fields[key].type)
        if isinstance(inner, type) and issubclass(inner, Section):
            values[key] = _convert(inner, value, name, faults)
        elif typing.get_origin(inner) is list and issubclass(_bare(typing.get_args(inner)[0]), Section):
            values[key] = _convert_list(_bare(typing.get_args(inner)[0]), value, name, faults)
        else:
            values[key] = _convert_value(fields[key].type, value, name, faults)
    for f in fields.values():
        if f.required and f.encode_name not in table:
            faults.append(Fault(f"{where}.{f.encode_name}" if where else f.encode_name, "", f"is missing; {description(f.type)}"))
    return kind(**values) if len(faults) == before else None


def _convert_list(kind: type[Section], value: Any, name: str, faults: list[Fault]) -> list[Any]:
    if not isinstance(value, list):
        faults.append(Fault(name, _shown(value), f"must be a list of tables: write [[{name}]]"))
        return []
    return [_convert(kind, item, f"{name}[{i}]", faults) for i, item in enumerate(value)]


def _convert_value(kind: Any, value: Any, name: str, faults: list[Fault]) -> Any:
    try:
        return msgspec.convert(value, kind)
    except msgspec.ValidationError as e:
        said = str(e).removeprefix("Expected").strip().rstrip(".")
        faults.append(
            Fault(
                name,
                _shown(value),
                f"must be {said[:1].lower()}{said[1:]}" if str(e).startswith("Expected") else str(e),
            )
        )
        return None


def _bare(kind: Any) -> Any:
    return typing.get_args(kind)[0] if typing.get_origin(kind) is Annotated else kind


def description(kind: Any) -> str:
    """What the documentation says of a key, from its type's annotation."""
    return next((m.description for m in getattr(kind, "__metadata__", ()) if isinstance(m, Meta) and m.description), "")


def _shown(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 60 else text[:57] + "..."


def _check(config: Config, faults: list[Fault], *, need_servers: bool) -> None:
    """What no single key can tell."""
    if need_servers and not config.servers:
        faults.append(Fault("servers", "", "no server is configured; add a [[servers]] table with name and unit"))
    for label, key in (("name", "name"), ("unit", "unit")):
        seen: dict[str, int] = {}
        for i, server in enumerate(config.servers):
            value = getattr(server, key)
            if value in seen:
                faults.append(
                    Fault(
                        f"servers[{i}].{label}",
                        repr(value),
                        f"is that of servers[{seen[value]}] too; give each its own",
                    )
                )
            seen.setdefault(value, i)
    for i, server in enumerate(config.servers):
        where = f"servers[{i}]"
        if not server.base_url.startswith(("http://", "https://")) or server.base_url.rstrip("/").endswith("/v1"):
            faults.append(
                Fault(
                    f"{where}.base_url",
                    repr(server.base_url),
                    "must be http://HOST:PORT or https://HOST:PORT, without /v1",
                )
            )
        if server.ca_file and not server.base_url.startswith("https://"):
            faults.append(
                Fault(
                    f"{where}.ca_file",
                    repr(server.ca_file),
                    "has no meaning for http; remove it or make base_url https",
                )
            )
        if server.probe.health_limit_s <= 20:
            faults.append(
                Fault(
                    "probe.health_limit_s",
                    repr(server.probe.health_limit_s),
                    "must be above 20: SGLang answers 503 only after its own 20 s (SGLANG_HEALTH_CHECK_TIMEOUT)",
                )
            )
        if server.restart.budget_long_s < server.restart.budget_s:
            faults.append(
                Fault(
                    "restart.budget_long_s",
                    repr(server.restart.budget_long_s),
                    "must not be shorter than restart.budget_s",
                )
            )
