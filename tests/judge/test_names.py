"""The model's names: configured, served, and the one that the unit was started with."""

from typing import Any

import pytest

from watchdog.judge import names, shape
from watchdog.judge.facts import Facts
from watchdog.judge.facts.learned import Learned
from watchdog.judge.verdict import Status, Verdict
from watchdog.observation import Answer, Log, Probe, Server, Unit

INV = "a" * 32


def served(f: Facts, models: list[str], adapters: list[str] | None = None, asked: str | None = None, inv: str = INV) -> None:
    for t in (10.0, 70.0):
        f.see(
            Probe(
                t=t,
                inv=inv,
                probe="models",
                outcome="ok",
                status=200,
                served=models,
                adapters=adapters or [],
                asked_model=asked,
            )
        )


def life(learned: Learned | None = None, inv: str = INV, **args: Any) -> Facts:
    f = Facts(learned, mid_life=True)
    f.see(Unit(t=0.0, inv=inv, load_state="loaded", active_state="active", sub_state="running", since=-7200.0))
    f.see(Probe(t=1.0, inv=inv, probe="health", outcome="ok", status=200, total_s=1.0))
    if args:
        f.see(Server(t=2.0, inv=inv, args=args))
    return f


def chat(f: Facts, t: float, model: str | None, inv: str = INV) -> None:
    answer = Answer(text="Paris.", finish_reason="stop", model=model, completion_tokens=2)
    f.see(Probe(t=t, inv=inv, probe="chat", outcome="ok", status=200, total_s=0.5, answer=answer))


def verdict(f: Facts) -> Verdict:
    return names.judge(f)


@pytest.mark.parametrize(
    ("args", "models", "adapters", "asked"),
    [
        ({}, ["kimi"], [], None),
        ({"served_model_name": "kimi"}, ["kimi"], [], "kimi"),
        ({"served_model_name": "kimi", "model_path": "/models/K"}, ["kimi"], ["tuned"], "kimi:tuned"),
        ({"model_path": "/models/K/"}, ["/models/K"], ["tuned"], None),
        ({"served_model_name": "s3://bucket/kimi"}, ["s3://bucket/kimi"], ["a"], "s3://bucket/kimi:a"),
        ({"served_model_name": "kimi"}, ["kimi"], [f"a{i}" for i in range(100)], "kimi:a170"),
        ({"served_model_name": ["kimi"]}, ["other"], [], None),
    ],
)
def test_names_that_fit(args: dict[str, Any], models: list[str], adapters: list[str], asked: str | None) -> None:
    f = life(**args)
    assert verdict(f).reason == "NothingSeen"
    served(f, models, adapters, asked)
    assert (verdict(f).status, verdict(f).reason) == (Status.TRUE, "AsNamed"), verdict(f).message


@pytest.mark.parametrize(
    ("args", "adapters", "asked", "told"),
    [
        ({}, [], "kimi-k2", ("ModelNotServed", "model = kimi-k2 is not served: /v1/models lists kimi", "empty it")),
        ({}, ["tuned"], "kimi:other", ("ModelNotServed", "model = kimi:other is not served", "empty it")),
        ({}, ["tuned"], "tuned", ("AdapterNotAsked", "tuned is a LoRA adapter of kimi", 'model = "kimi:tuned"')),
        (
            {"served_model_name": "glm"},
            [],
            None,
            ("OtherModelServed", "with --served-model-name glm, and /v1/models at its address lists kimi", "check base_url"),
        ),
        (
            {"model_path": "/models/GLM"},
            [],
            None,
            ("OtherModelServed", "started with --model-path /models/GLM", "check base_url"),
        ),
    ],
)
def test_names_that_do_not(args: dict[str, Any], adapters: list[str], asked: str | None, told: tuple[str, str, str]) -> None:
    f = life(**args)
    served(f, ["kimi"], adapters, asked)
    reason, said, advice = told
    v = verdict(f)
    assert (v.status, v.reason) == (Status.FALSE, reason) and said in v.message
    assert [c.reason for c in v.calls] == [reason] and advice in (v.calls[0].advice or "")


def test_one_list_is_not_enough() -> None:
    f = life()
    f.see(Probe(t=10.0, inv=INV, probe="models", outcome="ok", served=["other"], asked_model="kimi"))
    served_before = verdict(f).status
    served(f, ["kimi"], asked="kimi")
    assert served_before is Status.UNKNOWN and verdict(f).status is Status.TRUE


