"""A bundle's summary: only what tells something, each figure with its age, what is unknown in words, and what followed."""

from pathlib import Path

import msgspec
import pytest

from watchdog import config
from watchdog.act import bundles
from watchdog.act.scene import Scene
from watchdog.act.summary import FLAGS, conditions, summary
from watchdog.clock import FakeClock
from watchdog.judge.verdict import Action, Condition, Intent, Severity, Status
from watchdog.observation import Cgroup, Gpu, Host, Observation, Port, Probe, Proc, Procs, Server, Unit

BARE: tuple[Observation, ...] = (
    Unit(t=990.0),
    Procs(t=999.7, procs=[Proc(pid=7)]),
    Cgroup(t=995.0),
    Host(t=995.0),
    Gpu(t=998.0, ok=True, gpus=[]),
    Port(t=100.0),
)
FULL: tuple[Observation, ...] = (
    Unit(t=1000.0, active_state="active", sub_state="running", result="success", n_restarts=1),
    Cgroup(t=995.0, memory_current=5 << 30, oom_kill=1),
    Gpu(t=998.0, ok=False, error="driver_timeout"),
    Port(t=400.0, address="0.0.0.0:30000", listening=True, pid=4, in_unit=False),
)


def condition(kind: str, status: str, reason: str, since: float) -> Condition:
    return Condition(type=kind, status=Status(status), reason=reason, message=f"{kind} says so.", since=since, reason_since=since)


def page(*seen: Observation, action: Action = Action.DIAGNOSE, known: tuple[Condition, ...] = ()) -> str:
    intent = Intent(action=action, reason="SchedulerSilent", severity=Severity.WARNING, message="No step of the engine.")
    scene = Scene(
        server=config.Server(name="kimi", unit="kimi.service"),
        intent=intent,
        clock=FakeClock(),
        t=1000.0,
        latest={type(x): x for x in seen},
        conditions=known,
    )
    return summary(scene, {"gpu.txt": 1}, {})


def part(text: str, title: str) -> list[str]:
    """The points below a title."""
    found = text.partition(f"## {title}\n")[2].partition("\n## ")[0]
    return [line for line in found.splitlines() if line.startswith("* ")]


def test_what_is_unknown_is_worded_as_unknown() -> None:
    assert part(page(*BARE), "Seen last") == [
        "* unit unknown (unknown), last result unknown, an unknown number of automatic restarts, 10 s before",
        "* 1 process: without a name (7, state unknown), at that moment",
        "* unit's memory unknown, limit none or unknown, OOM kills unknown, 5 s before",
        "* host's memory unknown available of unknown, load unknown, 5 s before",
        "* 0 GPUs seen, 2 s before",
        "* port unknown: whether somebody listens is unknown, 15 min before",
    ]


def test_each_look_has_its_age() -> None:
    assert part(page(*FULL), "Seen last") == [
        "* unit active (running), last result success, 1 automatic restart, at that moment",
        "* unit's memory 5.0 GiB, limit none or unknown, 1 OOM kill, 5 s before",
        "* GPUs not readable (driver timeout), 2 s before",
        "* port 0.0.0.0:30000: pid 4 listens, not of the unit, 10 min before",
    ]
    assert "\nNothing.\n" in page()


@pytest.mark.parametrize(
    ("probe", "stands"),
    [
        (Probe(t=980.0, probe="chat", outcome="timeout", connect_s=0.001), False),
        (Probe(t=980.0, probe="health", outcome="status", status=503), False),
        (Probe(t=980.0, probe="health", outcome="ok", status=200), False),
        (Probe(t=980.0, probe="health", outcome="refused", connect_s=0.001), True),
        (Probe(t=980.0, probe="health", outcome="skipped", why="starting"), True),
        (Probe(t=950.0, probe="health", outcome="ok", status=200), True),
    ],
)
def test_a_port_that_a_probe_has_reached_since_is_not_called_deaf(probe: Probe, stands: bool) -> None:
    deaf = Port(t=961.0, address="127.0.0.1:30000", listening=False)
    assert part(page(deaf, probe), "Seen last") == (["* port 127.0.0.1:30000: nobody listens, 39 s before"] if stands else [])


