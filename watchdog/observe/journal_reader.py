"""The journal, entry by entry: opened, positioned, followed, opened again where it was left.

systemd-python's low-level reader gives single fields of an entry; whole entries (`systemd.journal.Reader`) cost 15 times as much.
An sd_journal object belongs to one thread (sd_journal_get_fd(3), NOTES): here the event loop's.
"""

import asyncio
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple, NoReturn

from systemd import _reader

from watchdog.clock import Clock
from watchdog.observe import journal_sigbus
from watchdog.observe.source import Beat

BATCH = 200
"""So many entries are read at most before the loop gets its turn: about 1 ms."""

LOOK_S = 0.07
"""While entries come, the journal is looked at this often. journald tells its readers of new entries only 250 ms late (it
collects changes, POST_CHANGE_TIMER_INTERVAL_USEC of managed-journal-file.c, systemd 252), but they can be read at once."""

LIVELY_S = 2.0
"""Entries are held to come for so long after the last one that tells of work; then only the journal itself wakes us."""

RENEW_S = 300.0
"""The journal is opened anew this often. That frees what a missed notice may have left: files that were deleted and are still
open, a folder that was replaced."""

ROOTS = (Path("/var/log/journal"), Path("/run/log/journal"))
"""Where journald keeps journals: on disk, and for as long as the machine runs (systemd-journald.service(8), FILES)."""

_INCLUDE_DEFAULT_NAMESPACE = 1 << 6
"""SD_JOURNAL_INCLUDE_DEFAULT_NAMESPACE (sd-journal.h), which systemd-python 235 does not name."""

Matches = Sequence[Sequence[str]]
"""Alternatives; each is a list of FIELD=value that must all be there."""


class Batch(NamedTuple):
    """What a reader of `JournalReader.entries` found: how many entries, and whether more of them may come soon."""

    entries: int
    lively: bool


class JournalError(Exception):
    """The journal cannot be read; the message is one sentence that names the cure."""


def _folders(namespace: str) -> list[Path]:
    """Where the journal of this machine is kept."""
    try:
        machine = Path("/etc/machine-id").read_text(encoding="ascii").strip()
    except (OSError, UnicodeDecodeError) as e:
        raise JournalError(f"the journal cannot be found without /etc/machine-id ({e}); run systemd-machine-id-setup") from e
    name = f"{machine}.{namespace}" if namespace else machine
    return [root / name for root in ROOTS]


def check_access(namespace: str = "") -> None:
    """Make sure that there is a journal of the system which we may read: opening one succeeds even where there is none.

    Raises:
        JournalError: there is none, or we may not read it.
    """
    folders = _folders(namespace)
    whose = f"the journal namespace {namespace!r}" if namespace else "the system's journal"
    found = False
    for folder in folders:
        try:
            files = [file for file in os.listdir(folder) if file.startswith("system") and file.endswith(".journal")]  # noqa: PTH208
        except FileNotFoundError:
            continue
        except OSError:
            found = True
            continue
        found = found or bool(files)
        if any(os.access(folder / file, os.R_OK, effective_ids=True) for file in files):
            return
    if found:
        raise JournalError(
            f"no permission to read {whose}: put the watchdog's user into the group systemd-journal "
            "(SupplementaryGroups=systemd-journal in its unit, or usermod -aG systemd-journal USER, and start it again)"
        )
    cure = (
        "set journal_namespace to the LogNamespace= of the server's unit, or remove it"
        if namespace
        else "start systemd-journald, and set Storage= in journald.conf to auto, persistent or volatile"
    )
    raise JournalError(f"there are no files of {whose} in {' or '.join(map(str, ROOTS))}: {cure}")


def boot_id() -> str:
    """The id of this boot, as the journal writes it: 32 hexadecimal digits."""
    return Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip().replace("-", "")


