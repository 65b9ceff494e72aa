"""Is the model that is asked for the one that answers? SGLang answers under any name and repeats it: only /v1/models tells."""

from collections.abc import Mapping
from typing import Any, NamedTuple

from watchdog.judge.facts import Facts
from watchdog.judge.facts.life import Phase
from watchdog.judge.verdict import Call, Status, Verdict, Want

SURE = 2
"""So many equal lists in a row: the first may still be another server's that holds the port."""
MANY = 100
"""A list of adapters of this length may have been cut (observe/canary.py)."""
SHOWN = 5
UNNAMED = "default"
"""What is asked for where no name is known (observe/canary.py)."""


def judge(f: Facts) -> Verdict:
    """The condition ModelAsNamed."""
    kind = "ModelAsNamed"
    names, server = f.names, f.life.server
    if f.life.phase() is not Phase.SERVING or names.seen < SURE:
        message = "GET /v1/models has not told its names yet."
        return Verdict(type=kind, status=Status.UNKNOWN, reason="NothingSeen", message=message)
    if f.pause.updated_at is not None:
        # From then on SGLang lists the path that they were loaded from (tokenizer_manager.py, 0.5.23).
        message = f"Its weights were replaced while it ran; /v1/models lists {_listed(names.served)} since."
        return Verdict(type=kind, status=Status.TRUE, reason="WeightsReplaced", message=message)
    found = misnamed(server.args if server is not None else {}, _asked(f), names.served, names.adapters, cut=names.cut)
    if found is None:
        message = f"The server has the model {_listed(names.served)}."
        return Verdict(type=kind, status=Status.TRUE, reason="AsNamed", message=message)
    evidence = (f"served: {_listed(names.served)}",)
    call = Call(want=Want.ALERT, reason=found.reason, message=found.message, advice=found.advice, evidence=evidence)
    return Verdict(type=kind, status=Status.FALSE, reason=found.reason, message=found.message, calls=(call,))


def _asked(f: Facts) -> str | None:
    """The name that the canaries ask for, as far as it is known: SGLang repeats it in the answer."""
    last = f.answers.last_answer
    if not f.names.by_body or last is None or last.answer is None:
        return f.names.asked
    return last.answer.model if last.answer.model != UNNAMED else None


class Misnamed(NamedTuple):
    """What is wrong with a name: a CamelCase word, one sentence, and what mends it."""

    reason: str
    message: str
    advice: str


def misnamed(
    args: Mapping[str, Any], asked: str | None, served: list[str], adapters: list[str], *, cut: bool = False
) -> Misnamed | None:
    """What does not fit between the names that a server was started with, lists and is asked for; None if nothing.

    Args:
        args: its launch arguments, as far as they are known.
        asked: the configured name; None: none.
        served: the models of /v1/models.
        adapters: the LoRA adapters of /v1/models.
        cut: whether there may be more adapters than these.
    """
    listed = _listed(served)
    return _other_server(args, served, listed) or _not_served(asked, served, adapters, listed, cut=cut or len(adapters) >= MANY)


def _listed(names: list[str]) -> str:
    return ", ".join(names[:SHOWN]) + (" …" if len(names) > SHOWN else "")


def _other_server(args: Mapping[str, Any], served: list[str], listed: str) -> Misnamed | None:
    """/v1/models lists the value of --served-model-name, and where that is not given the model's path (0.4.6 to 0.5.23)."""
    flag = "served_model_name" if args.get("served_model_name") else "model_path"
    name = args.get(flag)
    if not isinstance(name, str) or not name or name.rstrip("/") in {each.rstrip("/") for each in served}:
        return None
    return Misnamed(
        "OtherModelServed",
        f"The unit was started with --{flag.replace('_', '-')} {name}, and /v1/models at its address lists {listed}.",
        "Something else answers at base_url, such as a proxy or another server: check base_url, and `ss -ltnp` for the port. "
        "(If its weights were replaced while it ran, the path that they came from is listed: then all is well.)",
    )


def _not_served(asked: str | None, served: list[str], adapters: list[str], listed: str, *, cut: bool) -> Misnamed | None:
    if asked is None or asked in served:
        return None
    base, _, adapter = asked.rpartition(":")
    if base in served and (adapter in adapters or cut):
        return None
    if asked in adapters:
        return Misnamed(
            "AdapterNotAsked",
            f"model = {asked} is a LoRA adapter of {listed}; under that name alone SGLang answers with the model itself.",
            f'Write model = "{served[0]}:{asked}", and have users ask for it in the same way (or with lora_path).',
        )
    return Misnamed(
        "ModelNotServed",
        f"model = {asked} is not served: /v1/models lists {listed}. SGLang answers under any name, so nobody may notice.",
        "Set model in the configuration to the served name, or empty it; or start the server with the --served-model-name meant.",
    )
