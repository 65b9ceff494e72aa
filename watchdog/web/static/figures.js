// Numbers: the server's work, its memory, the GPUs.

import { el } from "./dom.js";
import { NBSP, duration, gb, gib, number, percent } from "./words.js";

function tile(name, value, note = "", ratio = null) {
  return el(
    "div",
    { class: "tile" },
    el("dt", {}, name),
    el("dd", {}, value === null ? el("span", { class: "dim" }, "not known") : value, note ? el("span", { class: "note" }, note) : ""),
    ratio === null ? "" : meter(ratio),
  );
}

// A bar that repeats a number which stands beside it in words: hidden from screen readers.
function meter(ratio, kind = "") {
  const fill = el("div", { class: "fill" });
  fill.style.width = `${Math.max(0, Math.min(100, ratio * 100))}%`;
  return el("div", { class: `track small ${kind}`, "aria-hidden": "true" }, fill);
}

const ago = (seconds) => (typeof seconds === "number" ? (seconds < 1 ? "just now" : `${duration(seconds)} ago`) : null);

export function work(body, server) {
  const { work: w, probes } = server;
  const canary = probes.chat;
  const health = probes.health;
  body.replaceChildren(
    el(
      "dl",
      { class: "tiles" },
      tile("Running requests", number(w.running)),
      tile("Queued", number(w.queued)),
      tile("KV cache used", percent(w.token_usage), "", w.token_usage),
      tile("Last batch", ago(w.step_age_s)),
      tile("Last request ended", ago(w.request_ended_age_s)),
      w.accept_length ? tile("Accept length", number(w.accept_length, 2), "tokens a step") : "",
      tile("Canary", canary ? outcome(canary) : null, canary ? seconds(canary.total_s) : ""),
      tile("/health", health ? outcome(health) : null, health ? seconds(health.total_s) : ""),
    ),
  );
}

const seconds = (s) => (typeof s === "number" && s >= 0.005 ? `${s.toFixed(2)}${NBSP}s` : "");
const outcome = (probe) => (probe.outcome === "ok" ? "answered" : probe.status ? `${probe.outcome} ${probe.status}` : probe.outcome);

export function memory(body, server) {
  const m = server.memory;
  const host = m.host ?? {};
  const used = typeof host.mem_total === "number" && typeof host.mem_available === "number" ? host.mem_total - host.mem_available : null;
  // The pool's bars share one scale, so that they can be compared; the host's has its own, which is all of its memory.
  const most = Math.max(1, m.expected ?? 0, m.announced ?? 0, m.seen ?? 0);
  const rows = [
    m.expected ? ["Expected", m.expected, "by launch arguments and KV cache", most] : null,
    m.announced ? ["Announced", m.announced, "host pool, by SGLang's log", most] : null,
    m.announced || m.expected ? ["Seen", m.seen, m.seen_as ?? "not read yet", most] : null,
    ["Host used", used, typeof host.mem_total === "number" ? `of ${gb(host.mem_total)} = ${gib(host.mem_total)}` : "not read yet", host.mem_total ?? 1],
  ].filter(Boolean);
  const bars = rows.map(([name, value, note, whole]) => {
    const fill = el("div", { class: "fill " + name.split(" ")[0].toLowerCase() });
    fill.style.width = `${((value ?? 0) / whole) * 100}%`;
    const goal = el("div", { class: "goal" });
    goal.style.left = `${((m.announced ?? 0) / most) * 100}%`;
    return el(
      "div",
      { class: "bar" },
      el("dt", {}, name),
      el("dd", {}, el("b", {}, gb(value)), value ? el("span", { class: "dim" }, ` = ${gib(value)}`) : "", el("span", { class: "note" }, note)),
      el("div", { class: "track", "aria-hidden": "true" }, fill, name === "Seen" && m.announced && m.announced < most ? goal : ""),
    );
  });
  const pool = m.announced ? "" : server.phase === "starting" ? "No host pool has been announced yet." : "No host pool in this life.";
  const left = typeof m.room === "number" ? `Room left before the kernel must act: ${gb(m.room)} = ${gib(m.room)}.` : "";
  body.replaceChildren(el("dl", { class: "bars" }, bars), el("p", { class: "dim" }, [pool, left].filter(Boolean).join(" ")));
}

export function gpus(body, server) {
  const g = server.gpus;
  if (!g) return body.replaceChildren(el("p", { class: "dim" }, "GPUs are not looked at here, or have not been read yet."));
  if (!g.ok) {
    const none = g.error === "no_driver" || g.error === "no_library";
    return body.replaceChildren(el("p", { class: none ? "dim" : "wrong" }, none ? "This host has no NVIDIA driver." : `GPUs cannot be read: ${g.error ?? "no reason was given"}.`));
  }
  const list = g.gpus ?? [];
  const missing = typeof g.expected === "number" && g.expected > list.length;
  return body.replaceChildren(
    missing ? el("p", { class: "wrong" }, `${list.length} of ${g.expected} GPUs are there.`) : "",
    list.length ? "" : el("p", { class: "dim" }, "The driver shows no GPU."),
    el("ul", { class: "gpus" }, list.map(gpu)),
  );
}

function gpu(g) {
  const share = g.mem_total ? (g.mem_used ?? 0) / g.mem_total : null;
  const power = g.power_limit_w && typeof g.power_w === "number" ? g.power_w / g.power_limit_w : null;
  const held = (g.throttle ?? []).filter((reason) => reason !== "idle");
  const warnings = [
    held.length ? `clock held down: ${held.join(", ")}` : "",
    g.ecc_uncorrected ? `${g.ecc_uncorrected} uncorrected ECC errors` : "",
    g.retired_pending ? "memory pages wait to be retired: reset needed" : "",
    g.nvlinks_down ? `${g.nvlinks_down} NVLinks down` : "",
  ].filter(Boolean);
  // On a phone the bar alone tells how much of the whole it is.
  const of = (whole) => (whole ? el("span", { class: "of" }, ` of ${whole}`) : "");
  const used = typeof g.mem_used === "number" ? [(g.mem_used / 2 ** 30).toFixed(1), of(g.mem_total && (g.mem_total / 2 ** 30).toFixed(1)), `${NBSP}GiB`] : null;
  const watts = typeof g.power_w === "number" ? [`${Math.round(g.power_w)}`, of(g.power_limit_w && Math.round(g.power_limit_w)), `${NBSP}W`] : null;
  return el(
    "li",
    { class: warnings.length ? "gpu warned" : "gpu" },
    el("h3", {}, `GPU ${g.index}`, el("span", { class: "dim" }, g.mig ? " MIG" : "")),
    el(
      "dl",
      {},
      line("Use", percent(g.util), g.util),
      line("Memory", used, share),
      line("Power", watts, power),
      line("Heat", typeof g.temp_c === "number" ? `${Math.round(g.temp_c)}${NBSP}°C` : null),
      line("Clock", typeof g.sm_mhz === "number" ? `${Math.round(g.sm_mhz)}${NBSP}MHz` : null),
    ),
    warnings.map((text) => el("p", { class: "wrong" }, text)),
  );
}

function line(name, value, ratio = null) {
  return el("div", { class: name.toLowerCase() }, el("dt", {}, name), el("dd", {}, ...[value ?? "not known"].flat()), ratio === null || ratio === undefined ? "" : meter(ratio));
}
