"""Each check by a table: what was seen, and what is concluded. What was not read is never well, and never ill."""

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.verify.seens import ARGS, GB, GIB, SERVER, life, lines, probed, processes, setting, well
from watchdog.observation import Answer, Cgroup, Deps, Gpu, GpuDevice, GpuProc, Metrics, Port, Probe, Proc, Procs, Server
from watchdog.systemd import UnitState
from watchdog.verify import api, gpus, host, log, memory, unit
from watchdog.verify.findings import Item, Report, Verdict
from watchdog.verify.report import report
from watchdog.verify.seen import Seen

PARTS = (unit, api, log, memory, gpus, host)
FACTS = ("unit", "life", "engine", "metrics", "procs", "port", "cgroup", "host", "gpu", "deps", "starts")


def all_of(seen: Seen) -> list[Item]:
    return [item for part in PARTS for item in part.check(seen)]


def found(seen: Seen, name: str) -> Item:
    items = [item for item in all_of(seen) if item.item == name]
    assert len(items) == 1, [item.item for item in all_of(seen)]
    return items[0]


def changed(**changes: Any) -> Seen:
    """All is well, but for fields of an observation: host__mem_total=…"""
    seen = well()
    for path, value in changes.items():
        part, field = path.split("__")
        seen = msgspec.structs.replace(seen, **{part: msgspec.structs.replace(getattr(seen, part), **{field: value})})
    return seen


def engine(**args: Any) -> Seen:
    return well(engine=Server(t=0.0, version="0.5.9", args={**ARGS, **args}))


def test_a_server_that_is_well() -> None:
    items = all_of(well())
    assert {item.item: item.verdict for item in items if item.verdict is not Verdict.OK} == {}
    assert len(items) > 20
    assert all(item.expected and item.seen and not item.cure for item in items)


