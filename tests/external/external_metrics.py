"""The exporter, the rules and a scrape with Debian's Prometheus (`make test-external`)."""

import subprocess
from pathlib import Path
from urllib.parse import quote

import pytest

from tests.external.programs import BIN, PROJECT, free_port, get_json, program, until
from tests.observe.talker import reply, says, talking
from tests.web.figures import full
from watchdog.web.metrics import CONTENT_TYPE, FAMILIES, render

RULES = PROJECT / "packaging/prometheus"


def test_the_exporter_keeps_to_the_conventions() -> None:
    checked = subprocess.run([BIN / "promtool", "check", "metrics"], input=render(full()), capture_output=True, check=False)
    assert (checked.returncode, checked.stdout + checked.stderr) == (0, b"")


@pytest.mark.parametrize(
    "command",
    [("check", "rules", "sglang-watchdog.rules.yml"), ("test", "rules", "sglang-watchdog.test.yml")],
    ids=lambda c: c[0],
)
def test_the_rules(command: tuple[str, ...]) -> None:
    done = subprocess.run([BIN / "promtool", *command], cwd=RULES, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "SUCCESS" in done.stdout + done.stderr


async def test_a_real_prometheus_scrapes_and_records(tmp_path: Path) -> None:
    port = free_port()
    async with talking(says(reply(200, render(full()), kind=CONTENT_TYPE))) as talker:
        config = tmp_path / "prometheus.yml"
        config.write_text(
            f"global: {{scrape_interval: 1s, evaluation_interval: 1s}}\nrule_files: ['{RULES}/sglang-watchdog.rules.yml']\n"
            f"scrape_configs: [{{job_name: sglang-watchdog, static_configs: [{{targets: ['127.0.0.1:{talker.port}']}}]}}]\n"
        )
        url = f"http://127.0.0.1:{port}"

        async def value(expression: str) -> str | None:
            answer = await get_json(f"{url}/api/v1/query?query={quote(expression)}")
            found = answer["data"]["result"]  # type: ignore[index]
            return found[0]["value"][1] if found else None

        arguments = (f"--config.file={config}", f"--storage.tsdb.path={tmp_path}/data", f"--web.listen-address=127.0.0.1:{port}")
        with program(tmp_path, "prometheus", *arguments):

            async def scraped() -> bool:
                return await value('up{job="sglang-watchdog"}') == "1"

            await until(scraped)
            assert await value('sglang_watchdog_phase{server="kimi",phase="serving"}') == "1"
            assert await value('sglang_watchdog_host_pool_bytes{kind="announced"}') == "358158155520"
            missing = [f.name for f in FAMILIES if f.kind != "histogram" and await value(f"sglang_watchdog_{f.name}") is None]
            assert missing == []

            async def recorded() -> bool:
                return await value('ALERTS{alertname="SGLangRestartBudgetSpent", alertstate="pending"}') == "1"

            await until(recorded, 60)
