"""What is shown of a server, and what the daemon answers on its socket."""

import itertools
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from watchdog import config
from watchdog.clock import FakeClock
from watchdog.judge.facts.learned import OneStart
from watchdog.judge.verdict import Condition, Status
from watchdog.observation import Answer, Log, Metrics, Probe, Unit
from watchdog.requests import Requests
from watchdog.roster import Roster
from watchdog.view import server_view
from watchdog.watch import Watch

SERVER = config.Server(name="kimi", unit="sglang-kimi.service")
INV = "1" * 32


@pytest.fixture
def watch(tmp_path: Path) -> Watch:
    return Watch(SERVER, config.Config(servers=[SERVER]), tmp_path, FakeClock(), lambda *_: None)


def start(watch: Watch, *lines: str) -> None:
    """The unit began its life, and printed lines, a second apart."""
    clock = watch.clock
    assert isinstance(clock, FakeClock)
    watch.take(
        Unit(t=clock.now(), inv=INV, load_state="loaded", active_state="active", sub_state="running", main_pid=7, since=0.0)
    )
    for line in lines:
        clock.advance(1.0)
        watch.take(Log(t=clock.now(), inv=INV, message=line))
    watch.tick()


def test_before_anything_was_seen(watch: Watch) -> None:
    view = server_view(watch)
    assert (view["phase"], view["well"], view["verified"], view["unit_state"], view["starting"]) == (
        "unknown",
        False,
        False,
        None,
        None,
    )


def test_how_far_a_start_is(watch: Watch) -> None:
    start(
        watch,
        "[2026-02-25 03:08:00] server_args=ServerArgs(model_path='/m', tp_size=1, enable_hierarchical_cache=True)",
        "[2026-02-25 03:08:01] Load weight begin. avail mem=93.61 GB",
        "Loading safetensors checkpoint shards:  50% Completed | 32/64 [01:00<01:00,  1.87s/it]",
    )
    view = server_view(watch)
    begun = view["starting"]
    assert (view["phase"], view["well"]) == ("starting", False)
    assert (begun["step"], begun["ratio"], begun["at"]) == ("weights", 0.5, 1)
    assert begun["steps"] == ["launch", "weights", "KV cache", "graphs", "host pool", "warm-up", "ready"]
    assert 0.3 < begun["done"] < 0.9
    assert view["unit_state"]["active_state"] == "active"


def test_a_unit_that_failed_is_not_well(watch: Watch) -> None:
    start(watch)
    watch.take(Unit(t=1.0, inv=INV, load_state="loaded", active_state="failed", sub_state="failed", result="exit-code"))
    watch.tick()
    view = server_view(watch)
    assert view["well"] is False
    assert "UnitActive" in view["wrong"]
    assert view["unit_state"]["result"] == "exit-code"


def test_a_server_that_serves_is_well_as_long_as_nothing_is_wrong(watch: Watch) -> None:
    start(watch, "[2026-02-25 03:10:10] The server is fired up and ready to roll!")
    assert (server_view(watch)["phase"], server_view(watch)["well"]) == ("serving", True)
    bad = Condition(type="MemoryHolds", status=Status.FALSE, reason="Leak", message="It leaks.")
    watch.engine.conditions["MemoryHolds"] = bad
    assert (server_view(watch)["well"], server_view(watch)["wrong"]) == (False, ["MemoryHolds"])


class Endpoint:
    async def probe_now(self, kind: str) -> Probe:
        return Probe(t=1.0, probe=kind, outcome="ok", status=200, total_s=0.1)


class Responder:
    last_bundle = None
    trouble: str | None = None

    async def save(self) -> None:
        pass


def test_the_servers_own_warm_up_proves_nothing(watch: Watch) -> None:
    start(watch)

    def scraped(t: float, ended: float) -> bool:
        watch.take(Metrics(t=t, inv=INV, ok=True, values={"num_requests_total": ended}))
        watch.tick()
        return bool(server_view(watch)["verified"])

    assert not scraped(5.0, 0.0)
    watch.take(Log(t=6.0, inv=INV, message="[2026-02-25 03:08:00] The server is fired up and ready to roll!"))
    assert not scraped(20.0, 1.0), "it may have ended before the line"
    assert not scraped(35.0, 1.0)
    assert scraped(50.0, 2.0)


