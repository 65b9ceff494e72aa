"""What must hold for every sequence of observations, however odd: restarts are few, earned, and never against a person."""

import msgspec
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.incidents import cases_busy, cases_hang  # noqa: F401  (they fill CASES)
from tests.incidents.case import CASES
from watchdog import observation as o
from watchdog.config import Restarting
from watchdog.judge.engine import Engine, Settings
from watchdog.judge.ledger import REFUSED_AGAIN_S, VAIN, Ledger
from watchdog.judge.verdict import Action, Event

INVS = ("a" * 32, "b" * 32, "c" * 32)
PLAIN = settings(max_examples=60, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large], deadline=None)

LINES = (
    "[2026-01-14 02:00:00 TP0] Decode batch, #running-req: 3, #token: 900, token usage: 0.10, gen throughput (token/s): 90.1, #queue-req: 0",
    "[2026-01-14 02:00:00 TP0] Prefill batch, #new-seq: 1, #new-token: 900, #cached-token: 0, token usage: 0.10, #running-req: 3, #queue-req: 4",
    "[2026-01-14 02:00:00] The server is fired up and ready to roll!",
    "[2026-01-14 02:00:00] SIGTERM received. signum=None frame=None. Draining requests and shutting down...",
    "[2026-01-14 02:00:00 TP0] Scheduler hit an exception: Traceback (most recent call last):",
    "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB.",
    "[2026-01-14 02:00:00] Health check failed. Server couldn't get a response from detokenizer for last 20 seconds. "
    "tic start time: 02:00:00. last_heartbeat time: 01:50:00",
    "garbage \x00 {]",
)


def unit(inv: str, active: str, sub: str) -> o.Unit:
    up = active in ("active", "activating", "deactivating")
    return o.Unit(
        t=0.0, inv=inv, load_state="loaded", active_state=active, sub_state=sub, result="success",
        main_pid=7 if up else None, exec_main_code=None if up else "exited", exec_main_status=0, since=-9000.0, restart="on-failure",
    )  # fmt: skip


invs = st.sampled_from(INVS)
units = st.builds(
    lambda inv, state: unit(inv, *state),
    invs,
    st.sampled_from(
        [("active", "running")] * 4
        + [("inactive", "dead"), ("failed", "failed"), ("activating", "auto-restart"), ("deactivating", "stop-sigterm")]
    ),
)
probes = st.builds(
    lambda inv, probe, outcome, took: o.Probe(
        t=0.0, inv=inv, probe=probe, outcome=outcome, status={"ok": 200, "status": 503}.get(outcome), total_s=took, limit_s=25.0,
        answer=o.Answer(text="Paris", finish_reason="stop", completion_tokens=2) if outcome == "ok" and probe == "chat" else None,
    ),
    invs,
    st.sampled_from(("health", "ready", "models", "chat")),
    st.sampled_from(("ok", "status", "timeout", "refused", "reset", "connect_timeout", "malformed", "skipped")),
    st.floats(0.0, 60.0),
)  # fmt: skip
logs = st.builds(lambda inv, text: o.Log(t=0.0, inv=inv, message=text), invs, st.sampled_from(LINES) | st.text(max_size=40))
scrapes = st.builds(
    lambda inv, running, done: o.Metrics(
        t=0.0, inv=inv, ok=True, values={"num_running_reqs": running, "num_queue_reqs": 0, "realtime_tokens_total": done, "num_requests_total": done}
    ),
    invs,
    st.integers(0, 5),
    st.integers(0, 3),
)  # fmt: skip
procs = st.builds(
    lambda inv, n: o.Procs(
        t=0.0, inv=inv, procs=[o.Proc(pid=10 + i, name=f"sglang::scheduler_TP{i}", state="R") for i in range(n)]
    ),
    invs,
    st.integers(0, 4),
)
asked = probes.filter(lambda p: p.probe != "chat")
harmless = logs.filter(lambda x: "hit an" not in x.message and "Memory" not in x.message)
others = st.sampled_from(
    [
        o.Job(t=0.0, phase="new", job="stop"),
        o.Job(t=0.0, phase="new", job="start"),
        o.Job(t=0.0, phase="removed", job="stop", result="done"),
        o.Self(t=0.0, loop_lag_s=0.0, control_probe="ok", journal_ok=True),
        o.Self(t=0.0, loop_lag_s=0.0, control_probe="failed"),
        o.Self(t=0.0, loop_lag_s=90.0, paused_s=90.0),
        o.Self(t=0.0, shutting_down=True),
        o.Gpu(t=0.0, ok=False, error="version_mismatch"),
        o.Port(t=0.0, listening=True, pid=99, in_unit=False, address="0.0.0.0:30000"),
        o.Operator(t=0.0, action="pause"),
        o.Operator(t=0.0, action="resume"),
        o.Kernel(t=0.0, message="NVRM: Xid (PCI:0000:60:00): 79, GPU has fallen off the bus."),
        o.Host(t=0.0, mem_total=10**12, mem_available=10**10, shm_total=10**10, shm_free=0),
    ]
)
steps = st.lists(st.tuples(st.floats(0.0, 90.0), units | probes | logs | scrapes | procs | others), min_size=1, max_size=60)


