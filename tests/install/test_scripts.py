"""The package's maintainer scripts, with another root and programs that only note how they were called."""

import hashlib
import os
import subprocess
from pathlib import Path

import pytest

SCRIPTS = Path(__file__).parents[2] / "packaging/debian"
SYSTEMCTL = """#!/bin/sh
case "$*" in
  is-active*) exit {active} ;;
  is-enabled*) exit {enabled} ;;
esac
echo "systemctl $*" >>{said}
"""


class Host:
    """A root in a folder, with systemd running."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.said = root / "said"
        self.conf = root / "etc/sglang-watchdog"
        self.before = self.conf / "setup/before"
        (root / "run/systemd/system").mkdir(parents=True)
        (root / "bin").mkdir()
        for name in ("py3compile", "systemd-sysusers", "userdel", "groupdel", "deb-systemd-invoke"):
            self.program(name, f'#!/bin/sh\necho "{name} $*" >>{self.said}\n')
        self.program("getent", "#!/bin/sh\nexit 2\n")
        self.state()

    def state(self, *, active: bool = False, enabled: bool = False) -> None:
        """What systemctl says of every unit."""
        self.program("systemctl", SYSTEMCTL.format(active=int(not active), enabled=int(not enabled), said=self.said))

    def program(self, name: str, text: str) -> None:
        (self.root / "bin" / name).write_text(text)
        (self.root / "bin" / name).chmod(0o755)

    def run(self, script: str, *words: str) -> str:
        text = (SCRIPTS / script).read_text()
        for top in ("etc", "run", "var/lib", "usr/lib"):
            text = text.replace(f" /{top}/", f" {self.root}/{top}/").replace(f"=/{top}/", f"={self.root}/{top}/")
        done = subprocess.run(
            ["sh", "-c", text, script, *words],
            capture_output=True,
            text=True,
            check=False,
            env={**os.environ, "PATH": f"{self.root}/bin:/usr/bin:/bin"},
            timeout=60,
        )
        assert (done.returncode, done.stderr) == (0, "")
        return done.stdout

    def asked(self) -> list[str]:
        """What was asked of systemd, but for a reload."""
        lines = self.said.read_text().splitlines() if self.said.exists() else []
        return [
            line for line in lines if "systemd-invoke" in line or (line.startswith("systemctl") and "daemon-reload" not in line)
        ]

    def wrote(self, path: str, text: str, *, was: str | None = None, now: str | None = None) -> Path:
        """A file as setup leaves it: `was` is what it had replaced, `now` what a person has made of it since."""
        place = self.root / path
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text(text if now is None else now)
        self.before.mkdir(parents=True, exist_ok=True)
        with (self.conf / "setup/manifest").open("a") as manifest:
            manifest.write(f"{hashlib.sha256(text.encode()).hexdigest()}  {place}\n")
        if was is not None:
            self.copy(place).write_text(was)
        return place

    def copy(self, place: Path) -> Path:
        return self.before / str(place).lstrip("/").replace("/", "--")


@pytest.fixture
def host(tmp_path: Path) -> Host:
    return Host(tmp_path)


SERVICE = "deb-systemd-invoke restart sglang-watchdog.service"
SOCKET = "deb-systemd-invoke start sglang-watchdog-stacks.socket"


@pytest.mark.parametrize(
    ("configured", "active", "enabled", "asked"),
    [
        (False, False, False, []),
        (True, False, True, [SERVICE, SOCKET]),  # after a removal
        (True, True, True, [SERVICE, SOCKET]),  # an upgrade
        (True, False, False, [SERVICE]),  # which starts nothing that is disabled
        (False, True, False, [SERVICE]),  # its configuration lies elsewhere
    ],
)
def test_an_installation_starts_what_was_set_up(
    host: Host, configured: bool, active: bool, enabled: bool, asked: list[str]
) -> None:
    host.state(active=active, enabled=enabled)
    if configured:
        host.conf.mkdir(parents=True)
        (host.conf / "sglang-watchdog.toml").touch()

    said = host.run("postinst", "configure", "1")

    assert host.asked() == asked
    assert ("to begin, run" in said) != configured


def test_a_purge_leaves_nothing_of_ours(host: Host) -> None:
    ours = host.wrote("etc/systemd/system/a.service.d/50.conf", "ours")
    theirs = host.wrote("etc/systemd/system/b.service.d/50.conf", "ours", was="theirs")
    host.wrote("etc/sglang-watchdog/sglang-watchdog.toml", "ours", was="an old one", now="changed")
    interrupted = host.wrote("etc/c.conf", "ours", was="theirs", now="theirs")

    assert host.run("postrm", "purge") == ""

    assert not ours.parent.exists()
    assert (theirs.read_text(), interrupted.read_text()) == ("theirs", "theirs")
    assert not host.conf.exists()


def test_a_purge_keeps_the_only_copy_of_a_persons_file(host: Host) -> None:
    place = host.wrote("etc/systemd/system/a.service.d/50.conf", "ours", was="theirs", now="changed since")
    host.wrote("etc/sglang-watchdog/sglang-watchdog.toml", "ours", was="an old one", now="changed")

    said = host.run("postrm", "purge")

    assert place.read_text() == "changed since"
    assert [(p, p.read_text()) for p in host.conf.rglob("*") if p.is_file()] == [(host.copy(place), "theirs")]
    assert str(host.before) in said


def test_a_purge_of_what_was_never_set_up(host: Host) -> None:
    assert host.run("postrm", "purge") == ""
