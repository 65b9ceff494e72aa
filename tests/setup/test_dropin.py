"""The drop-in for a server's unit: only what differs, each line with its reason."""

import itertools
import subprocess
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from watchdog.setup import dropin
from watchdog.systemd import INFINITY_USEC

# What systemd 252 says of a unit that has only ExecStart=.
PLAIN: dict[str, Any] = {
    "Wants": [],
    "StartLimitIntervalUSec": 10_000_000,
    "StartLimitBurst": 5,
    "Restart": "no",
    "RestartUSec": 100_000,
    "TimeoutStopUSec": 90_000_000,
    "KillMode": "control-group",
    "LogRateLimitIntervalUSec": 0,
    "LogRateLimitBurst": 0,
    "LimitMEMLOCK": 8 * 1024**2,
    "OOMScoreAdjust": 0,
    "IOAccounting": False,
}
GOOD: dict[str, Any] = {
    "Wants": [dropin.WATCHDOG],
    "StartLimitIntervalUSec": 3_600_000_000,
    "StartLimitBurst": 4,
    "Restart": "always",
    "RestartUSec": 30_000_000,
    "TimeoutStopUSec": 300_000_000,
    "KillMode": "mixed",
    "LogRateLimitIntervalUSec": 1_000_000,
    "LogRateLimitBurst": 1_000_000,
    "LimitMEMLOCK": INFINITY_USEC,
    "OOMScoreAdjust": -500,
    "IOAccounting": True,
}


def values(lines: list[dropin.Line]) -> dict[str, str]:
    return {line.key: line.value for line in lines}


def test_a_plain_unit_gets_all_of_it() -> None:
    assert values(dropin.lines(PLAIN, 0)) == {
        "Wants": "sglang-watchdog.service",
        "StartLimitIntervalSec": "1800",
        "StartLimitBurst": "5",
        "Restart": "always",
        "RestartSec": "10",
        "TimeoutStopSec": "180",
        "KillMode": "mixed",
        "LogRateLimitIntervalSec": "1s",
        "LogRateLimitBurst": "1000000",
        "LimitMEMLOCK": "infinity",
        "OOMScoreAdjust": "-300",
        "IOAccounting": "yes",
    }


def test_a_good_unit_gets_nothing() -> None:
    assert dropin.lines(GOOD, 0) == []


@pytest.mark.parametrize(
    ("change", "keys"),
    [
        ({"Restart": "on-failure"}, {"Restart"}),
        ({"TimeoutStopUSec": 90_000_000}, {"TimeoutStopSec"}),
        ({"TimeoutStopUSec": INFINITY_USEC}, {"TimeoutStopSec"}),
        ({"KillMode": "process"}, {"KillMode"}),
        ({"StartLimitIntervalUSec": 0}, {"StartLimitIntervalSec", "StartLimitBurst"}),
        ({"StartLimitBurst": 100}, {"StartLimitBurst"}),
        ({"LogRateLimitIntervalUSec": 30_000_000, "LogRateLimitBurst": 10_000}, {"LogRateLimitIntervalSec", "LogRateLimitBurst"}),
        ({"OOMScoreAdjust": 100}, {"OOMScoreAdjust"}),
        ({"Wants": []}, {"Wants"}),
        ({"Before": [dropin.WATCHDOG]}, set()),
    ],
)
def test_only_what_differs(change: dict[str, Any], keys: set[str]) -> None:
    assert set(values(dropin.lines({**GOOD, **change}, 0))) == keys


def test_a_second_run_keeps_what_the_first_one_set() -> None:
    first = dropin.lines(PLAIN, 0)
    own = dropin.settings(dropin.text(first, "a.service"))

    assert dropin.text(dropin.lines(GOOD, 0, own), "a.service") == dropin.text(first, "a.service")


@pytest.mark.parametrize("pinned", [None, 0, 10**9])
def test_a_second_run_that_sees_less_leaves_the_longer_limit(pinned: int | None) -> None:
    own = dropin.settings(dropin.text(dropin.lines(PLAIN, 400 * 10**9), "a.service"))
    assert own["TimeoutStopSec"] == "300"

    second = dropin.lines({**PLAIN, "TimeoutStopUSec": 300_000_000}, pinned, own)

    assert values(second)["TimeoutStopSec"] == "300"
    assert values(dropin.lines(PLAIN, 10**12, own))["TimeoutStopSec"] == "600", "more is taken up"


def test_a_limit_in_other_words_is_no_number_of_ours() -> None:
    assert dropin.longest(180, {"TimeoutStopSec": "infinity"}) == 180


def test_a_drop_in_sets_nothing_that_the_units_type_forbids(tmp_path: Path) -> None:
    unit = tmp_path / "sglang.service"
    unit.write_text("[Service]\nType=oneshot\nExecStart=/bin/true\n")
    has = {**PLAIN, "Type": "oneshot"}
    lines = dropin.lines(has, 0, {"Restart": "always"})
    (tmp_path / "sglang.service.d").mkdir()
    (tmp_path / "sglang.service.d/50.conf").write_text(dropin.text(lines, unit.name).replace(f"Wants={dropin.WATCHDOG}", ""))

    done = subprocess.run(["systemd-analyze", "verify", unit], capture_output=True, text=True, check=False, timeout=60)

    assert (done.returncode, done.stderr) == (0, "")
    assert len(lines) > 8
    assert "Type=oneshot" in str(dropin.misfit(has))
    assert dropin.misfit({**PLAIN, "Type": "exec"}) is None


def test_every_line_has_its_reason_above_it() -> None:
    text = dropin.text(dropin.lines(PLAIN, 358 * 10**9), "a.service").splitlines()

    for before, line in itertools.pairwise(text):
        if "=" in line and not line.startswith("#"):
            assert before.startswith("# ")
            assert len(before) > 10
    assert any("358 GB" in line for line in text)


def test_a_large_pool_gets_more_time() -> None:
    assert dropin.stop_s(None) == dropin.stop_s(0) == 180
    assert dropin.stop_s(358 * 10**9) == 270
    assert dropin.stop_s(10**12) == 600


@given(pinned=st.integers(0, 10**13))
def test_more_memory_never_gets_less_time(pinned: int) -> None:
    assert 180 <= dropin.stop_s(pinned) <= dropin.stop_s(pinned + 10**9)


def test_the_shipped_example_says_the_same() -> None:
    shipped = dropin.settings((Path(__file__).parents[2] / "units/server.conf").read_text())
    assert shipped.keys() == {line.key for line in dropin.lines(PLAIN, 0)}