@pytest.mark.parametrize(
    ("outcome", "since"),
    [
        ("timeout", "; since then a probe was let in (5 s before)"),
        ("refused", "; since then a probe was not let in (5 s before)"),
        ("skipped", ""),
    ],
)
def test_an_old_look_at_the_port_stands_beside_what_probes_found_since(outcome: str, since: str) -> None:
    port = Port(t=400.0, address="0.0.0.0:30000", listening=True)
    probe = Probe(t=995.0, probe="health", outcome=outcome, connect_s=0.001)  # type: ignore[arg-type]
    line = f"* port 0.0.0.0:30000: a process listens, whose is unknown, 10 min before{since}"
    assert part(page(port, probe), "Seen last") == [line]


def test_arguments_that_say_something_come_first() -> None:
    filled_in = {f"a_default_{n:02}": n + 1 for n in range(FLAGS)}
    args = {"sleep_on_idle": True, **filled_in, "tp_size": 8, "hicache_ratio": 4.0, "model_path": "/m", "dtype": None}
    told = part(page(Server(t=1.0, args=args)), "Launch arguments")
    assert told[:4] == ["* model_path: /m", "* tp_size: 8", "* hicache_ratio: 4.0", "* sleep_on_idle: true"]
    assert told[4] == "* a_default_00: 1"
    assert (len(told), told[-1]) == (FLAGS + 1, "* … and 4 more in record.jsonl.gz")


@pytest.mark.parametrize(
    ("action", "words"),
    [
        (Action.DIAGNOSE, "* Taken for: the suspicion, before any decision: SchedulerSilent (warning)"),
        (Action.RESTART, "* Taken for: a restart, before anything was done: SchedulerSilent (warning)"),
    ],
)
def test_it_says_what_it_was_taken_for(action: Action, words: str) -> None:
    assert words in page(action=action)
    assert "Advice" not in page(action=action)


def test_only_conditions_that_tell_something_are_shown_the_weightiest_first() -> None:
    shown = part(
        page(
            known=(
                condition("Sighted", "True", "AllSources", 0.0),
                condition("LogClean", "False", "Nan", 940.0),
                condition("DecodeSpeed", "Unknown", "NoTraffic", 0.0),
                condition("QueueFlowing", "True", "NoQueue", 700.0),
                condition("AnswersSane", "Unknown", "NotServing", 990.0),
                condition("SchedulerProgressing", "Unknown", "Silent", 0.0),
                condition("UnitActive", "False", "DiedUnasked", 880.0),
                condition("RequestsCompleting", "False", "Stalled", 1000.0),
            )
        ),
        "Conditions",
    )

    assert shown == [
        "* UnitActive does not hold for 2 min (DiedUnasked, since 2026-01-14 02:14:40 UTC): UnitActive says so.",
        "* RequestsCompleting does not hold (Stalled, since 2026-01-14 02:16:40 UTC): RequestsCompleting says so.",
        "* LogClean does not hold for 1 min (Nan, since 2026-01-14 02:15:40 UTC): LogClean says so.",
        "* SchedulerProgressing is in doubt or unknown for 16 min 40 s (Silent, since 2026-01-14 02:00:00 UTC): "
        "SchedulerProgressing says so.",
        "* QueueFlowing has held for 5 min (NoQueue, since 2026-01-14 02:11:40 UTC): QueueFlowing says so.",
        "* The others (1 as they should be, 2 not known) are in conditions.json.",
    ]
    assert "None was judged yet." in page()


def test_all_conditions_are_kept_as_data() -> None:
    intent = Intent(action=Action.RESTART, reason="R", severity=Severity.CRITICAL, message="m")
    known = [condition("Sighted", "True", "AllSources", 1.0)]
    scene = Scene(server=config.Server(name="k", unit="k.service"), intent=intent, clock=FakeClock(), t=2.0, conditions=known)

    assert conditions(scene) == [
        {
            "type": "Sighted",
            "status": "True",
            "reason": "AllSources",
            "message": "Sighted says so.",
            "since": "2026-01-14 02:00:01 UTC",
        }
    ]
    msgspec.json.encode(conditions(scene))


def test_what_followed_is_added_at_the_end(tmp_path: Path) -> None:
    bundle = bundles.write(tmp_path, "2026-01-14T02-00-00Z-Hung", {bundles.SUMMARY: page().encode()})
    bundles.follow(bundle, ["02:00:01 UTC: restart ordered\n# a title", "02:00:09 UTC: --api-key s3cr3t"])

    text = (bundle / bundles.SUMMARY).read_text()

    assert text.startswith(page())
    assert part(text, "What followed") == ["* 02:00:01 UTC: restart ordered # a title", "* 02:00:09 UTC: --api-key …"]
    (bundle / bundles.SUMMARY).unlink()
    with pytest.raises(FileNotFoundError):
        bundles.follow(bundle, ["later"])