CASES: list[tuple[str, Seen, Verdict, str]] = [
    # unit
    ("state", changed(unit__active_state="failed", unit__result="oom-kill"), Verdict.BAD, "oom-kill"),
    ("state", changed(unit__active_state="activating"), Verdict.BAD, "activating"),
    ("state", changed(unit__active_state=None), Verdict.UNKNOWN, ""),
    ("state", changed(unit__load_state="not-found"), Verdict.BAD, "knows no sglang-kimi"),
    ("restarts", changed(unit__n_restarts=3), Verdict.ODD, "3, 1 start"),
    ("restarts", changed(unit__n_restarts=None), Verdict.UNKNOWN, ""),
    ("processes", well(procs=processes(7)), Verdict.BAD, "missing: TP7"),
    ("processes", well(procs=Procs(t=0.0, procs=processes().procs[:-1])), Verdict.BAD, "detokenizer is missing"),
    (
        "processes",
        well(procs=processes(stopped="sglang::scheduler_TP3")),
        Verdict.BAD,
        "TP3 (pid 104) is stopped by a signal (state T)",
    ),
    ("processes", well(procs=Procs(t=0.0, procs=[Proc(pid=1), Proc(pid=2)])), Verdict.UNKNOWN, "titles"),
    ("processes", well(procs=Procs(t=0.0)), Verdict.UNKNOWN, ""),
    ("port", well(port=Port(t=0.0, listening=False)), Verdict.BAD, "nobody listens"),
    ("port", well(port=Port(t=0.0, listening=True, pid=7, in_unit=False)), Verdict.BAD, "pid 7 of another unit"),
    ("port", well(port=Port(t=0.0, listening=True)), Verdict.UNKNOWN, "not to be seen"),
    ("nvidia-fabricmanager", well(deps=Deps(t=0.0, units={"nvidia-fabricmanager.service": "failed"})), Verdict.BAD, "failed"),
    ("nvidia-fabricmanager", well(deps=Deps(t=0.0, units={"nvidia-fabricmanager.service": "inactive"})), Verdict.ODD, "inactive"),
    # API
    ("health", probed("health", outcome="status", status=503, detail="not serving (503)"), Verdict.BAD, "503"),
    ("health", probed("health", outcome="timeout", status=None, detail="no byte"), Verdict.BAD, "no byte"),
    ("models", probed("models", outcome="refused", status=None), Verdict.BAD, "refused"),
    ("models", probed("models", served=["kimi"], asked_model="kimi"), Verdict.OK, "200"),
    ("models", probed("models", served=["kimi"], asked_model="kimi-k2"), Verdict.ODD, "model = kimi-k2 is not served"),
    ("models", probed("models", served=["kimi"], adapters=["a"], asked_model="kimi:a"), Verdict.OK, "200"),
    ("models", probed("models", served=["kimi"], adapters=["a"], asked_model="a"), Verdict.ODD, "a LoRA adapter of kimi"),
    ("canary", probed("chat", outcome="status", status=401, detail="not allowed (401)"), Verdict.UNKNOWN, "401"),
    ("canary", probed("chat", outcome="skipped", status=None, detail="TLS failed"), Verdict.UNKNOWN, "TLS failed"),
    ("canary", probed("chat", answer=Answer(text="!!!!!!!!!!!!!!!!", finish_reason="length")), Verdict.BAD, "!!!!"),
    ("canary", probed("chat", answer=Answer(text="", finish_reason="stop", completion_tokens=16)), Verdict.BAD, ""),
    (
        "canary",
        probed("chat", answer=Answer(text=None, reasoning="The user asks for the capital.", finish_reason="length")),
        Verdict.OK,
        "reasoning",
    ),
    ("canary", probed("chat", answer=None), Verdict.UNKNOWN, ""),
    ("metrics", well(metrics=Metrics(t=0.0, ok=False, error="absent")), Verdict.ODD, "absent"),
    ("metrics", well(metrics=Metrics(t=0.0, ok=False, error="timeout")), Verdict.ODD, "timeout"),
    ("metrics", well(metrics=Metrics(t=0.0, ok=False, error="malformed")), Verdict.ODD, "or one without an end"),
    # journal
    ("readiness", well(life=life(said=lines()[:-1]), probes={}), Verdict.BAD, "not seen in 24 lines"),
    ("readiness", well(life=life(said=lines()[:-1])), Verdict.ODD, "though it answers"),
    ("readiness", well(life=life(said=[])), Verdict.UNKNOWN, "no line"),
    ("KV cache", well(life=life(said=lines(6))), Verdict.UNKNOWN, "on 6 ranks"),
    (
        "KV cache",
        well(life=life(said=["[2026-02-25 03:08:10 TP7] KV Cache is allocated. #tokens: 90000, KV size: 5.89 GB", *lines(7)])),
        Verdict.ODD,
        "90000 to 159277",
    ),
    ("host pool", well(life=life(said=[x for x in lines() if "host memory" not in x])), Verdict.BAD, "no rank announced"),
    ("host pool", engine(hicache_ratio=2.0), Verdict.ODD, "358.16 GB"),
    ("host pool", well(life=life(said=lines()[:20])), Verdict.UNKNOWN, "4 ranks of 8"),
    (
        "speculation",
        well(life=life("[2026-02-25 03:20:10 TP0] Decode batch, #running-req: 2, #token: 900, token usage: 0.01")),
        Verdict.BAD,
        "without an accept length",
    ),
    ("speculation", well(life=life()), Verdict.OK, "loaded on 8 ranks"),
    ("speculation", well(life=life(), metrics=Metrics(t=0.0, ok=True, values={"spec_accept_length": 1.0})), Verdict.BAD, "1.00"),
    ("speculation", well(life=life(said=[x for x in lines() if "K size" not in x])), Verdict.UNKNOWN, ""),
    (
        "fatal lines",
        well(life=life("[2026-02-25 03:20:10] SIGQUIT received. signum=3, frame=None. It usually means one child failed.")),
        Verdict.BAD,
        "SIGQUIT",
    ),
    # memory
    ("pool fits", changed(host__mem_total=350 * GB), Verdict.BAD, "102%"),
    ("pool fits", changed(cgroup__memory_max=380 * GB), Verdict.ODD, "94%"),
    ("pool is held", changed(cgroup__anon=20 * GB), Verdict.BAD, "20.00 GB"),
    ("pool is held", well(cgroup=Cgroup(t=0.0)), Verdict.OK, "resident in the ranks"),
    ("pool is held", well(cgroup=Cgroup(t=0.0), procs=None), Verdict.UNKNOWN, ""),
    ("room left", changed(host__mem_available=20 * GIB), Verdict.ODD, "20.00 GiB"),
    ("room left", changed(host__mem_available=2 * GIB), Verdict.BAD, ""),
    ("room left", changed(cgroup__oom_kill=1), Verdict.BAD, "1 killed for memory"),
    ("room left", changed(host__mem_available=None), Verdict.UNKNOWN, ""),
    # GPU
    ("GPUs", well(gpu=Gpu(t=0.0, ok=False, error="driver_timeout")), Verdict.BAD, "driver_timeout"),
    ("GPUs", well(gpus_expected=9), Verdict.BAD, "8"),
    ("GPUs", engine(tp_size=16), Verdict.ODD, "8"),
    ("driver", well(gpu=Gpu(t=0.0, ok=False, error="no_driver"), gpus_expected=8), Verdict.BAD, "no driver"),
    (
        "GPU state",
        well(gpu=Gpu(t=0.0, ok=True, gpus=[GpuDevice(index=3, ecc_uncorrected=2)])),
        Verdict.ODD,
        "GPU 3: 2 uncorrected",
    ),
    ("GPU state", well(gpu=Gpu(t=0.0, ok=True, gpus=[GpuDevice(index=0)])), Verdict.UNKNOWN, ""),
    (
        "GPU memory",
        well(gpu=Gpu(t=0.0, ok=True, gpus=[GpuDevice(index=1, procs=[GpuProc(pid=9, mem=GIB, in_unit=False)])])),
        Verdict.ODD,
        "pid 9",
    ),
    ("GPU memory", well(gpu=Gpu(t=0.0, ok=True, gpus=[GpuDevice(index=1, procs=[GpuProc(pid=9)])])), Verdict.UNKNOWN, ""),
    # host
    ("LogRateLimit", setting(rate_interval_s=0.0, rate_burst=0), Verdict.ODD, "10000 lines in 30 s (journald's own)"),
    ("LogRateLimit", setting(rate_interval_s=0.0, rate_burst=0, journald_interval_s=0.0), Verdict.OK, "off"),
    ("LogRateLimit", setting(rate_burst=100), Verdict.ODD, "100 lines in 1 s (the unit's)"),
    ("LogRateLimit", setting(rate_interval_s=None, rate_burst=None, journald_burst=None), Verdict.UNKNOWN, ""),
    ("KillMode", setting(kill_mode="process"), Verdict.ODD, "process"),
    ("KillMode", setting(kill_mode="control-group"), Verdict.OK, ""),
    ("TimeoutStopSec", setting(timeout_stop_s=float("inf")), Verdict.ODD, "infinity"),
    ("TimeoutStopSec", setting(timeout_stop_s=30.0), Verdict.ODD, "30 s"),
    ("Restart", setting(restart="on-failure"), Verdict.ODD, "on-failure"),
    ("LimitMEMLOCK", setting(memlock=8.0 * (1 << 20)), Verdict.ODD, "0.01 GiB"),
    ("/dev/shm", changed(host__shm_free=1 << 20), Verdict.ODD, ""),
    ("/dev/shm", changed(host__shm_free=None), Verdict.UNKNOWN, ""),
    ("huge pages", changed(host__hugepages_total=51200), Verdict.ODD, "100.0 GiB"),
    (
        "huge pages",
        well(engine=Server(t=0.0, version="0.5.23", args=ARGS, env={"SGLANG_HUGEPAGE_SIZE": "2MB"})),
        Verdict.ODD,
        "0.0 GiB set aside",
    ),
]


