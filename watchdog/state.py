"""What survives our own end: the ledger of restarts, the pause, what was learned, a restart of ours that is under way.

One JSON file for each server below the state directory, written whole to a new name and renamed, so that SIGKILL at any
moment leaves the old file or the new one. Moments are on the daemon's clock, which begins anew with each daemon: they are
shifted when they are read, by the boot clock within a boot and by the wall clock over a reboot.
"""

import os
import time
from pathlib import Path
from typing import Literal

import msgspec

from watchdog import config, durable, regular
from watchdog.clock import Clock
from watchdog.incidents import Incident
from watchdog.judge.facts.deaths import Ends
from watchdog.judge.facts.learned import Learned
from watchdog.judge.ledger import Ledger, Ordered

VERSION = 1
LOST = "StateLost"
MAX_BYTES = 64 << 20
LONGEST_S = 10 * 365 * 86400.0


class UnderWay(msgspec.Struct, kw_only=True):
    """A restart that was ordered and is not yet verified, for the daemon that comes after us.

    Attributes:
        t: when it was ordered, on the daemon's clock.
        reason: why.
        inv: the life that it ends.
        stage: "evidence": nothing has been done to the unit yet; "job": systemd has been asked, or is about to be;
            "recovery": the job is over, and the new life has to prove itself.
        job: the D-Bus path of systemd's job; None until systemd has answered.
    """

    t: float
    reason: str
    inv: str | None = None
    stage: Literal["evidence", "job", "recovery"] = "evidence"
    job: str | None = None


class Saved(msgspec.Struct, kw_only=True):
    """The content of a state file.

    Attributes:
        version: of this format.
        unit: the unit that it is about; "" in files of versions that did not write it.
        boot_id: of the boot in which it was written.
        boottime: CLOCK_BOOTTIME of the writing, in seconds.
        wall: wall-clock time of the writing (Unix seconds).
        now: the daemon's clock at the writing.
        observed_s: how long the server has been watched in mode observe, in seconds; 0 in other modes.
        under_way: a restart of ours that was not verified yet.
        incidents: what went wrong of late and what came of it, the newest last.
        ends: how the server's lives of the last day ended; none in files of versions that did not write it.
    """

    version: int = VERSION
    unit: str = ""
    boot_id: str = ""
    boottime: float = 0.0
    wall: float = 0.0
    now: float = 0.0
    ledger: Ledger = msgspec.field(default_factory=Ledger)
    learned: Learned = msgspec.field(default_factory=Learned)
    paused_until: float | None = None
    paused: bool = False
    pause_reason: str = ""
    observed_s: float = 0.0
    under_way: UnderWay | None = None
    incidents: list[Incident] = []
    ends: Ends = msgspec.field(default_factory=Ends)

    def plausible(self) -> bool:
        """Whether all moments are finite and within some years of now."""
        ledger = self.ledger
        moments = [r.t for r in ledger.restarts] + [ledger.condemned_at or 0.0, ledger.repaired_at or 0.0]
        moments += [ledger.refused.t if ledger.refused is not None else 0.0, self.paused_until or 0.0, self.observed_s]
        for named in (ledger.withheld, ledger.alerts, ledger.events, ledger.planned):
            moments += named.values()
        for incident in self.incidents:
            moments += incident.moments()
        moments += self.ends.moments()
        return all(abs(t) < LONGEST_S for t in moments)

    def word_of_people(self) -> "Saved":
        """A pause alone: a person named the server, whatever its unit is."""
        return Saved(paused=self.paused, paused_until=self.paused_until, pause_reason=self.pause_reason)

    def shift(self, seconds: float) -> None:
        """Carry all moments over to another clock, on which they are `seconds` later."""
        ledger = self.ledger
        for ordered in ledger.restarts:
            ordered.t += seconds
        if ledger.condemned_at is not None:
            ledger.condemned_at += seconds
        if ledger.repaired_at is not None:
            ledger.repaired_at += seconds
        if ledger.refused is not None:
            ledger.refused.t += seconds
        for moments in (ledger.withheld, ledger.alerts, ledger.events, ledger.planned):
            for reason in moments:
                moments[reason] += seconds
        if self.paused_until is not None:
            self.paused_until += seconds
        if self.under_way is not None:
            self.under_way.t += seconds
        for incident in self.incidents:
            incident.shift(seconds)
        self.ends.shift(seconds)


