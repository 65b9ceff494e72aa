"""`verify`: the checks of a person after a deployment, once."""

import argparse
from typing import TYPE_CHECKING, Any

from watchdog.cli import deep, screen
from watchdog.cli.exits import CANNOT, FAILED, OK
from watchdog.cli.link import runtime_dir
from watchdog.cli.options import chosen, command, config_option, json_option, loaded, server_option
from watchdog.cli.words import limit

if TYPE_CHECKING:
    from watchdog.verify.findings import Report

HEAD = ("verdict", "what", "seen", "expected")
LIMIT_S = 60.0


def add(commands: Any) -> None:
    """Add the subcommand."""
    p = command(
        commands,
        "verify",
        "check API, journal, memory, unit and host once",
        "Check each server once, as a person would after a deployment: API (health, models, a canary), journal (readiness, KV "
        "cache, host pools, fatal lines of this life), memory (do the pools fit, are they held), unit, processes, port, GPUs and "
        "settings of the host. The daemon need not run. Takes seconds, and little more than --limit at most.\n\n"
        "With --deep it also asks the server more than one small question: a long prompt twice (is it cached?), a text whose "
        "draft tokens are counted, some requests at once, and the long prompt again after others have pushed it out of the "
        "GPU's cache (does it come back from the host pool?). It shows the most that this can cost and asks first; it leaves a "
        "busy server alone, and stops when requests of users have to wait.\n\n"
        "Exit status: 0 nothing is bad, 1 something is bad, 2 something could not be told, or --deep was not allowed. What is "
        "odd works, but has a cure; with --strict it counts as bad.",
        "sglang-watchdog verify --server kimi\n"
        "sglang-watchdog verify --deep --server kimi\n"
        "sglang-watchdog verify --deep --yes --max-tokens 200000 --max-time 5m --json\n"
        "sglang-watchdog verify --json | jq -r '.servers[].conclusion'",
    )
    config_option(p)
    server_option(p)
    p.add_argument(
        "--limit",
        type=limit,
        default=LIMIT_S,
        metavar="TIME",
        help="give up a canary after so long, in seconds or as 2m (default: 60)",
    )
    p.add_argument("--strict", action="store_true", help="exit with 1 for what is odd, too")
    deep.add_options(p)
    json_option(p)
    p.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Print the findings."""
    import asyncio  # noqa: PLC0415  # loaded for this command only

    from watchdog.cli.credentials import resolved  # noqa: PLC0415
    from watchdog.verify.findings import Verdict  # noqa: PLC0415
    from watchdog.verify.gather import Gatherer  # noqa: PLC0415
    from watchdog.verify.report import report  # noqa: PLC0415

    deep.allowed(args)
    whole = resolved(loaded(args.config))
    servers = chosen(whole, args.server)
    gatherer = Gatherer(whole, runtime_dir(args.config), args.limit)
    seens = asyncio.run(gatherer.looks(servers))
    found = deep.checked(args, gatherer, seens) if args.deep else {}
    reports = [report(seen, *found.get(seen.server.name, ())) for seen in seens]
    if args.json:
        screen.print_json({"servers": [as_json(r) for r in reports], "status": status(reports, strict=args.strict)})
    else:
        print("\n\n".join(as_text(r) for r in reports))
    if not args.json and any(r.verdict is Verdict.ODD for r in reports) and not args.strict:
        print("\nWhat is odd does not change the exit status; with --strict it does.")
    return status(reports, strict=args.strict)


def status(reports: "list[Report]", *, strict: bool) -> int:
    """The exit status."""
    verdicts = {str(r.verdict) for r in reports}
    if "bad" in verdicts or (strict and any(str(i.verdict) == "odd" for r in reports for i in r.items)):
        return FAILED
    return CANNOT if "unknown" in verdicts else OK


def as_json(report: "Report") -> dict[str, Any]:
    """A report as plain values."""
    import msgspec  # noqa: PLC0415

    return {**msgspec.to_builtins(report), "verdict": str(report.verdict), "conclusion": report.conclusion}


def as_text(report: "Report") -> str:
    """A report as a table, with what helps below it."""
    on, columns = screen.colours(), screen.width()
    rows: list[tuple[str, ...]] = []
    kinds = []
    for item in report.items:
        rows.append((str(item.verdict), f"{item.area}: {item.item}", item.seen, item.expected))
        kinds.append(str(item.verdict))
    title = screen.paint(f"{report.server} ({report.unit})", "strong", on)
    cures = [
        f"  {screen.paint(str(item.verdict), str(item.verdict), on)} {item.item}: {screen.plain(item.cure)}"
        for item in report.items
        if item.cure
    ]
    conclusion = screen.paint(screen.plain(report.conclusion), str(report.verdict), on)
    parts = [title, screen.table(rows, HEAD, columns, kinds, on)]
    if cures:
        parts += ["", "What helps:", *cures]
    return "\n".join([*parts, "", f"{conclusion} ({screen.span(report.took_s)})."])