@pytest.mark.parametrize(
    ("text", "proven"), [("London.", True), ("Paris<|im_end|> and so on and so on", False), ("!!!!!!!!", False)]
)
def test_users_that_are_served_prove_no_life_whose_answers_make_no_sense(watch: Watch, text: str, proven: bool) -> None:
    """Of a word that is missing the question may be to blame."""
    start(watch, "[2026-02-25 03:08:00] The server is fired up and ready to roll!")
    for t, ended in ((20.0, 1.0), (35.0, 1.0), (50.0, 9.0)):
        watch.take(Metrics(t=t, inv=INV, ok=True, values={"num_requests_total": ended}))
    answer = Answer(text=text, finish_reason="stop")
    watch.take(Probe(t=51.0, inv=INV, probe="chat", outcome="ok", status=200, total_s=0.2, answer=answer, expects="Paris"))
    watch.tick()
    assert server_view(watch)["verified"] is proven


@pytest.mark.parametrize(
    ("kind", "status", "reason", "well"),
    [
        ("SchedulerProgressing", Status.TRUE, "Moving", True),
        ("SchedulerProgressing", Status.FALSE, "Hung", False),
        ("SchedulerProgressing", Status.UNKNOWN, "Silent", False),
        ("SchedulerProgressing", Status.UNKNOWN, "ProbeFailed", False),
        ("SchedulerProgressing", Status.UNKNOWN, "Blind", False),
        ("SchedulerProgressing", Status.UNKNOWN, "NoEndpoint", True),
        ("RequestsCompleting", Status.UNKNOWN, "CanariesFail", False),
        ("RequestsCompleting", Status.UNKNOWN, "NothingSeen", True),
        ("AnswersSane", Status.UNKNOWN, "CanaryErrors", False),
        ("AnswersSane", Status.UNKNOWN, "OddAnswer", True),  # of which no more is known than that a word is missing
        ("AnswersSane", Status.UNKNOWN, "AnsweredLongAgo", True),
        ("ProbesAccepted", Status.UNKNOWN, "SomeRefused", True),
        ("MemoryHolds", Status.FALSE, "MemoryLeak", True),
    ],
)
def test_a_server_in_doubt_is_not_verified(watch: Watch, kind: str, status: Status, reason: str, well: bool) -> None:
    """What speaks against it without sufficing for a finding was taken for well: incidents ended in the middle of a hang."""
    start(watch, "[2026-02-25 03:08:00] The server is fired up and ready to roll!")
    answer = Answer(text="Paris.", finish_reason="stop")
    watch.take(Probe(t=3.0, inv=INV, probe="chat", outcome="ok", status=200, total_s=0.2, answer=answer, expects="Paris"))
    watch.tick()
    assert server_view(watch)["verified"]
    watch.engine.conditions[kind] = Condition(type=kind, status=status, reason=reason, message="said")
    assert server_view(watch)["verified"] is well


def test_what_a_former_life_answered_is_not_shown_of_this_one(watch: Watch) -> None:
    start(watch)
    for inv, probe, outcome in (("0" * 32, "chat", "ok"), (INV, "health", "refused")):
        watch.take(Probe(t=watch.clock.now(), inv=inv, probe=probe, outcome=outcome, total_s=0.5))
    assert list(server_view(watch)["probes"]) == ["health"]


@pytest.mark.parametrize(
    ("probe", "status", "shown"), [("ready", 404, 0), ("ready", 405, 0), ("ready", 503, 1), ("models", 404, 1)]
)
def test_what_a_server_does_not_have_is_no_failed_probe(watch: Watch, probe: str, status: int, shown: int) -> None:
    start(watch)
    watch.take(Probe(t=watch.clock.now(), inv=INV, probe=probe, outcome="status", status=status, total_s=0.01))
    view = server_view(watch)
    assert (len(view["probes"]), len(view["failed_probes"])) == (shown, shown)


async def reload() -> str | None:
    return None


async def asked(watch: Watch, **request: Any) -> dict[str, Any]:
    server: Any = SimpleNamespace(watch=watch, runs=[], endpoint=Endpoint(), responder=Responder())
    roster = Roster(watch.clock)
    roster.servers["kimi"] = server
    return await Requests(roster, reload).answer(request)


async def test_a_probe_is_answered_with_what_came_of_it(watch: Watch) -> None:
    answer = await asked(watch, command="probe", kind="health", server="kimi")
    told = answer["probes"]["kimi"]
    assert (told["probe"], told["outcome"], told["status"]) == ("health", "ok", 200)


@pytest.mark.parametrize("kind", ["nonsense", 7, ["health"]])
async def test_a_probe_of_no_known_kind(watch: Watch, kind: Any) -> None:
    assert "kind must be one of" in (await asked(watch, command="probe", kind=kind))["error"]


async def test_an_explanation_has_the_view_and_the_judges_words(watch: Watch) -> None:
    start(watch, "[2026-02-25 03:10:10] The server is fired up and ready to roll!")
    await asked(watch, command="pause", reason="drill")
    told = (await asked(watch, command="explain"))["servers"][0]
    assert told["phase"] == told["why"]["phase"] == "serving"
    assert "Forbidden now: paused by a person: drill" in told["why"]["restart"][0]


