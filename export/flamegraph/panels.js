// The panels around the graph: the table of functions, the selected frame, the ancestors, the
// legend, the tooltip. Text from the recording is only ever set as text, never as HTML.

// The table of functions. It shows some rows, and more on demand, so that many cost nothing.
const ROWS_AT_ONCE = 100;

class Table {
  constructor(root, page) {
    this.root = root; this.page = page;
    this.sort = "self"; this.descending = true;
    this.by = "self"; // what a comparison shows: self or total
    let width = 0; // that names have been cut to
    new ResizeObserver(() => {
      if (root.clientWidth === width) return;
      width = root.clientWidth;
      this.cutNames();
    }).observe(root);
  }

  show() {
    this.shown = ROWS_AT_ONCE;
    const { page } = this, compare = page.base;
    this.rows = page.rows.filter((r) => (page.weightOf(r) > 0) && (!page.found || page.found.functions.has(r.func)));
    const value = this.values()[this.sort] || this.values()[this.by], sign = this.descending ? -1 : 1;
    const order = (x, y) => sign * (typeof x === "string" ? x.localeCompare(y) : x - y);
    this.rows.sort((a, b) => order(value(a), value(b)) || b.self - a.self || b.total - a.total || a.func - b.func);
    this.body = element("tbody");
    const columns = compare ? ["slim", "slim", "slim", ""] : ["number", "number", ""];
    const head = element("div", { class: "tableHead" }, element("h2", {}, this.heading()), this.countText());
    if (compare) head.append(this.choice());
    this.list = element("div", { class: "rows" }, element("table", {},
      element("colgroup", {}, ...columns.map((c) => element("col", { class: c }))),
      element("thead", {}, element("tr", {}, ...this.headings())), this.body));
    this.root.replaceChildren(head, this.list);
    this.fill();
  }

  // heading returns the title of the table.
  heading() {
    const { page } = this;
    if (!page.mode.events) return "Hottest functions";
    return page.selection.leaves && page.hasLeaves() ? `${page.mode.leaves} and functions` : "Functions";
  }

  countText() {
    return element("span", { class: "count" }, formatCount(this.rows.length) + (this.page.found ? " found" : ""));
  }

  // values returns, for each column, the value of a row that it is sorted by.
  values() {
    const p = this.page, by = this.by === "self" ? ["self", "baseSelf"] : ["total", "baseTotal"];
    return {
      self: (r) => r.self, total: (r) => r.total, name: (r) => p.functions[r.func].short,
      before: (r) => r[by[1]] / (p.baseWeight || 1), after: (r) => r[by[0]] / (p.weight || 1),
      change: (r) => Math.abs(r[by[0]] / (p.weight || 1) - r[by[1]] / (p.baseWeight || 1)),
    };
  }

  headings() {
    const names = this.page.base
      ? [["before", "Before", "share in the base recording"], ["after", "After", "share in this recording"],
        ["change", "Change", "of the share, in percentage points"]]
      : [["self", "Self", "of the function itself"],
        ["total", "Total", "of the function and what it calls; recursion counts once"]];
    return [...names, ["name", "Function", ""]].map(([key, text, title]) => {
      const sorted = key === this.sort;
      const [direction, arrow] = !sorted ? ["none", ""] : this.descending ? ["descending", " ▾"] : ["ascending", " ▴"];
      return element("th", { scope: "col", "aria-sort": direction },
        button(text + arrow, () => this.sortBy(key), { title, id: `sort-${key}` }));
    });
  }

  sortBy(key) {
    this.descending = this.sort === key ? !this.descending : key !== "name";
    this.sort = key;
    this.show();
    byId(`sort-${key}`).focus();
  }

  choice() {
    const group = element("div", { class: "segments", role: "radiogroup", "aria-label": "What is compared" });
    segments(group, "by", [["self", "Self"], ["total", "Total"]], this.by, (v) => { this.by = v; this.show(); });
    return group;
  }

  fill() {
    const from = this.body.childElementCount;
    this.body.append(...this.rows.slice(from, this.shown).map((r) => this.row(r)));
    this.list.querySelectorAll(".rows > p, .rows > button").forEach((e) => e.remove());
    const left = this.rows.length - this.shown;
    if (left > 0) {
      const text = `Show ${Math.min(left, ROWS_AT_ONCE)} of ${formatCount(left)} more`;
      this.list.append(button(text, () => { this.shown += ROWS_AT_ONCE; this.fill(); }));
    }
    if (!this.rows.length) {
      const why = this.page.found ? "No function matches." : "The selection has no functions.";
      this.list.append(element("p", {}, why));
    }
    this.cutNames();
    this.mark();
  }

