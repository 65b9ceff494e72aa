"""Where commands find the daemon's systemd credentials."""

from pathlib import Path

import pytest

from watchdog import config
from watchdog.cli import credentials

WHOLE = config.Config(
    servers=[
        config.Server(name="a", unit="a.service", api_key_file="kimi-key"),
        config.Server(name="b", unit="b.service", api_key_file="/etc/own"),
        config.Server(name="c", unit="c.service", api_key_file="unheard-of"),
    ],
    alert=config.Alerting(webhook_headers_file="hook"),
)


def paths(whole: config.Config) -> list[str]:
    return [*(s.api_key_file for s in whole.servers), whole.alert.webhook_headers_file, whole.alert.apprise_urls_file]


@pytest.fixture(autouse=True)
def _nowhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CREDENTIALS_DIRECTORY", raising=False)
    monkeypatch.setattr(credentials, "HANDED", tmp_path / "credentials")
    monkeypatch.setattr(credentials, "BOOTED", tmp_path / "none")
    monkeypatch.setattr(credentials.service, "known_credentials", dict)


def test_what_cannot_be_found_stays_a_name() -> None:
    assert paths(credentials.resolved(WHOLE)) == ["kimi-key", "/etc/own", "unheard-of", "hook", ""]


def test_what_a_running_daemon_was_handed_comes_before_its_source(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(credentials.service, "known_credentials", lambda: {"kimi-key": "/etc/old", "hook": "/etc/hook"})
    folder = tmp_path / "credentials" / credentials.UNIT
    folder.mkdir(parents=True)
    (folder / "kimi-key").write_text("k")
    assert paths(credentials.resolved(WHOLE)) == [str(folder / "kimi-key"), "/etc/own", "unheard-of", "/etc/hook", ""]


def test_what_systemd_knows_comes_before_what_setup_wrote(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(credentials.service, "known_credentials", lambda: {"kimi-key": "/etc/old"})
    monkeypatch.setattr(credentials, "_configured", lambda: {"kimi-key": "/etc/new"})
    assert paths(credentials.resolved(WHOLE))[0] == "/etc/new"


def test_a_service_looks_into_its_own_folder(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CREDENTIALS_DIRECTORY", "/run/credentials/x")
    assert credentials.resolved(WHOLE) is WHOLE