async def test_a_pause_and_its_end(watch: Watch) -> None:
    assert (await asked(watch, command="pause", seconds=60, reason="drill"))["servers"] == ["kimi"]
    status = await asked(watch, command="status")
    assert (status["servers"][0]["paused"], status["servers"][0]["pause_reason"]) == (True, "drill")
    assert (await asked(watch, command="resume"))["were_paused"] == ["kimi"]
    assert (await asked(watch, command="status"))["servers"][0]["paused"] is False
    assert (await asked(watch, command="resume"))["were_paused"] == []


@pytest.mark.parametrize("seconds", [0, -1, "60", 1e12, []])
async def test_a_pause_of_no_length(watch: Watch, seconds: Any) -> None:
    assert "error" in await asked(watch, command="pause", seconds=seconds)


async def test_words_that_are_not_understood(watch: Watch) -> None:
    assert "command must be one of status" in (await asked(watch, command="dance"))["error"]
    assert await asked(watch, command="status", server="glm") == {"error": 'no server "glm" is watched; watched are kimi'}


async def test_a_reason_with_half_characters_pauses_all_the_same(watch: Watch) -> None:
    start(watch)
    answer = await asked(watch, command="pause", seconds=600, reason="caf\udce9")

    assert answer["done"] == "pause"
    assert watch.engine.facts.paused(watch.clock.now())


async def test_a_pause_that_is_not_on_disk_is_said(watch: Watch, monkeypatch: pytest.MonkeyPatch) -> None:
    start(watch)
    monkeypatch.setattr(Responder, "trouble", "No space left on device: free space, or mend its owner and mode")

    assert "No space left" in (await asked(watch, command="pause", seconds=600))["warning"]


@pytest.mark.parametrize(
    ("request_", "means"),
    [
        ({"command": "pause", "seconds": 600}, "it ends with the daemon"),
        ({"command": "resume"}, "a daemon that is started anew may be paused again"),
        ({"command": "operator", "action": "acknowledge"}, "a daemon that is started anew does not know of it"),
        ({"command": "operator", "action": "repaired"}, "a daemon that is started anew may hold restarts back again"),
    ],
)
async def test_what_the_disk_did_not_take_is_said_in_words_that_fit(
    watch: Watch, monkeypatch: pytest.MonkeyPatch, request_: dict[str, Any], means: str
) -> None:
    start(watch)
    monkeypatch.setattr(Responder, "trouble", "Read-only file system: see whether its disk is well")

    answer = await asked(watch, **request_)

    assert answer["warning"] == f"it is not on disk: {means} (kimi: Read-only file system: see whether its disk is well)"


def test_a_draft_model_that_is_loaded_after_the_graphs_does_not_take_the_start_back(watch: Watch) -> None:
    """Up to SGLang 0.5.13 the target model is built as a whole before the draft's weights are read."""
    watch.engine.facts.learned.add_start(
        OneStart(
            inv="0" * 32,
            total_s=24.0,
            phases={"launch": 4.0, "weights": 6.0, "KV cache": 6.0, "graphs": 6.0, "warm-up": 2.0},
        )
    )
    at = "[2026-02-25 03:08:00]"
    told: list[dict[str, Any]] = []
    start(watch, f"{at} server_args=ServerArgs(model_path='/m', tp_size=1, speculative_algorithm='EAGLE3')")
    for line in (
        f"{at} Load weight begin. avail mem=93.61 GB",
        f"{at} KV Cache is allocated. #tokens: 159277, KV size: 10.42 GB",
        f"{at} Capture cuda graph begin. This can take up to several minutes. avail mem=30.00 GB",
        f"{at} Load weight begin. avail mem=20.00 GB",
        f"{at} KV Cache is allocated. #tokens: 159277, KV size: 0.42 GB",
        f"{at} Capture cuda graph begin. This can take up to several minutes. avail mem=10.00 GB",
    ):
        clock = watch.clock
        assert isinstance(clock, FakeClock)
        for _ in range(3):
            clock.advance(1.0)
            watch.tick()
            told.append(server_view(watch)["starting"])
        watch.take(Log(t=clock.now(), inv=INV, message=line))
        watch.tick()
        told.append(server_view(watch)["starting"])

    names = list(dict.fromkeys(each["step"] for each in told))
    assert names == ["launch", "weights", "KV cache", "graphs", "draft weights", "draft KV cache"]
    for key in ("at", "done"):
        row = [each[key] for each in told]
        assert row == sorted(row), key
    left = [each["eta_s"] for each in told]
    assert all(later <= before + 0.01 for before, later in itertools.pairwise(left)), left