  row(r) {
    const p = this.page, f = p.functions[r.func];
    const name = button("", () => {}, { title: f.display + f.signature });
    name.append(swatch(p.colors.ofFunction(r.func).fill), element("span", {}, f.short));
    const row = element("tr", { onclick: () => p.markFunction(r.func), ondblclick: () => p.openSandwich(r.func) });
    row.dataset.func = r.func;
    if (p.base) row.append(...this.compared(r));
    else row.append(this.figure(r.self), this.figure(r.total, eventsText(p, r.events, r.count)));
    row.append(element("td", {}, name));
    return row;
  }

  figure(v, title = "") {
    const cell = element("td", { title: title || undefined },
      formatShare(v, this.page.weight), element("small", {}, this.page.figure(v)));
    cell.style.backgroundSize = `${this.page.weight > 0 ? 100 * v / this.page.weight : 0}% 3px`;
    return cell;
  }

  // cutNames shortens long names as in frames, so that the method stays readable.
  cutNames() {
    if (!this.body || !this.body.firstChild) return;
    const width = (this.body.firstChild.lastChild.clientWidth - 32) * 12 / 13; // of the font of frames
    for (const row of this.body.children) {
      const name = this.page.functions[row.dataset.func].short;
      row.querySelector("span").textContent = this.page.flame.fitted(name, width);
    }
  }

  compared(r) {
    const v = this.values(), change = v.after(r) - v.before(r), text = formatPoints(change);
    const share = (part, weight) => element("td", { title: this.page.figure(weight) }, formatShare(part, 1));
    return [share(v.before(r), this.by === "self" ? r.baseSelf : r.baseTotal), share(v.after(r), r[this.by]),
      element("td", { class: text === "±0.0" ? "" : change > 0 ? "more" : "less" }, text)];
  }

  // mark shows which function is selected.
  mark() {
    for (const row of this.body.children) {
      row.setAttribute("aria-selected", String(Number(row.dataset.func) === this.page.flame.marked));
    }
  }
}

// showDetail describes a frame, or the root.
function showDetail(page, i) {
  const tree = page.tree, func = tree.func[i], f = page.functions[func];
  const name = element("div", {}, element("b", {}, f ? page.nameOf(tree, i, true) : page.labelOf(tree, i)),
    f ? f.signature : "");
  const actions = element("div", { class: "actions" });
  if (f) {
    if (page.around !== func) {
      actions.append(button("Callers & callees", () => page.openSandwich(func),
        { id: "sandwichButton", title: "Who calls it, what it calls (s)" }));
    }
    if (f.fold) {
      actions.append(button("Show plumbing", () => byId("toggle-plumbing").click(),
        { id: "plumbingButton", title: "Each of these frames (p)" }));
    }
    actions.append(button("Copy name", (e) => copy(f.display + f.signature, e.currentTarget), { id: "copyButton" }));
  }
  const facts = element("div", { class: "figures" });
  const add = (label, value) => facts.append(element("span", {}, `${label} `, element("b", {}, value)));
  const p = tree.parent[i];
  add("total", page.withShare(tree.total[i]));
  add("self", page.withShare(tree.self[i]));
  addEvents(page, i, add);
  if (p >= 0) add(tree.up[i] ? "of its callee" : "of its caller", formatShare(tree.total[i], tree.total[p]));
  if (page.base) {
    add("before", page.beforeWithShare(i));
    add("change", `${formatPoints(page.change(tree, i))} points`);
  }
  if (f) {
    add("", originName(f.origin, page.mode));
    if (f.module) add("in", f.module);
    const tiers = page.tiers(i), all = tiers.reduce((sum, [, w]) => sum + w, 0);
    const share = (w) => tiers.length > 1 ? ` ${formatShare(w, all)}` : "";
    if (tiers.length) add("compiled", tiers.map(([t, w]) => clean(t) + share(w)).join(", "));
  } else if (func === INCOMPLETE) {
    facts.append(element("span", {}, "Stacks with missing frames: near the base, in between, or all of them."));
  }
  byId("detail").replaceChildren(element("div", { class: "name" }, name, actions), facts);
}

// addEvents adds how many events and samples a frame stands for.
function addEvents(page, i, add) {
  const { mode, tree } = page, events = tree.events[i], samples = tree.count[i];
  if (eventsText(page, events, samples)) {
    add(mode.events[1], isSampled(mode, page.stats) ? estimatedCount(events, samples) : formatCount(events));
    add("on average", page.figure(tree.total[i] / events));
  }
  if (isSampled(mode, page.stats)) add("samples", formatCount(tree.count[i]));
}

function originName(origin, mode) { return ORIGIN_NAMES[origin] ?? mode.leaf; }

