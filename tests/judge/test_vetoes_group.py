"""One member of a server over several nodes is never restarted alone."""

from typing import Any

import pytest

from watchdog.config import Restarting
from watchdog.judge import vetoes
from watchdog.judge.decide import decide
from watchdog.judge.facts import Facts
from watchdog.judge.ledger import Ledger
from watchdog.judge.verdict import Action, Call, Intent, Status, Verdict, Want
from watchdog.observation import Self, Server, Unit

INV = "a" * 32
HUNG = Call(want=Want.RESTART, reason="SchedulerHung", message="No progress for 90 s.")


def facts(**args: Any) -> Facts:
    f = Facts()
    f.see(Unit(t=0.0, inv=INV, load_state="loaded", active_state="active", sub_state="running", main_pid=7, since=0.0))
    f.see(Server(t=1.0, inv=INV, args={"model_path": "m", **args}))
    return f


def decided(f: Facts, policy: Restarting) -> list[Intent]:
    ill = Verdict(type="SchedulerProgressing", status=Status.FALSE, reason=HUNG.reason, message=HUNG.message, calls=(HUNG,))
    return decide(f, [ill, vetoes.judge(f, policy, 100.0)], Ledger(), policy, 100.0)


@pytest.mark.parametrize("args", [{"nnodes": 2, "node_rank": 0}, {"nnodes": 2, "node_rank": 1}, {"nnodes": 4}])
def test_a_restart_of_one_member_is_withheld_with_what_a_group_restart_needs(args: dict[str, Any]) -> None:
    intents = decided(facts(dist_init_addr="10.0.0.1:5000", **args), Restarting())

    assert [i.action for i in intents] == [Action.WITHHOLD]
    told = intents[0]
    assert told.reason == "GroupMember"
    assert told.advice is not None
    assert f"Restart all {args['nnodes']} members together" in told.advice
    assert "10.0.0.1:5000" in told.advice
    assert HUNG.message in told.evidence


@pytest.mark.parametrize("args", [{}, {"nnodes": 1}, {"nnodes": 1, "node_rank": 0}, {"nnodes": "two"}])
def test_a_server_on_one_node_is_restarted(args: dict[str, Any]) -> None:
    assert Action.RESTART in [i.action for i in decided(facts(**args), Restarting())]


def test_the_configuration_can_allow_it() -> None:
    assert Action.RESTART in [i.action for i in decided(facts(nnodes=2), Restarting(alone=True))]


def test_a_healthy_member_is_not_ill_and_nothing_is_said() -> None:
    f = facts(nnodes=2, node_rank=1)
    verdict = vetoes.judge(f, Restarting(), 100.0)

    assert (verdict.status, verdict.reason) == (Status.TRUE, "GroupMember")
    assert decide(f, [verdict], Ledger(), Restarting(), 100.0) == []


def test_what_makes_a_restart_useless_comes_before_it() -> None:
    f = facts(nnodes=2)
    veto = Call(want=Want.VETO, reason="PortTaken", message="taken", unmet=True)
    verdicts = [
        vetoes.judge(f, Restarting(), 100.0),
        Verdict(type="X", status=Status.FALSE, reason="x", message="x", calls=(veto,)),
    ]

    assert [i.reason for i in decide(f, verdicts, Ledger(), Restarting(), 100.0)] == ["PortTaken"]


def test_a_host_that_goes_down_comes_first() -> None:
    f = facts(nnodes=2)
    f.see(Self(t=2.0, paused_s=0.0, shutting_down=True))

    assert decided(f, Restarting()) == []
