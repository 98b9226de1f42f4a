// The header, the controls, and the start of the page.

// showFacts describes the program, and how well the selected mode was recorded.
function showFacts(page) {
  const r = page.recording, process = r.processes[0] || { pid: 0, command: "", runtime: {} }, facts = [];
  const add = (text, { poor, title } = {}) => {
    if (text) facts.push(element("span", { class: poor ? "poor" : "", title }, text));
  };
  const time = (at) => at.toLocaleString(undefined, { dateStyle: "medium", timeStyle: "medium" });
  if (process.pid) add(`pid ${process.pid}`);
  if (r.processes.length > 1) add(`and ${plural(r.processes.length - 1, "child process", "child processes")}`);
  const { version, shape } = process.runtime;
  if (version) add(`.NET ${clean(version)}${shape ? ` (${clean(shape)})` : ""}`);
  if (r.start > 0) add(time(r.start));
  add(`${formatTime(r.duration)} recorded`);
  if (r.cost.processors) add(usedText(r));
  if (page.stats) addQuality(page.mode, page.stats, add);
  if (page.base) {
    const base = page.base.start > 0 ? `the recording of ${time(page.base.start)}` : "another recording";
    add(`compared with ${base}, ${formatTime(page.base.duration)} long`);
  }
  add(clean(r.creator));
  byId("facts").replaceChildren(...facts);
}

// The names of the shares of flawed samples, and what is wrong with them.
const FAULTS = {
  sampled: {
    broken: ["incomplete", "Frames near the base of the stack, or in between, are missing."],
    lost: ["lost", "The kernel had no room for these samples, or their threads could not be captured."],
  },
  events: {
    broken: ["without a complete stack", "Some or all frames of these stacks are missing."],
    lost: ["dropped", "There were more than could be recorded: the numbers are too small by about this share."],
  },
};

// addQuality adds how many samples of a mode there are, and how many are flawed.
function addQuality(mode, stats, add) {
  const { samples, broken, lost } = stats, faults = mode.events ? FAULTS.events : FAULTS.sampled;
  const share = (part, whole, [text, title]) => {
    if (part) add(`${formatShare(part, whole)} ${text}`, { poor: part > 0.005 * whole, title });
  };
  add(mode.events ? recordedText(mode, stats) : sampledText(mode, stats));
  share(broken, samples, faults.broken);
  share(lost, samples + lost, faults.lost);
}

function sampledText(mode, { samples, rate, got }) {
  return `${plural(samples, ...mode.samples)} (${got ? `${digits(got)} Hz on average of ` : ""}${digits(rate)} Hz)`;
}

function recordedText(mode, { samples, seen, every }) {
  const which = everyText(mode, every), all = plural(Math.max(seen, samples), ...mode.samples);
  return (seen > samples ? `${formatCount(samples)} of ${all}` : all) + (which && ` (${which})`);
}

function showNotes(page) {
  const notes = [...page.recording.notes];
  if (page.base) notes.push(...page.base.notes.map((n) => `About the base recording: ${n}`));
  byId("notes").replaceChildren(...notes.map((n) => element("li", {}, clean(n))));
  byId("notes").hidden = !notes.length;
}

function usedText(r) {
  const used = r.duration > 0 ? r.cost.targetCpu / r.duration : 0;
  return `used ${used.toFixed(used < 10 ? 2 : 1)} of ${plural(r.cost.processors, "CPU", "CPUs")}`;
}

// showSummary describes the total in words.
function showSummary(page) {
  const { selection: s, mode, base } = page;
  const whole = s.to === Infinity && s.from === 0;
  const span = whole ? page.recording.duration : Math.min(s.to, page.strip.span) - s.from;
  const average = averageText(mode, page.weight, span);
  const parts = [element("b", {}, mode.total(page.weight)), `${whatIsCounted(page)}, ${average}.`];
  if (base && base.hasMode(s.mode)) {
    const before = averageText(mode, page.baseWeight, base.duration);
    parts.push(" Before: ", element("b", {}, mode.total(page.baseWeight)), `, ${before}.`);
  } else if (base) {
    parts.push(` Before: no ${mode.samples[1]} were recorded.`);
  }
  if (base) parts.push(` Widths: ${page.showBase ? "before" : "after"}.`);
  if (base && !page.strip.isWhole()) parts.push(" The time range applies to this recording only.");
  if (!s.idle) parts.push(idleText(page));
  byId("summary").replaceChildren(...parts);
}

