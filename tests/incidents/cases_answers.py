"""What only answers tell: what never made sense, a host pool that changes them, another model's name. Findings, never restarts."""

from collections.abc import Iterator
from itertools import cycle

import msgspec

from tests.incidents.case import MAY, NOT, case, must
from tests.incidents.sim import Sim
from watchdog import observation as o

HOUR = 3600.0
SIZE = 1480
WHERE = {"computed": (None, None), "held": (SIZE - 1, 0), "loaded": (3, SIZE - 4)}


def reply(text: str, where: str) -> o.Answer:
    held, back = WHERE[where]
    return o.Answer(
        text=text,
        finish_reason="stop",
        model="kimi-k2.5",
        prompt_tokens=SIZE,
        completion_tokens=2,
        cached_device=held,
        cached_host=back,
    )


def ask(s: Sim, first: tuple[str, str], second: tuple[str, str], fresh: str | None = None) -> None:
    """One turn of the prefix canary."""
    s.emit(
        o.Probe,
        inv=s.inv,
        probe="prefix",
        outcome="ok",
        status=200,
        ttft_s=0.09,
        total_s=0.12,
        limit_s=60.0,
        answer=reply(*second),
        earlier=reply(*first),
        earlier_ttft_s=0.31,
        fresh=None if fresh is None else reply(fresh, "computed"),
    )


def hourly(s: Sim, wrong_from: int, *, wrong: str = "The boxes are 1.", heeds_salt: bool = True) -> None:
    """Traffic evicts the prefix between the turns; from some turn on, what comes back from the host is not what went there."""
    s.at(900.0, lambda: ask(s, ("16", "computed"), ("16", "held")))
    s.at(1800.0, lambda: ask(s, ("16", "held"), ("16", "held")))
    for turn in range(1, 9):
        text = wrong if turn >= wrong_from else "16"
        fresh = "16" if heeds_salt else None
        s.at(1800.0 + turn * HOUR, lambda text=text, fresh=fresh: ask(s, (text, "loaded"), (text, "held"), fresh))  # type: ignore[misc]


@case("sgl-hicache-load-back-corrupts", until=8.5 * HOUR, rate=0.02, alert=must(5 * HOUR, 8.5 * HOUR, "hicache"))
def load_back_changes_answers(s: Sim) -> None:
    """SGLang issues 38031 and 39830: fluent, and not an answer to the prompt; no line, no counter, finish_reason stop."""
    hourly(s, wrong_from=3)


@case("sgl-hicache-load-back-corrupts", until=8.5 * HOUR, rate=0.02, alert=must(2 * HOUR, 8.5 * HOUR, "hicache"))
def load_back_always_changed_answers(s: Sim) -> None:
    hourly(s, wrong_from=1, heeds_salt=False)


@case("one odd answer", until=8.5 * HOUR, rate=0.02, alert=NOT)
def load_back_with_one_odd_answer(s: Sim) -> None:
    hourly(s, wrong_from=8)


@case("batch noise", until=8.5 * HOUR, rate=0.02, alert=NOT)
def answers_that_vary_by_themselves(s: Sim) -> None:
    for turn in range(14):
        words = ["16", "16 boxes", "Sixteen"]
        first, second, fresh = words[turn % 3], words[(turn + 1) % 3], words[(turn + 2) % 3]
        where = "loaded" if turn % 2 else "computed"
        s.at(
            900.0 + turn * 1800.0,
            lambda first=first, second=second, fresh=fresh, where=where: ask(  # type: ignore[misc]
                s, (first, where), (second, "held"), fresh if where == "loaded" else None
            ),
        )


def lists(s: Sim, served: str, asked: str | None, *, named: bool = True) -> None:
    """From now on `served` is listed; `named`: the record has the names apart from the body, which is an extension."""

    def listed() -> dict[str, object]:
        body = f'{{"object":"list","data":[{{"id":"{served}"}}]}}'
        names = {"served": [served], "adapters": [], "asked_model": asked} if named else {}
        return {"outcome": "ok", "status": 200, "total_s": 0.003, "limit_s": 5.0, "body": body, **names}

    s.looks.models_as = listed


@case("another model behind the address", until=1500, variants=("plain", "0.5.9"), alert=must(300, 1400, "base_url"))
def another_server_behind_the_address(s: Sim) -> None:
    lists(s, "qwen3-8b", None)


@case("a name that is not served", until=1500, variants=("plain", "one-gpu-no-metrics"), alert=must(300, 1400, "served name"))
def a_name_that_is_not_served(s: Sim) -> None:
    lists(s, "kimi-k2.5", "kimi-k2")


@case("sgl-any-model-name-accepted", until=1500, variants=("plain", "0.5.9"), alert=must(300, 1400, "base_url"))
def another_server_as_a_body_tells(s: Sim) -> None:
    lists(s, "qwen3-8b", None, named=False)


# ---- answers that make no sense

MIXED = (
    "éléphant 的的 ของ }]) ##~ ಕನ್ನಡ <|reserved_token_163601|>",
    "zzq 的ของ ngà тебя <|reserved_token_163590|> ,,",
    "<|reserved_token_163598|><|reserved_token_7|> ngày",
)
"""Salad that is odd, odd, and degenerate."""
SALAD = ("Ttrag ohne the wich; alors del 7 qqm", "is is of 4 gall thre umbrel ; ; not", "vrn the of zqua mellontho 12 kk")
"""Nothing of this is odd by itself."""


def words(s: Sim, texts: Iterator[str]) -> None:
    s.looks.answer = lambda: msgspec.structs.replace(s.looks.good_answer(), text=next(texts), finish_reason="length")


@case(
    "sgl-kimi-k2-gibberish-b200",
    until=2400,
    variants=("plain", "one-gpu", "quick-probes"),
    mid_life=False,
    rate=0.0,
    withhold=must(280, 1500, "weights"),
    alert=must(280, 1500),
)
def mixed_garbage_from_the_start(s: Sim) -> None:
    words(s, cycle(MIXED))
    s.at(20, s.boot)


@case(
    "sgl-kimi-k2-gibberish-b200",
    until=2400,
    variants=("plain", "one-gpu", "quick-probes"),
    mid_life=False,
    rate=0.0,
    expects="Paris",
    alert=must(800, 1500, "weights", "chat_expects"),
)
def salad_from_the_start(s: Sim) -> None:
    """A server that is ill, or a question that does not fit its model: people are told of both, and nothing is done."""
    words(s, cycle(SALAD))
    s.at(20, s.boot)


@case("a question that fits at last", until=2400, variants=("plain",), mid_life=False, rate=0.0, expects="Paris", alert=NOT)
def odd_only_at_the_start(s: Sim) -> None:
    words(s, cycle(SALAD))
    s.at(20, s.boot)
    s.at(600, lambda: setattr(s.looks, "answer", s.looks.good_answer))


@case("sgl-l3-garbled", until=5000, variants=("plain", "no-metrics", "busy"), alert=must(2000, 3000, "storage"), withhold=MAY)
def only_what_comes_from_a_store_is_garbage(s: Sim) -> None:
    """The store outlives a restart, and even a planned one mends nothing."""
    texts = cycle(MIXED)

    def asked() -> None:
        good = s.now < 1000
        text = "The secret word is heron." if good else next(texts)
        answer = o.Answer(text=text, finish_reason="stop" if good else "length", prompt_tokens=6012, cached_tokens=6000)
        s.emit(o.Probe, inv=s.inv, probe="prefix", outcome="ok", status=200, total_s=1.4, limit_s=120.0, answer=answer)
        s.after(300.0, asked)

    s.at(200.0, asked)
