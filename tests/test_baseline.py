"""The baseline file: its format and what survives, what is learned, compared and completed."""

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.judge.reference import ARGS, POOL, Deployment
from watchdog.baseline import KEPT, BaselineFile, Kept, chosen, compared, completed, learn, present, shown, with_first
from watchdog.judge.facts.baseline import Baseline, Identity, identity_of
from watchdog.judge.verdict import Status


def identity(**changes: Any) -> Identity:
    return identity_of({**ARGS, **changes}, "0.5.9", "gpu-1")


def made(**changes: Any) -> Baseline:
    return Baseline(identity=identity(**changes), made_at="2026-02-25T03:08:10Z", made_by="learn", announced=8 * POOL)


def test_a_life_is_learned() -> None:
    d = Deployment().start()
    f = d.engine.facts
    here = present(f, "gpu-1")
    assert here is not None
    b = learn(f, here, "2026-02-25T03:08:10Z", "learn")
    assert (b.announced, b.kv_tokens, b.pool_tokens) == (358_160_000_000, 159_277, 637_109)
    assert b.seen == pytest.approx(358.16e9) and b.seen_as == "unit" and b.seen_grown
    assert b.expected is not None and b.within is not None and abs(b.expected - 358_160_000_000) < b.within + 40_000_000
    assert (b.accept_length, b.idle_w, b.steps) == (None, None, {})


def test_the_file_is_readable_and_read_again(tmp_path: Path) -> None:
    file = BaselineFile(tmp_path / "kimi" / "baseline.json")
    assert file.load() == (Kept(), None)
    kept = with_first(Kept(server="kimi"), made())
    file.save(kept)
    assert file.load() == (kept, None)
    text = file.path.read_text()
    assert '      "announced": 358160000000' in text and json.loads(text)["version"] == 1
    assert [p.name for p in file.path.parent.iterdir()] == ["baseline.json"]


@pytest.mark.parametrize(
    "data", [b"", b"{", b"\xff\xfe", b"[]", b'{"version": 2}', b'{"baselines": [{}]}', b'{"version": 1, "baselines": 5}']
)
def test_what_cannot_be_used_is_kept_aside(tmp_path: Path, data: bytes) -> None:
    file = BaselineFile(tmp_path / "baseline.json")
    file.path.write_bytes(data)
    kept, trouble = file.load()
    assert kept == Kept() and trouble is not None
    assert [p.read_bytes() for p in tmp_path.iterdir()] == [data]
    assert not file.path.exists()


@given(st.binary(max_size=300))
def test_no_content_stops_the_daemon(tmp_path_factory: pytest.TempPathFactory, data: bytes) -> None:
    file = BaselineFile(tmp_path_factory.mktemp("b") / "baseline.json")
    file.path.write_bytes(data)
    assert isinstance(file.load()[0], Kept)


def test_a_cut_write_leaves_the_old_file(tmp_path: Path) -> None:
    file = BaselineFile(tmp_path / "baseline.json")
    file.save(with_first(Kept(), made()))
    (tmp_path / "baseline.json.new").write_bytes(b'{"version"')  # SIGKILL in the middle of the next one
    assert len(file.load()[0].baselines) == 1


def test_identities() -> None:
    assert identity().differences(identity()) == []
    assert identity().differences(identity(served_model_name="k2", port=1)) == []
    assert identity().differences(identity(hicache_ratio=2.0)) == [("hicache_ratio", 4.0, 2.0)]
    assert identity(hicache_ratio=None).differences(identity()) == [("hicache_ratio", 2.0, 4.0)]  # the default is known
    assert identity(mem_fraction_static=0.9).differences(identity()) == []  # the other side does not know: no difference
    other = Identity(host="gpu-2", version="0.5.10", arguments=identity().arguments)
    assert identity().differences(other) == [("host", "gpu-1", "gpu-2"), ("version", "0.5.9", "0.5.10")]


def test_the_baseline_of_the_present_deployment_is_chosen() -> None:
    kept = with_first(with_first(Kept(), made(hicache_ratio=2.0)), made())
    assert [b.identity.arguments["hicache_ratio"] for b in kept.baselines] == [4.0, 2.0]
    assert chosen(Kept(), identity()) is None
    assert chosen(kept, identity(hicache_ratio=2.0)) is kept.baselines[1]
    assert chosen(kept, identity(hicache_ratio=3.0)) is kept.baselines[0]
    assert chosen(kept, None) is kept.baselines[0]
    assert len(with_first(kept, made()).baselines) == 2
    for ratio in range(5, 30):
        kept = with_first(kept, made(hicache_ratio=float(ratio)))
    assert len(kept.baselines) == KEPT