def test_a_failed_probe_takes_nothing_back() -> None:
    f = life()
    served(f, ["kimi"], asked="kimi")
    f.see(Probe(t=130.0, inv=INV, probe="models", outcome="timeout", total_s=5.0))
    assert verdict(f).status is Status.TRUE


def test_another_model_after_a_deployment_is_another_shape_though_the_asked_name_is_repeated() -> None:
    learned = Learned()
    first = life(learned)
    served(first, ["kimi-k2.5"], asked="prod")
    for n in range(3):
        chat(first, 100.0 + n, "prod")
    assert learned.shape is not None and learned.shape.served == "kimi-k2.5"
    second = life(learned, "b" * 32)
    served(second, ["glm-4.6"], asked="prod", inv="b" * 32)
    for n in range(3):
        chat(second, 100.0 + n, "prod", "b" * 32)
    v = shape.judge(second, 110.0)
    assert v.reason == "AnswerShapeChanged" and "another model is served (before:" in v.message
    assert "model prod (served: kimi-k2.5)" in v.message and "model prod (served: glm-4.6)" in v.message


def test_a_shape_that_was_learned_before_names_were_kept_learns_them() -> None:
    learned = Learned()
    f = life(learned)
    for n in range(3):
        chat(f, 5.0 + n, "prod")
    assert learned.shape is not None and learned.shape.served is None
    served(f, ["kimi"])
    chat(f, 100.0, "prod")
    assert learned.shape.served == "kimi" and shape.judge(f, 101.0).status is Status.TRUE


def test_weights_that_were_replaced_while_it_ran_bring_another_name_and_no_alarm() -> None:
    """Measured with 0.5.23: after /update_weights_from_disk the path takes the place of --served-model-name."""
    f = life(served_model_name="kimi", model_path="/models/K")
    f.see(Log(t=3.0, inv=INV, message='INFO:     127.0.0.1:1 - "POST /update_weights_from_disk HTTP/1.1" 400 Bad Request'))
    served(f, ["/models/K2"], asked="kimi")
    assert verdict(f).reason == "OtherModelServed"

    f.see(Log(t=71.0, inv=INV, message='INFO:     127.0.0.1:1 - "POST /update_weights_from_disk HTTP/1.1" 200 OK'))
    assert (verdict(f).status, verdict(f).reason) == (Status.TRUE, "WeightsReplaced")


def listed(f: Facts, *models: str) -> None:
    """Probes as a record has them that knows no extension: nothing but the body."""
    data = ",".join(f'{{"id":"{name}","object":"model","parent":null}}' for name in models)
    for t in (200.0, 260.0):
        f.see(Probe(t=t, inv=INV, probe="models", outcome="ok", status=200, body=f'{{"object":"list","data":[{data}]}}'))


def test_a_body_tells_the_names_where_nothing_else_does() -> None:
    f = life(served_model_name="kimi")
    listed(f, "glm")
    assert verdict(f).reason == "OtherModelServed"
    listed(f, "kimi")
    assert verdict(f).reason == "AsNamed"


@pytest.mark.parametrize(
    ("asked", "models", "reason"),
    [
        ("kimi", ["glm"], "ModelNotServed"),
        ("kimi", ["glm", "kimi"], "AsNamed"),
        ("default", ["glm"], "AsNamed"),
        (None, ["glm"], "AsNamed"),
    ],
)
def test_an_answer_repeats_the_name_that_was_asked_for(asked: str | None, models: list[str], reason: str) -> None:
    f = life()
    chat(f, 100.0, asked)
    listed(f, *models)
    assert verdict(f).reason == reason


def test_where_names_are_told_apart_from_the_body_the_configuration_says_which_is_asked_for() -> None:
    f = life()
    chat(f, 100.0, "glm")
    served(f, ["kimi"])
    assert verdict(f).reason == "AsNamed"


@pytest.mark.parametrize(
    ("more", "reason"),
    [
        ('{"id":"tuned","parent":"kimi"},{"id":"o', "AsNamed"),
        ('{"id":"glm","parent":null},{"id":"o', "NothingSeen"),
    ],
)
def test_of_a_list_that_is_cut_only_the_first_model_is_known(more: str, reason: str) -> None:
    f = life(served_model_name="kimi")
    chat(f, 100.0, "kimi:other")
    for t in (200.0, 260.0):
        body = f'{{"object":"list","data":[{{"id":"kimi","parent":null}},{more}'
        f.see(Probe(t=t, inv=INV, probe="models", outcome="ok", status=200, body=body))
    assert verdict(f).reason == reason
