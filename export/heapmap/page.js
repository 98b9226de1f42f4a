// The page: what is selected, and everything that depends on it.

const VIEWS = {
  keepers: ["Keepers", "What keeps what from being collected, type by type"],
  namespaces: ["Namespaces", "Types in their namespaces"],
};
const SIZES = {
  bytes: ["Bytes", "Areas are bytes"], objects: ["Objects", "Areas are numbers of objects"],
  growth: ["Growth", "Areas are bytes that have been added"],
};
const PAINTS = {
  origin: ["Whose code", "Colours say whose the type is"],
  age: ["Age", "Colours say how many bytes are in old generations"],
  growth: ["Growth", "Colours say what has grown and shrunk"],
};

class HeapPage {
  constructor(heap) {
    this.heap = heap;
    this.ready = false; this.focus = 0; this.selected = -1; this.found = null;
    this.shown = { view: heap.trees[0].id, size: "bytes", paint: heap.base ? "growth" : "origin" };
    this.map = new HeapMap(byId("map"), this);
    this.table = new Table(byId("table"), this);
    if (heap.base) this.table.sort = "change";
    else if (heap.types.retained) this.table.sort = "retained";
    this.commands = {
      "/": () => this.startSearch(), n: () => this.step(1), N: () => this.step(-1), 0: () => this.zoom(0),
      t: () => { byId("table").hidden = !byId("table").hidden; }, "?": () => byId("help").showModal(),
      c: () => this.cycle("paints"), s: () => this.cycle("sizes"), g: () => this.cycle("views"),
    };
    document.addEventListener("keydown", (e) => this.key(e));
  }

  start() {
    byId("app").hidden = false;
    byId("facts").replaceChildren(...this.heap.facts.map((text) => element("span", {}, text)));
    byId("notes").hidden = !this.heap.notes.length;
    byId("notes").replaceChildren(...this.heap.notes.map((text) => element("li", {}, text)));
    byId("search").addEventListener("input", () => this.searched());
    byId("next").addEventListener("click", () => this.step(1));
    byId("previous").addEventListener("click", () => this.step(-1));
    byId("theme").addEventListener("click", () => this.setTheme(this.theme === "dark" ? "light" : "dark"));
    byId("helpButton").addEventListener("click", () => byId("help").showModal());
    const dark = matchMedia("(prefers-color-scheme: dark)");
    dark.addEventListener("change", (e) => this.setTheme(e.matches ? "dark" : "light"));
    buildHelp();
    this.setTheme(dark.matches ? "dark" : "light");
    this.search("");
    this.ready = true;
    this.choose({});
    this.map.resize();
  }

  // choose changes what is shown.
  choose(what) {
    const view = this.shown.view;
    Object.assign(this.shown, what);
    this.tree = this.heap.trees.find((t) => t.id === this.shown.view);
    if (this.shown.view !== view) { this.focus = 0; this.selected = -1; }
    if (this.tree.id === "keepers") this.shown.size = "bytes";
    this.weights = this.tree.weights(this.shown.size);
    this.controls();
    this.update();
  }

  controls() {
    const { heap, shown } = this, options = (all, keys) => keys.map((k) => [k, ...all[k]]);
    const of = (id, all, keys, chosen, change) => {
      segments(byId(id), id, keys.length > 1 ? options(all, keys) : [], chosen, change);
    };
    of("views", VIEWS, heap.trees.map((t) => t.id), shown.view, (view) => this.choose({ view }));
    const sizes = this.tree.id === "keepers" ? [] : ["bytes", "objects", ...(heap.base ? ["growth"] : [])];
    of("sizes", SIZES, sizes, shown.size, (size) => this.choose({ size }));
    of("paints", PAINTS, ["origin", ...(heap.ages ? ["age"] : []), ...(heap.base ? ["growth"] : [])], shown.paint,
      (paint) => this.choose({ paint }));
  }

  // cycle chooses the next one of a group of switches.
  cycle(id) {
    const all = [...byId(id).querySelectorAll("input")], next = all[(all.findIndex((i) => i.checked) + 1) % all.length];
    next?.click();
  }

  update() {
    this.map.arrange();
    showCrumbs(this); showLegend(this); this.moved();
  }

