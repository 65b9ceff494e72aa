"""The baseline file: what was right for each deployment of a server, readable by people and kept over everything.

One JSON file for each server below the state directory, written whole to a new name and renamed, as `state` does it. The
newest deployment comes first; what was made for others is kept, so that going back finds it again.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec

from watchdog import durable, regular
from watchdog.judge.facts import Facts
from watchdog.judge.facts.baseline import Baseline, Identity, identity_of
from watchdog.judge.pool import Finding, account
from watchdog.units import format_gb, format_gib

VERSION = 1
MAX_BYTES = 16 << 20
KEPT = 10
"""Baselines of so many deployments are kept."""


class Kept(msgspec.Struct, kw_only=True):
    """The content of a baseline file.

    Attributes:
        version: of this format.
        server: the server's name in the configuration.
        baselines: the accepted one first, then those of earlier deployments.
    """

    version: int = VERSION
    server: str = ""
    baselines: list[Baseline] = []


class BaselineFile:
    """Reads and writes the baselines of one server."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def load(self) -> tuple[Kept, str | None]:
        """The baselines, and what was wrong with the file (None if nothing was); one that cannot be used is kept aside."""
        try:
            data = regular.read(self.path, MAX_BYTES + 1)
        except FileNotFoundError:
            return Kept(), None
        except regular.NotRegularError as e:
            return Kept(), self._aside(f"cannot be read ({e.strerror})")
        except OSError as e:
            return Kept(), f"{self.path} cannot be read ({e.strerror}): {durable.mend(self.path, e)}"
        if len(data) > MAX_BYTES:
            return Kept(), self._aside(f"is larger than {MAX_BYTES >> 20} MiB")
        try:
            version = msgspec.json.decode(data, type=dict[str, msgspec.Raw]).get("version")
            if version is not None and msgspec.json.decode(version) != VERSION:
                return Kept(), self._aside(f"has version {bytes(version).decode()}, this program knows {VERSION}")
            return msgspec.json.decode(data, type=Kept), None
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as e:
            return Kept(), self._aside(f"is damaged ({e})")

    def _aside(self, why: str) -> str:
        kept = durable.aside(self.path)
        return f"{self.path} {why};{f' kept as {kept},' if kept else ''} a baseline is made anew"

    def save(self, kept: Kept) -> None:
        """Write the baselines so that they survive a power loss.

        Raises:
            OSError: they could not be written (full disk, no right).
        """
        durable.write(self.path, msgspec.json.format(msgspec.json.encode(kept), indent=2) + b"\n")


def chosen(kept: Kept, present: Identity | None) -> Baseline | None:
    """The baseline to judge by: the one of the present deployment where there is one, or else the accepted one."""
    if present is not None:
        for known in kept.baselines:
            if not known.identity.differences(present):
                return known
    return kept.baselines[0] if kept.baselines else None


def with_first(kept: Kept, made: Baseline) -> Kept:
    """The content with `made` as the accepted baseline; an older one of the same deployment gives way."""
    others = [known for known in kept.baselines if known.identity.differences(made.identity)]
    return msgspec.structs.replace(kept, baselines=[made, *others][:KEPT])


def present(f: Facts, host: str) -> Identity | None:
    """The present deployment; None while its arguments are not known from the server itself."""
    server = f.life.server
    return None if server is None or server.version is None else identity_of(server.args, server.version, host)


def learn(f: Facts, identity: Identity, made_at: str, made_by: str) -> Baseline:
    """A baseline of the present life, as far as it is known."""
    held, server, m = account(f), f.life.server, f.memory
    target, draft, _ = m.pool.kv(server)
    place = m.at_readiness(held.place.kind) if held.finding is Finding.SEEN and held.place is not None else None
    gpus = f.devices.good.gpus if f.devices.good is not None else []
    return Baseline(
        identity=identity,
        made_at=made_at,
        made_by=made_by,
        expected=held.expected.unit,
        within=held.expected.within if held.expected.unit is not None else None,
        announced=held.announced.total if held.announced is not None else None,
        seen=place.size if place is not None else None,
        seen_as=place.kind if place is not None else None,
        seen_grown=place.grown if place is not None else None,
        kv_tokens=target.tokens if target is not None else None,
        kv_bytes=target.size if target is not None else None,
        draft_bytes=draft.size if draft is not None else None,
        pool_tokens=held.expected.tokens,
        start_s=f.learned.start_s,
        phases=dict(f.learned.phases),
        accept_length=f.accepted.baseline(),
        steps={str(size): round(step, 6) for size, step in sorted(f.speed.usual().items())},
        first_token={
            kind: round(usual, 4) for kind, waits in f.speed.first_token.items() if (usual := waits.usual()) is not None
        },
        prompts={str(size): round(wait, 4) for size, wait in sorted(f.prompts.usual().items())},
        idle_w=f.devices.idle_w,
        gpu_bytes=max((g.mem_used for g in gpus if g.mem_used is not None), default=None),
        room=m.room(),
    )