def folders(whole: config.Config) -> tuple[Path, Path]:
    """(state, runtime) folders: systemd's StateDirectory= and RuntimeDirectory= come before the configuration."""
    state = os.environ.get("STATE_DIRECTORY", "").split(":")[0] or whole.daemon.state_dir
    runtime = os.environ.get("RUNTIME_DIRECTORY", "").split(":")[0] or whole.daemon.runtime_dir
    return Path(state), Path(runtime)


def boot_id() -> str:
    """The id of this boot (random(4)); "" where it cannot be read."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
    except OSError:
        return ""


class StateFile:
    """Reads and writes the state of one server.

    Args:
        path: the file.
        clock: the daemon's clock.
        unit: the server's unit; what is about another one is not taken up. "" takes up whatever is there.
    """

    def __init__(self, path: Path, clock: Clock, unit: str = "") -> None:
        self.path = path
        self._unit = unit
        self._clock = clock
        self._boot_id = boot_id()

    def load(self) -> tuple[Saved, str | None]:
        """The state, and what was wrong with the file (None if nothing was).

        A file that cannot be used is kept aside under another name. Since the memory of restarts is lost with it, one restart
        counts as just ordered: a daemon that forgets must not loop.
        """
        try:
            data = regular.read(self.path, MAX_BYTES + 1)
        except FileNotFoundError:
            return Saved(), None
        except regular.NotRegularError as e:
            return self._lost(), self._aside(f"cannot be read ({e.strerror})")
        except OSError as e:
            lost = "the memory of restarts is not to be had"
            return self._lost(), f"{self.path} cannot be read ({e.strerror}): {lost}; {durable.mend(self.path, e)}"
        if len(data) > MAX_BYTES:
            return self._lost(), self._aside(f"is larger than {MAX_BYTES >> 20} MiB")
        try:
            version = msgspec.json.decode(data, type=dict[str, msgspec.Raw]).get("version")
            if version is not None and msgspec.json.decode(version) != VERSION:
                return self._lost(), self._aside(f"has version {bytes(version).decode()}, this program knows {VERSION}")
            saved = msgspec.json.decode(data, type=Saved)
            self._shift(saved)
            if not saved.plausible():
                return self._lost(), self._aside("has moments that cannot be")
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as e:
            return self._lost(), self._aside(f"is damaged ({e})")
        if self._unit and saved.unit and saved.unit != self._unit:
            left = "its restarts, its deaths, its incidents and what was learned of it are forgotten; a pause still holds"
            return saved.word_of_people(), f"{self.path} is about {saved.unit}, and {self._unit} has its name now: {left}"
        return saved, None

    def _lost(self) -> Saved:
        return Saved(ledger=Ledger(restarts=[Ordered(t=self._clock.now(), reason=LOST)]))

    def _aside(self, why: str) -> str:
        kept = durable.aside(self.path)
        return f"{self.path} {why};{f' kept as {kept},' if kept else ''} begun anew, one restart held as spent"

    def _shift(self, saved: Saved) -> None:
        """Carry all moments over to the clock of this daemon."""
        if saved.boot_id == self._boot_id and saved.boot_id:
            passed = time.clock_gettime(time.CLOCK_BOOTTIME) - saved.boottime
        else:
            passed = time.time() - saved.wall
            saved.under_way = None  # a reboot ends every job, and the numbers of jobs begin anew
        saved.shift(self._clock.now() - saved.now - max(0.0, passed))

    def encode(self, saved: Saved) -> bytes:
        """The state as it is written, with the moment of now."""
        saved.version, saved.boot_id, saved.unit = VERSION, self._boot_id, self._unit or saved.unit
        saved.boottime, saved.wall, saved.now = time.clock_gettime(time.CLOCK_BOOTTIME), time.time(), self._clock.now()
        return msgspec.json.encode(saved)

    def write(self, data: bytes) -> None:
        """Write so that it survives a power loss; blocks for as long as the disk does.

        Raises:
            OSError: it could not be written (full disk, no right).
        """
        durable.write(self.path, data)