  // Colours and texts of areas.
  paint(tree, cell) {
    const type = tree.type[cell.node];
    if (cell.part === REST || type < 0) return this.colors.palette.plain;
    const text = this.colors.palette.diffText;
    if (this.shown.paint === "growth") {
      return { fill: this.colors.ofChange(this.heap.types.bytesChange[type] / this.heap.greatest), text };
    }
    if (this.shown.paint === "age") return { fill: this.colors.ofChange(2 * this.heap.old(type) - 1), text };
    return this.colors.ofFunction(type);
  }

  groupPaint(depth) {
    const lightness = this.theme === "dark" ? 15 + 5 * Math.min(depth, 5) : 92 - 5 * Math.min(depth, 5);
    return { fill: `hsl(220 12% ${lightness}%)`, text: this.style.ink };
  }

  cellName(cell, full) {
    const name = full ? this.tree.fullName(cell.node) : this.tree.name(cell.node);
    if (cell.part === OWN) return full ? `${name}: the objects themselves` : `${name} themselves`;
    if (cell.part === REST) return full ? `${name}: what is too little to be shown by itself` : "smaller ones";
    return name;
  }

  // figure is the size of an area.
  figure(cell) {
    const { tree } = this, i = cell.node;
    if (cell.part === OWN) return formatBytes(tree.own[i]);
    if (cell.part === REST) return formatBytes(this.restOf(i));
    if (this.shown.size === "objects") return formatCount(tree.count[i]);
    if (this.shown.size === "growth") return signed(tree.growth[i], formatBytes);
    return formatBytes(tree.bytes[i]);
  }

  restOf(i) {
    const { bytes, own, below } = this.tree;
    return below[i].reduce((left, k) => left - bytes[k], bytes[i] - own[i]);
  }

  // figures are all that is known of an area: pairs of a name and a value.
  figures(cell) {
    const { tree, heap } = this, i = cell.node, type = tree.type[i], t = heap.types, all = heap.total.bytes, out = [];
    const bytes = (n) => `${formatBytes(n)} (${formatShare(n, all)})`;
    if (cell.part === REST) return [["bytes", bytes(this.restOf(i))]];
    if (tree.id === "keepers") {
      out.push(["retained", bytes(tree.bytes[i])]);
      if (type >= 0) out.push(["objects here", `${formatCount(tree.count[i])}, ${formatBytes(tree.own[i])}`]);
    } else {
      out.push(["bytes", bytes(tree.bytes[i])], ["objects", formatCount(tree.count[i])]);
    }
    if (heap.base && tree.id !== "keepers") out.push(["change", signed(tree.change[i], formatBytes)]);
    if (type < 0) return out;
    if (heap.base && tree.id === "keepers") out.push(["change of the type", signed(t.bytesChange[type], formatBytes)]);
    const ofType = `${formatCount(t.count[type])}, ${formatBytes(t.bytes[type])}`;
    if (tree.id === "keepers") out.push(["of this type in all", ofType]);
    else if (t.count[type]) out.push(["on average", formatBytes(t.bytes[type] / t.count[type])]);
    if (tree.id !== "keepers" && t.retained) out.push(["retained", bytes(t.retained[type])]);
    const ages = heap.ages ? GENERATIONS.filter((_, g) => t.generations[type][g] > 0)
      .map((g) => `${g} ${formatShare(t.generations[type][GENERATIONS.indexOf(g)], t.bytes[type])}`) : [];
    if (ages.length) out.push(["generations", ages.join(", ")]);
    if (t.assembly[type]) out.push(["assembly", t.assembly[type]]);
    return out;
  }

  areaText() {
    if (this.tree.id === "keepers") {
      return "An area is what its objects keep from being collected; inside are those that only they keep.";
    }
    return { bytes: "Areas are bytes.", objects: "Areas are numbers of objects.",
      growth: "Areas are bytes that have been added; what has not grown is left out." }[this.shown.size];
  }

  // Moving and selecting.
  moved() {
    showDetail(this);
    this.table.mark();
    if (this.selected >= 0) {
      const figures = this.figures({ node: this.selected, part: 0 }).slice(0, 2).map(([n, v]) => `${n} ${v}`);
      byId("spoken").textContent = [this.tree.fullName(this.selected), ...figures].join(", ");
    }
  }

  selectedType() { return this.selected >= 0 ? this.tree.type[this.selected] : -1; }

  select(i) {
    this.selected = i;
    this.map.draw();
    this.moved();
  }

