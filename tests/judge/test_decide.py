"""From what judges ask for to what is done: each guard, alone and in its order."""

import msgspec
import pytest

from watchdog.config import Restarting
from watchdog.judge.decide import decide, stand_down
from watchdog.judge.facts import Facts
from watchdog.judge.ledger import Ledger, Ordered
from watchdog.judge.verdict import Action, Call, Intent, Severity, Status, Verdict, Want
from watchdog.observation import Answer, Job, Log, Observation, Operator, Probe, Self, Unit

INV, NEXT = "a" * 32, "b" * 32
POLICY = Restarting()
HUNG = Call(want=Want.RESTART, reason="SchedulerHung", message="Hung for 90 s.", severity=Severity.CRITICAL)
ALERT = Call(want=Want.ALERT, reason="Saturated", message="Saturated.")
VETO = Call(want=Want.VETO, reason="DeviceLost", message="A GPU is lost.", advice="Reboot.", severity=Severity.CRITICAL)


def unit(t: float, inv: str = INV, active: str = "active", sub: str = "running") -> Unit:
    return Unit(t=t, inv=inv, load_state="loaded", active_state=active, sub_state=sub, main_pid=7, since=t - 9000.0)


def facts(*seen: Observation) -> Facts:
    f = Facts()
    for x in (unit(0.0), *seen):
        f.see(x)
    return f


def decided(f: Facts, *calls: Call, ledger: Ledger | None = None, now: float = 1000.0) -> list[Intent]:
    ill = Verdict(type="SchedulerProgressing", status=Status.FALSE, reason="Hung", message="Hung.", calls=calls)
    return decide(f, [ill], ledger if ledger is not None else Ledger(), POLICY, now)


def actions(intents: list[Intent]) -> list[str]:
    return [str(i.action) for i in intents]


def test_a_restart_is_ordered_once_with_evidence_first() -> None:
    ledger = Ledger()
    f = facts()

    assert actions(decided(f, HUNG, ledger=ledger)) == ["diagnose", "restart"]
    assert decided(f, HUNG, ledger=ledger, now=1005.0) == []
    assert [(r.reason, r.inv) for r in ledger.restarts] == [("SchedulerHung", INV)]


@pytest.mark.parametrize(
    ("seen", "why"),
    [
        (Operator(t=1.0, action="pause", reason="I look at it"), "paused by a person: I look at it"),
        (Self(t=1.0, shutting_down=True), "the host is going down"),
        (Job(t=1.0, inv=INV, phase="new", job="restart"), "a restart job of somebody else is running"),
        (Log(t=1.0, inv=INV, message="Stopping x.service - X...", origin="systemd"), "a stop job asked for a stop"),
        (
            Log(t=1.0, inv=INV, message="[2026-01-14 02:00:00] SIGTERM received. signum=None frame=None. Draining requests and"),
            "the server drains after a SIGTERM",
        ),
    ],
)
def test_a_person_the_host_and_systemd_go_first(seen: Observation, why: str) -> None:
    f = facts(seen)

    assert stand_down(f, 1000.0) == why
    assert actions(decided(f, HUNG, VETO, ALERT)) == ["alert"], "people are told all the same"


def test_a_pause_ends_by_itself_or_by_a_word() -> None:
    assert actions(decided(facts(Operator(t=1.0, action="pause", until=900.0)), HUNG)) == ["diagnose", "restart"]
    both = (Operator(t=1.0, action="pause"), Operator(t=2.0, action="resume"))
    assert actions(decided(facts(*both), HUNG)) == ["diagnose", "restart"]


def test_blind_does_nothing_but_tells() -> None:
    f = facts(Self(t=990.0, control_probe="failed", loop_lag_s=0.0))

    assert actions(decided(f, HUNG, ALERT)) == ["alert"]


def test_each_death_is_told_while_the_alert_of_an_earlier_one_stands() -> None:
    ledger = Ledger()
    first, second = (Call(want=Want.ALERT, reason="ServerDied", message="It died.", at=t) for t in (990.0, 1500.0))

    assert actions(decided(facts(), first, ledger=ledger)) == ["alert"]
    assert decided(facts(), first, ledger=ledger, now=1100.0) == []
    assert actions(decided(facts(), second, ledger=ledger, now=1500.5)) == ["alert"]
    assert decided(facts(), second, ledger=ledger, now=1505.0) == []


def test_a_veto_turns_a_restart_into_advice_and_is_said_once() -> None:
    ledger = Ledger()
    first = decided(facts(), HUNG, VETO, ledger=ledger)

    assert [(i.action, i.reason, i.advice) for i in first] == [(Action.WITHHOLD, "DeviceLost", "Reboot.")]
    assert "Hung for 90 s." in first[0].evidence
    assert decided(facts(), HUNG, VETO, ledger=ledger, now=1010.0) == []


def test_a_veto_alone_is_no_news_unless_the_server_is_down_for_it() -> None:
    unmet = Call(want=Want.VETO, reason="PortTaken", message="Taken.", unmet=True)

    assert decided(facts(), VETO) == []
    assert actions(decided(facts(), unmet)) == ["withhold"]


