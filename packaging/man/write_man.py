"""Writes the man page from the command line's own help: write_man.py VERSION EPOCH OUTPUT."""

import argparse
import sys
import time
from pathlib import Path

from watchdog.cli import parser

FILES = (
    (
        "/etc/sglang-watchdog/sglang-watchdog.toml",
        "the configuration; a commented example is in /usr/share/doc/sglang-watchdog/examples",
    ),
    ("/etc/sglang-watchdog/setup", "what setup wrote, so that it can be taken back"),
    ("/etc/polkit-1/rules.d/50-sglang-watchdog.rules", "which units the daemon may restart; written by setup"),
    ("/var/lib/sglang-watchdog", "state, flight records and incident bundles"),
    ("/run/sglang-watchdog", "the control socket"),
)


def escaped(text: str) -> str:
    """Text for roff (groff_man(7)): backslashes, hyphens that are meant, and lines that begin like a request."""
    text = text.replace("\\", "\\e").replace("-", "\\-")
    return "\n".join("\\&" + line if line.startswith((".", "'")) else line for line in text.splitlines())


def options(command: argparse.ArgumentParser) -> str:
    """The options and arguments of a (sub)command."""
    out = []
    formatter = command._get_formatter()
    for action in command._actions:
        if action.help is argparse.SUPPRESS or isinstance(action, argparse._SubParsersAction | argparse._HelpAction):
            continue
        names = ", ".join(action.option_strings) or (action.metavar if isinstance(action.metavar, str) else action.dest)
        takes = action.nargs != 0 and action.option_strings
        value = f" {formatter._format_args(action, action.dest.upper())}" if takes else ""
        help_text = formatter._expand_help(action) if action.help else ""
        out.append(f".TP\n.B {escaped(names + value)}\n{escaped(help_text)}\n")
    return "".join(out)


def page(version: str, epoch: int) -> str:
    """The whole page."""
    top = parser()
    commands = next(a for a in top._actions if isinstance(a, argparse._SubParsersAction))
    date = time.strftime("%Y-%m-%d", time.gmtime(epoch))
    out = [
        f'.TH SGLANG\\-WATCHDOG 1 "{date}" "sglang-watchdog {version}"\n',
        ".SH NAME\nsglang\\-watchdog \\- health watchdog for SGLang servers under systemd\n",
        ".SH SYNOPSIS\n.B sglang\\-watchdog\n.I COMMAND\n[options]\n",
        f'.SH DESCRIPTION\n{escaped(top.description or "")}\n.PP\nIt begins with\n.BR "sglang\\-watchdog setup" .\n',
        ".SH COMMANDS\n",
    ]
    summaries = {choice.dest: choice.help or "" for choice in commands._choices_actions}
    for name, sub in commands.choices.items():
        out.append(f'.SS "{escaped(name)}"\n{escaped(summaries.get(name, ""))}\n')
        if sub.description:
            out.append(".PP\n.nf\n" + escaped(sub.description) + "\n.fi\n")
        if name != "standin":
            out.append(options(sub))
        if sub.epilog:
            out.append(".PP\n.nf\n" + escaped(sub.epilog) + "\n.fi\n")
    out.append(".SH FILES\n" + "".join(f".TP\n.I {escaped(path)}\n{escaped(what)}\n" for path, what in FILES))
    out.append('.SH "SEE ALSO"\n.BR systemd (1),\n.BR systemd.service (5),\n.BR polkit (8),\n.BR journalctl (1)\n')
    return "".join(out)


if __name__ == "__main__":
    version, epoch, output = sys.argv[1:]
    Path(output).write_text(page(version, int(epoch)), encoding="utf-8")
