// The picture on its canvas.

class HeapMap {
  constructor(canvas, page) {
    this.canvas = canvas; this.page = page;
    this.cells = []; this.byNode = new Map();
    this.hovered = null;
    this.widths = new Map(); // of texts, in pixels
    new ResizeObserver(() => this.resize()).observe(canvas.parentElement);
    canvas.addEventListener("pointermove", (e) => this.hover(this.at(e), e));
    canvas.addEventListener("pointerleave", () => this.hover(null));
    canvas.addEventListener("click", (e) => this.click(this.at(e)));
    canvas.addEventListener("dblclick", (e) => {
      const cell = this.at(e);
      if (cell) page.zoom(page.enclosing(cell.chain[cell.chain.length - 1]));
    });
  }

  resize() {
    const { clientWidth: w, clientHeight: h } = this.canvas.parentElement, ratio = devicePixelRatio || 1;
    if (this.width === w && this.height === h && this.ratio === ratio) return;
    Object.assign(this, { width: w, height: h, ratio });
    this.canvas.width = Math.max(1, Math.round(w * ratio)); this.canvas.height = Math.max(1, Math.round(h * ratio));
    Object.assign(this.canvas.style, { width: `${w}px`, height: `${h}px` });
    this.arrange();
  }

  // arrange lays the areas out anew.
  arrange() {
    const { page } = this;
    if (!page.ready || !this.width) return;
    const began = performance.now();
    this.cells = layout(page.tree, page.weights, page.focus, this.width, this.height);
    this.byNode = new Map();
    for (const c of this.cells) {
      for (const i of c.chain) if (!c.part || !this.byNode.has(i)) this.byNode.set(i, c);
    }
    this.layoutTime = performance.now() - began;
    this.hovered = null;
    this.draw();
  }

  at(e) {
    const box = this.canvas.getBoundingClientRect(), x = e.clientX - box.left, y = e.clientY - box.top;
    for (let k = this.cells.length - 1; k >= 0; k--) {
      const c = this.cells[k];
      if (x >= c.x && x < c.x + c.w && y >= c.y && y < c.y + c.h) return c;
    }
    return null;
  }

  hover(cell, e) {
    if (this.hovered !== cell) { this.hovered = cell; this.draw(); }
    showTip(this.page, cell, e);
  }

  // click selects; on the title of a group, or on what is selected, it zooms in.
  click(cell) {
    if (!cell) return;
    const { page } = this, again = page.selected === cell.node;
    page.select(cell.node);
    if (cell.open || again) page.zoom(page.enclosing(cell.chain[cell.chain.length - 1]));
  }

  draw() {
    if (this.pending) return;
    this.pending = true;
    requestAnimationFrame(() => { this.pending = false; this.paint(); });
  }

  paint() {
    const { page, cells } = this, { tree } = page, ctx = this.canvas.getContext("2d"), began = performance.now();
    const style = page.style;
    ctx.setTransform(this.ratio, 0, 0, this.ratio, 0, 0);
    ctx.fillStyle = style.background;
    ctx.fillRect(0, 0, this.width, this.height);
    ctx.textBaseline = "middle";
    for (const c of cells) {
      const { fill, text } = c.open ? page.groupPaint(c.depth) : page.paint(tree, c);
      ctx.globalAlpha = page.found && !c.open && !page.found.has(tree.type[c.node]) ? 0.25 : 1;
      ctx.fillStyle = fill;
      const gap = Math.min(1, c.w / 4, c.h / 4);
      ctx.fillRect(c.x, c.y, c.w - gap, c.h - gap);
      ctx.fillStyle = text;
      this.title(ctx, c);
    }
    ctx.globalAlpha = 1;
    if (this.hovered) this.outline(ctx, this.hovered, style.ink, 1);
    const selected = this.byNode.get(page.selected);
    if (selected) this.outline(ctx, selected, style.focus, 3);
    this.drawTime = performance.now() - began;
  }

  outline(ctx, c, color, width) {
    ctx.strokeStyle = color; ctx.lineWidth = width;
    ctx.strokeRect(c.x + width / 2, c.y + width / 2, Math.max(0, c.w - width - 1), Math.max(0, c.h - width - 1));
  }

  // title writes what fits of the name of an area and of its size.
  title(ctx, c) {
    const { page } = this, room = c.w - 8;
    if (room < 14 || c.h < 13) return;
    const name = page.cellName(c), figure = page.figure(c);
    if (c.open) {
      if (!c.head) return;
      ctx.font = page.style.bold;
      const cut = this.cut(ctx, name, room), used = this.widthOf(ctx, cut);
      ctx.fillText(cut, c.x + 4, c.y + HEAD / 2 + 1);
      ctx.font = page.style.font;
      if (this.widthOf(ctx, figure) + used + 10 < room) ctx.fillText(figure, c.x + 4 + used + 10, c.y + HEAD / 2 + 1);
      return;
    }
    ctx.font = page.style.font;
    ctx.fillText(this.cut(ctx, name, room), c.x + 4, c.y + Math.min(10, c.h / 2));
    if (c.h >= 32 && this.widthOf(ctx, figure) <= room) ctx.fillText(figure, c.x + 4, c.y + 25);
  }

  widthOf(ctx, text) {
    const key = ctx.font + text;
    let w = this.widths.get(key);
    if (w === undefined) {
      if (this.widths.size > 50_000) this.widths.clear();
      this.widths.set(key, w = ctx.measureText(text).width);
    }
    return w;
  }

  // cut shortens a text at its end.
  cut(ctx, text, room) {
    if (text.length > 300) text = text.slice(0, 300);
    if (this.widthOf(ctx, text) <= room) return text;
    let least = 0, most = text.length;
    while (least < most) {
      const n = (least + most + 1) >> 1;
      if (this.widthOf(ctx, `${text.slice(0, n)}…`) <= room) least = n; else most = n - 1;
    }
    return least > 1 ? `${text.slice(0, least)}…` : "";
  }
}