// idleText says what is left out, and how much of all that is.
function idleText(page) {
  const kinds = page.recording.idleShares(page.selection.mode), named = 3;
  if (!kinds.length) return "";
  const share = (list) => formatShare(list.reduce((sum, k) => sum + k.share, 0), 1);
  const parts = kinds.slice(0, named).map((k) => `${clean(k.kind)} ${share([k])}`);
  if (kinds.length > named) parts.push(`others ${share(kinds.slice(named))}`);
  return ` Left out: idle threads, ${share(kinds)} of the whole (${parts.join(", ")}).`;
}

// whatIsCounted returns what a total is the sum of, as far as its own text does not say so.
function whatIsCounted({ mode, stats, selection, whole }) {
  const events = eventsText({ mode, stats }, whole.events[0], whole.count[0]);
  const samples = plural(whole.count[0], "sample", "samples");
  const states = mode.states ? `, ${["", "running", "waiting", "running and waiting"][selection.states]},` : "";
  const from = !isSampled(mode, stats) ? "" : mode.events ? `, estimated from ${samples}` : ` in ${samples}`;
  return states + (events && ` in ${events}`) + from;
}

function averageText(mode, weight, span) { return `${mode.rate(span > 0 ? weight / span : 0)} on average`; }

function buildControls(page) {
  const s = page.selection;
  if (page.modes.length > 1) {
    const option = (m) => [String(m), MODES[m].label, MODES[m].title, !page.recording.mode.includes(m)];
    segments(byId("modes"), "mode", page.modes.map(option), String(s.mode), (m) => chooseMode(page, Number(m)));
  }
  showModeControls(page);
  byId("threads").addEventListener("change", (e) => { s.threads = page.threadChoices[e.target.value]; page.update(); });
  byId("search").addEventListener("input", () => page.searched());
  byId("next").addEventListener("click", () => page.step(1));
  byId("previous").addEventListener("click", () => page.step(-1));
  byId("theme").addEventListener("click", () => page.setTheme(page.theme === "dark" ? "light" : "dark"));
  byId("helpButton").addEventListener("click", () => byId("help").showModal());
  const dark = matchMedia("(prefers-color-scheme: dark)");
  dark.addEventListener("change", (e) => page.setTheme(e.matches ? "dark" : "light"));
  buildHelp(page);
}

function chooseMode(page, mode) {
  Object.assign(page.selection, { mode, states: 3 });
  byId("modes").querySelector(`input[value="${mode}"]`).checked = true;
  showModeControls(page);
  page.update();
}

// showModeControls shows the controls of the selected mode.
function showModeControls(page) {
  showStates(page);
  listThreads(page);
  showToggles(page);
}

function showStates(page) {
  const s = page.selection, group = byId("states");
  group.replaceChildren();
  if (!page.mode.states) return;
  const options = [
    ["3", "All", "Running and waiting"],
    ["1", "Running", "On a CPU, or ready to run"],
    ["2", "Waiting", "For a lock, data, a timer, work to do"],
  ];
  segments(group, "state", options, "3", (v) => { s.states = Number(v); page.update(); });
}

