// Input by pointer and keyboard on the graph.

class Input {
  constructor(flame, page) {
    this.flame = flame; this.page = page;
    this.pointers = new Map();
    const c = flame.canvas;
    c.addEventListener("pointerdown", (e) => this.down(e));
    c.addEventListener("pointermove", (e) => this.move(e));
    c.addEventListener("pointerup", (e) => this.up(e));
    c.addEventListener("pointercancel", (e) => { this.pointers.delete(e.pointerId); this.start = null; });
    c.addEventListener("pointerleave", () => page.hover(-1));
    c.addEventListener("dblclick", (e) => e.preventDefault());
    c.addEventListener("wheel", (e) => this.wheel(e), { passive: false });
    document.addEventListener("keydown", (e) => this.key(e));
  }

  at(e) {
    const box = this.flame.canvas.getBoundingClientRect();
    return { x: e.clientX - box.left, y: e.clientY - box.top };
  }

  distance(p) { return Math.hypot(p.x - this.start.x, p.y - this.start.y); }

  down(e) {
    if (e.button !== 0) return;
    const p = this.at(e);
    this.pointers.set(e.pointerId, p);
    this.flame.canvas.setPointerCapture(e.pointerId);
    this.start = this.pointers.size === 1 ? p : null;
    this.dragged = this.pointers.size > 1;
  }

  move(e) {
    const p = this.at(e), before = this.pointers.get(e.pointerId);
    if (!before) { this.page.hover(this.flame.frameAt(p.x, p.y), e); return; }
    if (this.pointers.size === 2) this.pinch(e.pointerId, before, p);
    else if (this.dragged || this.distance(p) > (e.pointerType === "mouse" ? 4 : 10)) {
      this.dragged = true;
      this.page.hover(-1);
      this.flame.panBy(before.x - p.x);
      if (e.pointerType === "mouse") this.flame.scroll.scrollTop += before.y - p.y; // fingers scroll by themselves
    }
    this.pointers.set(e.pointerId, p);
  }

  pinch(id, before, now) {
    const other = [...this.pointers].find(([key]) => key !== id)[1];
    const was = Math.max(Math.abs(before.x - other.x), 20), is = Math.max(Math.abs(now.x - other.x), 20);
    this.flame.zoomBy(was / is, (now.x + other.x) / 2);
    this.flame.panBy((before.x - now.x) / 2);
  }

  // A click zooms in. A finger cannot hover: its first tap selects, its second zooms.
  up(e) {
    const p = this.at(e), click = this.pointers.delete(e.pointerId) && !this.dragged && this.start;
    if (!click) return;
    const i = this.flame.frameAt(p.x, p.y);
    if (i < 0) return;
    const again = this.flame.selected === i;
    this.page.select(i);
    if (e.pointerType === "mouse" || again) this.flame.zoomTo(i);
  }

  // A wheel scrolls; with Ctrl it zooms. Browsers report a pinch on a touchpad as such.
  wheel(e) {
    if (e.ctrlKey || e.metaKey || e.altKey) {
      e.preventDefault();
      this.flame.zoomBy(Math.exp(Math.max(-60, Math.min(60, e.deltaY)) * 0.008), this.at(e).x);
    } else if (e.shiftKey || Math.abs(e.deltaX) > Math.abs(e.deltaY)) {
      e.preventDefault();
      this.flame.panBy(e.deltaX || e.deltaY);
    }
  }

  key(e) {
    const page = this.page, typing = e.target.matches("input[type=search], select, textarea");
    if ((e.ctrlKey || e.metaKey) && e.key.toLowerCase() === "f") { e.preventDefault(); page.startSearch(); return; }
    if (e.ctrlKey || e.metaKey || e.altKey || !page.ready || page.helpOpen()) return;
    if (e.key === "Escape") { e.preventDefault(); page.back(); return; }
    if (typing) {
      if (e.key === "Enter" && e.target.id === "search") { e.preventDefault(); page.step(e.shiftKey ? -1 : 1); }
      return;
    }
    const command = page.commands[e.key];
    if (command) { e.preventDefault(); command(); return; }
    if (e.target === this.flame.canvas || e.target === document.body) this.walk(e);
  }

  // walk moves the selection to a neighbour.
  walk(e) {
    const f = this.flame, layout = f.layout;
    if (!layout || layout.width <= 0) return;
    const known = ["ArrowUp", "ArrowDown", "ArrowLeft", "ArrowRight", "Enter"].includes(e.key);
    if (!known) return;
    e.preventDefault();
    if (f.selected < 0) { this.page.select(f.focus); return; }
    const i = f.selected, row = layout.row[i], down = f.flip ? -1 : 1;
    if (e.key === "Enter") f.zoomTo(i);
    if (e.key === "ArrowUp") this.page.select(this.touching(i, row - down));
    if (e.key === "ArrowDown") this.page.select(this.touching(i, row + down));
    if (e.key === "ArrowLeft") this.page.select(this.beside(row, i, -1));
    if (e.key === "ArrowRight") this.page.select(this.beside(row, i, 1));
  }

  // touching returns the caller or the heaviest callee in a row, or else the frame itself.
  touching(i, row) {
    const { layout } = this.flame, frames = layout.rows[row] || [];
    let best = i, width = 0, k = frames.length ? layout.after(row, layout.x0[i]) : 0;
    for (; k < frames.length && layout.x0[frames[k]] < layout.x1[i]; k++) {
      const w = layout.x1[frames[k]] - layout.x0[frames[k]];
      if (w > width) { best = frames[k]; width = w; }
    }
    return best;
  }

  beside(row, i, by) {
    const frames = this.flame.layout.rows[row];
    const next = frames[frames.indexOf(i) + by];
    return next === undefined ? i : next;
  }
}
