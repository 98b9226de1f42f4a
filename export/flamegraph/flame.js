// The picture of a tree: where each frame is, and drawing the visible part.

// A Layout has the position of every frame: x0 … x1 in units of weight, and a row. The frames
// of a row are sorted by x, so that the visible ones are found by binary search.
class Layout {
  constructor(tree, weights) {
    const n = tree.size;
    this.tree = tree;
    this.width = weights[0];
    this.x0 = new Float64Array(n);
    this.x1 = new Float64Array(n);
    this.row = new Int32Array(n);
    const next = new Float64Array(n);
    let callers = 0, above = 0; // in a sandwich: x of the next caller of the root; rows of callers
    for (let i = 0; i < n; i++) if (tree.up[i] && weights[i] > 0) above = Math.max(above, tree.depth[i]);
    let rows = 1;
    for (let i = 0; i < n; i++) {
      const p = tree.parent[i], w = weights[i];
      let x = 0;
      if (p === 0 && tree.up[i]) { x = callers; callers += w; } else if (p >= 0) { x = next[p]; next[p] += w; }
      this.x0[i] = next[i] = x;
      this.x1[i] = x + w;
      this.row[i] = tree.up[i] ? above - tree.depth[i] : above + tree.depth[i];
      if (w > 0) rows = Math.max(rows, this.row[i] + 1);
    }
    this.rootRow = above;
    this.rows = this.byRow(rows);
  }

  byRow(rows) {
    const start = new Int32Array(rows + 1), n = this.tree.size;
    for (let i = 0; i < n; i++) if (this.x1[i] > this.x0[i]) start[this.row[i] + 1]++;
    for (let r = 0; r < rows; r++) start[r + 1] += start[r];
    const frames = new Int32Array(start[rows]), next = start.slice();
    for (let i = 0; i < n; i++) if (this.x1[i] > this.x0[i]) frames[next[this.row[i]]++] = i;
    return Array.from({ length: rows }, (_, r) => frames.subarray(start[r], start[r + 1]));
  }

  // after returns the index in a row of the first frame that ends after x.
  after(row, x, low = 0) {
    const frames = this.rows[row];
    let high = frames.length;
    while (low < high) {
      const mid = low + high >> 1;
      if (this.x1[frames[mid]] > x) high = mid; else low = mid + 1;
    }
    return low;
  }

  // find returns the frame at x in a row, or -1.
  find(row, x) {
    if (!(row >= 0 && row < this.rows.length)) return -1;
    const i = this.rows[row][this.after(row, x)];
    return i !== undefined && this.x0[i] <= x ? i : -1;
  }
}

const GAP = 1; // pixels between frames
const NARROW = 0.7; // pixels; narrower frames are not drawn one by one

// Flame draws a layout into a canvas that sticks to the top of a scrolling box.
// paint returns {fill, text} of a frame, label the text to write on it.
class Flame {
  constructor(scroll, { paint, label, changed }) {
    this.scroll = scroll;
    this.spacer = scroll.firstElementChild;
    this.canvas = this.spacer.firstElementChild;
    this.ctx = this.canvas.getContext("2d", { alpha: false });
    this.paint = paint; this.label = label; this.changed = changed;
    this.flip = false; // the root is at the bottom
    this.selected = -1; this.hovered = -1; this.focus = 0;
    this.matches = null; // by frame: 1 if it matches the search
    this.marked = null; // a function whose frames are outlined
    this.drawTime = 0;
    this.ruler = document.createElement("canvas").getContext("2d"); // measures letters
    this.widths = new Map();
    this.still = matchMedia("(prefers-reduced-motion: reduce)");
    new ResizeObserver(() => this.resize()).observe(scroll);
    scroll.addEventListener("scroll", () => this.draw(), { passive: true });
  }

  setStyle(style) {
    this.style = style;
    this.ruler.font = style.font;
    this.widths.clear();
  }

  show(layout) {
    this.layout = layout;
    this.selected = this.hovered = -1;
    this.focus = 0;
    this.v0 = 0; this.v1 = layout.width || 1;
    cancelAnimationFrame(this.motion);
    this.resize();
    this.reveal(0, true);
  }

