"""A server over several nodes lives and dies as one group: no member of it is restarted alone.

Each start of a member joins a new torch.distributed group at `dist_init_addr`, with a world size that counts the ranks of all
nodes (SGLang, model_executor/model_runner.py: init_torch_distributed). Members of the old group never join it: they wait in a
collective until their own watchdog ends them, and the new one waits for them.
"""

from collections.abc import Iterator

from watchdog.config import Restarting
from watchdog.judge.facts import Facts
from watchdog.judge.verdict import Call, Severity, Want


def judge(f: Facts, policy: Restarting) -> Iterator[Call]:
    """A standing veto for a member of a group, unless the configuration allows its restart alone (`restart.alone`)."""
    nodes = int(f.life.number("nnodes") or 1)
    if nodes < 2 or policy.alone:
        return
    rank = f.life.number("node_rank")
    which = "one member" if rank is None else f"member {rank:.0f}"
    where = f.life.arg("dist_init_addr")
    head = f" ({where})" if isinstance(where, str) and where else ""
    yield Call(
        want=Want.VETO,
        reason="GroupMember",
        severity=Severity.CRITICAL,
        message=f"This is {which} of a server over {nodes} nodes: restarted alone it would wait for the others, and they for it.",
        advice=(
            f"Restart all {nodes} members together: stop the unit on every node, then start it on node 0{head} and on the others "
            "within its --dist-timeout."
        ),
        evidence=(f"nnodes={nodes}",),
    )