@pytest.mark.parametrize(("name", "seen", "verdict", "said"), CASES, ids=[f"{i}-{c[0]}" for i, c in enumerate(CASES)])
def test_each_check(name: str, seen: Seen, verdict: Verdict, said: str) -> None:
    item = found(seen, name)
    assert (item.verdict, said in item.seen) == (verdict, True), item
    if verdict in (Verdict.ODD, Verdict.BAD):
        assert item.cure


@pytest.mark.parametrize(
    ("why", "cure"), [("config", "mend the settings"), (None, "mend the settings"), ("starting", "ask again")]
)
def test_a_probe_that_was_not_sent_names_what_helps(why: str | None, cure: str) -> None:
    item = found(probed("chat", outcome="skipped", why=why, status=None, detail="held back"), "canary")
    assert item.verdict is Verdict.UNKNOWN and item.cure is not None and item.cure.startswith(cure)


def test_nothing_read_is_nothing_known() -> None:
    items = all_of(Seen(server=SERVER))
    assert items
    assert {item.verdict for item in items} == {Verdict.UNKNOWN}


@given(st.sets(st.sampled_from(FACTS)), st.sets(st.sampled_from(["health", "models", "chat"])))
def test_what_could_not_be_read_is_never_ill(lost: set[str], unanswered: set[str]) -> None:
    seen = well(**dict.fromkeys(lost), probes={k: v for k, v in well().probes.items() if k not in unanswered})
    items = all_of(seen)
    assert [item for item in items if item.verdict is Verdict.BAD] == []
    names = {item.item: item.verdict for item in items}
    for fact, item in {"unit": "state", "host": "room left", "procs": "processes", "port": "port"}.items():
        if fact in lost and item in names:
            assert names[item] is Verdict.UNKNOWN
    if unanswered:
        assert all(names[{"chat": "canary"}.get(each, each)] is Verdict.UNKNOWN for each in unanswered)


def test_a_node_without_an_endpoint_has_no_api() -> None:
    seen = well(server=msgspec.structs.replace(SERVER, endpoint=False), probes={}, port=None)
    assert api.check(seen) == []
    assert "port" not in [item.item for item in unit.check(seen)]