  // Sizes. Rows are higher where fingers point.
  resize() {
    if (!this.layout) return;
    this.rowHeight = matchMedia("(pointer: coarse), (max-width: 600px)").matches ? 26 : 19;
    this.width = this.scroll.clientWidth;
    this.height = this.scroll.clientHeight;
    const ratio = devicePixelRatio || 1;
    this.spacer.style.height = `${this.layout.rows.length * this.rowHeight + 2}px`;
    this.canvas.style.width = `${this.width}px`;
    this.canvas.style.height = `${this.height}px`;
    this.canvas.width = Math.round(this.width * ratio);
    this.canvas.height = Math.round(this.height * ratio);
    this.paintNow(); // a canvas that was resized is empty
  }

  draw() {
    if (!this.pending) this.pending = requestAnimationFrame(() => { this.pending = 0; this.paintNow(); });
  }

  // rowTop returns the y of a row, from the top of all rows.
  rowTop(row) {
    const all = Math.max(this.layout.rows.length * this.rowHeight, this.height - 2);
    return this.flip ? all - (row + 1) * this.rowHeight : row * this.rowHeight;
  }

  rowAt(y) {
    const all = Math.max(this.layout.rows.length * this.rowHeight, this.height - 2);
    const fromTop = y + this.scroll.scrollTop;
    return Math.floor((this.flip ? all - fromTop : fromTop) / this.rowHeight);
  }

  frameAt(x, y) {
    if (!this.layout || this.layout.width <= 0) return -1;
    return this.layout.find(this.rowAt(y), this.v0 + x / this.width * (this.v1 - this.v0));
  }

  paintNow() {
    if (!this.layout || !this.width) return;
    const began = performance.now(), ctx = this.ctx, style = this.style;
    const ratio = this.canvas.width / this.width;
    ctx.setTransform(ratio, 0, 0, ratio, 0, 0);
    ctx.fillStyle = style.background;
    ctx.fillRect(0, 0, this.width, this.height);
    ctx.font = style.font;
    ctx.textBaseline = "middle";
    for (let row = 0; row < this.layout.rows.length; row++) {
      const y = this.rowTop(row) - this.scroll.scrollTop;
      if (y > -this.rowHeight && y < this.height) this.paintRow(row, y);
    }
    this.outlines();
    this.drawTime = performance.now() - began;
  }

  paintRow(row, y) {
    const { layout, v0, v1 } = this, frames = layout.rows[row], scale = this.width / (v1 - v0);
    for (let k = layout.after(row, v0); k < frames.length; k++) {
      const i = frames[k], x = (layout.x0[i] - v0) * scale, end = (layout.x1[i] - v0) * scale;
      if (x >= this.width) break;
      if (end - x >= NARROW) { this.paintFrame(i, Math.max(x, 0), y, Math.min(end, this.width)); continue; }
      // Narrow frames become one grey pixel. The next frame is the first that ends after it.
      const last = layout.after(row, v0 + (x + 1) / scale, k);
      this.ctx.fillStyle = this.matches && this.anyMatch(frames, k, last) ? this.style.match : this.style.narrow;
      const width = Math.min(1, Math.max(end, this.endBefore(frames, last, v0, scale)) - x);
      this.ctx.fillRect(x, y + GAP, width, this.rowHeight - GAP);
      k = Math.max(k, last - 1);
    }
  }

  anyMatch(frames, from, to) {
    for (let k = from; k < to; k++) if (this.matches[frames[k]]) return true;
    return false;
  }

  endBefore(frames, k, v0, scale) { return k > 0 ? (this.layout.x1[frames[k - 1]] - v0) * scale : 0; }

