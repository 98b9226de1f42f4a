// The panels around the picture: table, selected area, groups around it, legend, tooltip. Text from the heap is only
// ever set as text, never as HTML.

const ROWS_AT_ONCE = 100;

class Table {
  constructor(root, page) {
    this.root = root; this.page = page;
    this.sort = "bytes"; this.descending = true;
  }

  columns() {
    const { heap } = this.page, t = heap.types, all = heap.total.bytes;
    const list = [
      { id: "bytes", title: "Bytes", value: (k) => t.bytes[k], text: (k) => formatBytes(t.bytes[k]) },
      { id: "share", title: "%", value: (k) => t.bytes[k], text: (k) => (100 * t.bytes[k] / (all || 1)).toFixed(1) },
      { id: "objects", title: "Objects", value: (k) => t.count[k], text: (k) => formatCount(t.count[k]) },
    ];
    if (t.retained) {
      list[1] = { id: "bytes", key: "retained", title: "Retained", value: (k) => t.retained[k],
        text: (k) => formatBytes(t.retained[k]) };
    }
    if (heap.base) {
      list[1] = { id: "bytes", key: "change", title: "Change", value: (k) => t.bytesChange[k],
        text: (k) => signed(t.bytesChange[k], formatBytes), className: (k) => kindOf(t.bytesChange[k]) };
    }
    list.push({ id: "name", title: "Type", value: (k) => t.short[k] });
    for (const c of list) c.key ??= c.id;
    return list;
  }

  show() {
    this.shown = ROWS_AT_ONCE;
    const { page } = this, columns = this.columns(), by = columns.find((c) => c.key === this.sort) || columns[0];
    const sign = this.descending ? -1 : 1;
    this.rows = page.heap.types.name.map((_, k) => k).filter((k) => !page.found || page.found.has(k));
    const order = (x, y) => sign * (typeof x === "string" ? x.localeCompare(y) : x - y);
    this.rows.sort((a, b) => order(by.value(a), by.value(b)) || a - b);
    this.body = element("tbody");
    const heading = (c) => {
      const sorted = c.key === by.key ? this.descending ? "descending" : "ascending" : "none";
      return element("th", { scope: "col", "aria-sort": sorted, class: c.id },
        button(c.title + (sorted === "none" ? "" : this.descending ? " ↓" : " ↑"), () => this.sortBy(c.key)));
    };
    this.list = element("div", { class: "rows" }, element("table", {},
      element("colgroup", {}, ...columns.map((c) => element("col", { class: c.id }))),
      element("thead", {}, element("tr", {}, ...columns.map(heading))), this.body));
    const count = formatCount(this.rows.length) + (page.found ? " found" : "");
    this.root.replaceChildren(element("div", { class: "tableHead" }, element("h2", {}, "Types"),
      element("span", { class: "count" }, count)), this.list);
    this.fill();
  }

  sortBy(key) {
    this.descending = this.sort === key ? !this.descending : key !== "name";
    this.sort = key;
    this.show();
  }

  fill() {
    const { page } = this, columns = this.columns();
    this.body.replaceChildren(...this.rows.slice(0, this.shown).map((k) => {
      const cells = columns.slice(0, -1).map((c) => {
        return element("td", { class: `${c.id} ${c.className ? c.className(k) : ""}` }, c.text(k));
      });
      const name = element("button", { type: "button", title: page.heap.types.name[k] },
        swatch(page.colors.ofFunction(k).fill), page.heap.types.short[k]);
      return element("tr", { "aria-selected": String(page.selectedType() === k), onclick: () => page.reveal(k),
        "data-type": k }, ...cells, element("td", {}, name));
    }));
    this.more?.remove();
    const left = this.rows.length - this.shown;
    this.more = left > 0 ? button(`Show more (${formatCount(left)} left)`, () => { this.shown *= 4; this.fill(); }) :
      this.rows.length ? null : element("p", {}, "No type matches.");
    if (this.more) this.list.append(this.more);
  }

