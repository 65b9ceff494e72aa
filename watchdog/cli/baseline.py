"""`baseline`: what is right for this deployment, and whether it still holds."""

import argparse
from pathlib import Path
from typing import Any

from watchdog.cli import screen
from watchdog.cli.exits import CANNOT, FAILED, OK, CommandError
from watchdog.cli.link import asked, kept, runtime_dir, state_dir, unreadable
from watchdog.cli.options import command, config_option, json_option, server_option

HEAD = ("item", "baseline", "now")


def add(commands: Any) -> None:
    """Add the subcommand with its own."""
    p = command(
        commands,
        "baseline",
        "what is right for this deployment: show, learn, accept, diff",
        "Work with the baseline: the host pools, KV cache, start-up times and speeds that a verified life of the server had. The "
        "daemon makes it by itself from the first verified life; a changed deployment is told as such until it is accepted.\n\n"
        "Exit status: 0 done, and for `diff` nothing differs; 1 there is no baseline, or something differs; 2 it cannot be told "
        "or made.",
        "sglang-watchdog baseline show\nsglang-watchdog baseline diff\nsglang-watchdog baseline accept --server kimi",
    )
    verbs = p.add_subparsers(dest="verb", metavar="VERB", required=True)
    for name, run, summary, text in (
        ("show", show, "print the baseline", "Print the accepted baseline. The daemon need not run."),
        ("diff", diff, "compare the running server with the baseline", "Print the baseline and the present life side by side."),
        (
            "learn",
            learn,
            "make it anew from the present life",
            "Make the baseline anew from the present life of the same deployment.",
        ),
        (
            "accept",
            accept,
            "take the present deployment as right",
            "Make the present life the baseline, though arguments, version or host have changed.",
        ),
    ):
        each = command(
            verbs,
            name,
            summary,
            f"{text} Only a verified life is taken." if run in (learn, accept) else text,
            f"sglang-watchdog baseline {name}",
        )
        config_option(each)
        server_option(each, all_by_default=run in (show, diff))
        json_option(each)
        each.set_defaults(run=run)


def show(args: argparse.Namespace) -> int:
    """Print what is right."""
    found = _found(args)
    if args.json:
        screen.print_json({"baselines": found})
    else:
        print("\n\n".join(_shown(each) for each in found))
    return OK if found and all(each["baseline"] is not None for each in found) else FAILED


def diff(args: argparse.Namespace) -> int:
    """Print both sides; 1 if they differ."""
    found = asked(args.config, {"command": "baseline", "action": "show", "server": args.server})["baselines"]
    if args.json:
        screen.print_json({"baselines": found})
    else:
        print("\n\n".join(_compared(each) for each in found))
    unknown = [each["server"] for each in found if each["baseline"] is not None and each["compared"] is None]
    if unknown:
        raise CommandError(f"{', '.join(unknown)}: the server has not told its version and arguments yet", CANNOT)
    same = all(each["compared"] is not None and not any(row["differs"] for row in each["compared"]) for each in found)
    return OK if same else FAILED


def learn(args: argparse.Namespace) -> int:
    """Make it anew."""
    return _made(args, "learn")


def accept(args: argparse.Namespace) -> int:
    """Take what is there."""
    return _made(args, "accept")


def _made(args: argparse.Namespace, action: str) -> int:
    found = asked(args.config, {"command": "baseline", "action": action, "server": args.server}, limit_s=30.0)["baselines"]
    if args.json:
        screen.print_json({"baselines": found})
    else:
        print("\n\n".join(_shown(each) for each in found))
    return OK


def _found(args: argparse.Namespace) -> list[dict[str, Any]]:
    """From the daemon, or from its files where it does not run."""
    from watchdog.asking import ControlError, NoDaemonError, ask  # noqa: PLC0415  # `--help` needs none of them

    request = {"command": "baseline", "action": "show", **({"server": args.server} if args.server else {})}
    try:
        return list(ask(runtime_dir(args.config), request)["baselines"])
    except NoDaemonError:
        return _from_files(args)
    except ControlError as e:
        raise CommandError(str(e), CANNOT) from e


def _from_files(args: argparse.Namespace) -> list[dict[str, Any]]:
    import msgspec  # noqa: PLC0415

    from watchdog import regular  # noqa: PLC0415
    from watchdog.baseline import MAX_BYTES, Kept, shown  # noqa: PLC0415

    out: list[dict[str, Any]] = []
    for folder in _folders(args):
        path = folder / "baseline.json"
        try:
            found = msgspec.json.decode(regular.read(path, MAX_BYTES), type=Kept)
        except FileNotFoundError:
            continue
        except OSError as e:
            raise unreadable(path, e) from e
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as e:
            raise CommandError(f"{path} cannot be read as a baseline: {e}", CANNOT) from e
        known = found.baselines[0] if found.baselines else None
        out.append(
            {
                "server": folder.name,
                "file": str(path),
                "baseline": msgspec.to_builtins(known) if known is not None else None,
                "rows": [msgspec.to_builtins(row) for row in shown(known)] if known is not None else [],
                "compared": None,
                "others": max(0, len(found.baselines) - 1),
            }
        )
    if not out:
        whose = "no baseline" if args.server is None else f"no baseline of a server {screen.plain(args.server)!r}"
        raise CommandError(f"{whose} below {state_dir(args.config)}: none has been made yet", FAILED)
    return out


def _folders(args: argparse.Namespace) -> list[Path]:
    try:
        return kept(args.config, args.server)
    except FileNotFoundError:
        return []
    except OSError as e:
        raise unreadable(state_dir(args.config), e) from e


def _shown(each: dict[str, Any]) -> str:
    known = each["baseline"]
    if known is None:
        return f"{screen.plain(each['server'])}: no baseline yet; the daemon makes it from the first verified life"
    identity = known["identity"]
    head = f"{each['server']}: baseline of {known.get('made_at', '?')} ({known.get('made_by', '?')})"
    version = f"SGLang {identity.get('version') or '?'} on {identity.get('host') or '?'}"
    arguments = ", ".join(f"{name}={value}" for name, value in identity.get("arguments", {}).items())
    lines = [head, version, arguments, *(f"  {row['item']:32} {row['baseline']}" for row in each["rows"])]
    if each["others"]:
        lines.append(f"  {each['others']} more, of earlier deployments, in {each['file']}")
    return "\n".join(screen.plain(line) for line in lines)


def _compared(each: dict[str, Any]) -> str:
    if each["baseline"] is None:
        return f"{screen.plain(each['server'])}: no baseline yet; the daemon makes it from the first verified life"
    rows = [(("≠ " if row["differs"] else "  ") + row["item"], row["baseline"], row["now"]) for row in each["compared"] or []]
    kinds = ["odd" if row["differs"] else "dim" for row in each["compared"] or []]
    return f"{screen.plain(each['server'])}\n{screen.table(rows, HEAD, screen.width(), kinds, screen.colours())}"
