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
  const { health, starting, outlook } = server;
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
      outlook ? coming(outlook) : null,
    ),
    starting ? progress(starting) : "",
    facts(server),
  );
}

function capital(text) {
  return text.charAt(0).toUpperCase() + text.slice(1);
}

function coming({ next, helps }) {
  const rows = [["Next", next], helps ? ["What helps", helps] : null].filter(Boolean);
  return el("dl", { class: "coming" }, rows.map(([name, text]) => el("div", {}, el("dt", {}, name), el("dd", {}, text))));
}

function progress(starting) {
  const left = typeof starting.eta_s === "number" ? `about ${duration(starting.eta_s)} left` : "how long it takes is not known yet";
  const done = percent(starting.done);
  const words = [done ? `${done} of the start` : "", left].filter(Boolean).join(", ");
  const bar = el("div", { class: "fill" });
  if (done) bar.style.width = `${Math.max(1, Math.min(100, starting.done * 100))}%`;
  const attributes = { role: "progressbar", "aria-label": "Start-up", "aria-valuetext": words, class: done ? "track" : "track unsure" };
  if (done) Object.assign(attributes, { "aria-valuenow": Math.round(starting.done * 100), "aria-valuemin": 0, "aria-valuemax": 100 });
  return el(
    "div",
    { class: "progress" },
    el("p", {}, done ? el("b", {}, `${done} of the start`) : "", done ? ", " : "", left),
    el("div", attributes, bar),
    steps(starting),
  );
}

function steps({ steps: names, at, ratio }) {
  if (!names?.length) return "";
  return el(
    "ol",
    { class: "steps" },
    names.map((name, i) => {
      const here = i === at && typeof ratio === "number" ? ` ${percent(ratio)}` : "";
      return el("li", { class: i < at ? "past" : i === at ? "present" : "", "aria-current": i === at ? "step" : null }, name + here);
    }),
  );
}

function advice(would) {
  return would ? ': if it was right, set mode = "act"' : ' without a restart that it would have made: it is time for mode = "act"';
}

function facts(server) {
  const { budget, mode, observed } = server;
  const real = server.restarts.filter((r) => !r.dry);
  const would = server.restarts.filter((r) => r.dry).length;
  const last = real.at(-1);
  const rows = [
    ["Mode", MODES[mode] ?? mode],
    ["Restarts", `${budget.spent} of ${budget.restarts} within ${duration(budget.window_s)} spent`],
    last ? ["Last restart", `${clock(last.at)}, ${last.reason}${last.proven ? ", proven since" : ""}`] : null,
    would ? ["Would have", `restarted ${would === 1 ? "once" : `${would} times`} of late (diary below)`] : null,
    observed ? ["Observed", `for ${duration(observed.s)}${observed.week ? advice(observed.would_restart) : ""}`] : null,
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
