// Numbers and times in words. All ages are reckoned against the clock of the watchdog's machine, not the reader's.

let offsetMs = 0;

export function setClock(at) {
  if (at) offsetMs = Date.parse(at) - Date.now();
}

export function now() {
  return Date.now() + offsetMs;
}

// A number and its unit stay on one line.
export const NBSP = "\u00a0";

export function duration(seconds) {
  const s = Math.max(0, Math.round(seconds));
  const [large, small, length, part] = s < 3600 ? ["min", "s", 60, 1] : s < 86400 ? ["h", "min", 3600, 60] : ["d", "h", 86400, 3600];
  const [whole, rest] = [Math.floor(s / length), Math.floor((s % length) / part)];
  if (!whole) return `${rest}${NBSP}${small}`;
  const exact = rest && (length > 60 || whole < 10);
  return `${whole}${NBSP}${large}${exact ? ` ${rest}${NBSP}${small}` : ""}`;
}

export function clock(at, seconds = true) {
  const form = { hour: "2-digit", minute: "2-digit", hour12: false };
  if (seconds) form.second = "2-digit";
  const date = new Date(at);
  const time = date.toLocaleTimeString("en-GB", form);
  const today = new Date(now()).toDateString() === date.toDateString();
  return today ? time : `${date.toLocaleDateString("en-GB", { day: "numeric", month: "short" })} ${time}`;
}

// "UTC+2": alerts and journals may speak in another time zone.
export function zone() {
  const minutes = -new Date().getTimezoneOffset();
  const [hours, rest] = [Math.trunc(minutes / 60), Math.abs(minutes % 60)];
  return minutes ? `UTC${minutes > 0 ? "+" : ""}${hours}${rest ? `:${String(rest).padStart(2, "0")}` : ""}` : "UTC";
}

const known = (value) => typeof value === "number" && Number.isFinite(value);

// Exact, in both units that people mix up: GB are 10^9 bytes, GiB are 2^30.
export function gb(bytes) {
  return known(bytes) ? `${(bytes / 1e9).toFixed(2)}${NBSP}GB` : "not known";
}

export function gib(bytes) {
  return known(bytes) ? `${(bytes / 2 ** 30).toFixed(2)}${NBSP}GiB` : "";
}

export function size(bytes) {
  const units = ["B", "KiB", "MiB", "GiB"];
  let power = 0;
  let amount = bytes;
  while (amount >= 1024 && power < units.length - 1) [amount, power] = [amount / 1024, power + 1];
  return `${power ? amount.toFixed(1) : amount}${NBSP}${units[power]}`;
}

export function number(value, digits = 0) {
  return known(value) ? value.toFixed(digits) : null;
}

export function percent(ratio) {
  return known(ratio) ? `${Math.round(ratio * 100)}${NBSP}%` : null;
}

// "SchedulerProgressing" → "Scheduler progressing"
export function spaced(word) {
  const parts = word.match(/[A-Z]{2,}(?![a-z])|[A-Z]?[a-z]+|[A-Z]|\d+/g) ?? [word];
  return parts.map((p, i) => (i === 0 || /^[A-Z]{2,}$/.test(p) ? p : p.toLowerCase())).join(" ");
}