  // enclosing is a group itself, or else the group that something is in.
  enclosing(i) { return this.tree.below[i].length ? i : this.tree.parent[i]; }

  zoom(i) {
    if (this.focus === i) return;
    this.focus = i;
    byId("tip").hidden = true;
    if (this.selected >= 0 && !this.tree.isBelow(this.selected, i)) this.selected = i > 0 ? i : -1;
    this.update();
  }

  // show selects a node, and zooms so that it can be seen.
  show(i) {
    this.selected = i;
    if (!this.tree.isBelow(i, this.focus)) this.focus = 0;
    this.map.arrange();
    const seen = (c) => c && c.w >= 3 && c.h >= 3;
    for (let at = this.tree.parent[i]; !seen(this.map.byNode.get(i)) && this.focus !== at; this.map.arrange()) {
      let next = at; // one level at a time, from outside
      while (this.tree.parent[next] !== this.focus) next = this.tree.parent[next];
      this.focus = next;
    }
    this.update();
  }

  // reveal selects the largest area of a type.
  reveal(type) {
    let best = -1;
    for (let i = 1; i < this.tree.size; i++) {
      if (this.tree.type[i] === type && (best < 0 || this.weights[i] > this.weights[best])) best = i;
    }
    if (best > 0) this.show(best);
  }

  // back undoes one of the zoom, the selection and the search, in this order.
  back() {
    byId("tip").hidden = true;
    if (document.activeElement === byId("search")) { this.setSearch(""); byId("map").focus(); return; }
    if (this.focus > 0) this.zoom(this.tree.parent[this.focus]);
    else if (this.selected >= 0) this.select(-1);
    else this.setSearch("");
  }

  key(e) {
    const typing = e.target.matches("input[type=search], select, textarea");
    if ((e.ctrlKey || e.metaKey) && e.key.toLowerCase() === "f") { e.preventDefault(); this.startSearch(); return; }
    if (e.ctrlKey || e.metaKey || e.altKey || !this.ready || byId("help").open) return;
    if (e.key === "Escape") { e.preventDefault(); this.back(); return; }
    if (typing) {
      if (e.key === "Enter" && e.target.id === "search") { e.preventDefault(); this.step(e.shiftKey ? -1 : 1); }
      return;
    }
    const command = this.commands[e.key];
    if (command) { e.preventDefault(); command(); return; }
    if (e.target === byId("map") || e.target === document.body) this.walk(e);
  }

  // walk moves the selection to a neighbour, by size, or into a group or out of it.
  walk(e) {
    const { tree } = this;
    if (!["ArrowUp", "ArrowDown", "ArrowLeft", "ArrowRight", "Enter"].includes(e.key)) return;
    e.preventDefault();
    const order = (a, b) => this.weights[b] - this.weights[a];
    const inside = (i) => tree.below[i].filter((k) => this.weights[k] > 0).sort(order);
    if (this.selected < 0 || this.selected === this.focus && e.key !== "Enter") {
      const first = inside(this.focus)[0];
      if (first !== undefined) this.select(first);
      return;
    }
    const i = this.selected, beside = inside(tree.parent[i]), at = beside.indexOf(i);
    if (e.key === "Enter") this.zoom(this.enclosing(i));
    if (e.key === "ArrowLeft" && at > 0) this.show(beside[at - 1]);
    if (e.key === "ArrowRight" && at + 1 < beside.length) this.show(beside[at + 1]);
    if (e.key === "ArrowDown" && inside(i).length) this.show(inside(i)[0]);
    if (e.key === "ArrowUp" && tree.parent[i] !== this.focus && i > 0) this.select(tree.parent[i]);
  }

  // Searching.
  startSearch() { byId("search").focus(); byId("search").select(); }

  setSearch(text) { byId("search").value = text; this.searched(); }

  searched() { this.search(byId("search").value); this.map.draw(); }

  search(text) {
    const test = matcher(text.trim()), wrong = test === undefined, t = this.heap.types;
    byId("search").setAttribute("aria-invalid", String(wrong));
    this.found = null;
    if (test) {
      this.found = new Set(t.name.map((_, k) => k).filter((k) => test(t.name[k]) || test(t.assembly[k])));
    }
    byId("found").className = wrong ? "wrong" : "";
    byId("found").textContent = wrong ? "This is not a regular expression." : this.found ? this.foundText() : "";
    byId("next").disabled = byId("previous").disabled = !this.found?.size;
    this.table.show();
  }

