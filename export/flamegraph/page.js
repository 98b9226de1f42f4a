// The page: what is selected, and everything that depends on it.

class Page {
  constructor(recording, base) {
    this.recording = recording; this.base = base;
    readPlumbing(byId("plumbing"), recording, base);
    Object.assign(this, unify(recording, base));
    this.ready = false;
    this.around = null; // the function of a sandwich
    this.found = null;
    this.modes = MODES.map((_, m) => m).filter((m) => recording.hasMode(m));
    const mode = this.modes.find((m) => recording.mode.includes(m)) ?? this.modes[0] ?? 0;
    this.selection = {
      mode, states: 3, threads: "merged", managed: false, native: false, leaves: true, plumbing: false,
      idle: byId("app").dataset.idle === "shown", waits: byId("app").dataset.waits === "grouped", from: 0, to: Infinity,
    };
    this.showBase = false;
    this.flame = new Flame(byId("scroll"), {
      paint: (t, i) => this.paint(t, i), label: (t, i) => this.labelOf(t, i), changed: () => this.moved(),
    });
    this.strip = new Strip(byId("strip"), (from, to) => {
      Object.assign(this.selection, { from, to });
      this.update();
    });
    this.table = new Table(byId("table"), this);
    this.source = new SourcePanel(byId("source"), this);
    this.commands = {
      "/": () => this.startSearch(), n: () => this.step(1), N: () => this.step(-1), 0: () => this.resetZoom(),
      i: () => byId("toggle-flip").click(), t: () => this.toggleTable(),
      m: () => byId("toggle-managed").click(), p: () => byId("toggle-plumbing")?.click(),
      e: () => byId("toggle-leaves")?.click(), w: () => byId("toggle-idle")?.click(),
      g: () => byId("toggle-waits")?.click(),
      s: () => {
        const f = this.flame.selected >= 0 ? this.tree.func[this.flame.selected] : this.flame.marked;
        if (f >= 0 && f !== null) this.openSandwich(f);
      },
      "?": () => byId("help").showModal(),
      "+": () => this.flame.zoomBy(0.7, this.flame.width / 2),
      "-": () => this.flame.zoomBy(1 / 0.7, this.flame.width / 2),
    };
    if (this.modes.length > 1) this.modes.forEach((m, k) => { this.commands[k + 1] = () => chooseMode(this, m); });
    this.input = new Input(this.flame, this);
  }

  get mode() { return MODES[this.selection.mode]; }

  get stats() { return this.recording.stats(this.selection.mode); }

  // idle lists the idle threads of the recordings, with their shares of the mode.
  get idle() { return [this.recording, this.base].flatMap((r) => r ? r.idleShares(this.selection.mode) : []); }

  // hasWaits tells whether samples say what they wait for.
  hasWaits() { return [this.recording, this.base].some((r) => r && r.hasWaits(this.selection.mode)); }

  // hasLeaves tells whether stacks end with a frame for the event, unless it is left out.
  hasLeaves() { return [this.recording, this.base].some((r) => r && r.hasLeaves(this.selection.mode)); }