def test_the_budget_ends_in_a_word() -> None:
    ledger = Ledger(restarts=[Ordered(t=100.0 * i, reason="Other", inv=NEXT, proven=True) for i in range(POLICY.budget)])

    told = decided(facts(), HUNG, ledger=ledger)

    assert actions(told) == ["withhold"]
    assert told[0].reason == "BudgetSpent"
    assert "are the limit" in told[0].message


def test_the_life_that_a_restart_ends_does_not_prove_it() -> None:
    ready = Log(t=1.0, inv=INV, message="[2026-01-14 02:00:00] The server is fired up and ready to roll!")
    answer = Answer(text="Paris", finish_reason="stop", completion_tokens=2)
    f = facts(ready, Probe(t=2.0, inv=INV, probe="chat", outcome="ok", status=200, total_s=0.5, answer=answer))
    ledger = Ledger()
    decided(f, HUNG, ledger=ledger)
    decided(f, ledger=ledger, now=1005.0)
    assert [r.proven for r in ledger.restarts] == [False]
    f.see(unit(1010.0, inv=NEXT))
    f.see(msgspec.structs.replace(ready, t=1100.0, inv=NEXT))
    f.see(Probe(t=1101.0, inv=NEXT, probe="chat", outcome="ok", status=200, total_s=0.5, answer=answer))
    decided(f, ledger=ledger, now=1102.0)
    assert [r.proven for r in ledger.restarts] == [True]


def test_the_back_off_waits() -> None:
    ledger = Ledger(restarts=[Ordered(t=900.0, reason="Other", inv=NEXT, proven=True)])

    assert decided(facts(), HUNG, ledger=ledger, now=1000.0) == []
    assert actions(decided(facts(), HUNG, ledger=ledger, now=900.0 + POLICY.backoff_s + 1)) == ["diagnose", "restart"]


def test_systemd_at_work_is_let_work() -> None:
    f = facts(unit(1.0, active="activating", sub="auto-restart"))

    assert decided(f, HUNG) == []


def test_alerts_are_told_on_their_edge_and_cleared() -> None:
    ledger = Ledger()
    f = facts()

    assert actions(decided(f, ALERT, ledger=ledger, now=1000.0)) == ["alert"]
    assert decided(f, ALERT, ledger=ledger, now=1060.0) == []
    assert decided(f, ledger=ledger, now=1100.0) == []
    assert actions(decided(f, ledger=ledger, now=1300.0)) == ["clear"]
    assert decided(f, ledger=ledger, now=1400.0) == []


def test_a_restart_of_ours_that_an_earlier_daemon_began_is_no_death() -> None:
    """A daemon that begins in the middle of the stop hears of its job before it hears of the unit."""
    f = Facts()
    f.see(Job(t=0.0, phase="new", job="restart", mine=True))
    f.see(unit(0.1, active="deactivating", sub="stop-sigterm"))
    f.see(Job(t=20.0, inv=INV, phase="removed", job="restart", result="done", mine=True))
    f.see(unit(20.1, inv=NEXT))

    assert [d.asked for d in f.life.deaths] == [True]


def test_a_start_whose_job_never_ended_for_us_is_over_with_the_life_that_it_brought() -> None:
    """JobRemoved can be lost (systemd pull request 8803): waiting for it for ever would leave the server down for ever."""
    f = facts(unit(1.0, active="inactive", sub="dead"), Job(t=2.0, inv=INV, phase="new", job="start"))
    f.see(unit(2.1, inv=NEXT, active="activating", sub="start"))
    assert stand_down(f, 3.0) == "a start job of somebody else is running"

    f.see(unit(92.0, inv=NEXT, active="failed", sub="failed"))
    assert stand_down(f, 93.0) is None


def test_a_start_that_fails_within_a_restart_by_hand_was_not_asked_to_end() -> None:
    """Type=notify: the restart job runs until the new life is ready, and what it wanted stopped has long ended."""
    f = facts(Job(t=1.0, inv=INV, phase="new", job="restart"), unit(2.0, active="deactivating", sub="stop-sigterm"))
    f.see(unit(9.0, inv=NEXT, active="activating", sub="start"))
    f.see(unit(99.0, inv=NEXT, active="failed", sub="failed"))
    f.see(Job(t=99.1, inv=NEXT, phase="removed", job="restart", result="failed"))

    assert [(d.asked, d.inv) for d in f.life.deaths] == [(True, INV), (False, NEXT)]
    assert stand_down(f, 100.0) is None


def test_a_job_of_somebody_else_that_was_there_before_us_holds_until_its_end() -> None:
    f = Facts()
    f.see(Job(t=0.0, phase="new", job="restart"))
    f.see(unit(0.1))
    assert stand_down(f, 1.0) == "a restart job of somebody else is running"

    f.see(unit(20.1, inv=NEXT))
    assert stand_down(f, 21.0) is None
