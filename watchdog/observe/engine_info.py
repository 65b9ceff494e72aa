"""What the engine says of itself: its command line and environment after each start, /server_info once when it is ready.

Secrets never enter an observation: the command line and /server_info have API keys in clear (SGLang 0.4.6 to 0.5.23,
http_server.py; only watermark keys are hidden there). /server_info asks the scheduler and hangs with it, and a second poller of
it makes a broken /health look well: so it is asked once in a life, never while the server starts, with a deadline.
"""

import contextlib
import functools
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec

from watchdog import keyring
from watchdog.clock import Clock
from watchdog.observation import STRUCK, Server
from watchdog.observe.access import Access
from watchdog.observe.cgroup import Cgroups
from watchdog.observe.files import read
from watchdog.observe.http import KIB, Limits, Request, exchange
from watchdog.observe.source import Beat, Emit, Target
from watchdog.sglang import arguments
from watchdog.sglang.processes import role
from watchdog.worker import BusyError, Worker

READ_LIMIT_S = 5.0
ASK_LIMIT_S = 5.0
ASK_AGAIN_S = 30.0
"""A server that could not be reached is asked again after so many seconds."""

ASK_CAP = 1024 * KIB
"""/server_info has 37 KB with one rank (0.5.23) and grows by some 20 KB for each data-parallel rank."""

TURN_S = 2.0
REST_S = 10.0
"""Between two signs of life while there is nothing to find out, in seconds."""
PATHS = ("/server_info", "/get_server_info")
"""From 0.5.6 on, and before."""

ENVIRONMENT = re.compile(r"SGLANG_\w+|NCCL_\w+|\w+_PROXY", re.IGNORECASE)
_SECRET = re.compile(r"(?:KEY|TOKEN|SECRET|PASSWORD|PASSWD|CREDENTIALS?)$", re.IGNORECASE)
_LOGIN = re.compile(r"//[^/@\s]*@")
_LOGIN_BARE = re.compile(r"^[^/@\s]*@")
VALUE_CAP = 300


class EngineInfoSource:
    """Emits `Server` twice in each life: from the command line, and again with what /server_info adds once it is ready."""

    name = "engine"
    mandatory = False

    def __init__(
        self, target: Target, clock: Clock, cgroups: Cgroups | None = None, proc: Path = Path("/proc"), turn_s: float = TURN_S
    ) -> None:
        """Prepare.

        Args:
            target: the server.
            clock: tells the moments of the observations.
            cgroups: this host's hierarchies; found where None.
            proc: the root of procfs.
            turn_s: so soon a new life, or readiness, is noticed, in seconds.
        """
        self._target = target
        self._clock = clock
        self._cgroups = cgroups or Cgroups(proc)
        self._proc = proc
        self._turn_s = turn_s
        self._access = Access(target.server)
        self.period_s = REST_S + READ_LIMIT_S + len(PATHS) * ASK_LIMIT_S

    async def run(self, emit: Emit, beat: Beat) -> None:
        """Observe for ever."""
        while True:
            beat()
            if self._target.inv is not None and self._target.active:
                await self._one_life(self._target.inv, emit, beat)
            else:
                await self._target.change(REST_S)

    async def _one_life(self, inv: str, emit: Emit, beat: Beat) -> None:
        """From its start to its end."""
        worker = Worker("engine")  # one for each life: the last one's may still wait for a process that cannot die
        found: Server | None = None
        asked = not self._target.server.endpoint
        pause_s = self._turn_s
        due = ask_due = self._clock.now()
        while self._target.inv == inv and self._target.active:
            beat()
            if found is None and self._clock.now() >= due:
                found = await self._read(worker)
                # The unit's command may be a shell that starts the server later; the longer it takes the rarer we look.
                due, pause_s = self._clock.now() + pause_s, min(2 * pause_s, 60.0)
                if found is not None and self._target.inv == inv:
                    emit(msgspec.structs.replace(found, t=self._clock.now(), inv=inv))
            if not asked and self._target.hold != "starting" and self._clock.now() >= ask_due:
                answer, asked = await self._ask()
                ask_due = self._clock.now() + ASK_AGAIN_S
                if answer is not None and self._target.inv == inv:
                    emit(msgspec.structs.replace(merged(found, answer), t=self._clock.now(), inv=inv))
            done = found is not None and asked and self._target.inv == inv
            await self._target.change(REST_S if done else self._turn_s)

    async def _read(self, worker: Worker) -> Server | None:
        main, cgroup = self._target.main_pid, self._target.cgroup
        with contextlib.suppress(TimeoutError, BusyError):
            return await worker.call(functools.partial(self._from_process, main, cgroup), READ_LIMIT_S)
        return None

    def _from_process(self, main: int | None, cgroup: str) -> Server | None:
        """Blocking: the launch arguments of the first process of the unit that is SGLang's main process."""
        pids = [main] if main else []
        pids += (self._cgroups.processes(cgroup) if cgroup else []) or []
        for pid in dict.fromkeys(pids):
            argv = _strings(read(f"{self._proc}/{pid}/cmdline"))
            if role(" ".join(argv)) == "main" or (pid == main and any(each.startswith("--model") for each in argv)):
                environ = _strings(read(f"{self._proc}/{pid}/environ", 256 * KIB))
                args = arguments.parse_argv(argv)
                remember_keys(args)
                return Server(t=0.0, args=cleaned(args), env=allowed(environ))
        return None

    async def _ask(self) -> tuple[dict[str, Any] | None, bool]:
        """One round of /server_info; the answer, and whether it is settled for this life."""
        limits = Limits(self._target.server.probe.connect_limit_s, ASK_LIMIT_S, ASK_CAP)
        for path in PATHS:
            got = await exchange(self._access, Request("GET", path, limits))
            if got.outcome == "ok":
                with contextlib.suppress(msgspec.DecodeError):
                    info = msgspec.json.decode(got.body, type=dict[str, Any])
                    remember_keys(info)
                    return info, True
                return None, True
            if got.status != 404:
                # Nobody took the question: it may be asked again. Whoever took it is not bothered a second time.
                return None, got.outcome not in ("refused", "connect_timeout")
        return None, True


