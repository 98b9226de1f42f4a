// The source lines of the marked function, with their shares, and the text around them if the recording has it.

// Sources says where the locations of a recording are in the program's source.
class Sources {
  constructor(doc) {
    const { locations, lines, files } = doc;
    this.line = Int32Array.from(locations.line ?? []); // by location; 0: not known
    this.file = lines?.file ?? [];
    this.number = lines?.line ?? [];
    this.approximate = new Set(lines?.approximate);
    this.files = (files ?? []).map((f) => ({ ...f, title: clean(f.path || f.name) }));
  }

  get any() { return this.number.length > 1; }
}

// linesOf sums up the selected samples of a function by line. It returns, for each file, a Map from the number
// of a line to its sums. A line's total has the stacks with the function at that line, each once.
function linesOf(recording, tree, selection, func) {
  const { sources } = recording, files = new Map();
  if (!sources.any) return files;
  const sums = (line) => {
    const file = sources.file[line], number = sources.number[line];
    if (!files.has(file)) files.set(file, new Map());
    const lines = files.get(file);
    if (!lines.has(number)) lines.set(number, { self: 0, total: 0, approximate: false, seen: 0 });
    return lines.get(number);
  };
  let stack = 0;
  for (const g of tree.memos[0]) {
    for (const [leaf, weight] of g.weight) {
      stack++;
      let isLeaf = true;
      for (let n = leaf; n > 0; n = recording.nodeParent[n]) {
        const f = recording.nodeFunction(n);
        if (isLeftOut(recording.functions[f].kind, selection)) continue;
        const line = recording.common[f] === func ? sources.line[recording.nodeLocation[n]] : 0;
        if (line > 0) {
          const s = sums(line);
          if (isLeaf) s.self += weight;
          if (s.seen !== stack) s.total += weight;
          s.seen = stack;
          s.approximate ||= sources.approximate.has(line);
        }
        isLeaf = false;
      }
    }
  }
  return files;
}

// The panel has so many lines at most: those with the largest totals, and the text around them.
const MOST_LINES = 500;

class SourcePanel {
  constructor(root, page) { this.root = root; this.page = page; }

  // show shows the lines of a function; null: of none.
  show(func) {
    const { page } = this;
    if (this.func === func && this.tree === page.whole) return;
    this.func = func; this.tree = page.whole;
    const f = page.functions[func];
    const files = f && !f.fold ? linesOf(page.recording, page.whole, page.selection, func) : new Map();
    this.root.hidden = !files.size;
    if (!files.size) { this.root.replaceChildren(); return; }
    const body = element("tbody");
    for (const [file, lines] of files) body.append(...this.file(page.recording.sources.files[file], lines));
    const heads = [["Line", ""], ["Self", "of the line itself"], ["Total", "of the line and what it calls"], ["", ""]];
    this.list = element("div", { class: "rows", tabindex: "0" }, element("table", {},
      element("colgroup", {}, ...["line", "share", "share", ""].map((c) => element("col", { class: c }))),
      element("thead", {}, element("tr", {}, ...heads.map(([text, title]) =>
        element("th", { scope: "col", title }, text)))), body));
    this.root.replaceChildren(element("div", { class: "tableHead" }, element("h2", { title: f.display + f.signature },
      `Lines of ${f.short}`)), this.list);
    this.reveal(body);
  }

  // file returns the rows of one file: where it is, then the lines.
  file(file, lines) {
    const where = /^https?:\/\//.test(file.url)
      ? element("a", { href: file.url, target: "_blank", rel: "noopener noreferrer", title: file.url }, file.title)
      : element("span", {}, file.title);
    const rows = [element("tr", { class: "file" }, element("td", { colspan: 4 }, where))];
    const text = textOf(file), hottest = [...lines].sort((a, b) => b[1].total - a[1].total);
    const shown = new Set(hottest.slice(0, MOST_LINES).map(([n]) => n));
    const indent = indentOf(text, lines);
    for (const n of near(text, shown)) shown.add(n);
    let before = 0;
    for (const n of [...shown].sort((a, b) => a - b)) {
      if (before && n > before + 1) rows.push(element("tr", { class: "gap" }, element("td", {}, "⋯")));
      rows.push(this.line(n, lines.get(n), text.get(n)?.slice(indent)));
      before = n;
    }
    return rows;
  }

  line(n, sums, text = "") {
    const row = element("tr", {}, element("td", {}, (sums?.approximate ? "~" : "") + n));
    if (sums?.approximate) row.title = "Not certain: some of the code belongs to no line, or to one of several.";
    row.append(this.share(sums?.self), this.share(sums?.total), element("td", { class: "code", title: text }, text));
    if (sums) row.dataset.total = sums.total;
    return row;
  }

  share(weight) {
    if (!weight) return element("td");
    const { page } = this, cell = element("td", { title: page.figure(weight) }, formatShare(weight, page.weight));
    cell.style.backgroundSize = `${page.weight > 0 ? 100 * weight / page.weight : 0}% 3px`;
    return cell;
  }

  // reveal scrolls to the line with the largest total.
  reveal(body) {
    let best = null;
    for (const row of body.children) {
      if (row.dataset.total && (!best || Number(row.dataset.total) > Number(best.dataset.total))) best = row;
    }
    if (best) this.list.scrollTop = best.offsetTop - this.list.clientHeight / 2;
  }
}

// textOf returns the lines of a file that the recording has, by their numbers. Tabs are four columns wide.
function textOf(file) {
  const out = new Map();
  for (const { first, lines } of file.text ?? []) {
    lines.forEach((line, i) => out.set(first + i, clean(line.replaceAll("\t", "    "))));
  }
  return out;
}

// near returns the lines with text that belong to those that are shown: without a gap between them.
function near(text, shown) {
  const out = [];
  for (const n of shown) {
    for (const step of [-1, 1]) {
      for (let k = n + step; text.has(k) && !shown.has(k) && Math.abs(k - n) <= 8; k += step) out.push(k);
    }
  }
  return out;
}

// indentOf returns how many spaces all lines with samples begin with.
function indentOf(text, lines) {
  let least = Infinity;
  for (const n of lines.keys()) {
    const line = text.get(n);
    if (line?.trim()) least = Math.min(least, line.search(/\S/));
  }
  return least === Infinity ? 0 : Math.max(0, least - 4);
}
