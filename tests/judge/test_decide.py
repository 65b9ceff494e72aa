"""From what judges ask for to what is done: each guard, alone and in its order."""

from itertools import pairwise

import msgspec
import pytest
from msgspec import structs

from watchdog.config import Restarting
from watchdog.judge import deeds, outage, senses
from watchdog.judge.decide import Guard, barriers, decide, stand_down
from watchdog.judge.engine import Engine, Settings
from watchdog.judge.facts import Facts
from watchdog.judge.ledger import Ledger, Ordered, Refused
from watchdog.judge.verdict import Action, Call, Intent, Severity, Status, Verdict, Want
from watchdog.observation import Acted, Answer, Job, Log, Observation, Operator, Probe, Self, Unit

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


def decided(f: Facts, *calls: Call, ledger: Ledger | None = None, now: float = 1000.0, dry: bool = False) -> list[Intent]:
    ill = Verdict(type="SchedulerProgressing", status=Status.FALSE, reason="Hung", message="Hung.", calls=calls)
    return decide(f, [ill], ledger if ledger is not None else Ledger(), POLICY, now, dry=dry)


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


@pytest.mark.parametrize("looked_at", [1100.0, 1499.5, 1500.0, 1500.2])
def test_each_death_is_told_while_the_alert_of_an_earlier_one_stands(looked_at: float) -> None:
    """Also where the last look, which knew of the earlier one alone, was at the moment of the second or after it."""
    ledger = Ledger()
    first, second = (Call(want=Want.ALERT, reason="ServerDied", message="It died.", at=t) for t in (990.0, 1500.0))

    assert actions(decided(facts(), first, ledger=ledger)) == ["alert"]
    assert decided(facts(), first, ledger=ledger, now=looked_at) == []
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


REFUSED = "not restarted: RestartUnit failed: no right"


def acted(t: float, result: str, inv: str = INV) -> Acted:
    return Acted(t=t, inv=inv, action="restart", reason="SchedulerHung", result=result, detail=REFUSED)


class Hung(Engine):
    """An engine of a life that hangs for good: what is decided hangs on what is done alone."""

    def judge(self, now: float) -> list[Verdict]:
        return self._urgent(now)

    def _urgent(self, now: float) -> list[Verdict]:
        hung = Verdict(type="SchedulerProgressing", status=Status.FALSE, reason="Hung", message="Hung.", calls=(HUNG,))
        return [senses.judge(self.facts.senses, now), hung, deeds.judge(self.facts, now), outage.judge(self.facts, now)]

    def _gradual(self, now: float) -> list[Verdict]:
        return []


def hung(*seen: Observation) -> Hung:
    engine = Hung(Settings(restart=POLICY))
    told(engine, unit(0.0), *seen)
    return engine


def told(engine: Engine, *seen: Observation) -> list[tuple[float, str, str]]:
    return [
        (e.t, str(e.intent.action), e.intent.reason)
        for x in seen
        for e in engine.observe(x)
        if e.intent is not None and e.intent.action is not Action.DIAGNOSE
    ]


def ordered(engine: Engine, *seen: Observation) -> list[float]:
    return [t for t, action, _ in told(engine, *seen) if action == "restart"]


def test_a_refused_restart_spends_nothing_and_is_ordered_again_ever_more_seldom() -> None:
    engine = hung()
    at: list[float] = []
    told(engine, acted(1.0, "refused"))
    for i in range(1, 800):
        if ordered(engine, Self(t=5.0 * i)):
            at.append(5.0 * i)
            assert len(engine.ledger.restarts) == 1
            assert ordered(engine, acted(5.0 * i, "refused")) == []
            assert (engine.ledger.restarts, engine.ledger.condemned) == ([], None)
    pauses = [b - a for a, b in pairwise(at)]
    assert [at[0] - 1.0, *pauses[:4]] == pytest.approx([10.0, 20.0, 40.0, 80.0, 160.0], abs=10.0)
    assert min(at[0] - 1.0, *pauses) >= 10.0
    assert len(pauses) > 10
    assert set(pauses[5:]) == {pauses[5]}
    assert pauses[5] == pytest.approx(300.0, abs=5.0)