  mark() {
    const type = this.page.selectedType();
    for (const row of this.body?.children ?? []) {
      row.setAttribute("aria-selected", String(Number(row.dataset.type) === type));
    }
  }
}

function signed(n, format) { return n > 0 ? `+${format(n)}` : n < 0 ? `−${format(-n)}` : "0"; }

function kindOf(n) { return n > 0 ? "more" : n < 0 ? "less" : ""; }

function showTip(page, cell, e) {
  const tip = byId("tip");
  tip.hidden = !cell;
  if (!cell) return;
  tip.replaceChildren(element("div", {}, element("b", {}, page.cellName(cell, true))),
    ...page.figures(cell).map(([name, value]) => element("div", {}, `${name} `, element("b", {}, value))));
  placeTip(tip, e);
}

function showCrumbs(page) {
  const { tree } = page, path = [];
  for (let i = page.focus; i > 0; i = tree.parent[i]) path.unshift(i);
  const parts = [0, ...path].flatMap((i, k) => {
    const sep = k ? [element("span", { "aria-hidden": "true" }, "›")] : [];
    if (i === page.focus) return [...sep, element("b", { class: "here", "aria-current": "location" }, tree.name(i))];
    return [...sep, button(tree.name(i), () => page.zoom(i), { class: k ? "" : "fixed" })];
  });
  if (page.focus > 0) parts.push(button("Reset zoom", () => page.zoom(0), { class: "reset" }));
  byId("crumbs").replaceChildren(...parts);
}

function showDetail(page) {
  const { tree, heap } = page, node = page.selected < 0 ? page.focus : page.selected;
  const type = tree.type[node], figures = element("div", { class: "figures" });
  for (const [name, value] of page.figures({ node, part: 0 })) {
    figures.append(element("span", {}, `${name} `, element("b", {}, value)));
  }
  const parts = [element("div", { class: "name" },
    element("div", {}, element("b", {}, tree.fullName(node)))), figures];
  if (type >= 0) {
    const why = whyCommand(heap, type);
    const text = element("span", {}, "what keeps them: ", element("code", {}, why));
    if (why) parts.push(element("div", { class: "figures" }, text));
  }
  if (page.selected < 0 && page.focus === 0) {
    parts.push(element("div", { class: "figures" }, element("span", {}, "Click an area to select it, and the title of a " +
      "group to zoom in.")));
  }
  byId("detail").replaceChildren(...parts);
}

// whyCommand is the command that says what keeps objects of a type. A name that a shell could misunderstand has none.
function whyCommand(heap, type) {
  const name = heap.types.name[type];
  if (!heap.who || !/^[\w.<>,\[\] +`()]{1,200}$/.test(name)) return "";
  return `clrsnap heap ${heap.who} --roots '^${name.replace(/[.+()\[\]]/g, "\\$&")}$'`;
}

function showLegend(page) {
  const parts = [], { colors, heap } = page;
  const scale = (from, to) => {
    const bar = element("canvas", { width: 120, height: 12, "aria-hidden": "true" }), ctx = bar.getContext("2d");
    for (let x = 0; x < 120; x++) { ctx.fillStyle = colors.ofChange(x / 60 - 1); ctx.fillRect(x, 0, 1, 12); }
    parts.push(element("span", {}, from, bar, to));
  };
  if (page.shown.paint === "growth") {
    scale(`shrunk by ${formatBytes(heap.greatest)}`, `grown by ${formatBytes(heap.greatest)}`);
  } else if (page.shown.paint === "age") {
    scale("young: gen0 and gen1", "old");
  } else {
    const there = new Set(heap.types.origin);
    ORIGINS.forEach((name, k) => {
      if (there.has(k)) parts.push(element("span", {}, swatch(colors.ofKind(name)), ORIGIN_NAMES[k]));
    });
  }
  parts.push(element("span", {}, page.areaText()));
  byId("legend").replaceChildren(...parts);
}
