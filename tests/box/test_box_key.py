"""A server that wants an API key: as a systemd credential, in what the server prints, and where it cannot be read."""

import gzip
import json
from collections.abc import Iterator

import pytest

from tests.box.box import Box, wait_for
from tests.box.daemons import COMMAND, Server, Watchdog

LONG = 60.0
KEY = "MARKER-sk-kimi-77"
FILE = "/etc/keys/kimi"
LATE = "/etc/keys/late"
GIVEN = Server("keyed", 32101, arguments=f"--traffic 0.5 --api-key {KEY}", keys='api_key_file = "kimi-key"', service="Restart=no")
BLIND = Server("blind", 32102, arguments=f"--api-key {KEY}", keys=f'api_key_file = "{LATE}"')
BUSY = Server("busy", 32103, arguments=f"--traffic 0.5 --api-key {KEY}", keys=f'api_key_file = "{LATE}"')


@pytest.fixture(scope="module")
def dog(box: Box) -> Iterator[Watchdog]:
    """The daemon of a key that systemd hands over, under the name that commands look for."""
    box.write(FILE, f"{KEY}\n")
    box.run("chmod", "-R", "go=", "/etc/keys")
    GIVEN.install(box)
    dog = Watchdog(box, "sglang-watchdog", [GIVEN], service=f"LoadCredential=kimi-key:{FILE}")
    box.run("systemctl", "daemon-reload")
    box.run("systemctl", "start", GIVEN.unit, dog.unit)
    wait_for(lambda: dog.view("keyed").get("verified"), LONG, f"verified\n{dog.told()}")
    yield dog


def verified(dog: Watchdog) -> dict[str, dict[str, str]]:
    """What `verify` says as root: item → what was found."""
    done = dog.box.run(COMMAND, "verify", "--config", f"/etc/wd/{dog.name}.toml", "--json", check=False, timeout=120)
    return {item["item"]: item for item in json.loads(done.stdout)["servers"][0]["items"]}


def test_a_credential_opens_the_server_to_the_daemon_and_to_root(dog: Watchdog) -> None:
    assert dog.view("keyed")["probes"]["chat"]["outcome"] == "ok"
    found = verified(dog)
    assert {item: found[item]["verdict"] for item in ("health", "models", "canary")} == dict.fromkeys(
        ("health", "models", "canary"), "ok"
    ), found
    checked = dog.box.run(COMMAND, "check-config", f"/etc/wd/{dog.name}.toml")
    assert "api_key_file" not in checked.stdout


def test_without_the_daemon_the_credential_is_found_at_its_source(dog: Watchdog) -> None:
    box = dog.box
    box.run("systemctl", "stop", dog.unit)
    assert verified(dog)["canary"]["verdict"] == "ok"
    waited = box.run(COMMAND, "wait", "--config", f"/etc/wd/{dog.name}.toml", "--timeout", "40", check=False)
    assert waited.returncode == 0, waited
    box.run("mv", FILE, f"{FILE}.away")
    missing = verified(dog)["canary"]["seen"]
    assert FILE in missing and "No such file" in missing
    box.run("mv", f"{FILE}.away", FILE)
    box.run("systemctl", "start", dog.unit)
    wait_for(lambda: dog.view("keyed").get("verified"), LONG, f"verified\n{dog.told()}")


def test_a_key_that_the_server_prints_is_told_nowhere(dog: Watchdog) -> None:
    box = dog.box
    GIVEN.fault(box, "exception", f"text=RuntimeError: bad request from {KEY}")
    dog.until(LONG, event="acted", action="restart")
    wait_for(lambda: dog.view("keyed").get("bundle"), LONG, dog.told())
    wait_for(lambda: dog.view("keyed").get("verified"), LONG, dog.told())
    assert KEY in box.journal("-u", GIVEN.unit)
    told = {
        "journal": box.run("journalctl", "-o", "json", "--no-pager", f"_SYSTEMD_UNIT={dog.unit}").stdout,
        "status": json.dumps(dog.view("keyed")),
        "explain": json.dumps(dog.ask("explain", server="keyed")),
        "status line": dog.status(),
    }
    files = box.run("find", "/var/lib/sglang-watchdog", "-type", "f").stdout.split()
    for file in files:
        raw = bytes.fromhex(box.run("xxd", "-p", file).stdout.replace("\n", ""))
        told[file] = (gzip.decompress(raw) if file.endswith(".gz") else raw).decode("utf-8", "replace")
    assert any(file.endswith("journal.txt") for file in files) and any("record" in file for file in files), files
    assert [place for place, text in told.items() if KEY in text] == []
    assert any("bad request from …" in text for text in told.values())


def test_an_unreadable_key_is_told_and_blinds_only_what_needs_it(box: Box, dog: Watchdog) -> None:
    BLIND.install(box)
    BUSY.install(box)
    blind = Watchdog(box, "blind-dog", [BLIND, BUSY])
    box.run("systemctl", "daemon-reload")
    box.run("systemctl", "start", BLIND.unit, BUSY.unit, blind.unit)
    told = blind.until(LONG, action="alert", reason="CannotAsk", server="blind")
    assert LATE in told["message"] and "readable" in told["advice"]
    wait_for(lambda: LATE in blind.status(), LONG, blind.status())
    view = blind.view("blind")
    assert view["probes"]["health"]["outcome"] == "ok" and "chat" not in view["probes"]
    waited = box.run(COMMAND, "wait", "--config", "/etc/wd/blind-dog.toml", "--server", "blind", "--timeout", "2", check=False)
    assert waited.returncode == 3 and LATE in waited.stderr
    BUSY.fault(box, "hang", "where=loop")
    blind.until(LONG, event="acted", action="restart", server="busy")
    pid = box.show(blind.unit, "MainPID")
    box.write(LATE, KEY)
    wait_for(lambda: blind.view("blind").get("verified"), LONG, blind.told())
    assert box.show(blind.unit, "MainPID") == pid
    box.run("systemctl", "stop", blind.unit, BLIND.unit, BUSY.unit)


def test_a_daemon_that_does_not_answer_in_time_is_told_as_slow(dog: Watchdog) -> None:
    box = dog.box
    pid = box.show(dog.unit, "MainPID")
    box.run("kill", "-STOP", pid)
    try:
        done = box.run(COMMAND, "verify", "--limit", "3", "--config", f"/etc/wd/{dog.name}.toml", "--json", check=False)
        health = {i["item"]: i for i in json.loads(done.stdout)["servers"][0]["items"]}["health"]
        assert "within" in health["seen"] and "root" not in health["seen"], health
    finally:
        box.run("kill", "-CONT", pid)