// copy puts a text on the clipboard. A page from a file may not be allowed to use
// navigator.clipboard; then execCommand does it.
async function copy(text, from) {
  try {
    await navigator.clipboard.writeText(text);
  } catch {
    const area = element("textarea", { class: "hidden" });
    area.value = text;
    document.body.append(area);
    area.select();
    document.execCommand("copy");
    area.remove();
    from.focus();
  }
  const before = from.textContent;
  from.textContent = "Copied";
  setTimeout(() => { from.textContent = before; }, 1200);
}

// showCrumbs lists the ancestors of the frame that is zoomed in on.
function showCrumbs(page) {
  const crumbs = byId("crumbs"), { flame, tree } = page, path = [];
  for (let i = tree.parent[flame.focus]; i >= 0; i = tree.parent[i]) path.unshift(i);
  const zoomed = flame.zoomed(), parts = [];
  const narrow = innerWidth <= 600, last = narrow ? 1 : 3;
  const label = (i) => {
    if (i === 0 && page.around === null) return "all";
    return flame.fitted(page.labelOf(tree, i), narrow ? 76 : 150) || "…";
  };
  const step = (i) => button(label(i), () => flame.zoomTo(i),
    { class: i === 0 ? "fixed" : "", title: page.labelOf(tree, i) });
  const between = () => element("span", { title: `${path.length - 1 - last} frames between` }, "…");
  const shown = path.length > last + 2 ? [path[0], -1, ...path.slice(-last)] : path;
  for (const i of shown) parts.push(i < 0 ? between() : step(i), element("span", { "aria-hidden": "true" }, "›"));
  parts.push(element("span", { class: "here", "aria-current": "location" }, page.labelOf(tree, flame.focus)));
  if (page.around !== null) {
    parts.unshift(button("✕ Callers & callees of", () => page.closeSandwich(),
      { id: "closeSandwich", class: "reset", title: "Back to the whole graph (Esc)" }));
  }
  if (zoomed) {
    parts.push(button("Reset zoom", () => page.resetZoom(), { id: "resetZoom", class: "reset", title: "Esc or 0" }));
  }
  crumbs.replaceChildren(...parts);
  if (page.around !== null) crumbs.firstChild.style.marginLeft = "0";
}

function showLegend(page) {
  const legend = byId("legend"), parts = [];
  if (page.base) {
    const bar = element("canvas", { width: 120, height: 12, "aria-hidden": "true" }), ctx = bar.getContext("2d");
    for (let x = 0; x < 120; x++) { ctx.fillStyle = page.colors.ofChange(x / 60 - 1); ctx.fillRect(x, 0, 1, 12); }
    const most = (100 * page.greatest).toFixed(1), least = `share of all: −${most} points`;
    parts.push(element("span", {}, least, bar, `+${most} points (red: more than before, blue: less)`));
  } else {
    const there = new Set(Array.from(page.tree.func, (func) => func >= 0 ? page.functions[func].origin : -1));
    ORIGINS.forEach((name, origin) => {
      if (!there.has(origin)) return;
      parts.push(element("span", {}, swatch(page.colors.ofKind(name)), originName(origin, page.mode)));
    });
  }
  if (page.tree.func.includes(INCOMPLETE)) {
    const i = swatch(page.colors.ofKind("incomplete")), { fill, stripes } = page.colors.palette.incomplete;
    i.style.background = `repeating-linear-gradient(135deg, ${fill} 0 4px, ${stripes} 4px 6px)`;
    parts.push(element("span", {}, i, "incomplete stack"));
  }
  legend.replaceChildren(...parts);
}

// showTip shows a tooltip with the numbers of a frame beside the pointer.
function showTip(page, i, e) {
  const tip = byId("tip");
  tip.hidden = i < 0;
  if (i < 0) return;
  const tree = page.tree, f = page.functions[tree.func[i]];
  const samples = isSampled(page.mode, page.stats) ? ` · ${plural(tree.count[i], "sample", "samples")}` : "";
  const lines = [
    element("div", {}, element("b", {}, f ? page.nameOf(tree, i, true) : page.labelOf(tree, i)),
      f ? f.signature : ""),
    element("div", {}, element("b", {}, page.withEvents(i)), ` total · ${page.withShare(tree.self[i])} self`, samples),
  ];
  if (page.base) {
    lines.push(element("div", {}, `before ${page.beforeWithShare(i)}, change `,
      element("b", {}, `${formatPoints(page.change(tree, i))} points`)));
  }
  if (f && f.module) lines.push(element("div", {}, f.module));
  tip.replaceChildren(...lines);
  placeTip(tip, e);
}

