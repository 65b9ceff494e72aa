"""Is the model that is asked for the one that answers? SGLang answers under any name and repeats it: only /v1/models tells."""

from collections.abc import Mapping
from typing import Any

from watchdog.judge.facts import Facts
from watchdog.judge.facts.life import Phase
from watchdog.judge.verdict import Call, Status, Verdict, Want

SURE = 2
"""So many equal lists in a row: the first may still be another server's that holds the port."""
MANY = 100
"""A list of adapters of this length may have been cut (observe/canary.py)."""
SHOWN = 5


def judge(f: Facts) -> Verdict:
    """The condition ModelAsNamed."""
    kind = "ModelAsNamed"
    names, server = f.names, f.life.server
    if f.life.phase() is not Phase.SERVING or names.seen < SURE:
        message = "GET /v1/models has not told its names yet."
        return Verdict(type=kind, status=Status.UNKNOWN, reason="NothingSeen", message=message)
    listed = ", ".join(names.served[:SHOWN]) + (" …" if len(names.served) > SHOWN else "")
    for reason, message, advice in (
        _other_server(server.args if server is not None else {}, names.served, listed),
        _not_served(names.asked, names.served, names.adapters, listed),
    ):
        if reason:
            call = Call(want=Want.ALERT, reason=reason, message=message, advice=advice, evidence=(f"served: {listed}",))
            return Verdict(type=kind, status=Status.FALSE, reason=reason, message=message, calls=(call,))
    return Verdict(type=kind, status=Status.TRUE, reason="AsNamed", message=f"The server has the model {listed}.")


Finding = tuple[str, str, str]
NONE: Finding = ("", "", "")


def _other_server(args: Mapping[str, Any], served: list[str], listed: str) -> Finding:
    """/v1/models lists the value of --served-model-name, and where that is not given the model's path (0.4.6 to 0.5.23)."""
    flag = "served_model_name" if args.get("served_model_name") else "model_path"
    name = args.get(flag)
    if not isinstance(name, str) or not name or name.rstrip("/") in {each.rstrip("/") for each in served}:
        return NONE
    return (
        "OtherModelServed",
        f"The unit was started with --{flag.replace('_', '-')} {name}, and /v1/models at its address lists {listed}.",
        "Something else answers at base_url, such as a proxy or another server: check base_url, and `ss -ltnp` for the port.",
    )


def _not_served(asked: str | None, served: list[str], adapters: list[str], listed: str) -> Finding:
    if asked is None or asked in served:
        return NONE
    base, _, adapter = asked.rpartition(":")
    if base in served and (adapter in adapters or len(adapters) >= MANY):
        return NONE
    if asked in adapters:
        return (
            "AdapterNotAsked",
            f"model = {asked} is a LoRA adapter of {listed}; under that name alone SGLang answers with the model itself.",
            f'Write model = "{served[0]}:{asked}", and have users ask for it in the same way (or with lora_path).',
        )
    return (
        "ModelNotServed",
        f"model = {asked} is not served: /v1/models lists {listed}. SGLang answers under any name, so nobody may notice.",
        "Set model in the configuration to the served name, or empty it; or start the server with the --served-model-name meant.",
    )