def completed(known: Baseline, fresh: Baseline) -> Baseline | None:
    """`known` with what it lacks and `fresh`, of the same deployment, has; None where there is nothing to add.

    What is there is never overwritten: a baseline that followed the present would call no drift one.
    """
    changes: dict[str, Any] = {}
    for name in known.__struct_fields__:
        old, new = getattr(known, name), getattr(fresh, name)
        if isinstance(old, dict) and isinstance(new, dict):
            added = {key: value for key, value in new.items() if key not in old}
            if added:
                changes[name] = {**old, **added}
        elif old is None and new is not None and name != "room":
            changes[name] = new
    return msgspec.structs.replace(known, **changes) if changes else None


class Row(msgspec.Struct, frozen=True):
    """One line of a comparison, in words.

    Attributes:
        item: what is compared.
        baseline, now: the two sides; "?" where one is not known.
        differs: whether they differ for certain.
    """

    item: str
    baseline: str
    now: str
    differs: bool


def compared(known: Baseline, fresh: Baseline) -> list[Row]:
    """The baseline and the present life side by side: first what the deployment is, then what it holds."""
    rows = [Row(name, str(there), str(here), True) for name, there, here in known.identity.differences(fresh.identity)]
    rows += _amounts(known, fresh)
    rows += _figures(known, fresh)
    return rows


def _amounts(known: Baseline, fresh: Baseline) -> Iterator[Row]:
    for item, name, share in (
        ("host pool expected", "expected", 0.01),
        ("host pool announced", "announced", 0.01),
        ("host pool seen", "seen", known.tolerance),
        ("KV cache of a rank", "kv_bytes", 0.02),
        ("draft KV cache of a rank", "draft_bytes", 0.02),
        ("memory of the fullest GPU", "gpu_bytes", 0.05),
        ("host memory left", "room", None),
    ):
        there, here = getattr(known, name), getattr(fresh, name)
        if there is not None or here is not None:
            yield _row(item, _size(there), _size(here), differs=_apart(there, here, share))


def _figures(known: Baseline, fresh: Baseline) -> Iterator[Row]:
    for item, there, here, share, form in (
        ("KV tokens of a rank", known.kv_tokens, fresh.kv_tokens, 0.02, "{:.0f}"),
        ("host pool tokens of a rank", known.pool_tokens, fresh.pool_tokens, 0.02, "{:.0f}"),
        ("start", known.start_s, fresh.start_s, 0.5, "{:.0f} s"),
        *((f"start: {p}", known.phases.get(p), fresh.phases.get(p), 0.5, "{:.0f} s") for p in _both(known.phases, fresh.phases)),
        ("accept length", known.accept_length, fresh.accept_length, 0.15, "{:.2f}"),
        *(
            (f"decode step, {s} running", known.steps.get(s), fresh.steps.get(s), 0.5, "{:.4f} s")
            for s in sorted(_both(known.steps, fresh.steps), key=lambda s: int(s) if s.isdecimal() else 0)
        ),
        *(
            (f"first token, {k}", known.first_token.get(k), fresh.first_token.get(k), 1.0, "{:.3f} s")
            for k in _both(known.first_token, fresh.first_token)
        ),
        *(
            (f"first token, {s} new tokens", known.prompts.get(s), fresh.prompts.get(s), 1.0, "{:.3f} s")
            for s in sorted(_both(known.prompts, fresh.prompts), key=lambda s: int(s) if s.isdecimal() else 0)
        ),
        ("power of an idle GPU", known.idle_w, fresh.idle_w, 0.3, "{:.0f} W"),
    ):
        if there is not None or here is not None:
            differs = _apart(there, here, share, least=10.0 ** -int(form[3]))
            yield _row(item, _figure(there, form), _figure(here, form), differs=differs)


def _both(a: dict[str, float], b: dict[str, float]) -> list[str]:
    return list(dict.fromkeys((*a, *b)))


def _row(item: str, there: str, here: str, *, differs: bool) -> Row:
    """A row in which nothing is called different that looks the same."""
    return Row(item, there, here, differs and there != here)


def _apart(there: float | None, here: float | None, share: float | None, least: float = 0.0) -> bool:
    """Whether two amounts are apart by more than a share of the first, and by as much as the last digit shown (`least`)."""
    if share is None or there is None or here is None:
        return False
    return abs(here - there) > share * abs(there) and abs(here - there) >= least


def _size(amount: int | None) -> str:
    return "?" if amount is None else f"{format_gb(amount)} ({format_gib(amount)})"


def _figure(value: float | None, form: str) -> str:
    return "?" if value is None else form.format(value)


def shown(known: Baseline) -> list[Row]:
    """A baseline in words, one row for each thing that is known."""
    return [*_amounts(known, known), *_figures(known, known)]
