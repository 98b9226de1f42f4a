// The time strip above the graph: how much happened when, and the selected range.

class Strip {
  constructor(root, changed) {
    this.canvas = root.querySelector("canvas");
    this.ctx = this.canvas.getContext("2d", { alpha: false });
    this.handles = [...root.querySelectorAll("[role=slider]")];
    [this.label, this.peak] = root.querySelectorAll("output");
    this.whole = root.querySelector("button");
    this.area = this.canvas.parentElement;
    this.changed = changed;
    this.from = 0; this.to = Infinity; // nanoseconds
    new ResizeObserver(() => this.draw()).observe(this.area);
    this.whole.addEventListener("click", () => this.choose(0, Infinity));
    this.area.addEventListener("pointerdown", (e) => this.drag(e));
    this.handles.forEach((h, k) => h.addEventListener("keydown", (e) => this.key(e, k)));
  }

  // show sums up the selected samples, of any time and state. States are shown apart only in
  // modes with a choice of states.
  show(recording, selection) {
    const bins = 240, span = Math.max(recording.duration, lastSample(recording), 1), mode = MODES[selection.mode];
    const sums = [new Float64Array(bins), new Float64Array(bins)];
    const some = selection.threads instanceof Set ? selection.threads : null;
    for (let i = 0; i < recording.samples; i++) {
      if (recording.mode[i] !== selection.mode || some && !some.has(recording.group[recording.thread[i]])) continue;
      if (!selection.idle && recording.idle[i]) continue;
      const series = sums[mode.states ? recording.state[i] : RUNNING];
      if (mode.unit.lasts) {
        const begin = Math.max(0, recording.at[i] - recording.weight[i]); // samples stand for the time before them
        spreadOut(series, begin / span * bins, recording.weight[i], span / bins);
      } else {
        series[Math.min(bins - 1, Math.floor(recording.at[i] / span * bins))] += recording.weight[i];
      }
    }
    this.span = span; this.sums = sums; this.bin = span / bins; this.mode = mode;
    this.most = 0;
    for (let b = 0; b < bins; b++) this.most = Math.max(this.most, (sums[0][b] + sums[1][b]) / this.bin);
    this.draw();
  }

  draw() {
    const w = this.area.clientWidth, h = this.area.clientHeight, ratio = devicePixelRatio || 1, ctx = this.ctx;
    if (!this.sums || !w) return;
    this.canvas.width = Math.round(w * ratio); this.canvas.height = Math.round(h * ratio);
    ctx.setTransform(ratio, 0, 0, ratio, 0, 0);
    ctx.fillStyle = this.style.background;
    ctx.fillRect(0, 0, w, h);
    const bins = this.sums[0].length, scale = this.most > 0 ? (h - 17) / this.most / this.bin : 0;
    const floor = h - 12; // below are the times
    for (let b = 0; b < bins; b++) {
      const x = b * w / bins, width = (b + 1) * w / bins - x;
      const running = this.sums[RUNNING][b] * scale, waiting = this.sums[WAITING][b] * scale;
      ctx.fillStyle = this.mode.events ? this.style.event : this.style.running;
      ctx.fillRect(x, floor - running, width, running);
      ctx.fillStyle = this.style.waiting;
      ctx.fillRect(x, floor - running - waiting, width, waiting);
    }
    this.drawScale(ctx, w, h);
    const x0 = this.from / this.span * w, x1 = Math.min(this.to / this.span, 1) * w;
    ctx.fillStyle = this.style.veil;
    ctx.fillRect(0, 0, x0, h);
    ctx.fillRect(x1, 0, w - x1, h);
    this.placeHandles(x0, x1);
  }

  drawScale(ctx, w, h) {
    ctx.fillStyle = this.style.muted;
    ctx.font = this.style.font;
    ctx.textBaseline = "alphabetic";
    const step = niceStep(this.span / Math.max(2, Math.floor(w / 90)));
    for (let t = 0; t < this.span - step / 3; t += step) {
      const x = t / this.span * w;
      ctx.fillRect(x, h - 12, 1, 3);
      ctx.fillText(shortTime(t, step), x + 3, h - 2);
    }
  }