function showToggles(page) {
  const { selection: s, flame, mode } = page, toggles = [
    ["managed", "Managed only", "Leave out native and kernel frames (m)",
      s.managed, (on) => { s.managed = on; page.update(); }],
    ["native", "All native frames", "Do not join consecutive native frames of a module that have no names",
      s.native, (on) => { s.native = on; page.update(); }],
    ["flip", "Root at bottom", "Flame instead of icicle (i)",
      flame.flip, (on) => { flame.flip = on; flame.resize(); flame.reveal(flame.focus, true); }],
  ];
  if (page.idle.length) {
    const title = "With the threads that have nothing to do and wait for work (w)";
    const change = (on) => { s.idle = on; listThreads(page); page.update(); };
    toggles.unshift(["idle", "Idle threads", title, s.idle, change]);
  }
  if (page.hasWaits()) {
    const title = "Stacks of waiting threads begin with what they wait for (g)";
    toggles.splice(toggles.length - 1, 0, ["waits", "By what is waited for", title, s.waits,
      (on) => { s.waits = on; page.update(); }]);
  }
  if (page.hasFolds()) {
    const title = "Each frame of the thread pool, awaits, ASP.NET Core and the like (p)";
    toggles.splice(2, 0, ["plumbing", "Show plumbing", title, s.plumbing, (on) => { s.plumbing = on; page.update(); }]);
  }
  if (page.hasLeaves()) {
    const title = `The last frame of a stack: ${mode.leaf}. Without it, the last frame is the function (e)`;
    toggles.unshift(["leaves", mode.leaves, title, s.leaves, (on) => { s.leaves = on; page.update(); }]);
  }
  if (page.base) {
    toggles.push(["base", "Show before", "Widths as in the base recording",
      page.showBase, (on) => { page.showBase = on; page.update(); }]);
  }
  byId("toggles").replaceChildren(...toggles.map(([id, text, title, checked, change]) => {
    const onchange = (e) => change(e.target.checked);
    const input = element("input", { type: "checkbox", id: `toggle-${id}`, checked, onchange });
    return element("label", { title }, input, text);
  }));
}

const LISTED_THREADS = 40;

// listThreads fills the list of threads, those with the most weight first. Those with hardly
// any weight, and those that have ended, share one entry.
function listThreads(page) {
  const { recording: r, selection: s } = page, weights = new Float64Array(page.threads.length);
  let all = 0;
  for (let i = 0; i < r.samples; i++) {
    if (r.mode[i] !== s.mode || !s.idle && r.idle[i]) continue;
    weights[r.group[r.thread[i]]] += r.weight[i];
    all += r.weight[i];
  }
  const order = [...weights.keys()].filter((t) => weights[t] > 0).sort((a, b) => weights[b] - weights[a]);
  const isListed = (t, k) => k < LISTED_THREADS && weights[t] >= all / 1000 && !page.threads[t].ended;
  const single = order.filter(isListed), rest = order.filter((t) => !single.includes(t));
  const option = (value, text) => element("option", { value }, text);
  page.threadChoices = { merged: "merged", each: "each" };
  const group = element("optgroup", { label: "One thread" });
  for (const t of single) {
    page.threadChoices[`t${t}`] = new Set([t]);
    group.append(option(`t${t}`, `${formatShare(weights[t], all)}  ${page.threads[t].label}`));
  }
  if (rest.length) {
    page.threadChoices.rest = new Set(rest);
    const share = rest.reduce((sum, t) => sum + weights[t], 0);
    const label = rest.length === 1 ? page.threads[rest[0]].label : `${rest.length} others, short or ended`;
    group.append(option("rest", `${formatShare(share, all)}  ${label}`));
  }
  const merged = option("merged", `All ${order.length} threads, merged`);
  byId("threads").replaceChildren(merged, option("each", `All ${order.length} threads, one by one`), group);
  byId("threadField").hidden = order.length < 2;
  const isSame = (a, b) => a === b || a instanceof Set && b instanceof Set && [...a].join() === [...b].join();
  const known = Object.keys(page.threadChoices).find((k) => isSame(page.threadChoices[k], s.threads));
  byId("threads").value = known || "merged";
  s.threads = page.threadChoices[byId("threads").value];
}

const KEYS = [
  ["/ or Ctrl-F", "search: text, or a /regular expression/; also finds modules and threads"],
  ["n  N", "next and previous match"],
  ["← → ↑ ↓", "move from frame to frame"],
  ["Enter", "zoom in on the frame"],
  ["Esc", "back: zoom, callers and callees, selection, search"],
  ["0", "reset the zoom"],
  ["+  −", "zoom in and out"],
  ["s", "callers and callees of the selected function"],
  ["i", "root at the top or at the bottom"],
  ["m", "managed frames only"],
  ["p", "show plumbing: the frames of thread pool, awaits and ASP.NET Core one by one"],
  ["1  2  3 …", "choose a mode, in the order of the buttons"],
  ["w", "with or without idle threads, which wait for work"],
  ["g", "group waiting time by what is waited for"],
  ["e", "in event modes: with or without the event as the last frame"],
  ["t", "show or hide the table"],
  ["?", "this help"],
  ["click", "zoom in; on a touch screen the first tap selects, the second zooms"],
  ["Ctrl-wheel, pinch", "zoom"],
  ["drag, Shift-wheel", "move"],
  ["time strip", "drag a range; click for all; its ends also move with the arrow keys"],
  ["table", "click: show all frames of a function; double click: callers and callees"],
];

