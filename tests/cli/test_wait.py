"""`wait`: when it is over, and what it shows."""

import argparse
import asyncio
import json
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.cli.views import STARTING, view
from watchdog import cli
from watchdog.asking import ControlError, ForbiddenError, NoDaemonError, SlowError
from watchdog.cli import alone, wait
from watchdog.cli.exits import CommandError
from watchdog.config import load
from watchdog.control import Control

FAILED = {"load_state": "loaded", "active_state": "failed", "sub_state": "failed", "result": "exit-code"}


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({}, None),
        ({"unit_state": None}, None),
        ({"unit_state": {**FAILED, "active_state": "inactive"}}, None),
        ({"unit_state": FAILED}, None),
        ({"unit_state": FAILED, "mode": "observe"}, "has failed (exit-code)"),
        ({"unit_state": FAILED, "stand_down": "paused by a person"}, "stands down: paused by a person"),
        ({"unit_state": FAILED, "withheld": ["SameEarlyDeath"]}, "withheld: SameEarlyDeath"),
        (
            {"unit_state": FAILED, "budget": {**view()["budget"], "forbidden": "2 restarts are the limit"}},
            "2 restarts are the limit",
        ),
        ({"unit_state": {"load_state": "not-found"}}, "systemd knows no sglang-kimi.service"),
    ],
)
def test_when_nothing_will_start_it_any_more(changes: dict[str, Any], said: str | None) -> None:
    why = wait.given_up(view(**changes))
    assert why is None if said is None else why is not None and said in why


class Daemon:
    """A control socket that gives one view after the other, the last for ever."""

    def __init__(self, folder: Path, views: list[dict[str, Any]]) -> None:
        self.views = views
        self._folder = folder
        self._loop = asyncio.new_event_loop()
        self._up, self._stop = threading.Event(), asyncio.Event()
        self._thread = threading.Thread(target=self._loop.run_until_complete, args=(self._serve(),))

    async def _answer(self, _: dict[str, Any]) -> dict[str, Any]:
        return {"daemon": {"up_s": 100.0}, "servers": [self.views.pop(0) if len(self.views) > 1 else self.views[0]]}

    async def _serve(self) -> None:
        async with Control(self._folder, self._answer):
            self._up.set()
            await self._stop.wait()

    def __enter__(self) -> "Daemon":
        self._thread.start()
        assert self._up.wait(5)
        return self

    def __exit__(self, *_: object) -> None:
        self._loop.call_soon_threadsafe(self._stop.set)
        self._thread.join(5)
        self._loop.close()


