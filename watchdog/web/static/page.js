// The live page: listens to the server's events, keeps the newest status, and redraws what changed.

import { el, glyph, keyed, setText } from "./dom.js";
import { hero } from "./hero.js";
import { gpus, memory, work } from "./figures.js";
import { conditions, diary, failedProbes, incidents, watchdog } from "./lists.js";
import { timeline } from "./timeline.js";
import { clock, duration, now, setClock } from "./words.js";

const STALE_MS = 6000;
const AGAIN_MS = 4000;
const HIDDEN_MS = 15000;
const ASK_MS = 5000;

// Each section of a server's view, with the keys of the status that it is drawn from.
const SECTIONS = [
  ["hero", null, hero, ["health", "sentence", "phase", "starting", "since_at", "ready_at", "mode", "stand_down", "budget", "restarts", "outlook", "observed", "alerts"]],
  ["work", "Work", work, ["work", "probes", "phase"]],
  ["memory", "Memory", memory, ["memory", "phase"]],
  ["timeline", "Timeline", timeline, ["timeline", "restarts"]],
  ["conditions", "Conditions", conditions, ["conditions"]],
  ["incidents", "Incident bundles", incidents, ["incidents"]],
  ["probes", "Failed probes", failedProbes, ["failed_probes"]],
  ["diary", "Diary of decisions", diary, ["diary"]],
  ["gpus", "GPUs", gpus, ["gpus"]],
];

// The lists stand in two columns.
const COLUMNS = [
  ["conditions", "diary"],
  ["incidents", "probes"],
];

const at = (id) => document.getElementById(id);
let status = null;
let shown = null;
let heardAt = 0;
let source = null;
let again = null;

function worstFirst(servers) {
  const order = ["ill", "trouble", "busy", "unknown", "paused", "well"];
  return [...servers].sort((a, b) => order.indexOf(a.health.level) - order.indexOf(b.health.level));
}