def test_a_host_without_gpus_says_nothing_of_them() -> None:
    assert gpus.check(well(gpu=Gpu(t=0.0, ok=False, error="no_driver"))) == []


def test_without_hicache_there_is_no_pool_to_find() -> None:
    seen = well(
        engine=Server(t=0.0, version="0.5.9", args={"tp_size": 8}), life=life(said=[x for x in lines() if "host" not in x])
    )
    names = [item.item for item in all_of(seen)]
    assert not {"host pool", "pool fits", "pool is held", "speculation"} & set(names)


def test_shared_memory_is_where_newer_versions_keep_the_pool() -> None:
    seen = well(engine=Server(t=0.0, version="0.5.23", args=ARGS), cgroup=Cgroup(t=0.0, anon=390 * GB, shmem=GB))
    item = memory.shows(seen)
    assert item.verdict is Verdict.BAD
    assert "shared memory" in item.expected


@pytest.mark.parametrize(
    ("verdicts", "whole"),
    [
        ((), Verdict.UNKNOWN),
        ((Verdict.OK,), Verdict.OK),
        ((Verdict.OK, Verdict.ODD), Verdict.ODD),
        ((Verdict.ODD, Verdict.UNKNOWN), Verdict.UNKNOWN),
        ((Verdict.UNKNOWN, Verdict.BAD, Verdict.OK), Verdict.BAD),
    ],
)
def test_the_worst_finding_counts(verdicts: tuple[Verdict, ...], whole: Verdict) -> None:
    items = [Item(area="a", item=f"i{n}", expected="e", seen="s", verdict=v) for n, v in enumerate(verdicts)]
    report = Report(server="kimi", unit="k.service", items=items)
    assert report.verdict is whole
    assert report.conclusion.startswith("kimi ")


STARTING = [
    "[2026-02-25 03:08:00] server_args=ServerArgs(model_path='/m', tp_size=1)",
    "[2026-02-25 03:08:01] Load weight begin. avail mem=93.61 GB",
]


def begun(**changes: Any) -> Seen:
    """A server that loads its weights: nobody listens, and no rank has come up."""
    probes = {name: Probe(t=0.0, probe=name, outcome="refused", total_s=0.01) for name in ("health", "models", "chat")}
    start: dict[str, Any] = {
        "life": life(said=STARTING),
        "probes": probes,
        "engine": None,
        "metrics": Metrics(t=0.0, ok=False, error="refused"),
        "procs": Procs(t=0.0, procs=[Proc(pid=100, name="python3 -m sglang.launch_server")]),
        "port": Port(t=0.0, listening=False, address="127.0.0.1:30000"),
    }
    return well(**{**start, **changes})


def test_a_server_that_starts_is_not_called_ill() -> None:
    told = report(begun())
    assert (told.verdict, told.count(Verdict.BAD)) == (Verdict.UNKNOWN, 0)
    assert told.conclusion == "kimi is still starting: `sglang-watchdog wait --server kimi`, then ask again"
    assert {i.item for i in told.items if "(yet)" in i.seen} >= {"readiness", "port", "health", "models", "canary", "metrics"}
    assert all(i.cure == "wait for the start: `sglang-watchdog wait`" for i in told.items if "(yet)" in i.seen)


def test_a_young_life_that_has_not_said_a_word_yet_starts() -> None:
    told = report(begun(life=life(said=[]), age_s=9.0))
    assert (told.verdict, told.starting, told.count(Verdict.BAD)) == (Verdict.UNKNOWN, True, 0)
    assert {i.cure for i in told.items if i.item in ("port", "readiness")} == {"wait for the start: `sglang-watchdog wait`"}


@pytest.mark.parametrize(
    "changes",
    [
        {
            "life": life(
                said=[
                    *STARTING,
                    "[2026-02-25 03:20:10] SIGQUIT received. signum=3, frame=None. It usually means one child failed.",
                ]
            )
        },
        {"life": life(said=[*STARTING, "[2026-02-25 03:10:10] The server is fired up and ready to roll!"])},
        {"life": life(said=[*STARTING, "[2026-02-25 03:20:10] Decode batch, #running-req: 2, #token: 900, token usage: 0.01"])},
        {"unit": UnitState(load_state="loaded", active_state="failed", sub_state="failed", result="exit-code")},
        {"unit": UnitState(load_state="loaded", active_state="activating", sub_state="auto-restart")},
        {"life": life(said=[]), "age_s": 600.0},
    ],
    ids=["fatal", "ready", "works", "failed", "restart", "silent"],
)
def test_a_server_that_does_not_answer_and_does_not_start_is_ill(changes: dict[str, Any]) -> None:
    told = report(begun(**changes))
    assert (told.verdict, told.starting) == (Verdict.BAD, False)