def laid_out(raw: list[tuple[float, o.Observation]]) -> list[o.Observation]:
    """The observations at their times, behind a life that served for long."""
    t = 1.0
    out: list[o.Observation] = [msgspec.structs.replace(unit(INVS[0], "active", "running"), t=0.5)]
    for wait, x in raw:
        t += wait
        out.append(msgspec.structs.replace(x, t=round(t, 3)))
    return out


def told(engine: Engine, seen: list[o.Observation]) -> list[Event]:
    return [e for x in seen for e in engine.observe(x)]


def restarts(events: list[Event]) -> list[Event]:
    return [e for e in events if e.intent is not None and e.intent.action is Action.RESTART]


@PLAIN
@given(steps)
def test_judging_more_never_changes_the_past(raw: list[tuple[float, o.Observation]]) -> None:
    seen = laid_out(raw)
    whole = told(Engine(Settings()), seen)
    for cut in (len(seen) // 3, len(seen) // 2):
        part = told(Engine(Settings()), seen[:cut])
        assert part == whole[: len(part)]


@PLAIN
@given(steps)
def test_the_same_record_gives_the_same_bytes(raw: list[tuple[float, o.Observation]]) -> None:
    seen = laid_out(raw)
    first, second = ([msgspec.json.encode(e.as_line()) for e in told(Engine(Settings()), seen)] for _ in range(2))

    assert first == second


@PLAIN
@given(steps, st.lists(st.integers(0, 60), max_size=4))
def test_the_budget_holds_whatever_dies_and_when(raw: list[tuple[float, o.Observation]], deaths: list[int]) -> None:
    """The watchdog itself dies between observations and comes back with what its ledger says."""
    policy = Restarting(budget=2, budget_s=7 * 86400.0, backoff_s=1.0)
    settings_ = Settings(restart=policy)
    engine = Engine(settings_)
    done: list[Event] = []
    lives: list[str | None] = []
    for i, x in enumerate(laid_out(raw)):
        if i in deaths:
            engine = Engine(settings_, msgspec.json.decode(msgspec.json.encode(engine.ledger), type=Ledger))
        for e in engine.observe(x):
            if e.intent is not None and e.intent.action is Action.RESTART:
                done.append(e)
                lives.append(engine.facts.life.inv)

    assert len(done) <= policy.budget
    assert len(set(lives)) == len(lives), "one life is restarted once"


results = st.sampled_from(("refused", "refused", "dropped", "canceled", "begun", "done", "failed", "timeout", "unknown"))


@PLAIN
@given(steps, st.lists(st.tuples(results, st.integers(0, 3)), max_size=40), st.sets(st.integers(0, 60), max_size=4))
def test_the_budget_holds_whatever_comes_of_the_orders(
    raw: list[tuple[float, o.Observation]], answers: list[tuple[str, int]], mended: set[int]
) -> None:
    """Only what was carried out is spent; what was refused is not tried again at once; a replay decides the same."""
    policy = Restarting(budget=2, budget_s=7 * 86400.0, backoff_s=1.0)
    engine = Engine(Settings(restart=policy))
    lives: list[str | None] = []
    waiting: list[tuple[int, o.Acted]] = []
    refused: float | None = None
    record: list[o.Observation] = []
    events: list[Event] = []

    def take(x: o.Observation) -> None:
        nonlocal refused
        record.append(x)
        for e in engine.observe(x):
            events.append(e)
            if e.intent is None or e.intent.action is not Action.RESTART:
                continue
            assert refused is None or e.t - refused >= REFUSED_AGAIN_S
            lives.append(engine.facts.life.inv)
            result, after = answers.pop() if answers else ("done", 0)
            done = o.Acted(t=e.t, inv=lives[-1], action="restart", result=result, reason=e.intent.reason)
            waiting.append((after, done))
            if result in VAIN:
                lives.pop()

    for i, x in enumerate(laid_out(raw)):
        if i in mended:
            take(o.Operator(t=x.t, action="repaired"))
            refused = None
        take(x)
        if x.inv is not None and isinstance(x, o.Unit):
            refused = None  # another life, which was never refused
        waiting, due = [(n - 1, a) for n, a in waiting if n > 0], [a for n, a in waiting if n <= 0]
        for done in due:
            take(msgspec.structs.replace(done, t=x.t))
            refused = x.t if done.result in VAIN else refused

    assert len(lives) <= policy.budget
    assert told(Engine(Settings(restart=policy)), record) == events


@PLAIN
@given(steps, st.sampled_from(("pause", "job", "shutdown")))
def test_a_person_and_the_host_always_win(raw: list[tuple[float, o.Observation]], who: str) -> None:
    word = {
        "pause": o.Operator(t=0.6, action="pause"),
        "job": o.Job(t=0.6, inv=INVS[0], phase="new", job="stop"),
        "shutdown": o.Self(t=0.6, shutting_down=True),
    }[who]
    undone = (o.Operator, o.Job) if who != "shutdown" else (o.Self,)
    rest = [x for x in laid_out(raw)[1:] if not isinstance(x, undone)]
    if who == "job":  # a life that was started since is another matter
        rest = [x for x in rest if x.inv in (None, INVS[0])]
    first = [msgspec.structs.replace(unit(INVS[0], "active", "running"), t=0.5), word]

    assert restarts(told(Engine(Settings()), first + rest)) == []


@PLAIN
@given(steps)
def test_nothing_is_done_while_we_are_blind(raw: list[tuple[float, o.Observation]]) -> None:
    blind = [o.Self(t=round(1.0 + 20.0 * i, 3), control_probe="failed", loop_lag_s=0.0) for i in range(300)]
    seen = sorted([x for x in laid_out(raw) if not isinstance(x, o.Self)] + blind, key=lambda x: x.t)

    assert restarts(told(Engine(Settings()), seen)) == []


@PLAIN
@given(st.lists(st.tuples(st.floats(0.5, 25.0), asked | harmless | scrapes), max_size=80))
def test_no_restart_while_canaries_are_answered(raw: list[tuple[float, o.Observation]]) -> None:
    """Progress that reaches a user beats any number of failed probes."""
    good = o.Answer(text="Paris", finish_reason="stop", completion_tokens=2)
    end = 1.0 + sum(wait for wait, _ in raw)
    answers = [
        o.Probe(t=2.0 + 30.0 * i, inv=INVS[0], probe="chat", outcome="ok", status=200, total_s=1.0, limit_s=60.0, answer=good)
        for i in range(int(end / 30.0) + 1)
    ]
    present = [msgspec.structs.replace(x, inv=INVS[0]) for x in laid_out(raw)]

    assert restarts(told(Engine(Settings(), mid_life=True), sorted([*present, *answers], key=lambda x: x.t))) == []


@PLAIN
@given(st.lists(st.binary(max_size=60), max_size=30))
def test_garbage_lines_of_a_record_never_crash(lines: list[bytes]) -> None:
    for line in lines:
        try:
            x = o.decode(line)
        except (msgspec.ValidationError, msgspec.DecodeError, UnicodeDecodeError):
            continue
        told(Engine(Settings()), [x])


def test_motion_that_reaches_nobody_is_no_progress() -> None:
    """The properties above must not be won by never restarting: batches go on, nothing ends, and it is restarted."""
    sim = CASES["detokenizer-stands-still"].sim("plain", 7)

    assert len(restarts(told(Engine(Settings(), mid_life=True), sim.out))) == 1
