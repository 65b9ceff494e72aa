"""What belongs to one incident, when it ends, and what of it outlives the daemon."""

from watchdog.incidents import DEEDS, KEPT, SETTLE_S, Incident, Incidents
from watchdog.judge.verdict import Action, Intent, Severity

NONE: set[str] = set()


def intent(action: Action, reason: str = "SchedulerHung", severity: Severity = Severity.CRITICAL) -> Intent:
    return Intent(action=action, reason=reason, severity=severity, message=f"{reason} for 61 s.")


def look(made: Incidents, t: float, *, well: bool = True, stopped: bool = False, alerts: set[str] = NONE) -> bool:
    return made.look(t, well=well, stopped=stopped, alerts=alerts)


def test_a_hang_that_was_cured() -> None:
    made = Incidents([])
    assert made.decided(100.0, intent(Action.DIAGNOSE, "SchedulerSilent", Severity.WARNING), "diagnose", well=False)
    made.done(101.0, "evidence saved", bundle="b1")
    assert not made.decided(120.0, intent(Action.RESTART), "restart", well=False)
    made.done(140.0, "restart done: restarted", restart=True)
    assert not look(made, 600.0, well=False)
    made.done(700.0, "verified")
    assert not look(made, 700.0 + SETTLE_S - 1)
    assert look(made, 700.0 + SETTLE_S)

    (incident,) = made.all
    assert (incident.begun, incident.ended) == (100.0, 700.0)
    assert (incident.reason, incident.cause) == ("SchedulerHung", "SchedulerHung for 61 s.")
    assert [d.text for d in incident.deeds] == ["diagnose", "evidence saved", "restart", "restart done: restarted", "verified"]
    assert (incident.restarts, incident.bundles) == (1, ["b1"])
    assert incident.outcome == "well again after 1 restart"
    assert made.open is None and not look(made, 9999.0)


def test_what_it_cost_counts_from_what_the_finding_names() -> None:
    """It is found after a patience of minutes, in which users were not served either."""
    made = Incidents([])
    made.decided(100.0, intent(Action.DIAGNOSE, "SchedulerSilent", Severity.WARNING), "diagnose", well=False, since=20.0)
    made.decided(160.0, intent(Action.RESTART), "restart", well=False, since=19.0)
    made.decided(161.0, intent(Action.ALERT, "Other", Severity.WARNING), "alert", well=False)
    made.done(300.0, "verified")
    assert look(made, 300.0 + SETTLE_S)
    assert (made.all[0].begun, made.all[0].ended) == (19.0, 300.0)

    made.decided(400.0, intent(Action.RESTART), "restart", well=False, since=200.0)
    assert made.all[1].begun == 300.0, "no moment belongs to two"


def test_a_suspicion_that_passes_by_itself() -> None:
    made = Incidents([])
    made.decided(0.0, intent(Action.DIAGNOSE, "SchedulerSilent", Severity.WARNING), "diagnose", well=True)
    assert look(made, SETTLE_S)
    assert made.all[0].outcome == "well again without a restart by the watchdog"


def test_what_is_no_incident() -> None:
    made = Incidents([])
    for action, severity, well in (
        (Action.ALERT, Severity.WARNING, True),
        (Action.ALERT, Severity.INFO, False),
        (Action.PLAN_RESTART, Severity.WARNING, True),
        (Action.CLEAR, Severity.INFO, False),
    ):
        assert not made.decided(0.0, intent(action, severity=severity), "said", well=well)
    made.done(1.0, "nothing that anybody waits for")
    assert made.all == []


def test_a_crash_that_systemd_repairs_is_one() -> None:
    made = Incidents([])
    assert made.decided(0.0, intent(Action.ALERT, "ServerDied", Severity.WARNING), "alert", well=False)
    assert look(made, 500.0)


def test_a_critical_alert_must_be_over_first() -> None:
    made = Incidents([])
    made.decided(0.0, intent(Action.ALERT, "DeviceLost"), "alert", well=True)
    assert not look(made, 5000.0, alerts={"DeviceLost", "Other"})
    assert not look(made, 5001.0, alerts={"Other"})
    assert look(made, 5000.0 + SETTLE_S, alerts={"Other"})
    assert made.all[0].ended == 5000.0


def test_a_stop_by_request_ends_it() -> None:
    made = Incidents([])
    made.decided(0.0, intent(Action.RESTART), "restart", well=False)
    assert look(made, 5.0, well=False, stopped=True)
    assert (made.all[0].ended, made.all[0].outcome) == (5.0, "the unit was stopped by request")


def test_no_list_grows_for_ever() -> None:
    made = Incidents([])
    for n in range(KEPT + 5):
        made.decided(1000.0 * n, intent(Action.RESTART), "restart", well=False)
        for _ in range(3 * DEEDS):
            made.done(1000.0 * n + 1, "again")
        made.done(1000.0 * n + 2, "the end")
        assert look(made, 1000.0 * n + 900)
    assert len(made.all) == KEPT
    deeds = [d.text for d in made.all[-1].deeds]
    assert len(deeds) <= DEEDS + 1 and (deeds[0], deeds[-1]) == ("restart", "the end")


def test_moments_are_carried_over() -> None:
    made = Incidents([])
    made.decided(100.0, intent(Action.RESTART), "restart", well=False)
    made.all[0].shift(-1000.0)
    assert made.all[0].moments() == [-900.0, -900.0, 0.0, -900.0]
    ended = Incident(begun=1.0, reason="R", cause="c", action=Action.ALERT, changed=2.0, ended=3.0)
    ended.shift(10.0)
    assert (ended.begun, ended.changed, ended.ended) == (11.0, 12.0, 13.0)


def test_it_lasts_until_the_server_was_well_again_and_not_only_as_long_as_something_was_done() -> None:
    """A server that systemd starts anew is back after a start of 20 minutes, in which nothing is decided."""
    made = Incidents([])
    assert made.decided(100.0, intent(Action.ALERT, "ServerDied", Severity.WARNING), "alert", well=False)
    for t in range(101, 1300, 100):
        assert not look(made, float(t), well=False)
    assert not look(made, 1202.0)
    assert look(made, 1201.0 + SETTLE_S)
    assert made.all[0].ended == 1201.0