  start() {
    byId("app").hidden = false;
    showNotes(this);
    buildControls(this);
    this.setTheme(matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light");
    this.update();
    this.ready = true;
  }

  // update recomputes everything that depends on the selection.
  update() {
    const began = performance.now();
    let at = null;
    if (this.tree && this.around === null) {
      at = { focus: this.path(this.flame.focus), selected: this.path(this.flame.selected) };
    }
    this.whole = buildTree(this.recording, this.selection, this.base);
    this.weight = this.whole.total[0];
    this.baseWeight = this.whole.baseTotal[0];
    this.rows = functionTable(this.whole, this.functions.length);
    this.greatest = this.base ? this.greatestChange() : 0;
    this.layoutTime = performance.now() - began;
    this.strip.show(this.showBase ? this.base : this.recording, this.selection);
    showFacts(this);
    showSummary(this);
    this.search(byId("search").value);
    this.arrange(at);
  }

  // arrange shows the tree, or the sandwich of a function.
  arrange(at) {
    const began = performance.now();
    this.tree = this.around === null ? this.whole : sandwich(this.whole, this.around);
    const layout = new Layout(this.tree, this.showBase ? this.tree.baseTotal : this.tree.total);
    this.layoutTime += performance.now() - began;
    for (const id of ["scroll", "legend", "detail"]) byId(id).hidden = layout.width <= 0;
    byId("empty").hidden = layout.width > 0;
    byId("empty").textContent = layout.width > 0 ? "" : this.whyEmpty();
    this.flame.matches = this.found && this.marksOf(this.tree);
    this.flame.show(layout);
    if (at) this.restore(at);
    showLegend(this);
    this.moved();
  }

  whyEmpty() {
    if (this.around !== null) return "The selection has no samples of this function.";
    const { samples, states } = this.mode;
    if (!this.recording.mode.includes(this.selection.mode)) {
      return `The recording has no ${samples[1]}. ${whyNone(this.mode, this.stats)}`;
    }
    if (!this.selection.idle && this.idle.length) {
      return `The selection has no ${samples[1]} but those of idle threads. "Idle threads" shows them.`;
    }
    const others = `other threads${states ? " or states" : ""}`;
    return `The selection has no ${samples[1]}. Choose ${others}, or all of the time.`;
  }

  // path returns the functions from the root to a frame, to find it in another tree.
  path(i) {
    const path = [];
    for (; i > 0; i = this.tree.parent[i]) path.unshift(this.tree.func[i]);
    return path;
  }

  restore({ focus, selected }) {
    const at = (path) => {
      let i = 0;
      for (const func of path) {
        let c = i + 1;
        while (c < this.tree.end[i] && this.tree.func[c] !== func) c = this.tree.end[c];
        if (c >= this.tree.end[i]) break;
        i = c;
      }
      return i;
    };
    const i = at(focus), f = this.flame;
    if (i > 0 && f.layout.x1[i] > f.layout.x0[i]) { f.focus = i; f.setView(f.layout.x0[i], f.layout.x1[i]); }
    if (selected.length) f.selected = at(selected);
  }

  // The colours and texts of frames.
  paint(tree, i) {
    const func = tree.func[i];
    if (!this.base || func < 0) return this.colors.ofFunction(func);
    return { fill: this.colors.ofChange(this.change(tree, i) / this.greatest), text: this.colors.palette.diffText };
  }

  labelOf(tree, i) {
    const func = tree.func[i];
    if (func >= 0) return this.nameOf(tree, i);
    if (func === INCOMPLETE) return "[incomplete stack]";
    if (func <= FIRST_THREAD) return this.threads[FIRST_THREAD - func].label;
    return `all: ${this.mode.total(this.showBase ? this.baseWeight : this.weight)}`;
  }

  // nameOf returns the name of a function, or of a run of plumbing.
  nameOf(tree, i, long) {
    const f = this.functions[tree.func[i]], run = tree.runs.get(i);
    if (run) return foldLabel(f.fold, run);
    return long ? f.display : f.short;
  }

  // hasFolds tells whether there is plumbing to fold.
  hasFolds() { return [this.recording, this.base].some((r) => r && r.folds.any); }

  // Weights as text.
  figure(weight) { return this.mode.unit.format(weight); }

  withShare(weight) { return `${this.figure(weight)} (${formatShare(weight, this.weight)})`; }

  beforeWithShare(i) {
    const before = this.tree.baseTotal[i];
    return `${this.figure(before)} (${formatShare(before, this.baseWeight)})`;
  }

  // withEvents returns the total of a frame, with the number of events.
  withEvents(i) {
    const events = eventsText(this, this.tree.events[i], this.tree.count[i]);
    return this.withShare(this.tree.total[i]) + (events && ` in ${events}`);
  }

  change(tree, i) { return tree.total[i] / (this.weight || 1) - tree.baseTotal[i] / (this.baseWeight || 1); }

  greatestChange() {
    let most = 0.02; // with less, noise would have strong colours
    for (let i = 1; i < this.whole.size; i++) {
      if (this.whole.func[i] >= 0) most = Math.max(most, Math.abs(this.change(this.whole, i)));
    }
    return most;
  }

  weightOf(row) { return row.total + (this.base ? row.baseTotal : 0); }

  tiers(i) {
    if (this.around !== null) { // all frames of the function, wherever they are
      const wanted = new Set();
      for (let k = 0; k < this.whole.size; k++) if (this.whole.func[k] === this.tree.func[i]) wanted.add(k);
      return tiersOf(this.whole, this.recording, wanted);
    }
    return tiersOf(this.whole, this.recording, new Set([i]));
  }

  // Moving and selecting.
  moved() {
    const f = this.flame, crumbs = `${f.focus} ${f.zoomed()} ${this.around}`;
    if (this.crumbsOf !== crumbs || this.detailTree !== this.tree) showCrumbs(this);
    this.crumbsOf = crumbs;
    this.source.show(f.marked);
    const i = f.selected >= 0 ? f.selected : f.focus;
    if (this.detailOf !== i || this.detailTree !== this.tree) {
      this.detailOf = i; this.detailTree = this.tree;
      showDetail(this, i);
      if (f.selected >= 0) byId("spoken").textContent = `${this.labelOf(this.tree, i)}, ${this.withEvents(i)}`;
    }
  }

  select(i) {
    this.flame.marked = i >= 0 && this.tree.func[i] >= 0 ? this.tree.func[i] : null;
    this.flame.select(i);
    this.table.mark();
  }

  hover(i, e) {
    if (this.flame.hovered !== i) { this.flame.hovered = i; this.flame.draw(); }
    showTip(this, i, e);
  }

  resetZoom() { this.flame.zoomTo(0); }

  // markFunction outlines all frames of a function and selects the heaviest.
  markFunction(func) {
    let best = -1;
    for (let i = 0; i < this.tree.size; i++) {
      if (this.tree.func[i] === func && (best < 0 || this.shownWeight(i) > this.shownWeight(best))) best = i;
    }
    if (best >= 0) { this.select(best); return; }
    this.flame.marked = func;
    this.flame.draw();
    this.table.mark();
    this.source.show(func);
  }

  shownWeight(i) { return this.flame.layout.x1[i] - this.flame.layout.x0[i]; }

  openSandwich(func) {
    this.around = func;
    this.flame.marked = func;
    byId("tip").hidden = true;
    this.arrange();
    this.flame.canvas.focus({ preventScroll: true });
  }

  closeSandwich() { const func = this.around; this.around = null; this.arrange(); this.markFunction(func); }

  // back undoes one of the zoom, the sandwich, the selection and the search, in this order.
  back() {
    const f = this.flame;
    byId("tip").hidden = true;
    if (document.activeElement === byId("search")) {
      this.setSearch("");
      f.canvas.focus({ preventScroll: true });
      return;
    }
    if (f.zoomed()) this.resetZoom();
    else if (this.around !== null) this.closeSandwich();
    else if (f.selected >= 0 || f.marked !== null) this.select(-1);
    else this.setSearch("");
  }

  // Searching.
  startSearch() { byId("search").focus(); byId("search").select(); }

  setSearch(text) { byId("search").value = text; this.searched(); }

  searched() {
    this.search(byId("search").value);
    this.flame.matches = this.found && this.marksOf(this.tree);
    this.flame.draw();
  }

  search(text) {
    const test = matcher(text.trim()), wrong = test === undefined;
    byId("search").setAttribute("aria-invalid", String(wrong));
    this.found = test ? findFunctions(this, test) : null;
    byId("found").className = wrong ? "wrong" : "";
    byId("found").textContent = wrong ? "This is not a regular expression." : this.found ? this.foundText() : "";
    byId("next").disabled = byId("previous").disabled = !this.found || !this.found.frames;
    this.table.show();
  }

  foundText() {
    const { functions, frames, weight, folded } = this.found, elsewhere = folded ? "; plumbing is folded (p)" : "";
    if (!frames) return `nothing found${elsewhere}`;
    const where = `${plural(functions.size, "function", "functions")} in ${plural(frames, "frame", "frames")}`;
    return `${where}: ${this.withShare(weight)}${elsewhere}`;
  }

  marksOf(tree) { return Uint8Array.from(tree.func, (f) => this.found.functions.has(f) ? 1 : 0); }

  // step selects the next match, in the order of the picture.
  step(by) {
    const f = this.flame, n = this.tree.size;
    if (!f.matches) return;
    for (let k = 1, i = f.selected < 0 && by < 0 ? 0 : f.selected; k <= n; k++) {
      i = (i + by + n) % n;
      if (f.matches[i] && this.shownWeight(i) > 0) { this.select(i); return; }
    }
  }

  toggleTable() { byId("table").hidden = !byId("table").hidden; }

  helpOpen() { return byId("help").open; }

  setTheme(name) {
    document.documentElement.dataset.theme = name;
    this.theme = name;
    this.colors = new Colors(name, this.functions);
    const css = getComputedStyle(document.documentElement), color = (v) => css.getPropertyValue(`--${v}`).trim();
    this.flame.setStyle({
      background: color("panel"), ink: color("ink"), match: color("match"), focus: color("focus"),
      narrow: color("narrow"), font: `12px ${color("font")}`,
    });
    this.strip.style = {
      background: color("panel"), muted: color("muted"), running: color("running"), waiting: color("waiting"),
      event: color("event"), veil: color("veil"), font: `11px ${color("font")}`,
    };
    if (!this.ready) return;
    this.flame.draw(); this.strip.draw(); this.table.show(); showLegend(this);
  }
}

// findFunctions finds the functions whose name, parameters or module match. A stack counts once
// in the weight, however many of its frames match.
function findFunctions(page, test) {
  const functions = new Set();
  page.functions.forEach((f, k) => { if (test(f.display + f.signature) || test(f.module)) functions.add(k); });
  page.threads.forEach((t, k) => { if (test(t.label)) functions.add(FIRST_THREAD - k); });
  let frames = 0, weight = 0;
  const tree = page.whole, present = new Set();
  for (let i = 1; i < tree.size; i++) if (functions.has(tree.func[i])) { frames++; present.add(tree.func[i]); }
  tree.outermost((i) => present.has(tree.func[i]), (i) => { weight += tree.total[i]; });
  const folded = !page.selection.plumbing && [...functions].some((func) => page.functions[func]?.plumbing);
  return { functions: present, frames, weight, folded };
}