const HELP = [
  "Each box is a function. Its width is the weight of the function and of what it calls. Its callers are above it " +
    "(or below, with the root at the bottom). From left to right the order is by weight, not by time.",
  "Self is the weight of the function itself. Total includes what it calls. In event modes a stack ends with a box " +
    "for the event, and self is the weight of that box.",
];

function buildHelp(page) {
  const help = byId("help"), list = element("dl");
  for (const [key, text] of KEYS) list.append(element("dt", {}, key), element("dd", {}, text));
  help.replaceChildren(element("h2", {}, "Keys and gestures"), list,
    ...HELP.map((text) => element("p", {}, text)),
    element("h2", {}, "Modes"),
    element("dl", {}, ...page.modes.flatMap((m) => {
      return [element("dt", {}, MODES[m].label), element("dd", {}, MODES[m].title)];
    })),
    button("Close", () => help.close(), { autofocus: true }));
  help.addEventListener("click", (e) => { if (e.target === help) help.close(); });
}

// hook returns window.clrsnap, which the tests of this page use. It is not an API.
function hook(page) {
  const frame = (i) => i < 0 ? null : {
    index: i, name: page.labelOf(page.tree, i), total: page.tree.total[i], self: page.tree.self[i],
    count: page.tree.count[i], events: page.tree.events[i],
    before: page.tree.baseTotal[i], depth: page.tree.depth[i], up: page.tree.up[i] === 1,
  };
  return {
    state: () => ({
      ready: page.ready, mode: page.mode.name,
      states: page.selection.states, from: page.selection.from, to: page.selection.to,
      weight: page.weight, baseWeight: page.baseWeight, frames: page.tree.size,
      selected: frame(page.flame.selected), focus: frame(page.flame.focus),
      view: [page.flame.v0, page.flame.v1], flip: page.flame.flip, around: page.around,
      found: page.found && {
        functions: page.found.functions.size, frames: page.found.frames, weight: page.found.weight,
      },
      layoutTime: page.layoutTime, drawTime: page.flame.drawTime, theme: page.theme,
    }),
    functions: () => page.rows.map((r) => {
      const f = page.functions[r.func];
      return { ...r, name: f.display, signature: f.signature, module: f.module };
    }),
    frames: () => Array.from({ length: page.tree.size }, (_, i) => frame(i)),
    place: (i) => {
      const f = page.flame, scale = f.width / (f.v1 - f.v0), box = f.canvas.getBoundingClientRect();
      return {
        x: box.left + (f.layout.x0[i] - f.v0) * scale, width: (f.layout.x1[i] - f.layout.x0[i]) * scale,
        y: box.top + f.rowTop(f.layout.row[i]) - f.scroll.scrollTop, height: f.rowHeight,
      };
    },
    select: (i) => page.select(i),
    zoom: (i) => page.flame.zoomTo(i),
    sandwich: (func) => page.openSandwich(func),
    choose: (selection) => { Object.assign(page.selection, selection); page.update(); },
    time: (from, to) => page.strip.choose(from, to),
    draw: () => { page.flame.paintNow(); return page.flame.drawTime; },
  };
}

async function main() {
  const fail = (text) => { byId("message").textContent = text; byId("message").hidden = false; };
  if (typeof DecompressionStream === "undefined") {
    fail("This browser cannot show the page: it has no DecompressionStream. " +
      "Use Chrome or Edge 80, Firefox 113, Safari 16.4, or a later version.");
    return;
  }
  try {
    const base = byId("base");
    const page = new Page(await readRecording(byId("recording")), base && await readRecording(base));
    window.clrsnap = hook(page);
    page.start();
  } catch (e) {
    fail(`The recording in this page cannot be shown: ${e.message}`);
    throw e;
  }
}

main();
