"""`check-config`: all faults at once, and warnings for what it names."""

import json
from pathlib import Path

import pytest

from watchdog import cli

GOOD = '[[servers]]\nname = "kimi"\nunit = "sglang-kimi.service"\n'


def run(file: Path, *more: str) -> int:
    return cli.main(["check-config", str(file), *more])


@pytest.fixture(autouse=True)
def no_systemd(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever runs on this host is not asked; test_box_commands.py asks a real one."""
    from watchdog.cli import check_config

    monkeypatch.setattr(check_config, "BOOTED", Path("/nowhere"))


def test_a_good_one(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "c.toml"
    file.write_text(GOOD)
    assert run(file) == 0
    assert capsys.readouterr().out == f"{file} can be used\n"
    assert cli.main(["check-config", "--config", str(file)]) == 0


def test_every_fault_at_once(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "c.toml"
    file.write_text(GOOD + 'base_url = "nope"\n[daemon]\nmode = "acct"\n[probe]\nchat_limt_s = 3\n')
    assert run(file) == 78
    out = capsys.readouterr().out
    assert 'daemon.mode = "acct": is not one of the choices; write "observe", "alert" or "act"; did you mean "act"?' in out
    assert out.count("fault: ") == 3
    assert out.endswith(f"{file} cannot be used: 3 faults\n")
    assert run(file, "--json") == 78
    told = json.loads(capsys.readouterr().out)
    assert told["usable"] is False
    assert {f["key"] for f in told["faults"]} == {"daemon.mode", "probe.chat_limt_s", "servers[kimi].base_url"}
    assert all(f["problem"] and f["cure"] for f in told["faults"])


def test_files_that_are_not_there(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "c.toml"
    file.write_text(
        f'[alert]\napprise_urls_file = "{tmp_path}/none"\n{GOOD}base_url = "https://localhost:1"\n'
        f'api_key_file = "{tmp_path}/key"\nca_file = "{tmp_path}/ca"\n'
    )
    assert run(file) == 0
    out = capsys.readouterr().out
    assert [line.split(" ")[1].rstrip(":") for line in out.splitlines() if line.startswith("warning")] == [
        "servers[kimi].api_key_file",
        "servers[kimi].ca_file",
        "alert.apprise_urls_file",
    ]
    assert out.endswith("can be used, with 3 warnings\n")


def test_a_key_is_never_printed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    key = tmp_path / "key"
    key.write_text("sk-very secret\n")
    file = tmp_path / "c.toml"
    file.write_text(f'{GOOD}api_key_file = "{key}"\n')
    assert run(file) == 0
    out = capsys.readouterr().out
    assert "not one line of printable ASCII" in out
    assert "very secret" not in out


@pytest.mark.parametrize("name", ["/nowhere/c.toml", "\x00", "/", "\udcff"])
def test_a_file_that_cannot_be_read(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["check-config", name]) == 78
    assert "cannot be used: 1 fault" in capsys.readouterr().out


@pytest.mark.parametrize("key", ["state_dir", "runtime_dir"])
@pytest.mark.parametrize("value", ["", "foo", "./foo", "../x", "/", "~/x", "/x\\u0000y"])
def test_a_folder_is_named_by_its_full_path(tmp_path: Path, capsys: pytest.CaptureFixture[str], key: str, value: str) -> None:
    file = tmp_path / "c.toml"
    file.write_text(f'[daemon]\n{key} = "{value}"\n{GOOD}')
    assert run(file) == 78
    out = capsys.readouterr().out
    assert out.startswith(f"fault: daemon.{key} = ")
    assert "has not the form that is needed; write the full path of a folder" in out


@pytest.mark.parametrize(
    ("table", "key", "cure"),
    [
        ("servers", "ca_file", "write the full path of a file"),
        ("servers", "api_key_file", "write the full path of a file, or the bare name of a systemd credential"),
        ("alert", "ca_file", "write the full path of a file"),
        ("alert", "apprise_urls_file", "or the bare name of a systemd credential"),
        ("alert", "webhook_headers_file", "or the bare name of a systemd credential"),
        ("alert", "alertmanager_headers_file", "or the bare name of a systemd credential"),
    ],
)
def test_a_file_is_named_by_its_full_path(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], table: str, key: str, cure: str
) -> None:
    file = tmp_path / "c.toml"
    own = f'base_url = "https://localhost:1"\n{key} = "./own"\n' if table == "servers" else f'[alert]\n{key} = "./own"\n'
    file.write_text(GOOD + own)
    assert run(file) == 78
    assert cure in capsys.readouterr().out


def test_a_socket_must_fit_into_the_runtime_folder(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "c.toml"
    file.write_text(f'[daemon]\nruntime_dir = "/run/{"x" * 90}"\n{GOOD}')
    assert run(file) == 78
    assert "is too long for the socket in it (95 bytes, 94 at most)" in capsys.readouterr().out


def test_folders_that_cannot_be_used_are_warned_of(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    from watchdog.cli import check_config

    file, plain, there = tmp_path / "c.toml", tmp_path / "plain", tmp_path / "there"
    plain.write_text("")
    there.mkdir()
    monkeypatch.setattr(check_config.os, "access", lambda path, mode: Path(path) != there)

    run_dir = tmp_path / "run"
    run_dir.mkdir()

    def warned(state: str) -> str:
        file.write_text(f'[daemon]\nstate_dir = "{state}"\nruntime_dir = "{run_dir}"\n{GOOD}')
        assert run(file) == 0
        return capsys.readouterr().out.splitlines()[0]

    begin = f'warning: daemon.state_dir = "{tmp_path}'
    assert warned(f"{tmp_path}/none") == (
        f"{begin}/none\": is not there; make it for the watchdog's user, or have its unit make it with StateDirectory="
    )
    assert warned(str(there)).startswith(f'{begin}/there": cannot be written from here; make it writable')
    assert warned(str(plain)).startswith(f'{begin}/plain": is no folder; name another')
    assert warned(f"{plain}/below").startswith(f'{begin}/plain/below": lies below {plain}, which is no folder')
    assert "File name too long" in warned(f"{tmp_path}/{'x' * 300}")
    assert warned("/var/lib/sglang-watchdog-of-this-test").endswith("can be used"), "systemd makes it at the start"
    assert warned(str(tmp_path)).endswith("can be used")


@pytest.mark.parametrize(
    ("table", "key", "problem"),
    [
        ('[alert]\nwebhook_url = "http://h/\\u0000x"\n', "alert.webhook_url", "is no http address"),
        ('[alert]\nproxy_url = "http://h\\u0000"\n', "alert.proxy_url", "has not the form that is needed"),
        ('[alert]\nrunbook_url = "javascript:alert(1)"\n', "alert.runbook_url", "is no http address"),
    ],
)
def test_texts_that_can_be_no_address(
    tmp_path: Path, table: str, key: str, problem: str, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "c.toml"
    file.write_text(table + GOOD)
    assert run(file, "--json") == 78
    (fault,) = json.loads(capsys.readouterr().out)["faults"]
    assert (fault["key"], fault["problem"]) == (key, problem)


@pytest.mark.parametrize(
    ("host", "enabled", "warned"),
    [("0.0.0.0", True, True), ("::", True, True), ("gpu01", True, True), ("0.0.0.0", False, False), ("127.0.0.1", True, False),
     ("::1", True, False), ("localhost", True, False)],
)  # fmt: skip
def test_a_page_that_others_can_reach(
    tmp_path: Path, host: str, enabled: bool, warned: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "c.toml"
    file.write_text(f'[web]\nenabled = {str(enabled).lower()}\nhost = "{host}"\n{GOOD}')
    assert run(file) == 0
    assert ("web.host" in capsys.readouterr().out) is warned


def test_one_folder_for_both_is_warned_of(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "c.toml"
    file.write_text(f'[daemon]\nstate_dir = "{tmp_path}"\nruntime_dir = "{tmp_path}/"\n{GOOD}')
    assert run(file) == 0
    assert capsys.readouterr().out.startswith(f'warning: daemon.runtime_dir = "{tmp_path}/": is the state_dir too')


@pytest.mark.parametrize(
    ("key", "content", "said"),
    [
        ("webhook_headers_file", b"X: \xff\n", "{file} is not UTF-8 text; save it as UTF-8"),
        ("alertmanager_headers_file", b"X-A: b\r\nnothing\n", "{file}, line 2, is not of the form Name: value; mend it"),
        ("apprise_urls_file", b"ntfy://\xff\n", "{file} is not UTF-8 text; save it as UTF-8"),
        ("ca_file", b"", "the CA file {file} cannot be used: it is empty; it must be PEM and readable"),
    ],
)
def test_a_file_that_a_channel_cannot_use_is_warned_of(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], key: str, content: bytes, said: str
) -> None:
    file, secret = tmp_path / "c.toml", tmp_path / "secret"
    secret.write_bytes(content)
    file.write_text(f'[alert]\n{key} = "{secret}"\n{GOOD}')
    assert run(file) == 0
    assert f"warning: alert.{key}: {said.format(file=secret)}\n" in capsys.readouterr().out


def test_the_file_is_named_once(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "c.toml"
    file.write_text(GOOD)
    assert run(file, "--config", str(file)) == 2
    assert capsys.readouterr().err.startswith("sglang-watchdog check-config: name one file: ")
    with pytest.raises(SystemExit) as ended:
        cli.main(["check-config", ""])
    assert ended.value.code == 2
    assert "the name of a file is empty" in capsys.readouterr().err


def test_a_fault_of_the_whole_file_names_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(tmp_path) == 78
    assert capsys.readouterr().out.startswith(f"fault: {tmp_path} is a folder, not a file; ")
