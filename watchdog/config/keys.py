"""Every key of the configuration file with its default, unit, range and meaning.

The same types carry the settings inside the program. docs/configuration.md and config/sglang-watchdog.toml are made from
them (`make docs`), and a test keeps the three alike.
"""

from typing import Annotated, Literal

import msgspec
from msgspec import Meta


def _doc(text: str) -> Meta:
    return Meta(description=text)


def _text(pattern: str, expected: str) -> Meta:
    """Text that matches `pattern`; `expected` says the same in words, for messages and for the reference."""
    return Meta(pattern=pattern, title=expected)


_FOLDER = _text(r"^/+[^/\x00][^\x00]*$", "the full path of a folder")
_FILE = _text(r"^(/[^\x00]+)?$", "the full path of a file")
_SECRET_FILE = _text(r"^(/[^\x00]+|[^/\x00]*)$", "the full path of a file, or the bare name of a systemd credential")

Seconds = Annotated[float, Meta(ge=0.1, le=7 * 86400)]
Count = Annotated[int, Meta(ge=1, le=1_000_000)]
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
        str, _FOLDER, _doc("Where state, flight records and incident bundles are kept; systemd's StateDirectory= comes first.")
    ] = "/var/lib/sglang-watchdog"
    runtime_dir: Annotated[str, _FOLDER, _doc("Where the control socket lies; systemd's RuntimeDirectory= comes first.")] = (
        "/run/sglang-watchdog"
    )
    tick_s: Annotated[
        float, Meta(ge=0.5, le=30), _doc("How often the judges look, in seconds; urgent facts are judged at once.")
    ] = 5.0


class Probing(Section, frozen=True, kw_only=True):
    """How the endpoint is asked. Limits of /health lie above the server's own 20 s, so that its 503 is seen."""

    health_interval_s: Annotated[Seconds, _doc("Between two GET /health, in seconds.")] = 27.0
    health_limit_s: Annotated[
        float,
        Meta(gt=20, le=7 * 86400),
        _doc("Deadline of one GET /health, in seconds: above the server's own 20 (SGLANG_HEALTH_CHECK_TIMEOUT)."),
    ] = 25.0
    models_interval_s: Annotated[Seconds, _doc("Between two GET /v1/models, in seconds.")] = 60.0
    ready_interval_s: Annotated[Seconds, _doc("Between two GET /ready (SGLang 0.5.20 and later), in seconds.")] = 60.0
    static_limit_s: Annotated[Seconds, _doc("Deadline of GET /v1/models and GET /ready, in seconds.")] = 5.0
    connect_limit_s: Annotated[Seconds, _doc("Deadline of a TCP (and TLS) connection, in seconds.")] = 5.0
    chat: Annotated[bool, _doc("Whether the chat canary is sent at all.")] = True
    chat_interval_s: Annotated[Seconds, _doc("Between two canaries, in seconds, while no real traffic proves health.")] = 60.0
    chat_limit_s: Annotated[Seconds, _doc("Deadline of the chat canary, in seconds.")] = 60.0
    profile: Annotated[
        str,
        _doc(
            "What is known of the model: a profile of config/profiles, such as `kimi-k2`, or the absolute path of one of your "
            "own; empty: the one that fits the server's arguments. The next four keys go before it."
        ),
    ] = ""
    chat_max_tokens: Annotated[int, Meta(ge=0, le=256), _doc("max_tokens of the canaries; 0: the profile's.")] = 0
    chat_prompt: Annotated[
        str, _doc("What the chat canary asks; a unique prefix is put before it, so that no cache answers. Empty: the profile's.")
    ] = ""
    chat_expects: Annotated[
        str | None,
        Meta(title="text in quotes"),
        _doc('A word that a good answer contains; "": any sensible text is good. Not set: the profile\'s.'),
    ] = None
    chat_template_kwargs: Annotated[
        dict[str, bool | int | float | str] | None,
        Meta(title="a table of texts, numbers, true and false, such as { enable_thinking = false }"),
        _doc("chat_template_kwargs of the chat canary. Not set: the profile's."),
    ] = None
    chat_per_hour: Annotated[int, Meta(ge=1, le=3600), _doc("At most so many canaries an hour.")] = 90
    prefix: Annotated[
        bool,
        _doc("Whether the long-prefix canary is sent, which tells cache hits, and whether the host pool changes answers."),
    ] = False
    prefix_interval_s: Annotated[Seconds, _doc("Between two prefix canaries, in seconds.")] = 3600.0


class Metrics(Section, frozen=True, kw_only=True):
    """The scrape of the server's Prometheus endpoint."""

    enabled: Annotated[bool, _doc("Whether GET /metrics is scraped; a server without it is a supported case.")] = True
    path: Annotated[str, _text("^/[!-~]*$", 'a path that begins with "/", without blanks'), _doc("The path of the endpoint.")] = (
        "/metrics"
    )
    interval_s: Annotated[Seconds, _doc("Between two scrapes, in seconds.")] = 10.0
    limit_s: Annotated[Seconds, _doc("Deadline of one scrape, in seconds.")] = 5.0


