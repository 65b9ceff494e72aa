"""What a later setup keeps of the configuration that stands."""

import tomllib
from pathlib import Path

import pytest

from watchdog.setup import configuration, kept
from watchdog.setup.configuration import Wish
from watchdog.setup.host import Found

PROCESS = Found(
    unit="a.service",
    properties={},
    args={"nnodes": 2, "node_rank": 0, "served_model_name": "m"},
    told_by="process",
    pinned=400 * 10**9,
)
DOWN = Found(unit="a.service", properties={}, args={}, told_by="nothing")


def written(path: Path, extra: str = "") -> kept.Standing:
    path.write_text(
        configuration.head("alert", 8) + configuration.table(PROCESS, Wish(name="x", url="http://h:1", key="k")) + extra
    )
    return kept.read(path)


def test_what_stands_is_read(tmp_path: Path) -> None:
    standing = written(tmp_path / "c.toml")

    assert (standing.mode, standing.gpus, standing.fault) == ("alert", 8, None)
    assert standing.wishes == {"a.service": Wish(name="x", url="http://h:1", key="k", stop_s=300)}
    assert kept.read(tmp_path / "none") == kept.Standing()


@pytest.mark.parametrize(
    ("text", "mode"), [('[daemon]\nmode = "observe"\n', "observe"), ("[daemon]\nmode = 1\n", None), ("[", None)]
)
def test_the_mode_of_a_file_with_faults_is_known_where_it_can_be(tmp_path: Path, text: str, mode: str | None) -> None:
    path = tmp_path / "c.toml"
    path.write_text(text)
    standing = kept.read(path)
    assert standing.mode == mode
    assert standing.fault is not None


def test_the_table_of_a_server_that_is_down_stays_as_its_process_told_it(tmp_path: Path) -> None:
    earlier = written(tmp_path / "c.toml").tables["a.service"]

    text = kept.table(DOWN, Wish(name="y", key="l"), earlier)

    [server] = tomllib.loads(text)["servers"]
    assert (server["mode"], server["model"], server["restart"]["stop_limit_s"]) == ("alert", "m", 300)
    assert (server["name"], server["base_url"], server["api_key_file"]) == ("y", "http://h:1", "l")
    assert kept.table(PROCESS, Wish(), earlier) == configuration.table(PROCESS, Wish())
    unsure = configuration.table(DOWN, Wish())
    assert kept.table(DOWN, Wish(key="l"), unsure) == configuration.table(DOWN, Wish(key="l"))


def test_a_stop_limit_never_becomes_shorter() -> None:
    [server] = tomllib.loads(configuration.table(DOWN, Wish(stop_s=300)))["servers"]
    assert server["restart"]["stop_limit_s"] == 300


def test_settings_that_a_new_file_would_not_have_are_named(tmp_path: Path) -> None:
    standing = written(tmp_path / "c.toml")
    same = tomllib.loads((tmp_path / "c.toml").read_text())
    assert kept.lost(standing, same, []) == []

    other = tomllib.loads(configuration.head("act", 8) + configuration.table(PROCESS, Wish(name="y", url="http://h:1", key="k")))
    assert kept.lost(standing, other, []) == ["daemon.mode", "a.service.name"]
    assert kept.lost(standing, other, ["daemon.mode", "a.service.name"]) == []

    default = written(tmp_path / "c.toml", '[metrics]\npath = "/metrics"\n')
    assert kept.lost(default, same, []) == [], "what is so without it is no loss"
    theirs = written(tmp_path / "c.toml", '[metrics]\npath = "/own"\n')
    assert kept.lost(theirs, same, []) == ["metrics.path"]


@pytest.mark.parametrize(
    ("units", "known", "names"),
    [
        (["sglang-kimi.service"], {}, ["kimi"]),
        (["kimi.service", "sglang-kimi.service"], {"sglang-kimi.service": "kimi"}, ["kimi-2", "kimi"]),
        (["sglang-kimi.service", "kimi.service"], {"kimi.service": "kimi"}, ["sglang-kimi", "kimi"]),
        (["sglang-kimi.service"], {"elsewhere.service": "kimi"}, ["sglang-kimi"]),
        (["sglang-a.service", "sglang@a.service", "a.service"], {}, ["sglang-a", "sglang-a-2", "a"]),
    ],
)
def test_a_known_name_stays_and_each_is_anothers(units: list[str], known: dict[str, str], names: list[str]) -> None:
    wishes = {**{unit: Wish() for unit in units}, **{unit: Wish(name=name) for unit, name in known.items()}}
    assert list(map(kept.names(units, wishes).get, units)) == names


def test_no_two_servers_share_a_credential() -> None:
    wishes = {
        "sglang-a.service": Wish(name="sglang-a"),
        "sglang@a.service": Wish(name="a", key="a-key"),
        "a.service": Wish(name="a"),
    }

    assert kept.credential("sglang-a.service", wishes, {}) == "sglang-a-key"
    assert kept.credential("a.service", wishes, {}) == "a-2-key"
    assert kept.credential("sglang@a.service", wishes, {"a-key": "/a"}) == "a-key"
    shared = {**wishes, "a.service": Wish(name="b", key="a-key")}
    assert kept.credential("a.service", shared, {"a-key": "/a"}) == "b-key"