@pytest.mark.parametrize(
    ("lost", "back", "reason"),
    [
        (Self(t=9.9, may_restart=False), Self(t=700.0, may_restart=True), "MayNotRestart"),
        (Self(t=9.9, bus_ok=False), Self(t=700.0, bus_ok=True), "BusDown"),
        (structs.replace(unit(9.9), load_state="masked"), unit(700.0), "UnitMissing"),
        (structs.replace(unit(9.9), load_state="not-found"), unit(700.0), "UnitMissing"),
    ],
)
def test_what_is_missing_for_a_restart_withholds_it_until_it_is_back(lost: Observation, back: Observation, reason: str) -> None:
    engine = hung(Self(t=1.0))
    assert engine.ledger.restarts[-1].reason == "SchedulerHung"
    said = told(engine, lost, acted(10.0, "refused"), structs.replace(lost, t=20.0), structs.replace(lost, t=690.0))
    assert sorted((action, why) for _, action, why in said) == [("alert", reason), ("withhold", reason)], (
        "once each, and no attempt"
    )
    assert engine.ledger.restarts == []
    again = told(engine, back, Self(t=710.0))
    assert ("restart", "SchedulerHung") in [(action, why) for _, action, why in again]
    assert all(why != "RestartRefused" for _, _, why in again), "what was missing is back"
    assert next(t for t, action, _ in again if action == "restart") <= 705.0
    assert len(engine.ledger.restarts) == 1


def test_a_missing_unit_is_a_veto_with_its_cure_and_no_news_of_a_healthy_server() -> None:
    f = facts(structs.replace(unit(1.0), load_state="masked"))
    alert, veto = outage.judge(f, 10.0).calls
    assert (alert.want, veto.want, veto.reason, veto.unmet) == (Want.ALERT, Want.VETO, "UnitMissing", False)
    assert "systemctl unmask" in str(veto.advice)
    assert actions(decided(f, alert, veto)) == ["alert"]
    assert actions(decided(f, HUNG, alert, veto)) == ["alert", "withhold"]


def test_a_refusal_without_a_known_cause_is_told_for_as_long_as_it_is_tried() -> None:
    f = facts(acted(10.0, "refused"))
    verdict = deeds.judge(f, 20.0)
    assert (verdict.reason, verdict.calls[0].want) == ("RestartRefused", Want.ALERT)
    assert "refused, and nothing was done: RestartUnit failed: no right." in verdict.message
    assert deeds.judge(f, 10.0 + deeds.REFUSED_S).reason == "NotTold"
    f.see(unit(30.0, inv=NEXT))
    assert deeds.judge(f, 40.0).reason == "NotTold"


@pytest.mark.parametrize("result", ["dropped", "canceled"])
def test_what_was_given_up_does_not_count_either(result: str) -> None:
    engine = hung(acted(10.0, result))
    assert engine.ledger.restarts == []
    assert ordered(engine, Self(t=19.0)) == []
    assert ordered(engine, Self(t=22.0)) == [20.0]
    assert deeds.judge(engine.facts, 32.0).reason == "NotTold", "nobody has to mend anything"


def test_what_was_begun_counts_whatever_came_of_it() -> None:
    for result in ("begun", "done", "failed", "timeout", "unknown", "dependency", "skipped"):
        engine = hung(Self(t=1.0), Self(t=8.0))
        assert ordered(engine, acted(10.0, result), Self(t=100.0)) == []
        assert len(engine.ledger.restarts) == 1


def test_repaired_lifts_what_a_restart_in_vain_has_latched() -> None:
    mended = Operator(t=20.0, action="repaired")
    engine = hung(Self(t=1.0), Self(t=8.0), acted(10.0, "failed"))
    assert ordered(engine, Self(t=19.0)) == []
    back_off_over = engine.ledger.restarts[-1].t + POLICY.backoff_s
    (at,) = ordered(engine, mended, Self(t=back_off_over + 60.0))
    assert back_off_over <= at <= back_off_over + 5.0, "the back-off and the budget stay"
    assert len(engine.ledger.restarts) == 2
    under_way = hung(Self(t=1.0), Self(t=8.0), acted(10.0, "begun"))
    assert ordered(under_way, mended, Self(t=200.0)) == [], "a restart that is under way is not ordered twice"
    refused = hung(Self(t=1.0), *(acted(t, "refused") for t in (10.0, 20.0, 30.0)))
    assert ordered(refused, structs.replace(mended, t=31.0)) == [31.0]


def test_a_new_life_forgets_the_refusals_of_the_old_one() -> None:
    engine = hung(Self(t=1.0), acted(6.0, "refused"))
    assert ordered(engine, unit(7.0, inv=NEXT)) == [7.0]


