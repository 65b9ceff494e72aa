"""What followed is added to every bundle of an incident, to each from its own decision on."""

from pathlib import Path

import pytest

from watchdog.act import bundles
from watchdog.act.followed import LINES, Followed
from watchdog.clock import FakeClock


@pytest.fixture
def home(tmp_path: Path) -> Path:
    for name in ("suspicion", "hang"):
        bundles.write(tmp_path, name, {bundles.SUMMARY: b""})
    return tmp_path


def lines(bundle: Path) -> list[str]:
    return [line.partition(" UTC: ")[2] for line in (bundle / bundles.SUMMARY).read_text().splitlines()]


async def test_each_bundle_gets_what_came_after_its_decision(home: Path) -> None:
    made = Followed(FakeClock())
    made.add(10.0, "restart withheld")
    made.saved(home / "suspicion", 9.0)
    made.add(60.0, "restart")
    assert made.pending
    await made.write(5.0)
    made.saved(home / "hang", 60.0)
    await made.write(5.0)
    made.add(80.0, "verified")
    await made.write(5.0)

    assert not made.pending
    assert lines(home / "suspicion") == ["restart withheld", "restart", "verified"]
    assert lines(home / "hang") == ["restart", "verified"]


async def test_another_incident_does_not_touch_them(home: Path) -> None:
    made = Followed(FakeClock())
    made.saved(home / "hang", 0.0)
    made.begin()
    made.add(1.0, "restart")
    await made.write(5.0)

    assert lines(home / "hang") == []


async def test_a_bundle_that_is_gone_and_lines_without_end_harm_nothing(home: Path) -> None:
    made = Followed(FakeClock())
    made.saved(home / "gone", 0.0)
    made.saved(home / "hang", 0.0)
    for _ in range(3 * LINES):
        made.add(1.0, "again")
    await made.write(5.0)

    assert not (home / "gone").exists()
    assert len(lines(home / "hang")) == LINES
