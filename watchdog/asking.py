"""Asks the running daemon over its control socket. Apart from `control`, so that a command needs no event loop to ask."""

import json
import socket
from pathlib import Path
from typing import Any

NAME = "control.sock"
REQUEST_LIMIT_S = 10.0


class ControlError(Exception):
    """The daemon cannot be asked; the message says why and what helps."""


class NoDaemonError(ControlError):
    """No daemon listens."""


class ForbiddenError(ControlError):
    """Its socket may not be used by us."""


class SlowError(ControlError):
    """It did not answer in time; it may have been asked for something that takes longer."""


class RefusedError(ControlError):
    """The daemon says what is wrong with the request."""


def ask(folder: Path, request: dict[str, Any], limit_s: float = REQUEST_LIMIT_S) -> dict[str, Any]:
    """Ask the daemon and wait for its answer.

    Raises:
        NoDaemonError: it does not run.
        RefusedError: it says that the request is wrong.
        ForbiddenError: it may not be asked by us.
        SlowError: it gave no answer within `limit_s` seconds.
        ControlError: it does not answer.
    """
    path = folder / NAME
    try:
        with socket.socket(socket.AF_UNIX) as s:
            s.settimeout(limit_s)
            s.connect(str(path))
            s.sendall(json.dumps(request).encode() + b"\n")
            with s.makefile("rb") as f:
                line = f.readline()
    except (FileNotFoundError, ConnectionRefusedError) as e:
        raise NoDaemonError(f"no daemon listens on {path}: is sglang-watchdog.service running?") from e
    except PermissionError as e:
        raise ForbiddenError(f"{path} may not be used: run this as root or as the daemon's user") from e
    except TimeoutError as e:
        raise SlowError(f"the daemon gave no answer on {path} within {limit_s:g} s: look at sglang-watchdog.service") from e
    except (OSError, ValueError) as e:
        raise ControlError(f"the daemon does not answer on {path} ({e})") from e
    try:
        answer = json.loads(line)
    except ValueError as e:
        raise ControlError("the daemon ended in mid-answer; ask again") from e
    if not isinstance(answer, dict):
        raise ControlError("the daemon's answer is not understood: are daemon and command of one version?")
    if "error" in answer:
        raise RefusedError(str(answer["error"]))
    return answer
