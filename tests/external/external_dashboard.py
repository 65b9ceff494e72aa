"""The Grafana dashboard: it keeps to Grafana's schema, and each of its queries finds data in a real Prometheus that scrapes the
daemon while it watches a stand-in go through a restart, failed probes and a full queue (`make test-external`, root)."""

import json
import subprocess
from collections.abc import Iterator
from typing import Any
from urllib.parse import urlencode

import pytest

from tests.box.box import PROJECT, Box, wait_for
from tests.box.daemons import COMMAND, Server, Watchdog
from tests.external.programs import APPRISE_PYTHON, BIN

DASHBOARD = PROJECT / "packaging/grafana/sglang-watchdog.json"
RULES = PROJECT / "packaging/prometheus/sglang-watchdog.rules.yml"
VARIABLES = {"$instance": ".*", "$server": ".*", "$__rate_interval": "1m"}
SCHEMA = """import json, sys
from grafana_foundation_sdk.cog.encoder import JSONEncoder
from grafana_foundation_sdk.cog.plugins import register_default_plugins
from grafana_foundation_sdk.models.dashboard import Dashboard
register_default_plugins()
print(JSONEncoder().encode(Dashboard.from_json(json.load(sys.stdin))))
"""
SERVER = Server(
    "alpha",
    31001,
    version="0.5.23",
    seconds=4,
    arguments="--traffic 0.5 --tp-size 2 --enable-hierarchical-cache --hicache-ratio 4 --host-pool-mib 256",
    restart="budget = 1",
)
PROMETHEUS = f"""global: {{scrape_interval: 1s, evaluation_interval: 2s}}
rule_files: [{RULES}]
scrape_configs: [{{job_name: sglang-watchdog, static_configs: [{{targets: ["127.0.0.1:9430"]}}]}}]
"""
PAGE = """[web]
enabled = true
[alert]
webhook_url = "http://127.0.0.1:9/nobody"
group_wait_s = 1
"""
GET = "import sys, urllib.request; print(urllib.request.urlopen(sys.argv[1], timeout=10).read().decode())"


def panels() -> list[dict[str, Any]]:
    board = json.loads(DASHBOARD.read_text(encoding="utf-8"))
    return [panel for panel in board["panels"] if panel["type"] != "row"]


def queries() -> list[tuple[str, str]]:
    return [(panel["title"], target["expr"]) for panel in panels() for target in panel["targets"]]


def lost(wanted: Any, found: Any, path: str = "") -> Iterator[str]:
    """What of the one is not in the other."""
    if isinstance(wanted, dict) and isinstance(found, dict):
        for key, value in wanted.items():
            yield from lost(value, found.get(key), f"{path}/{key}")
    elif isinstance(wanted, list) and isinstance(found, list) and len(wanted) == len(found):
        for number, value in enumerate(wanted):
            yield from lost(value, found[number], f"{path}/{number}")
    elif wanted != found:
        yield f"{path}: {wanted!r} became {found!r}"


def test_grafana_knows_every_key() -> None:
    raw = DASHBOARD.read_bytes()
    done = subprocess.run([APPRISE_PYTHON, "-c", SCHEMA], input=raw, capture_output=True, check=False)
    assert done.returncode == 0, done.stderr.decode()
    assert list(lost(json.loads(raw), json.loads(done.stdout))) == []


class Asked:
    """A Prometheus in a box with a daemon."""

    def __init__(self, box: Box) -> None:
        self._box = box

    def get(self, path: str, **query: str) -> Any:
        """What the API answers; None while it cannot be asked."""
        url = f"http://127.0.0.1:9090/api/v1/{path}?{urlencode(query)}"
        done = self._box.run(COMMAND.replace("sglang-watchdog", "python"), "-c", GET, url, check=False)
        answer = json.loads(done.stdout) if done.returncode == 0 else {"status": done.stderr[-300:]}
        return answer["data"] if answer["status"] == "success" else None

    def has(self, expr: str) -> bool:
        """Whether an expression had a value at some time of the last minutes."""
        for name, value in VARIABLES.items():
            expr = expr.replace(name, value)
        assert "$" not in expr, f"a variable that is not known: {expr}"
        now = float(self.get("query", query="time()")["result"][1])
        answer = self.get("query_range", query=expr, start=str(now - 600), end=str(now), step="2")
        assert answer is not None, f"Prometheus cannot read {expr}"
        return bool(answer["result"])


@pytest.fixture(scope="module")
def asked() -> Iterator[Asked]:
    with Box() as box:
        SERVER.install(box)
        dog = Watchdog(box, "wdog", [SERVER])
        dog.write(dog.config.replace("[sources]", f"{PAGE}[sources]", 1))
        box.write("/etc/prometheus.yml", PROMETHEUS)
        box.write(
            "/etc/systemd/system/prometheus.service",
            f"[Service]\nExecStart={BIN}/prometheus --config.file=/etc/prometheus.yml --storage.tsdb.path=/var/lib/tsdb "
            "--web.listen-address=127.0.0.1:9090\n",
        )
        box.run("systemctl", "daemon-reload")
        box.run("systemctl", "start", "prometheus", dog.unit)
        box.run("systemctl", "start", SERVER.unit)
        wait_for(lambda: dog.view("alpha").get("verified"), 60, "it is verified")
        SERVER.fault(box, "queue-full")
        dog.until(90, reason="QueueFull", action="alert")
        SERVER.fault(box, "clear")
        SERVER.fault(box, "exit-0")
        dog.cured(90, "alpha")
        SERVER.fault(box, "exit-0")
        dog.until(90, reason="BudgetSpent", action="withhold")
        yield Asked(box)


@pytest.mark.timeout(420)
def test_every_query_finds_data(asked: Asked) -> None:
    left = dict.fromkeys(queries())

    def found() -> bool:
        for query in list(left):
            if asked.has(query[1]):
                del left[query]
        return not left

    try:
        wait_for(found, 90)
    except AssertionError:
        pytest.fail("no data: " + "; ".join(f"{title}: {expr}" for title, expr in left))


def test_a_restart_that_is_the_first_of_its_kind_is_counted(asked: Asked) -> None:
    (expr,) = [expr for _, expr in queries() if "restarts_total" in expr]
    assert asked.has(f"({expr}) > 0.5")


def test_the_choices_offer_what_there_is(asked: Asked) -> None:
    board = json.loads(DASHBOARD.read_text(encoding="utf-8"))
    offered = {}
    for variable in board["templating"]["list"][1:]:
        series, label = variable["query"]["query"].removeprefix("label_values(").removesuffix(")").rsplit(", ", 1)
        offered[variable["name"]] = asked.get(f"label/{label}/values", **{"match[]": series.replace("$instance", ".*")})
    assert offered == {"instance": ["127.0.0.1:9430"], "server": ["alpha"]}