def test_completing_adds_and_never_overwrites() -> None:
    known = Baseline(identity=identity(), announced=1, steps={"1": 0.05})
    fresh = Baseline(identity=identity(), announced=2, accept_length=2.7, steps={"1": 0.5, "4": 0.06}, room=5)
    more = completed(known, fresh)
    assert more is not None
    assert (more.announced, more.accept_length, more.steps, more.room) == (1, 2.7, {"1": 0.05, "4": 0.06}, None)
    assert completed(more, fresh) is None


def test_comparison_side_by_side() -> None:
    fresh = Baseline(identity=identity(hicache_ratio=2.0), announced=4 * POOL, accept_length=2.6)
    rows = {row.item: row for row in compared(Baseline(identity=identity(), announced=8 * POOL, accept_length=2.7), fresh)}
    assert (rows["hicache_ratio"].baseline, rows["hicache_ratio"].now) == ("4.0", "2.0")
    assert rows["host pool announced"].baseline == "358.16 GB (333.6 GiB)" and rows["host pool announced"].differs
    assert not rows["accept length"].differs
    assert "358.16 GB (333.6 GiB)" in [row.baseline for row in shown(made())]


# ---- judged against it


def against(known: Baseline, d: Deployment) -> tuple[Status, str, str]:
    d.engine.facts.baseline, d.engine.facts.host = known, "gpu-1"
    c = d.condition("AsBaseline")
    return c.status, c.reason, c.message


def learned(d: Deployment) -> Baseline:
    here = present(d.engine.facts, "gpu-1")
    assert here is not None
    return learn(d.engine.facts, here, "2026-02-25T03:08:10Z", "learn")


def test_the_same_life_is_as_its_baseline() -> None:
    d = Deployment().start()
    assert against(learned(d), d)[:2] == (Status.TRUE, "AsBaseline")


def test_a_changed_deployment_is_no_drift() -> None:
    d = Deployment(per_rank=22_390_000_000, args={"hicache_ratio": 2.0}, version="0.5.10").start()
    status, reason, message = against(learned(Deployment().start()), d)
    assert (status, reason) == (Status.FALSE, "DeploymentChanged")
    assert "version 0.5.9 → 0.5.10" in message and "hicache_ratio 4.0 → 2.0" in message
    assert {(i.reason, str(i.severity)) for i in d.intents} == {("DeploymentChanged", "info")}


def test_drift_is_told_with_both_amounts() -> None:
    d = Deployment(per_rank=40_000_000_000).start()
    status, reason, message = against(learned(Deployment().start()), d)
    assert (status, reason) == (Status.FALSE, "BaselineDrift")
    assert "host pool announced 320.00 GB (298.0 GiB), was 358.16 GB (333.6 GiB)" in message


def test_another_host_is_another_deployment() -> None:
    d = Deployment().start()
    known = learned(d)
    d.engine.facts.baseline, d.engine.facts.host = known, "gpu-2"
    assert "host gpu-1 → gpu-2" in d.condition("AsBaseline").message


def test_no_baseline_is_unknown() -> None:
    d = Deployment().start()
    assert d.condition("AsBaseline").status is Status.UNKNOWN


def since(start_s: float) -> Baseline:
    return Baseline(identity=identity(), made_at="2026-02-25T03:08:10Z", made_by="learn", start_s=start_s)


@pytest.mark.parametrize(
    ("there", "here", "shown", "differs"),
    [
        (0.1, 0.4, ("0 s", "0 s"), False),
        (0.4, 0.6, ("0 s", "1 s"), False),
        (0.4, 1.6, ("0 s", "2 s"), True),
        (100.0, 140.0, ("100 s", "140 s"), False),
        (100.0, 160.0, ("100 s", "160 s"), True),
    ],
)
def test_what_the_shown_digits_cannot_tell_is_no_difference(
    there: float, here: float, shown: tuple[str, str], differs: bool
) -> None:
    (row,) = compared(since(there), since(here))
    assert ((row.baseline, row.now), row.differs) == (shown, differs)