function chosen() {
  const name = decodeURIComponent(location.hash.replace(/^#s\//, ""));
  return status.servers.find((s) => s.name === name) ?? status.servers.find((s) => s.name === shown?.name) ?? worstFirst(status.servers)[0];
}

function build(server) {
  const bodies = {};
  const sections = SECTIONS.map(([id, title]) => {
    const body = el("div", { class: "body" });
    bodies[id] = body;
    if (!title) return el("section", { id, class: "hero", "aria-label": `State of ${server.name}` }, body);
    return el("section", { id, class: "panel", "aria-labelledby": `${id}-title` }, el("h2", { id: `${id}-title` }, title), body);
  });
  const columns = COLUMNS.map((ids) => el("div", { class: "column" }, sections.filter((section) => ids.includes(section.id))));
  const whole = sections.filter((section) => !COLUMNS.flat().includes(section.id));
  at("server").replaceChildren(...whole.slice(0, -1), ...columns, whole.at(-1));
  shown = { name: server.name, bodies };
}

function draw(changed) {
  if (!status.servers.length) {
    at("server").replaceChildren(el("p", { class: "panel" }, "No server is watched: add a [[servers]] table to the configuration."));
    shown = null;
    return;
  }
  const server = chosen();
  const fresh = shown?.name !== server.name;
  if (fresh) build(server);
  const keys = fresh ? null : changed?.[server.name];
  for (const [id, , render, needs] of SECTIONS) {
    if (fresh || !changed || (keys && needs.some((key) => key in keys))) render(shown.bodies[id], server);
  }
  drawServers(server);
  watchdog(at("daemon"), status.daemon);
  const bad = worstFirst(status.servers)[0];
  document.title = `${bad.health.title} · ${bad.name} · sglang-watchdog`;
  ages();
}

function drawServers(current) {
  const nav = at("servers");
  nav.hidden = status.servers.length < 2;
  const make = (s) =>
    el(
      "a",
      { href: `#s/${encodeURIComponent(s.name)}`, class: "card " + s.health.level },
      glyph(s.health.level, 24),
      el("span", { class: "card-name" }, s.name),
      el("span", { class: "card-title" }, s.health.title),
      el("span", { class: "card-text" }, s.sentence),
    );
  const focused = nav.contains(document.activeElement) ? document.activeElement.getAttribute("href") : null;
  keyed(nav, status.servers, (s) => JSON.stringify([s.name, s.health, s.sentence]), make);
  for (const card of nav.children) {
    const own = card.getAttribute("href") === `#s/${encodeURIComponent(current.name)}`;
    if (own) card.setAttribute("aria-current", "true");
    else card.removeAttribute("aria-current");
    if (focused && card.getAttribute("href") === focused && document.activeElement !== card) card.focus();
  }
}

// Ages grow by themselves: every <time data-age> is told anew each second, without any message.
function ages() {
  for (const node of document.querySelectorAll("time[data-age]")) {
    setText(node, duration((now() - Date.parse(node.dateTime)) / 1000));
  }
}

function announce(before, after) {
  const was = new Map(before.map((s) => [s.name, s.health.title]));
  const said = after.filter((s) => was.has(s.name) && was.get(s.name) !== s.health.title);
  if (said.length) at("said").textContent = said.map((s) => `${s.name}: ${s.health.title}. ${s.sentence}.`).join(" ");
}

function take(next, changed) {
  const before = status?.servers ?? [];
  status = next;
  heardAt = Date.now();
  setClock(next.at);
  draw(changed);
  announce(before, status.servers);
  live();
}

function live() {
  const late = Date.now() - heardAt;
  const lost = heardAt > 0 && late > STALE_MS + (source ? 0 : AGAIN_MS + ASK_MS) && !document.hidden;
  document.body.classList.toggle("lost", lost);
  at("stale").hidden = !lost;
  setText(at("link"), heardAt === 0 ? "connecting …" : lost ? "not connected" : source ? "live" : "asked every few seconds");
  at("link").classList.toggle("on", heardAt > 0 && !lost);
  if (lost) setText(at("stale"), `The watchdog does not answer. What you see is from ${clock(now() - late)}; it is asked again and again.`);
}

function lay(patch) {
  const { servers, ...rest } = patch;
  const merged = status.servers.map((s) => (servers[s.name] ? { ...s, ...servers[s.name] } : s));
  take({ ...status, ...rest, servers: merged }, servers);
}

// A page that is looked at listens to events. One in the background, or one for which there is no room, asks now and then: its
// title still tells, and it takes nobody's place.
function connect() {
  clearTimeout(again);
  source?.close();
  source = null;
  if (document.hidden) return poll(HIDDEN_MS);
  source = new EventSource("api/events");
  source.addEventListener("status", (e) => take(JSON.parse(e.data), null));
  source.addEventListener("patch", (e) => status && lay(JSON.parse(e.data)));
  source.addEventListener("error", () => {
    // A browser does not come back by itself after an answer that is no stream, such as "too many pages are open".
    if (source?.readyState === EventSource.CLOSED) poll(AGAIN_MS);
  });
}

async function poll(pauseMs) {
  source?.close();
  source = null;
  try {
    const answer = await fetch("api/status", { signal: AbortSignal.timeout(ASK_MS) });
    if (answer.ok) take(await answer.json(), null);
  } catch {
    // The next one may get through; live() tells how old the picture is.
  }
  if (!source) again = setTimeout(connect, pauseMs);
}

addEventListener("hashchange", () => {
  if (status && location.hash.startsWith("#s/")) {
    draw(null);
    at("server").focus({ preventScroll: true });
  }
});
addEventListener("visibilitychange", connect);
setInterval(() => {
  ages();
  live();
}, 1000);
setInterval(() => {
  const server = status?.servers.find((s) => s.name === shown?.name);
  if (server) timeline(shown.bodies.timeline, server);
}, 30000);
connect();