  paintFrame(i, x, y, end) {
    const ctx = this.ctx, w = Math.max(end - x - GAP, 0.6), h = this.rowHeight - GAP;
    const dim = this.matches && !this.matches[i], { fill, text, stripes } = this.paint(this.layout.tree, i);
    ctx.fillStyle = fill;
    ctx.globalAlpha = dim ? 0.3 : 1;
    ctx.fillRect(x, y + GAP, w, h);
    if (stripes) this.paintStripes(x, y + GAP, w, h, stripes);
    if (this.matches && !dim) {
      ctx.fillStyle = this.style.match;
      ctx.fillRect(x, y + GAP + h - 3, w, 3);
      if (w < 8) ctx.fillRect(x, y + GAP, w, h);
    }
    if (w > 22) {
      const label = this.fitted(this.label(this.layout.tree, i), w - 8);
      ctx.globalAlpha = dim ? 0.6 : 1;
      ctx.fillStyle = dim ? this.style.ink : text;
      if (label) ctx.fillText(label, x + 4, y + GAP + h / 2 + 0.5);
    }
    ctx.globalAlpha = 1;
  }

  paintStripes(x, y, w, h, color) {
    const ctx = this.ctx;
    ctx.save();
    ctx.beginPath(); ctx.rect(x, y, w, h); ctx.clip();
    ctx.strokeStyle = color; ctx.lineWidth = 2; ctx.beginPath();
    for (let at = x - x % 10 - h; at < x + w; at += 10) { ctx.moveTo(at, y + h); ctx.lineTo(at + h, y); }
    ctx.stroke();
    ctx.restore();
  }

  // outlines outlines the frame under the pointer, the selected frame, and all frames of the
  // marked function.
  outlines() {
    if (this.marked !== null) {
      this.eachVisible((i) => {
        if (this.layout.tree.func[i] === this.marked) this.outline(i, this.style.ink, 1, true);
      });
    }
    if (this.layout.tree.wings) this.outline(0, this.style.focus, 2.5, true);
    if (this.hovered >= 0) this.outline(this.hovered, this.style.ink, 1);
    if (this.selected >= 0) this.outline(this.selected, this.style.focus, 2.5, true);
  }

  eachVisible(visit) {
    const { layout, v0, v1 } = this, pixel = (v1 - v0) / this.width;
    for (let row = 0; row < layout.rows.length; row++) {
      const y = this.rowTop(row) - this.scroll.scrollTop, frames = layout.rows[row];
      if (y <= -this.rowHeight || y >= this.height) continue;
      for (let k = layout.after(row, v0); k < frames.length && layout.x0[frames[k]] < v1; k++) {
        if (layout.x1[frames[k]] - layout.x0[frames[k]] >= NARROW * pixel) visit(frames[k]);
        else k = Math.max(k, layout.after(row, layout.x0[frames[k]] + pixel, k) - 1);
      }
    }
  }

  // outline draws a frame's border; lined: with a second line inside, so that it is
  // seen on dark frames as well as on light ones.
  outline(i, color, thickness, lined) {
    const { layout, ctx } = this, scale = this.width / (this.v1 - this.v0), half = thickness / 2;
    const x = Math.max((layout.x0[i] - this.v0) * scale, -4);
    const end = Math.min((layout.x1[i] - this.v0) * scale, this.width + 4);
    if (end < 0 || x > this.width) return;
    ctx.strokeStyle = color; ctx.lineWidth = thickness;
    const left = Math.max(x, 0) + half, right = Math.min(end, this.width) - GAP - half;
    const top = this.rowTop(layout.row[i]) - this.scroll.scrollTop + GAP + half;
    const width = right - left, height = this.rowHeight - GAP - thickness;
    ctx.strokeRect(left, top, Math.max(width, 1), height);
    const inner = half + 0.5;
    if (!lined || width < 4 * thickness) return;
    ctx.strokeStyle = this.style.background; ctx.lineWidth = 1;
    ctx.strokeRect(left + inner, top + inner, width - 2 * inner, height - 2 * inner);
  }

  // fitted shortens a name to a width in pixels: first it cuts the end of the type, then that
  // of the method.
  fitted(name, width) {
    if (this.textWidth(name) <= width) return name;
    const dot = methodStart(name), method = name.slice(dot);
    const rest = width - this.textWidth("…" + method);
    if (dot > 0 && rest >= 0) {
      const head = this.cut(name.slice(0, dot - 1), rest);
      return head.length > 2 ? head + "…" + method : "…" + method;
    }
    const head = this.cut(method, width - this.charWidth("…"));
    return head.length > 1 ? head + "…" : "";
  }

