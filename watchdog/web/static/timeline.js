// A day at a glance: one band for the phase, one for each condition that did not hold, and the restarts.

import { el, keyed } from "./dom.js";
import { clock, duration, now, spaced } from "./words.js";

const HOUR = 3600e3;
const SPANS = [
  ["1 h", HOUR, 10 * 60e3],
  ["6 h", 6 * HOUR, HOUR],
  ["24 h", 24 * HOUR, 4 * HOUR],
];
const CLASSES = { True: "good", False: "bad", Unknown: "unsure" };
const HOLDS = { True: "held", False: "did not hold", Unknown: "not known" };
let picked = null;

export function timeline(body, server) {
  const t = server.timeline;
  if (!t?.from_at) return;
  const end = now();
  const kept = end - Date.parse(t.phases[0]?.at ?? t.from_at);
  const span = picked ?? SPANS.findIndex(([, length]) => length >= Math.min(kept, 24 * HOUR));
  const [, length, step] = SPANS[span < 0 ? 2 : span];
  const begin = end - length;
  const bad = Object.entries(t.conditions).filter(([, row]) => segments(row, begin, end).some((s) => s.value === "False"));
  const quiet = Object.keys(t.conditions).length - bad.length;
  const chart = el(
    "div",
    { class: "chart" },
    band("Phase", t.phases, begin, end, (v) => "phase-" + v, (v) => v),
    marks(server.restarts, begin, end),
    bad.map(([kind, row]) => band(spaced(kind), row, begin, end, (v) => CLASSES[v], (v) => HOLDS[v])),
    axis(begin, end, step),
  );
  frame(body, server, span < 0 ? 2 : span);
  body.querySelector(".plot").replaceChildren(chart, el("p", { class: "dim" }, `${quiet} ${quiet === 1 ? "condition" : "conditions"} held or stayed unknown throughout.`));
  changes(body.querySelector("details ul"), server, begin);
}

// What has the focus must stay where it is: built once, only the plot within is drawn anew.
function frame(body, server, span) {
  if (!body.querySelector(".plot")) {
    const buttons = SPANS.map(([name], i) => el("button", { type: "button", "data-span": i }, name));
    body.append(
      el("div", { class: "spans", role: "group", "aria-label": "How far back" }, buttons),
      el("div", { class: "plot" }),
      el("details", {}, el("summary", {}, "The same as a list"), el("ul", { class: "list" })),
    );
  }
  body.querySelectorAll("button").forEach((button, i) => {
    button.setAttribute("aria-pressed", String(i === span));
    button.onclick = () => {
      picked = i;
      timeline(body, server);
    };
  });
}

function segments(row, begin, end) {
  return row
    .map((change, i) => ({ ...change, from: Math.max(begin, Date.parse(change.at)), to: i + 1 < row.length ? Date.parse(row[i + 1].at) : end }))
    .filter((s) => s.to > begin && s.to > s.from);
}

function place(node, from, to, begin, end) {
  node.style.left = `${((from - begin) / (end - begin)) * 100}%`;
  node.style.width = `${((to - from) / (end - begin)) * 100}%`;
  return node;
}

function band(name, row, begin, end, classOf, wordOf) {
  const parts = segments(row, begin, end);
  const said = (s) => `${wordOf(s.value)} ${clock(s.from)} to ${s.to === end ? "now" : clock(s.to)}${s.reason ? ` (${s.reason})` : ""}`;
  const told = parts.filter((s) => s.value !== "True" && s.value !== "Unknown").slice(-8);
  const label = `${name}: ${told.map(said).join("; ") || "nothing of note"}`;
  return el(
    "div",
    { class: "row" },
    el("span", { class: "row-name" }, name),
    el(
      "div",
      { class: "band", role: "img", "aria-label": label },
      parts.map((s) => place(el("span", { class: classOf(s.value), title: `${said(s)}${s.message ? `\n${s.message}` : ""}` }), s.from, s.to, begin, end)),
    ),
  );
}

function marks(restarts, begin, end) {
  const inside = restarts.filter((r) => Date.parse(r.at) >= begin);
  if (!inside.length) return "";
  const words = (r) => `${r.dry ? "would have restarted" : "restarted"} at ${clock(r.at)}: ${r.reason}`;
  return el(
    "div",
    { class: "row" },
    el("span", { class: "row-name" }, "Restarts"),
    el(
      "div",
      { class: "marks", role: "img", "aria-label": inside.map(words).join("; ") },
      inside.map((r) => place(el("span", { class: r.dry ? "mark dry" : "mark", title: words(r) }, r.dry ? "△" : "▲"), Date.parse(r.at), Date.parse(r.at), begin, end)),
    ),
  );
}

function axis(begin, end, step) {
  const shift = new Date(end).getTimezoneOffset() * 60e3;
  const ticks = [];
  const edge = (end - begin) / 20;
  for (let t = Math.ceil((begin - shift) / step) * step + shift; t <= end; t += step) if (t > begin + edge / 2 && t < end - edge * 2.5) ticks.push(t);
  return el(
    "div",
    { class: "row axis", "aria-hidden": "true" },
    el("span", { class: "row-name" }),
    el("div", { class: "ticks" }, ticks.map((t) => place(el("span", {}, clock(t, false).slice(-5)), t, t, begin, end)), el("span", { class: "now" }, "now")),
  );
}

function changes(holder, server, begin) {
  const t = server.timeline;
  const phases = t.phases.map((c) => [c.at, `phase ${c.value}`]);
  const restarts = server.restarts.map((r) => [r.at, `${r.dry ? "would have restarted" : "restarted"}: ${r.reason}`]);
  const rest = Object.entries(t.conditions).flatMap(([kind, row]) =>
    row
      .filter((c, i) => c.value === "False" || row[i - 1]?.value === "False")
      .map((c) => [c.at, `${spaced(kind)} ${HOLDS[c.value]}${c.message ? `: ${c.message}` : ""}`]),
  );
  const all = [...phases, ...restarts, ...rest].filter(([at]) => Date.parse(at) >= begin).sort((a, b) => (a[0] < b[0] ? 1 : -1));
  keyed(holder, all.slice(0, 200), JSON.stringify, ([at, text]) => el("li", {}, el("time", { datetime: at }, clock(at)), ` ${text} `, el("span", { class: "dim" }, `${duration((now() - Date.parse(at)) / 1000)} ago`)));
}
