// Building the document. Text goes in as text nodes only: nothing that a model or a log says can become markup.

const SVG = "http://www.w3.org/2000/svg";

function fill(node, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) {
    if (value === undefined || value === null || value === false) continue;
    node.setAttribute(name, value === true ? "" : String(value));
  }
  node.append(...children.flat().filter((child) => child !== null && child !== undefined && child !== ""));
  return node;
}

export function el(name, attributes = {}, ...children) {
  return fill(document.createElement(name), attributes, children);
}

export function svg(name, attributes = {}, ...children) {
  return fill(document.createElementNS(SVG, name), attributes, children);
}

// Keeps the children of `parent` in step with `items`: a child whose key is still there stays as it is (its focus, whether it
// is open, what is selected in it). `make(item)` builds a child; `key(item)` must change whenever the child's content does.
export function keyed(parent, items, key, make) {
  const before = new Map([...parent.children].map((child) => [child.dataset.key, child]));
  const wanted = items.map((item) => {
    const name = key(item);
    const known = before.get(name);
    if (known) return known;
    const made = make(item);
    made.dataset.key = name;
    return made;
  });
  const stays = new Set(wanted);
  for (const child of [...parent.children]) if (!stays.has(child)) child.remove();
  wanted.forEach((child, i) => {
    if (parent.children[i] !== child) parent.insertBefore(child, parent.children[i] ?? null);
  });
}

export function setText(node, text) {
  if (node.textContent !== text) node.textContent = text;
}

// A shape for each state, so that it is told apart without colours.
const SHAPES = {
  well: ["circle", "M9 16.5l5 5 9-10"],
  trouble: ["triangle", "M16 12v6M16 22.2v.1"],
  ill: ["octagon", "M11.5 11.5l9 9M20.5 11.5l-9 9"],
  busy: ["dashes", "M16 9v7l5 3"],
  paused: ["square", "M12.5 11v10M19.5 11v10"],
  unknown: ["ring", "M12.8 12.6c.3-2 1.600-3 3.300-3 1.900 0 3.200 1.200 3.200 2.800 0 2.600-3.300 2.600-3.300 5.200M16 22.200v.1"],
};
const OUTLINES = {
  circle: () => svg("circle", { cx: 16, cy: 16, r: 14, class: "fill" }),
  ring: () => svg("circle", { cx: 16, cy: 16, r: 13, class: "line" }),
  dashes: () => svg("circle", { cx: 16, cy: 16, r: 13, class: "line turning", "stroke-dasharray": "10 3.6" }),
  square: () => svg("rect", { x: 3, y: 3, width: 26, height: 26, rx: 6, class: "fill" }),
  triangle: () => svg("path", { d: "M16 3.500L30 28H2z", class: "fill", "stroke-linejoin": "round" }),
  octagon: () => svg("path", { d: "M10.200 2h11.600L30 10.200v11.600L21.800 30H10.200L2 21.800V10.200z", class: "fill" }),
};

export function glyph(level, size) {
  const [outline, sign] = SHAPES[level] ?? SHAPES.unknown;
  const hollow = outline === "ring" || outline === "dashes";
  return svg(
    "svg",
    { class: "glyph " + level, viewBox: "0 0 32 32", width: size, height: size, "aria-hidden": "true", focusable: "false" },
    OUTLINES[outline](),
    svg("path", { d: sign, class: hollow ? "sign" : "sign on" }),
  );
}
