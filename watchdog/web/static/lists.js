// What is listed: conditions, failed probes with their transcripts, the diary, incident bundles, and the watchdog itself.

import { el, glyph, keyed, setText } from "./dom.js";
import { age } from "./hero.js";
import { clock, duration, size, spaced, zone } from "./words.js";

const LEVELS = { True: "well", False: "ill", Unknown: "unknown" };
const HOLDS = { True: "holds", False: "does not hold", Unknown: "not known" };

function list(body, items, key, make, empty) {
  let holder = body.querySelector(":scope > ul");
  if (!holder) body.append((holder = el("ul", { class: "list" })));
  keyed(holder, items, key, make);
  let note = body.querySelector(":scope > p.none");
  if (!note) body.prepend((note = el("p", { class: "none dim" })));
  setText(note, items.length ? "" : empty);
  note.hidden = items.length > 0;
}

export function conditions(body, server) {
  const sorted = server.conditions;
  const of = (status) => sorted.filter((c) => c.status === status);
  if (!body.firstChild) {
    const folded = () => el("details", {}, el("summary"), el("div"));
    body.append(el("div"), folded(), folded());
  }
  const [broken, ...others] = body.children;
  const make = (c) =>
    el(
      "li",
      { class: "condition " + LEVELS[c.status] },
      glyph(LEVELS[c.status], 20),
      el(
        "div",
        {},
        el("p", {}, el("b", {}, spaced(c.type)), el("span", { class: "state" }, ` ${HOLDS[c.status]}`), el("span", { class: "dim" }, ` ${c.reason}, for `, age(c.reason_since_at ?? c.since_at))),
        el("p", { class: "message" }, c.message),
      ),
    );
  list(broken, of("False"), (c) => JSON.stringify(c), make, sorted.length ? "No condition is broken." : "Nothing has been judged yet.");
  for (const [i, [status, words]] of [["Unknown", "not known"], ["True", "hold"]].entries()) {
    setText(others[i].querySelector("summary"), `${of(status).length} ${words}`);
    others[i].hidden = of(status).length === 0;
    list(others[i].lastElementChild, of(status), (c) => JSON.stringify(c), make, "");
  }
}

export function failedProbes(body, server) {
  if (!body.firstChild) body.append(el("div", { class: "scroll", tabindex: 0, role: "group", "aria-label": "Failed probes" }));
  const newest = [...server.failed_probes].reverse();
  const make = (p) =>
    el(
      "li",
      {},
      el(
        "details",
        {},
        el("summary", {}, el("b", {}, clock(p.at)), ` ${p.probe}: ${p.outcome}${p.status ? ` ${p.status}` : ""}`, el("span", { class: "dim" }, p.detail ?? p.why ? ` ${p.detail ?? p.why}` : "")),
        el("pre", { tabindex: 0, "aria-label": "Transcript" }, transcript(p)),
      ),
    );
  list(body.firstChild, newest, (p) => JSON.stringify([p.at, p.probe, p.outcome]), make, "No probe has failed since the watchdog started.");
}

function transcript(p) {
  const times = [
    ["connected after", p.connect_s],
    ["first byte after", p.ttft_s],
    ["ended after", p.total_s],
    ["limit", p.limit_s],
  ];
  const lines = [`${p.probe} probe at ${p.at}`, `outcome: ${p.outcome}${p.status ? ` (HTTP ${p.status})` : ""}`];
  for (const [name, value] of times) if (typeof value === "number") lines.push(`${name}: ${value.toFixed(3)} s`);
  if (p.detail) lines.push(`detail: ${p.detail}`);
  if (p.why) lines.push(`why: ${p.why}`);
  for (const [name, value] of Object.entries(p.answer ?? {})) if (value !== null && value !== "") lines.push(`answer.${name}: ${value}`);
  if (p.body) lines.push("", p.body);
  return lines.join("\n");
}

const WHAT = { intent: "decided", would: "would have", acted: "done", condition: "seen", operator: "a person" };

export function diary(body, server) {
  if (!body.firstChild) {
    const button = el("button", { type: "button", class: "toggle", "aria-pressed": "false" }, "With what was seen");
    button.onclick = () => {
      button.setAttribute("aria-pressed", String(button.getAttribute("aria-pressed") !== "true"));
      diary(body, body.server);
    };
    body.append(button, el("div", { class: "scroll", tabindex: 0, role: "group", "aria-label": "Entries" }));
  }
  body.server = server;
  const all = body.firstChild.getAttribute("aria-pressed") === "true";
  const newest = server.diary.filter((d) => all || d.what !== "condition").reverse();
  const make = (d) =>
    el("li", { class: "remark " + d.what }, el("time", { datetime: d.at }, clock(d.at)), el("span", { class: "what" }, WHAT[d.what] ?? d.what), el("p", { class: "message" }, d.text));
  list(body.lastChild, newest, (d) => JSON.stringify([d.at, d.what, d.text]), make, "Nothing had to be decided since the watchdog started.");
}

export function incidents(body, server) {
  const make = (b) => {
    const base = `incidents/${encodeURIComponent(server.name)}/${encodeURIComponent(b.name)}`;
    const named = `${b.reason} of ${clock(b.at)}`;
    return el(
      "li",
      { class: "bundle" },
      el("time", { datetime: b.at }, clock(b.at)),
      el("b", {}, spaced(b.reason)),
      el("span", { class: "dim" }, `${b.files.length} files, ${size(b.size)}`),
      el(
        "span",
        { class: "links" },
        b.files.includes("summary.md") ? el("a", { href: `${base}/summary.md`, "aria-label": `Summary of ${named}` }, "Summary") : "",
        el("a", { href: `${base}.tar.gz`, download: true, "aria-label": `Download ${named}` }, "Download"),
      ),
    );
  };
  list(body, server.incidents ?? [], (b) => JSON.stringify([b.name, b.size]), make, "No incident has been recorded.");
}

export function watchdog(foot, daemon) {
  const wrong = daemon.sources.filter((s) => s.error).map((s) => `${s.name}: ${s.error}`);
  if (daemon.reload_refused) {
    wrong.unshift(`the last reload was refused, the configuration before it goes on: ${daemon.reload_refused}`);
  }
  const words = [
    `sglang-watchdog ${daemon.version}, process ${daemon.pid}, up ${duration(daemon.up_s)}`,
    daemon.alive ? `all ${daemon.sources.length} sources give signs of life` : "a source gives no sign of life",
    `times are ${zone()}`,
  ];
  let main = foot.querySelector("p");
  if (!main) {
    main = el("p");
    foot.append(main, el("ul", { class: "list" }));
  }
  setText(main, words.join(" · "));
  keyed(
    foot.querySelector("ul"),
    wrong,
    (said) => said,
    (said) => el("li", { class: "wrong" }, said),
  );
}