@pytest.fixture
def config(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.setattr(wait, "TURN_S", 0.01)
    monkeypatch.setattr(wait, "DOWN_S", 0.05)
    file = tmp_path / "c.toml"
    file.write_text(
        f'[daemon]\nruntime_dir = "{tmp_path}"\n[[servers]]\nname = "kimi"\nunit = "sglang-kimi.service"\n', encoding="utf-8"
    )
    yield file


def waited(config: Path, views: list[dict[str, Any]], *more: str) -> int:
    with Daemon(config.parent, views):
        return cli.main(["wait", "--config", str(config), *more])


def test_until_verified_with_a_line_for_each_phase(config: Path, capsys: pytest.CaptureFixture[str]) -> None:
    start = view(verified=False, phase="starting", starting=STARTING)
    views = [
        start,
        start,
        view(verified=False, phase="starting", starting={**STARTING, "step": "graphs", "at": 3, "ratio": None}),
        view(),
    ]
    assert waited(config, views) == 0
    assert capsys.readouterr().out.split("\n") == [
        "kimi: weights 45% (2 of 7), about 3 min to go",
        "kimi: graphs (4 of 7), about 3 min to go",
        "kimi: serving, 3 running, canary 0.41 s",
        "kimi: verified",
        "",
    ]


def test_the_time_is_over(config: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert waited(config, [view(verified=False)], "--timeout", "0.1") == 3
    said = capsys.readouterr().err
    assert said.splitlines() == [
        "kimi: not verified within 0.1 s",
        "  kimi: serving, 3 running, canary 0.41 s, but no canary was answered yet",
    ]


@pytest.mark.parametrize("status", [0, 3])
def test_as_json_only_the_end_is_told(config: Path, status: int, capsys: pytest.CaptureFixture[str]) -> None:
    assert waited(config, [view(verified=status == 0)], "--json", "--timeout", "0.1") == status
    told = json.loads(capsys.readouterr().out)
    assert (told["verified"], told["status"]) == (status == 0, status)
    assert told["servers"][0]["name"] == "kimi"


def test_a_failed_unit_that_nothing_will_start(config: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert waited(config, [view(verified=False, phase="off", mode="observe", unit_state=FAILED)], "--timeout", "5") == 1
    assert "has failed" in capsys.readouterr().err


def test_a_failure_of_a_moment_is_not_the_end(config: Path) -> None:
    failed = view(verified=False, phase="off", mode="observe", unit_state=FAILED)
    assert waited(config, [failed, view(verified=False), failed, view()], "--timeout", "5") == 0


def test_a_server_that_the_daemon_does_not_watch(config: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert waited(config, [view(name="other")]) == 2
    assert "does not watch kimi" in capsys.readouterr().err


def test_a_server_that_is_not_configured(config: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["wait", "--config", str(config), "--server", "glm\x1b"]) == 2
    assert capsys.readouterr().err == "sglang-watchdog wait: no server 'glm�' is configured; there are kimi\n"


def test_on_a_terminal_one_line_changes(capsys: pytest.CaptureFixture[str]) -> None:
    shown = wait.Shown(live=True)
    shown.tell([view(verified=False, phase="starting", starting=STARTING)])
    assert shown.end(0, "kimi: verified") == 0
    assert capsys.readouterr().out == (
        "\r\x1b[Kkimi: [########------------] weights 45% (2 of 7), about 3 min to go\r\x1b[Kkimi: verified\n"
    )


def test_its_arguments() -> None:
    args = cli.parser("wait").parse_args(["wait", "--timeout", "90", "--server", "kimi"])
    assert isinstance(args, argparse.Namespace)
    assert (args.timeout, args.server) == (90, "kimi")


# ---- who looks


class Alone:
    """Our own look."""

    def __init__(self) -> None:
        self.closed = False

    def views(self) -> list[dict[str, Any]]:
        return [view(sentence="by itself")]

    def close(self) -> None:
        self.closed = True


class Looks:
    """Looks for a server where a daemon answers as it is told, by a clock that is set."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = 1000.0
        self.says: Exception | dict[str, Any] = {}
        self.begun: list[Alone] = []
        self.limits: list[float] = []
        monkeypatch.setattr(wait, "ask", self._ask)
        self.sight = wait.Sight(Path("/run/x"), ["kimi"], self._begin, lambda: self.now)

    def _ask(self, _: Path, __: dict[str, Any], limit_s: float) -> dict[str, Any]:
        self.limits.append(limit_s)
        if isinstance(self.says, Exception):
            raise self.says
        return self.says

    def _begin(self) -> Any:
        self.begun.append(Alone())
        return self.begun[-1]

    def look(self, says: Exception | dict[str, Any], after_s: float = 1.0) -> list[str]:
        self.now += after_s
        self.says = says
        return [each["sentence"] for each in self.sight.look(10.0)]

    @property
    def by_itself(self) -> bool:
        return any(not each.closed for each in self.begun)


NONE = NoDaemonError("no daemon listens")
SLOW = SlowError("the daemon gave no answer")
BROKEN = ControlError("the daemon ended in mid-answer; ask again")


def told(up_s: float = 100.0, **changes: Any) -> dict[str, Any]:
    return {"daemon": {"up_s": up_s}, "servers": [view(sentence="the daemon's", **changes)]}


def test_where_no_daemon_runs_it_looks_by_itself_until_one_does(monkeypatch: pytest.MonkeyPatch) -> None:
    looks = Looks(monkeypatch)
    assert looks.look(NONE) == ["by itself"] and looks.by_itself
    assert looks.look(NONE) == ["by itself"] and len(looks.begun) == 1
    assert looks.look(told()) == ["the daemon's"] and not looks.by_itself


@pytest.mark.parametrize("trouble", [SLOW, BROKEN])
@pytest.mark.parametrize("before", [[], [NONE], [told()]])
def test_a_daemon_that_does_not_answer_in_time_is_waited_for(
    trouble: Exception, before: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    looks = Looks(monkeypatch)
    for each in before:
        looks.look(each)
    for _ in range(50):
        assert looks.look(trouble, 10.0) == [] and not looks.by_itself
    assert looks.sight.why == str(trouble)
    assert looks.look(told()) == ["the daemon's"] and looks.sight.why == ""


@pytest.mark.parametrize("before", [told(), SLOW])
def test_a_daemon_that_is_started_anew_is_waited_for(before: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    looks = Looks(monkeypatch)
    looks.look(before)
    assert looks.look(NONE, wait.GONE_S - 1.0) == [] and looks.sight.why == "no daemon listens"
    assert looks.look(told(up_s=1.0, name="other")) == [] and "does not watch kimi" in looks.sight.why
    assert looks.look(told(up_s=2.0)) == ["the daemon's"]
    assert looks.begun == []
    assert looks.look(NONE, wait.GONE_S + 1.0) == ["by itself"]  # this one does not come back


def test_who_may_not_ask_the_daemon_is_told_what_helps(monkeypatch: pytest.MonkeyPatch) -> None:
    looks = Looks(monkeypatch)
    with pytest.raises(CommandError, match="run this as root"):
        looks.look(ForbiddenError("it may not be used: run this as root or as the daemon's user"))
    assert looks.begun == []


@pytest.mark.parametrize(("left_s", "limit_s"), [(100.0, 10.0), (2.9516, 3.0), (-1.0, 0.1)])
def test_a_slow_daemon_does_not_outlast_the_time_that_is_given(
    left_s: float, limit_s: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    looks = Looks(monkeypatch)
    looks.says = told()
    looks.sight.look(left_s)
    assert looks.limits == [limit_s]


def test_why_nothing_is_known_is_told_once_and_at_the_end(
    config: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def ask(*_: object) -> dict[str, Any]:
        raise SLOW

    monkeypatch.setattr(wait, "ask", ask)
    assert cli.main(["wait", "--config", str(config), "--timeout", "0.1"]) == 3
    said = capsys.readouterr()
    assert said.out == "the daemon gave no answer\n"
    assert said.err == "kimi: not verified within 0.1 s\n  the daemon gave no answer\n"


def test_each_reason_has_its_line(capsys: pytest.CaptureFixture[str]) -> None:
    shown = wait.Shown(live=False)
    assert shown.end(3, "glm, kimi: not verified within 1 s", ["glm: idle", "kimi: two\nlines\x1b"]) == 3
    assert capsys.readouterr().err == "glm, kimi: not verified within 1 s\n  glm: idle\n  kimi: two lines�\n"


def test_without_a_temporary_folder_it_says_so(config: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def none(**_: object) -> None:
        raise FileNotFoundError(2, "No usable temporary directory found")

    monkeypatch.setattr(alone.tempfile, "TemporaryDirectory", none)
    looks = alone.Alone(load(config), ["kimi"])
    looks.close()
    with pytest.raises(CommandError, match="TMPDIR"):
        looks.views()