  cut(text, width) {
    let used = 0, end = 0;
    for (const c of text) {
      used += this.charWidth(c);
      if (used > width) break;
      end += c.length;
    }
    return text.slice(0, end);
  }

  textWidth(text) {
    let sum = 0;
    for (const c of text) sum += this.charWidth(c);
    return sum;
  }

  charWidth(c) {
    let w = this.widths.get(c);
    if (w === undefined) this.widths.set(c, w = this.ruler.measureText(c).width);
    return w;
  }

  // Moving. The view is v0 … v1 in units of weight.
  setView(v0, v1, smooth) {
    const all = this.layout.width || 1, span = Math.min(Math.max(v1 - v0, all * 1e-7), all);
    v0 = Math.min(Math.max(v0, 0), all - span);
    v1 = v0 + span;
    cancelAnimationFrame(this.motion);
    if (!smooth || this.still.matches) {
      this.v0 = v0; this.v1 = v1;
      this.draw();
      this.changed();
      return;
    }
    const from0 = this.v0, from1 = this.v1, began = performance.now();
    const step = (now) => {
      const t = Math.min(Math.max((now - began) / 180, 0), 1), ease = 1 - (1 - t) ** 3;
      this.v0 = from0 + (v0 - from0) * ease;
      this.v1 = from1 + (v1 - from1) * ease;
      if (t < 1) this.motion = requestAnimationFrame(step); else this.changed();
      this.draw();
    };
    this.motion = requestAnimationFrame(step);
  }

  zoomTo(i) {
    this.focus = i;
    this.setView(this.layout.x0[i], this.layout.x1[i], true);
    this.reveal(i);
    this.changed();
  }

  zoomed() { return this.layout.width > 0 && this.v1 - this.v0 < this.layout.width * (1 - 1e-9) || this.focus > 0; }

  // zoomBy scales the view around a pixel.
  zoomBy(factor, x) {
    const span = this.v1 - this.v0, at = this.v0 + x / this.width * span;
    this.setView(at - (at - this.v0) * factor, at + (this.v1 - at) * factor);
  }

  panBy(pixels) {
    const d = pixels / this.width * (this.v1 - this.v0);
    this.setView(this.v0 + d, this.v1 + d);
  }

  select(i) {
    this.selected = i;
    if (i >= 0 && this.layout.x1[i] > this.layout.x0[i]) {
      this.reveal(i);
      const { x0, x1 } = this.layout, pixel = (this.v1 - this.v0) / this.width;
      // A frame that is outside the view, or too narrow, is brought into view.
      if (x0[i] >= this.v1 || x1[i] <= this.v0 || x1[i] - x0[i] < 3 * pixel) {
        const p = this.layout.tree.parent[i];
        const near = p >= 0 && x1[i] - x0[i] > (x1[p] - x0[p]) / 100 ? p : i;
        this.focus = near;
        this.setView(x0[near], x1[near], true);
      }
    }
    this.draw();
    this.changed();
  }

  // reveal scrolls so that a frame can be seen, with a row around it.
  reveal(i, exactly) {
    const top = this.rowTop(this.layout.row[i]);
    if (exactly && this.layout.tree.wings) {
      this.scroll.scrollTop = top - this.height / 2;
    } else if (top < this.scroll.scrollTop + this.rowHeight) {
      this.scroll.scrollTop = top - this.rowHeight;
    } else if (top + 2 * this.rowHeight > this.scroll.scrollTop + this.height) {
      this.scroll.scrollTop = top + 2 * this.rowHeight - this.height;
    }
    this.draw();
  }
}

// methodStart returns where the last part of a name begins: after the last dot outside
// brackets. A text with a comma outside brackets is more than a name, and has no such part.
function methodStart(name) {
  let depth = 0, start = 0;
  for (let i = name.length - 1; i > 0; i--) {
    const c = name[i];
    if (c === ">" || c === ")" || c === "]" || c === "}") depth++;
    else if (c === "<" || c === "(" || c === "[" || c === "{") depth = Math.max(depth - 1, 0);
    else if (depth === 0 && c === ",") return 0;
    else if (depth === 0 && !start && (name.startsWith("::", i - 1) || c === "." && name[i - 1] !== ".")) start = i + 1;
  }
  return start;
}