  foundText() {
    if (!this.found.size) return "nothing found";
    const bytes = [...this.found].reduce((sum, k) => sum + this.heap.types.bytes[k], 0);
    const share = formatShare(bytes, this.heap.total.bytes);
    return `${plural(this.found.size, "type", "types")}: ${formatBytes(bytes)} (${share})`;
  }

  // step selects the next match, in the order of the table.
  step(by) {
    if (!this.found?.size) return;
    const rows = this.table.rows, at = rows.indexOf(this.selectedType());
    this.reveal(rows[at < 0 ? by > 0 ? 0 : rows.length - 1 : (at + by + rows.length) % rows.length]);
  }

  setTheme(name) {
    document.documentElement.dataset.theme = name;
    this.theme = name;
    this.colors = new Colors(name, this.heap.functions);
    const css = getComputedStyle(document.documentElement), value = (v) => css.getPropertyValue(`--${v}`).trim();
    this.style = {
      background: value("panel"), ink: value("ink"), focus: value("focus"), font: `12px ${value("font")}`,
      bold: `600 12px ${value("font")}`,
    };
    if (!this.ready) return;
    this.map.draw(); this.table.show(); showLegend(this);
  }
}

const KEYS = [
  ["/ or Ctrl-F", "search: text, or a /regular expression/; also finds assemblies"],
  ["n  N", "next and previous match"],
  ["← →", "the next smaller or larger area in the same group"],
  ["↓ ↑", "into a group, and out of it"],
  ["Enter", "zoom in on the group"],
  ["Esc", "back: zoom, selection, search"],
  ["0", "reset the zoom"],
  ["g  s  c", "other groups, sizes, colours"],
  ["t", "show or hide the table"],
  ["?", "this help"],
  ["click", "select; on the title of a group, or on what is selected: zoom in"],
];

const HELP = [
  "Each area is a type, and as large as the memory that its objects take. Areas with a title are groups.",
  "Keepers: an area is as large as the memory that could be collected if its objects went away. Inside are the " +
    "objects that only they keep, type by type, and the objects themselves. Local variables are not seen.",
];

function buildHelp() {
  const help = byId("help"), list = element("dl");
  for (const [key, text] of KEYS) list.append(element("dt", {}, key), element("dd", {}, text));
  help.replaceChildren(element("h2", {}, "Keys and gestures"), list, ...HELP.map((text) => element("p", {}, text)),
    button("Close", () => help.close(), { autofocus: true }));
  help.addEventListener("click", (e) => { if (e.target === help) help.close(); });
}

// hook returns window.clrsnap, which the tests of this page use. It is not an API.
function hook(page) {
  const node = (i) => i < 0 ? null : {
    index: i, name: page.tree.fullName(i), label: page.tree.name(i), type: page.tree.type[i],
    parent: page.tree.parent[i], bytes: page.tree.bytes[i], count: page.tree.count[i], change: page.tree.change[i],
  };
  return {
    state: () => ({
      ready: page.ready, ...page.shown, focus: node(page.focus), selected: node(page.selected), theme: page.theme,
      found: page.found && page.found.size, nodes: page.tree.size, cells: page.map.cells.length,
      layoutTime: page.map.layoutTime, drawTime: page.map.drawTime, width: page.map.width, height: page.map.height,
    }),
    nodes: () => Array.from({ length: page.tree.size }, (_, i) => node(i)),
    cells: () => page.map.cells.map((c) => ({ ...c, name: page.cellName(c, true) })),
    place: (i) => {
      const c = page.map.byNode.get(i), box = byId("map").getBoundingClientRect();
      return c && { x: box.left + c.x, y: box.top + c.y, w: c.w, h: c.h };
    },
    choose: (what) => page.choose(what), select: (i) => page.select(i), zoom: (i) => page.zoom(i),
    reveal: (type) => page.reveal(type), draw: () => { page.map.paint(); return page.map.drawTime; },
  };
}

function main() {
  try {
    const page = new HeapPage(new Heap(JSON.parse(byId("data").textContent)));
    window.clrsnap = hook(page);
    page.start();
  } catch (e) {
    byId("message").textContent = `The heap in this page cannot be shown: ${e.message}`;
    byId("message").hidden = false;
    throw e;
  }
}

main();
