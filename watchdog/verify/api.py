"""Does the API answer: /health, /v1/models, a canary through the whole engine, and metrics. Pure."""

from watchdog.judge.names import misnamed
from watchdog.judge.text import Quality, grade
from watchdog.observation import Probe
from watchdog.verify.findings import Item, bad, odd, ok, unknown
from watchdog.verify.seen import Seen
from watchdog.wording import counted

AREA = "API"


def check(seen: Seen) -> list[Item]:
    """The findings of the API; none for a node that has no API of its own."""
    if not seen.server.endpoint:
        return []
    items = [health(seen), models(seen)]
    if seen.server.probe.chat:
        items.append(canary(seen))
    if seen.server.metrics.enabled:
        items.append(metrics(seen))
    return items


def health(seen: Seen) -> Item:
    """GET /health."""
    expected = "200"
    probe = seen.probes.get("health")
    if probe is None:
        return unknown(AREA, "health", expected, seen.no_health or "not answered in time")
    if probe.outcome == "ok":
        return ok(AREA, "health", expected, f"{probe.status} in {_took(probe)}")
    return _failed("health", expected, probe, "look at what the scheduler does: journal and batch lines")


def models(seen: Seen) -> Item:
    """GET /v1/models."""
    wanted = seen.server.model
    expected = f"200 and the model {wanted}" if wanted else "200 and a model"
    probe = seen.probes.get("models")
    if probe is None:
        return unknown(AREA, "models", expected, "not answered in time")
    if probe.outcome != "ok":
        return _failed("models", expected, probe, "look at the HTTP server: journal of the main process")
    fault = misnamed(seen.args or {}, probe.asked_model, probe.served or [], probe.adapters or []) if probe.served else None
    if fault is not None:
        return odd(AREA, "models", expected, fault.message, fault.advice)
    return ok(AREA, "models", expected, f"{probe.status} in {_took(probe)}")


def canary(seen: Seen) -> Item:
    """A small chat request; an answer that is reasoning only is an answer."""
    probe = seen.probes.get("chat")
    expects = probe.expects if probe is not None else None
    expected = f"a sensible answer with {expects!r}" if expects else "a sensible answer"
    if probe is None:
        return unknown(AREA, "canary", expected, "not answered in time")
    if probe.outcome != "ok":
        return _failed("canary", expected, probe, "the engine does not answer: look at its journal, and at `status`")
    if probe.answer is None:
        return unknown(AREA, "canary", expected, "the answer could not be read")
    found = grade(probe.answer, expects)
    said = f"{found.reason}, in {_took(probe)}" + (f" (profile {probe.profile})" if probe.profile else "")
    if found.quality is Quality.GOOD:
        return ok(AREA, "canary", expected, said)
    if found.quality is Quality.SUSPICIOUS:
        return odd(AREA, "canary", expected, said, "ask it something yourself and read the answer")
    return bad(AREA, "canary", expected, said, "check weights, quantisation and attention back end; a restart may help once")


def metrics(seen: Seen) -> Item:
    """GET /metrics, which is a choice of the server's arguments."""
    scraped = seen.metrics
    asked = bool(seen.args.get("enable_metrics")) if seen.args else None
    expected = "metrics of the engine" if asked else "none, without --enable-metrics"
    if scraped is None:
        return unknown(AREA, "metrics", expected, "not answered in time")
    if scraped.ok:
        return ok(AREA, "metrics", "metrics of the engine", counted(len(scraped.values), "figure"))
    if scraped.error == "absent" and asked is not True:
        cure = "start the server with --enable-metrics: with them the watchdog sees more"
        return odd(AREA, "metrics", "metrics of the engine", "the server has none", cure)
    why = "no text that Prometheus reads, or one without an end" if scraped.error == "malformed" else scraped.error
    return odd(AREA, "metrics", expected, f"no metrics ({why})", "check metrics.path, and that nothing stands between")


def _failed(item: str, expected: str, probe: Probe, cure: str) -> Item:
    """A probe without a good answer. What failed because of our own settings says nothing about the server."""
    said = probe.detail or probe.outcome
    if probe.outcome == "skipped":
        held_back = probe.why not in (None, "config")
        cure = "ask again in a moment" if held_back else "mend the settings that it names"
        return unknown(AREA, item, expected, f"not asked: {said}", cure)
    if probe.status in (401, 403, 404, 405) or probe.status == 400:
        return unknown(AREA, item, expected, said, "our own request is at fault: mend the settings that it names")
    return bad(AREA, item, expected, f"{said} (after {_took(probe)})", cure)


def _took(probe: Probe) -> str:
    return "?" if probe.total_s is None else f"{probe.total_s:.2f} s"