def test_what_was_only_said_spends_nothing_and_condemns_no_life_once_we_act() -> None:
    """A reload from observe to act, at a server that hangs: it is restarted."""
    ledger, f = Ledger(), facts()

    def at(now: float, *, dry: bool) -> list[str]:
        return [i for i in actions(decided(f, HUNG, ledger=ledger, now=now, dry=dry)) if i != "diagnose"]

    f.see(unit(1000.0, inv="c" * 32))
    assert at(1000.0, dry=True) == ["restart"]
    assert at(1100.0, dry=True) == [], "said once"
    f.see(unit(5000.0, inv=NEXT))
    assert at(5000.0, dry=True) == ["restart"]
    assert len(ledger.restarts) == POLICY.budget, "looking on, it says what it would do: the budget is spent"
    assert at(5100.0, dry=False) == ["restart"]
    assert [(r.t, r.dry) for r in ledger.restarts] == [(5100.0, False)]
    assert at(5105.0, dry=False) == [], "that one was ordered"


def test_what_was_ordered_in_earnest_still_counts_for_one_who_looks_on_and_acts_again() -> None:
    ledger, f = Ledger(), facts()
    assert actions(decided(f, HUNG, ledger=ledger)) == ["diagnose", "restart"]
    for now, dry in ((1010.0, True), (1020.0, False)):
        assert decided(f, HUNG, ledger=ledger, now=now, dry=dry) == []
    assert (len(ledger.restarts), ledger.condemned) == (1, INV)


def test_the_guards_stand_in_the_order_of_the_policy() -> None:
    """All at once: who asks for the first is told the first, and Guard lists them as they are looked at."""
    stopping = unit(2.0, active="deactivating", sub="stop-sigterm")
    f = facts(Self(t=990.0, control_probe="failed"), Operator(t=1.0, action="pause"), stopping)
    ledger = Ledger(
        restarts=[Ordered(t=900.0 + i, reason="SchedulerHung", inv=INV) for i in range(POLICY.budget)],
        condemned=INV,
        condemned_at=990.0,
        refused=Refused(t=995.0, inv=INV),
    )
    assert [b.guard for b in barriers(f, [HUNG, VETO], ledger, POLICY, 1000.0)] == list(Guard)
    assert list(barriers(facts(), [HUNG], Ledger(), POLICY, 1000.0)) == []


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


def test_what_was_withheld_is_said_again_when_it_comes_back_in_a_life_that_has_served() -> None:
    """A person restarted it, it served, and the same stands in the way once more: nobody would hear of the second outage."""
    ledger = Ledger()
    f = facts()
    assert actions(decided(f, VETO, HUNG, ledger=ledger)) == ["withhold"]

    f.see(unit(1500.0, inv=NEXT))
    f.see(Log(t=1600.0, inv=NEXT, message="[2026-01-14 02:00:00] The server is fired up and ready to roll!"))
    assert actions(decided(f, ledger=ledger, now=1605.0)) == []
    assert actions(decided(f, VETO, HUNG, ledger=ledger, now=2500.0)) == ["withhold"]
    assert actions(decided(f, VETO, HUNG, ledger=ledger, now=2505.0)) == [], "once in each life"


def test_what_ailed_one_life_is_not_over_while_the_next_one_starts() -> None:
    ledger = Ledger()
    f = facts()
    assert actions(decided(f, ALERT, ledger=ledger)) == ["alert"]
    f.see(structs.replace(unit(1100.0, inv=NEXT), since=1100.0))
    assert decided(f, ledger=ledger, now=2000.0) == []
    f.see(Log(t=2100.0, inv=NEXT, message="[2026-01-14 02:35:00] The server is fired up and ready to roll!"))
    assert actions(decided(f, ledger=ledger, now=2101.0)) == ["clear"]


def test_an_alert_about_what_a_person_is_at_work_on_is_not_begun_and_not_ended() -> None:
    ledger = Ledger()
    f = facts()
    quiet = structs.replace(ALERT, quiet=True)
    assert decided(f, quiet, ledger=ledger) == []
    assert actions(decided(f, ALERT, ledger=ledger, now=1010.0)) == ["alert"]
    assert [decided(f, quiet, ledger=ledger, now=now) for now in (1100.0, 1200.0, 1300.0)] == [[], [], []]
