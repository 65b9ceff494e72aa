// The first thing seen: how the server is, since when, what it does.

import { el, glyph } from "./dom.js";
import { clock, duration, percent } from "./words.js";

const MODES = {
  act: "acts: restarts where a restart helps",
  alert: "alerts only: nothing is restarted",
  observe: "observes only: says what it would do",
};

export function age(at) {
  return el("time", { datetime: at, "data-age": true });
}

export function hero(body, server) {
  const { health, starting } = server;
  const since = health.since_at;
  body.className = "body " + health.level;
  body.replaceChildren(
    el("div", { class: "hero-sign" }, glyph(health.level, 72)),
    el(
      "div",
      { class: "hero-words" },
      el("p", { class: "hero-name" }, server.name, el("span", { class: "dim" }, ` ${server.unit}`)),
      el("h1", {}, health.title),
      el("p", { class: "sentence" }, capital(server.sentence)),
      since ? el("p", { class: "dim" }, "since ", el("b", {}, clock(since)), ", for ", age(since)) : null,
    ),
    starting ? progress(starting) : "",
    facts(server),
  );
}

function capital(text) {
  return text.charAt(0).toUpperCase() + text.slice(1);
}

function progress(starting) {
  const ratio = starting.done ?? starting.ratio;
  const left = typeof starting.eta_s === "number" ? `about ${duration(starting.eta_s)} left` : "how long it takes is not known yet";
  const done = percent(ratio);
  const words = [done, starting.step ?? "beginning", left].filter(Boolean).join(", ");
  const bar = el("div", { class: "fill" });
  if (typeof ratio === "number") bar.style.width = `${Math.max(1, Math.min(100, ratio * 100))}%`;
  const attributes = { role: "progressbar", "aria-label": "Start-up", "aria-valuetext": words, class: done ? "track" : "track unsure" };
  if (done) Object.assign(attributes, { "aria-valuenow": Math.round(ratio * 100), "aria-valuemin": 0, "aria-valuemax": 100 });
  return el(
    "div",
    { class: "progress" },
    el("p", {}, el("b", {}, starting.step ?? "beginning"), done ? ` ${done}` : "", el("span", { class: "dim" }, ` ${left}`)),
    el("div", attributes, bar),
    steps(starting),
    el("p", { class: "dim" }, `Last progress: ${starting.progress_by}, ${duration(starting.progress_age_s ?? 0)} ago`),
  );
}

function steps({ steps: names, at }) {
  if (!names?.length) return "";
  return el(
    "ol",
    { class: "steps" },
    names.map((name, i) => el("li", { class: i < at ? "past" : i === at ? "present" : "", "aria-current": i === at ? "step" : null }, name)),
  );
}

function facts(server) {
  const { budget, mode } = server;
  const real = server.restarts.filter((r) => !r.dry);
  const would = server.diary.filter((d) => d.what === "would").length;
  const last = real.at(-1);
  const rows = [
    ["Mode", MODES[mode] ?? mode],
    ["Restarts", `${budget.spent} of ${budget.restarts} within ${duration(budget.window_s)} spent`],
    last ? ["Last restart", `${clock(last.at)}, ${last.reason}${last.proven ? ", proven since" : ""}`] : null,
    would ? ["Would have", `restarted ${would} ${would === 1 ? "time" : "times"} (diary below)`] : null,
    budget.forbidden ? ["No more restarts", budget.forbidden] : null,
    budget.backoff_s > 0 ? ["Back-off", `next restart not before ${duration(budget.backoff_s)} from now`] : null,
    server.stand_down ? ["Stands down", server.stand_down] : null,
    server.alerts.length ? ["Alerts", server.alerts.join(", ")] : null,
  ];
  return el(
    "dl",
    { class: "facts" },
    rows.filter(Boolean).map(([name, value]) => el("div", {}, el("dt", {}, name), el("dd", {}, value))),
  );
}