def remember_keys(args: Mapping[str, Any]) -> None:
    """The server's own keys, which it may print at any time, are known from now on."""
    for name in ("api_key", "admin_api_key"):
        if isinstance(key := args.get(name), str):
            keyring.remember(key)


def merged(found: Server | None, info: Mapping[str, Any]) -> Server:
    """What the command line and the answer of /server_info say together; where both name an argument, the answer holds.

    An answer has SGLang's resolved values under the names of srt/server_args.py, the version, and in `internal_states` one
    entry for each data-parallel rank, with `memory_usage` in GiB.
    """
    base = found or Server(t=0.0)
    resolved = {name: value for name, value in info.items() if _plain(value) and name not in NO_ARGUMENTS}
    states = info.get("internal_states")
    state = states[0] if isinstance(states, list) and states and isinstance(states[0], dict) else {}
    usage = state.get("memory_usage")
    tokens = info.get("max_total_num_tokens")
    version = info.get("version")
    return msgspec.structs.replace(
        base,
        version=version[:100] if isinstance(version, str) else None,
        args={**base.args, **cleaned(resolved)},
        max_total_num_tokens=tokens if isinstance(tokens, int) and not isinstance(tokens, bool) else None,
        memory_usage=usage if isinstance(usage, dict) and len(msgspec.json.encode(usage)) <= 10 * VALUE_CAP else None,
    )


NO_ARGUMENTS = frozenset(("version", "launch_command", "status", "max_total_num_tokens", "max_req_input_len", "random_seed"))
"""Fields of /server_info that are no launch arguments, or that differ in each life."""


def _plain(value: object) -> bool:
    """Whether a value is short and simple enough to be kept."""
    if isinstance(value, list):
        return len(value) <= 16 and all(isinstance(each, str | int | float) for each in value)
    return value is None or isinstance(value, bool | int | float | str)


def cleaned(args: Mapping[str, Any]) -> dict[str, Any]:
    """Launch arguments without keys, tokens, passwords and the logins of addresses; long texts are cut."""
    hidden = {name: STRUCK if _hides(name, value) else value for name, value in arguments.redact(args).items()}
    return {name[:100]: _shortened(value) for name, value in hidden.items()}


def _hides(name: str, value: object) -> bool:
    return value is not None and value != "" and not isinstance(value, bool | int | float) and bool(_SECRET.search(name))


def _shortened(value: Any) -> Any:
    if isinstance(value, list):
        return [_shortened(each) for each in value]
    return _LOGIN.sub(f"//{STRUCK}@", value)[:VALUE_CAP] if isinstance(value, str) else value


def allowed(environ: list[str]) -> dict[str, str]:
    """The variables that may be kept: SGLANG_*, NCCL_* and *_PROXY; values of keys and logins of addresses are left out."""
    kept: dict[str, str] = {}
    for entry in environ:
        name, equals, value = entry.partition("=")
        if not equals or not ENVIRONMENT.fullmatch(name):
            continue
        if _SECRET.search(name):
            value = STRUCK
        elif name.upper().endswith("_PROXY"):
            value = _LOGIN_BARE.sub(f"{STRUCK}@", value)
        kept[name] = str(_shortened(arguments.redact_text(value)))
    return kept


def _strings(text: bytes | None) -> list[str]:
    """The strings of /proc/PID/cmdline or environ."""
    return [each.decode("utf-8", "replace") for each in (text or b"").rstrip(b"\0").split(b"\0")]