class JournalReader:
    """Those entries of the journal that match, forward from a position, each once.

    Attributes:
        cursor: the last entry that was read or passed over; it outlives `opened`, so that the next one goes on from there.
    """

    def __init__(self, clock: Clock, matches: Matches, namespace: str = "") -> None:
        self.cursor: str | None = None
        self._clock = clock
        self._boot = bytes.fromhex(boot_id())
        self._boot_at = 0.0
        self._matches = matches
        self._namespace = namespace
        self._raw: Any = None
        self._fd = -1
        self._present: list[bool] = []
        self._begun = False
        self._at_entry = False
        self._resting: asyncio.Future[None] | None = None
        self._rest_until = 0.0

    def continue_after(self, before: "JournalReader") -> None:
        """Begin where another one, of the same journal, ended."""
        self.cursor, self._begun = before.cursor, before._begun

    @contextmanager
    def opened(self) -> Iterator[None]:
        """Open the journal: the first time at its end, later where reading was left; close it at last.

        Raises:
            JournalError: see `check_access`.
            OSError: the journal could not be opened.
        """
        self._open()
        try:
            yield
        finally:
            self._close()

    def _open(self) -> None:
        check_access()
        journal_sigbus.guard()
        flags = _reader.LOCAL_ONLY
        if self._namespace:
            self._raw = _reader._Reader(flags | _INCLUDE_DEFAULT_NAMESPACE, namespace=self._namespace)
        else:
            self._raw = _reader._Reader(flags)
        self._present = self._folders_present()
        # This begins the watch over the folders; before it, process() does nothing (sd_journal_process(3)).
        self._fd = self._raw.fileno()
        if not self._begun:
            # The end is taken before there is a match: with one, seek_tail() forgets entries (systemd issue 17662).
            self._raw.seek_tail()
            if self._raw._previous():
                self.cursor = self._raw._get_cursor()
            self._begun = True
        self._match(self._matches)
        self.resume()

    def _folders_present(self) -> list[bool]:
        """Which of the namespace's folders are there: libsystemd does not see it when one comes later."""
        return [folder.exists() for folder in _folders(self._namespace)] if self._namespace else []

    def _is_stale(self) -> bool:
        """Whether the journal has to be opened anew to be read rightly."""
        return journal_sigbus.struck() or self._folders_present() != self._present

    def _close(self) -> None:
        if self._raw is not None:
            self._raw.close()
            self._raw, self._fd = None, -1

    def _match(self, matches: Matches) -> None:
        self._raw.flush_matches()
        for alternative in matches:
            self._raw.add_disjunction()
            for match in alternative:
                self._raw.add_match(match)

    def resume(self) -> None:
        """Go to the first entry after `cursor`, whether the entry of `cursor` matches, still exists, or neither."""
        if self.cursor is None:
            self._raw.seek_head()
            self._at_entry = False
            return
        self._raw.seek_cursor(self.cursor)
        # What comes next is the entry of the cursor itself, if it is there and matches.
        self._at_entry = bool(self._raw._next()) and not self._raw.test_cursor(self.cursor)

    def go(self, cursor: str) -> None:
        """Go to the entry of `cursor`, which is the next one to be read."""
        self._raw.seek_cursor(cursor)
        self._at_entry = bool(self._raw._next())

    def first_of(self, matches: Matches) -> str | None:
        """The cursor of the oldest entry with other matches, None if there is none. `go` or `resume` has to follow."""
        self._match(matches)
        self._raw.seek_head()
        cursor = self._raw._get_cursor() if self._raw._next() else None
        self._match(self._matches)
        return cursor

    def first_of_last(self, lines: int, size: int, after_us: int) -> tuple[str | None, bool]:
        """Where to begin so as to read only the end. `go` or `resume` has to follow.

        Args:
            lines: at most so many entries.
            size: about so many bytes of their messages, at most.
            after_us: only entries that were written after this reading of CLOCK_MONOTONIC, in microseconds.

        Returns:
            The cursor of the first of these entries, None if there is none; and whether `after_us` was what ended the search.
        """
        oldest = None
        self._raw.seek_tail()
        while lines > 0 and size > 0 and self._raw._previous():
            if self.monotonic_us() <= after_us:
                return oldest, True
            oldest = self._raw._get_cursor()
            lines -= 1
            size -= len(self.field("MESSAGE") or b"")
        return oldest, False

    def entries(self) -> Iterator[Callable[[str], bytes]]:
        """The next entries, at most `BATCH`; each as a function that reads one field of it (KeyError: it has no such field)."""
        get, forward = self._raw._get, self._raw._next
        count = 0
        self._boot_at = self._clock.at_monotonic(0.0)
        more = self._at_entry or forward()
        self._at_entry = False
        try:
            while more:
                count += 1
                yield get
                more = count < BATCH and forward()
        finally:
            if count:
                self.cursor = self._raw._get_cursor()

    def field(self, name: str) -> bytes | None:
        """One field of the present entry (the first value of several); None where it has no such field."""
        try:
            value: bytes = self._raw._get(name)
        except KeyError:
            return None
        return value

    def monotonic_us(self) -> int:
        """When the present entry was written, on CLOCK_MONOTONIC of its boot, in microseconds."""
        return int(self._raw._get_monotonic().timestamp)

    def written(self) -> float:
        """When the present one of `entries` was written, in seconds since the clock's origin."""
        stamp_us, boot = self._raw._get_monotonic()
        if boot == self._boot:
            return self._boot_at + float(stamp_us) / 1e6
        return float(self._raw._get_realtime()) / 1e6 - self._clock.origin.timestamp()

    async def follow(self, read: Callable[[], Batch], beat: Beat, limit_s: float) -> NoReturn:
        """Read for ever.

        Args:
            read: reads one batch (`entries`) and returns what it was; called again when there may be more.
            beat: called at least every `limit_s`.
            limit_s: in seconds.
        """
        loop = asyncio.get_running_loop()
        renew_at = loop.time() + RENEW_S
        lively_until = loop.time() + LIVELY_S
        try:
            loop.add_reader(self._fd, self._changed)
            while True:
                count, lively = read()
                beat()
                if lively:
                    lively_until = loop.time() + LIVELY_S
                if loop.time() >= renew_at or self._is_stale():
                    loop.remove_reader(self._fd)
                    self._close()
                    self._open()
                    loop.add_reader(self._fd, self._changed)
                    renew_at = loop.time() + RENEW_S
                if count >= BATCH or self._at_entry:
                    await asyncio.sleep(0)
                else:
                    await self._rest(limit_s, lively_until)
        finally:
            if self._fd >= 0:  # else it could not be opened anew, and the number may be somebody else's by now
                loop.remove_reader(self._fd)

    async def _rest(self, limit_s: float, lively_until: float) -> None:
        """Wait until the journal's files change or there is an entry, at most for `limit_s`.

        A rotation wakes us at once, so that what was not read yet is read before a vacuum can take it.
        """
        loop = asyncio.get_running_loop()
        self._resting = loop.create_future()
        self._rest_until = loop.time() + limit_s
        self._look_later(lively_until)
        try:
            await self._resting
        finally:
            self._next_look.cancel()
            self._resting = None

    def _look_later(self, lively_until: float) -> None:
        loop = asyncio.get_running_loop()
        soon = loop.time() < lively_until or not self._raw.reliable_fd()
        at = loop.time() + LOOK_S if soon else self._rest_until
        self._next_look = loop.call_at(at, self._look, lively_until)

    def _look(self, lively_until: float) -> None:
        """See whether there is an entry. The task is not woken for it: that would cost more than the look."""
        if self._resting is None or self._resting.done():
            return
        try:
            if not self._raw.reliable_fd():
                self._raw.process()
            self._at_entry = bool(self._raw._next())
        except OSError as e:
            self._resting.set_exception(e)
            return
        if self._at_entry or asyncio.get_running_loop().time() >= self._rest_until:
            self._resting.set_result(None)
        else:
            self._look_later(lively_until)

    def _changed(self) -> None:
        """The journal's files changed. Unless that is taken note of we are told for ever, and new files are never seen."""
        resting = self._resting if self._resting is not None and not self._resting.done() else None
        try:
            self._raw.process()
        except OSError as e:
            if resting is not None:
                resting.set_exception(e)
        else:
            if resting is not None:
                resting.set_result(None)