class Judging(Section, frozen=True, kw_only=True):
    """What the judges hold against what. All are floors: what the server itself shows of its pace extends them."""

    hang_s: Annotated[
        float,
        Meta(ge=20, le=86400),
        _doc(
            "Without any progress, with requests to serve and failing probes, for so long: hung. In seconds. Engines that were "
            "well again after up to two minutes are on record; a restart costs ten."
        ),
    ] = 130.0
    stall_s: Annotated[
        float,
        Meta(ge=60, le=86400),
        _doc(
            "Batches go on but nothing reaches a user (no request ends, no canary is answered) for so long: stalled. In seconds."
        ),
    ] = 240.0
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
        _doc(
            "A stop that we ordered and that has not ended after so many seconds is ended with SIGKILL; where no engine "
            "process is left, so that nothing in flight can end, 30 s after that is seen, or 5 s if its log says that it "
            "only waits for connections to close."
        ),
    ] = 180.0
    recover_limit_s: Annotated[
        Seconds, _doc("A start-up without a learned duration is expected to be verified within so many seconds.")
    ] = 3600.0
    alone: Annotated[
        bool,
        _doc(
            "Whether a member of a server over several nodes (nnodes > 1) may be restarted alone. The others must then end by "
            "themselves and come back: a member alone waits for them."
        ),
    ] = False


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
    incidents_days: Annotated[
        Count, _doc("Incident bundles are kept for at most so many days, by a wall clock that was not set for a day.")
    ] = 90


class Alerting(Section, frozen=True, kw_only=True):
    """Where alerts go besides the journal. Files may be systemd credentials: a bare name is looked up there."""

    webhook_url: Annotated[
        str,
        _text("^(https?://.*)?$", 'an address, such as "https://chat.example/hook"'),
        _doc("Alerts are sent there as JSON with POST; empty: nowhere."),
    ] = ""
    webhook_headers_file: Annotated[
        str, _SECRET_FILE, _doc("A file of `Name: value` lines that are sent along (secrets live here).")
    ] = ""
    alertmanager_url: Annotated[
        str,
        _text("^(https?://.*)?$", 'an address, such as "http://127.0.0.1:9093"'),
        _doc("Base address of an Alertmanager (v2 API); empty: none."),
    ] = ""
    alertmanager_headers_file: Annotated[str, _SECRET_FILE, _doc("The same for Alertmanager.")] = ""
    apprise_urls_file: Annotated[
        str, _SECRET_FILE, _doc("A file with one Apprise address a line (needs the extra `apprise`).")
    ] = ""
    proxy_url: Annotated[
        str,
        _text(r"^(http://[^\x00-\x20\x7f]+)?$", 'an http proxy, such as "http://proxy.example:3128"'),
        _doc("The proxy that webhook and Apprise go through; empty: none. Proxy variables of the environment are not looked at."),
    ] = ""
    ca_file: Annotated[str, _FILE, _doc("A PEM file with the CA of an https address; empty: the system's.")] = ""
    limit_s: Annotated[float, Meta(ge=0.1, le=300), _doc("Deadline of one attempt to send, in seconds.")] = 10.0
    group_wait_s: Annotated[
        float, Meta(ge=0, le=600), _doc("An alert waits so many seconds for related ones, which come in the same message.")
    ] = 10.0
    repeat_s: Annotated[Seconds, _doc("An alert that still holds is repeated after so many seconds.")] = 4 * 3600.0
    per_hour: Annotated[
        int,
        Meta(ge=4, le=3600),
        _doc("At most so many messages an hour, a quarter of them kept for critical ones; the surplus comes as one digest."),
    ] = 20
    runbook_url: Annotated[
        str, _doc("Where the runbook is: alerts link to this address, `#` and the reason in lower case; empty: no link.")
    ] = ""


class Web(Section, frozen=True, kw_only=True):
    """The status page and the metrics exporter, on loopback."""

    enabled: Annotated[bool, _doc("Whether the page and the exporter are served.")] = False
    host: Annotated[str, _doc("The address to listen on.")] = "127.0.0.1"
    port: Annotated[int, Meta(ge=0, le=65535), _doc("The port to listen on.")] = 9430
    names: Annotated[
        list[str],
        _doc("Host names that the page is asked under, besides `localhost` and addresses (such as that of a reverse proxy)."),
    ] = msgspec.field(default_factory=list)


class Server(Section, frozen=True, kw_only=True):
    """One watched server."""

    name: Annotated[
        str,
        _text(
            "^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$",
            'letters, digits, ".", "_" and "-", at most 64, the first a letter or a digit, such as "kimi"',
        ),
        _doc("A short name: in status lines, file names and metrics."),
    ]
    unit: Annotated[
        str,
        _text(r"^[A-Za-z0-9:_.\\@-]+(?<!@)\.service$", 'the full name of a service unit, such as "sglang-kimi.service"'),
        _doc("The systemd unit of the server."),
    ]
    base_url: Annotated[str, _doc("Where its API is, without /v1; each server has its own.")] = "http://127.0.0.1:30000"
    model: Annotated[
        str,
        _text(r"^[^\x00]*$", "a name without a zero byte: no command line has one"),
        _doc("The served model name to ask for; empty: the first of GET /v1/models."),
    ] = ""
    api_key_file: Annotated[
        str,
        _SECRET_FILE,
        _doc("A file with the API key; a bare name is looked up in systemd's credentials ($CREDENTIALS_DIRECTORY)."),
    ] = ""
    ca_file: Annotated[str, _FILE, _doc("A PEM file with the CA of an https server; empty: the system's.")] = ""
    cgroup: Annotated[
        str,
        _text(r"^(/(?!\.\.?(/|$))[^/\s]+)*$", 'a path without "..", such as "/sglang.slice/sglang-kimi.slice"'),
        _doc(
            "The cgroup of the server's processes, where it is not the unit's own: a container of docker has the slice of its "
            "--cgroup-parent=. Empty: the unit's."
        ),
    ] = ""
    journal_namespace: Annotated[
        str, _text(r"^[A-Za-z0-9:_.@-]*$", 'a name such as "sglang"'), _doc("The unit's LogNamespace=, where it has one.")
    ] = ""
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