  placeHandles(x0, x1) {
    const to = formatTime(Math.min(this.to, this.span));
    this.label.textContent = this.isWhole() ? "all of the time" : `${formatTime(this.from)} to ${to}`;
    this.whole.hidden = this.isWhole();
    this.peak.textContent = `up to ${this.mode.rate(this.most)}`;
    [[x0, this.from, "from"], [x1, Math.min(this.to, this.span), "to"]].forEach(([x, at, name], k) => {
      const handle = this.handles[k];
      handle.style.left = `${x}px`;
      handle.setAttribute("aria-valuemin", "0");
      handle.setAttribute("aria-valuemax", (this.span / 1e9).toFixed(3));
      handle.setAttribute("aria-valuenow", (at / 1e9).toFixed(3));
      handle.setAttribute("aria-valuetext", `${name} ${formatTime(at)}`);
    });
  }

  isWhole() { return this.from <= 0 && this.to >= this.span; }

  choose(from, to) {
    if (from > to) [from, to] = [to, from];
    this.from = Math.max(0, from);
    this.to = to >= this.span ? Infinity : to;
    this.draw();
    this.changed(this.from, this.to);
  }

  drag(e) {
    if (e.button !== 0) return;
    const box = this.area.getBoundingClientRect();
    const time = (ev) => Math.min(Math.max((ev.clientX - box.left) / box.width, 0), 1) * this.span;
    const grip = this.handles.indexOf(e.target), start = e.clientX;
    const fixed = grip === 0 ? Math.min(this.to, this.span) : grip === 1 ? this.from : time(e);
    this.area.setPointerCapture(e.pointerId);
    const move = (ev) => { if (grip >= 0 || Math.abs(ev.clientX - start) > 3) this.preview(fixed, time(ev)); };
    const end = (ev) => {
      this.area.removeEventListener("pointermove", move);
      this.area.removeEventListener("pointerup", end);
      this.area.removeEventListener("pointercancel", end);
      // A click without a drag removes the range.
      if (grip >= 0 || Math.abs(ev.clientX - start) > 3) this.choose(fixed, time(ev)); else this.choose(0, Infinity);
    };
    this.area.addEventListener("pointermove", move);
    this.area.addEventListener("pointerup", end);
    this.area.addEventListener("pointercancel", end);
  }

  preview(a, b) {
    this.from = Math.min(a, b); this.to = Math.max(a, b);
    this.draw();
  }

  key(e, k) {
    const step = this.span / (e.shiftKey ? 10 : 100), at = [this.from, Math.min(this.to, this.span)];
    const by = {
      ArrowLeft: -step, ArrowDown: -step, ArrowRight: step, ArrowUp: step, PageDown: -10 * step, PageUp: 10 * step,
    }[e.key];
    if (by !== undefined) at[k] += by;
    else if (e.key === "Home") at[k] = k ? at[0] : 0;
    else if (e.key === "End") at[k] = k ? this.span : at[1];
    else return;
    e.preventDefault(); e.stopPropagation();
    at[k] = k ? Math.min(Math.max(at[1], at[0]), this.span) : Math.min(Math.max(at[0], 0), at[1]);
    this.choose(at[0], at[1]);
  }
}

// spreadOut distributes a weight over the bins from place on, to each as much as fits its
// length. Adding it to a single bin would cause beats between samples and bins. What goes
// beyond the end of the recording is not shown.
function spreadOut(bins, place, weight, bin) {
  let k = Math.min(bins.length - 1, Math.floor(place)), room = (k + 1 - place) * bin;
  for (; k < bins.length && weight > 0; k++, room = bin) {
    bins[k] += Math.min(weight, room);
    weight -= room;
  }
}

function lastSample(recording) { return recording.samples ? recording.at[recording.samples - 1] : 0; }

// niceStep returns a step of 1, 2 or 5 times a power of ten, of at least least.
function niceStep(least) {
  const power = 10 ** Math.floor(Math.log10(least));
  return [1, 2, 5, 10].find((f) => f * power >= least) * power;
}

function shortTime(t, step) {
  if (t === 0) return "0 s";
  const seconds = t / 1e9, places = Math.max(0, -Math.floor(Math.log10(step / 1e9)));
  return places > 3 ? formatTime(t) : `${seconds.toFixed(places)} s`;
}
