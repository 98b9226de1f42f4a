// Trees of frames: how they are made from samples, and what is computed from them.

// Frames that are not functions. A frame's func is the index of a function, or one of these.
// Threads are numbered downwards from FIRST_THREAD.
const ROOT = -1, INCOMPLETE = -2, FIRST_THREAD = -3;

// A Tree has its frames in preorder: the subtree of frame i is i … end[i]-1.
// Weights are in the unit of the mode. In a comparison, base* are the weights of the base.
class Tree {
  constructor(n) {
    this.size = n;
    this.parent = new Int32Array(n);
    this.func = new Int32Array(n);
    this.depth = new Int32Array(n);
    this.end = new Int32Array(n);
    this.self = new Float64Array(n);
    this.total = new Float64Array(n);
    this.count = new Int32Array(n); // samples of the subtree
    this.events = new Float64Array(n); // events of the subtree
    this.baseSelf = new Float64Array(n);
    this.baseTotal = new Float64Array(n);
    this.up = new Uint8Array(n); // the frame is a caller of the root: sandwiches only
    this.runs = new Map(); // of frames that stand for plumbing: how many frames, least and most
  }

  // outermost calls visit for every frame that matches and has no caller that does.
  outermost(matches, visit) {
    for (let i = 0; i < this.size;) {
      if (matches(i)) { visit(i); i = this.end[i]; } else i++;
    }
  }
}

// Growing is a tree under construction: children are found by function.
class Growing {
  constructor() {
    this.parent = [-1]; this.func = [ROOT]; this.up = [0];
    this.self = [0]; this.count = [0]; this.events = [0]; this.base = [0];
    this.children = new Map();
    this.runs = new Map(); // of frames that stand for plumbing: how many frames, least and most
  }

  child(parent, func, up = 0) {
    // Less than 2^53, because there are fewer than 2^22 functions and threads.
    const key = (parent * 2 + up) * 0x800000 + func + 0x400000;
    let at = this.children.get(key);
    if (at === undefined) {
      at = this.parent.length;
      this.children.set(key, at);
      this.parent.push(parent); this.func.push(func); this.up.push(up);
      this.self.push(0); this.count.push(0); this.events.push(0); this.base.push(0);
    }
    return at;
  }

  add(at, weight, count, events, base) {
    this.self[at] += weight; this.count[at] += count; this.events[at] += events; this.base[at] += base;
  }

  // finish sums up and puts the frames into preorder, siblings by weight. place has the new
  // index of each frame.
  finish() {
    const n = this.parent.length, total = Float64Array.from(this.self), base = Float64Array.from(this.base);
    const count = Int32Array.from(this.count), events = Float64Array.from(this.events);
    const size = new Int32Array(n).fill(1);
    for (let i = n - 1; i > 0; i--) {
      const p = this.parent[i];
      total[p] += total[i]; base[p] += base[i]; count[p] += count[i]; events[p] += events[i]; size[p] += size[i];
    }
    const order = Array.from({ length: n - 1 }, (_, i) => i + 1);
    order.sort((a, b) => total[b] - total[a] || base[b] - base[a] || a - b);
    // The children of each frame become a linked list, the heaviest first. Then indices are
    // assigned, to parents before children.
    const tree = new Tree(n), place = new Int32Array(n);
    const first = new Int32Array(n).fill(-1), following = new Int32Array(n).fill(-1);
    for (let k = order.length - 1; k >= 0; k--) {
      const i = order[k], p = this.parent[i];
      following[i] = first[p]; first[p] = i;
    }
    for (let i = 0; i < n; i++) { // a parent comes before its children
      let at = place[i] + 1;
      for (let c = first[i]; c >= 0; c = following[c]) { place[c] = at; at += size[c]; }
    }
    for (let i = 0; i < n; i++) {
      const at = place[i], p = this.parent[i];
      tree.parent[at] = p < 0 ? -1 : place[p];
      tree.func[at] = this.func[i];
      tree.end[at] = at + size[i];
      tree.self[at] = this.self[i]; tree.total[at] = total[i]; tree.count[at] = count[i]; tree.events[at] = events[i];
      tree.baseSelf[at] = this.base[i]; tree.baseTotal[at] = base[i]; tree.up[at] = this.up[i];
    }
    for (let at = 1; at < n; at++) tree.depth[at] = tree.depth[tree.parent[at]] + 1;
    tree.place = place;
    tree.runs = new Map([...this.runs].map(([i, run]) => [place[i], run]));
    return tree;
  }

  // run notes how many frames a frame stands for.
  run(at, frames) {
    const [least, most] = this.runs.get(at) || [frames, frames];
    this.runs.set(at, [Math.min(least, frames), Math.max(most, frames)]);
  }
}

// A selection is {mode, states, threads, managed, native, leaves, plumbing, idle, waits, from, to}. It is like
// profile.Selection. leaves: stacks end with a frame for the event. plumbing: each frame of it is
// there; else runs are one frame. idle: idle threads, too. states is a set of bits
// (1: running, 2: waiting). waits: stacks of waiting threads begin with what they wait for. threads is "merged", "each", or a Set of thread groups. to is
// exclusive.

// buildTree makes the tree of the selected samples. base is the recording to compare with, or
// null.
function buildTree(recording, selection, base) {
  const grow = new Growing();
  const memos = [place(recording, selection, grow, recording.samples, 0)];
  if (base) memos.push(place(base, { ...selection, from: 0, to: Infinity }, grow, base.samples, 1));
  const tree = grow.finish();
  tree.memos = memos;
  return tree;
}

// place adds the samples of one recording to a tree. A node of the recording can be below
// several frames (of threads, and of incomplete stacks). A group is such a frame, with the
// frames of the nodes below it.
function place(recording, selection, grow, samples, column) {
  const groups = new Map(), { mode, states, from, to } = selection;
  const each = selection.threads === "each", some = selection.threads instanceof Set ? selection.threads : null;
  for (let i = 0; i < samples; i++) {
    const thread = recording.thread[i];
    if (recording.mode[i] !== mode || !(states & 1 << recording.state[i])) continue;
    if (recording.at[i] < from || recording.at[i] >= to) continue;
    if (some && !some.has(recording.group[thread]) || !selection.idle && recording.idle[i]) continue;
    const wait = selection.waits ? recording.waits[i] : -1;
    const key = ((each ? recording.group[thread] + 1 : 0) * 2 + recording.incomplete[i]) *
      (recording.waitNames.length + 1) + wait + 1;
    let g = groups.get(key);
    if (!g) {
      g = newGroup(recording, grow, each ? recording.group[thread] : -1, recording.incomplete[i], wait);
      groups.set(key, g);
    }
    const at = frameOf(recording, selection, grow, g, recording.node[i]), w = recording.weight[i];
    g.weight.set(recording.node[i], (g.weight.get(recording.node[i]) || 0) + w);
    if (column) grow.add(at, 0, 0, 0, w); else grow.add(at, w, recording.count[i], recording.events[i], 0);
  }
  return [...groups.values()];
}

function newGroup(recording, grow, thread, incomplete, wait) {
  let root = 0;
  if (thread >= 0) root = grow.child(root, FIRST_THREAD - thread);
  if (incomplete) root = grow.child(root, INCOMPLETE);
  if (wait >= 0) root = grow.child(root, recording.waitFunctions[wait]);
  // frames has the frame of each node; with folds, of each node that is not the leaf or near it. shown
  // has the frames near the leaf, by leaf, as pairs of a node and its frame, the leaf first.
  return { frames: new Map([[0, root]]), weight: new Map(), shown: new Map() };
}

// frameOf returns the frame of a node of the recording. It leaves out and joins frames as
// profile/select.go does.
function frameOf(recording, selection, grow, g, node) {
  const missing = [];
  let at;
  if (!selection.plumbing) return foldedFrameOf(recording, selection, grow, g, node);
  for (let n = node; (at = g.frames.get(n)) === undefined; n = recording.nodeParent[n]) missing.push(n);
  for (let k = missing.length - 1; k >= 0; k--) {
    at = frameBelow(recording, selection, grow, at, missing[k]);
    g.frames.set(missing[k], at);
  }
  return at;
}

// frameBelow returns the frame of a node, below the frame of its caller.
function frameBelow(recording, selection, grow, at, node) {
  const func = recording.nodeFunction(node), f = recording.functions[func];
  const nameless = !selection.native && f.kind === NATIVE && f.nameless;
  const joined = nameless && grow.func[at] === recording.common[func];
  return isLeftOut(f.kind, selection) || joined ? at : grow.child(at, recording.common[func]);
}

// foldedFrameOf returns the frame of a leaf where runs of plumbing are one frame. The leaf is in none
// of them, nor is the managed frame that is nearest to it: see snapshot.Folds.
function foldedFrameOf(recording, selection, grow, g, leaf) {
  const known = g.shown.get(leaf);
  if (known) return known[0][1];
  const { folds } = recording, shown = [], missing = [];
  let n = leaf, at;
  for (let kind = NATIVE; n > 0 && kind !== MANAGED; n = recording.nodeParent[n]) {
    kind = recording.functions[recording.nodeFunction(n)].kind;
    shown.push([n, 0]);
  }
  for (; (at = g.frames.get(n)) === undefined; n = folds.caller(recording, n)) missing.push(n);
  for (let k = missing.length - 1; k >= 0; k--) {
    const m = missing[k];
    if (folds.isFold(m)) {
      at = grow.child(at, recording.foldFunctions[folds.parts[m]]);
      grow.run(at, folds.length[m]);
    } else {
      at = frameBelow(recording, selection, grow, at, m);
    }
    g.frames.set(m, at);
  }
  for (let k = shown.length - 1; k >= 0; k--) {
    at = frameBelow(recording, selection, grow, at, shown[k][0]);
    shown[k][1] = at;
  }
  if (!shown.length) shown.push([0, at]);
  g.shown.set(leaf, shown);
  return at;
}

function isLeftOut(kind, selection) {
  return kind === EVENT ? !selection.leaves : selection.managed && kind !== MANAGED && kind !== ASYNC;
}

// unify gives the functions and thread groups of one or two recordings common indices, and
// returns the lists of both.
function unify(recording, base) {
  const functions = [], known = new Map(), threads = [], groups = new Map();
  for (const r of base ? [recording, base] : [recording]) {
    r.common = Int32Array.from(r.functions, (f) => {
      if (!known.has(f.key)) { known.set(f.key, functions.length); functions.push(f); }
      return known.get(f.key);
    });
    r.group = Int32Array.from(r.threads, (t, i) => {
      // Threads are compared by name, because their ids differ from run to run.
      const label = base ? clean(t.name) || clean(t.role) || "threads without a name" : threadLabel(r, t);
      const key = base ? label : i;
      if (!groups.has(key)) { groups.set(key, threads.length); threads.push({ label, ended: !t.osThreadId }); }
      return groups.get(key);
    });
    r.waitFunctions = Int32Array.from(r.waitNames, (name) => {
      const f = waitFunction(name);
      if (!known.has(f.key)) { known.set(f.key, functions.length); functions.push(f); }
      return known.get(f.key);
    });
    r.foldFunctions = Int32Array.from(r.folds.labels, (label) => {
      const f = foldFunction(label);
      if (!known.has(f.key)) { known.set(f.key, functions.length); functions.push(f); }
      return known.get(f.key);
    });
  }
  return { functions, threads };
}

// waitFunction is what stands for what is waited for among the functions of the page.
function waitFunction(name) {
  const text = `[${clean(name)}]`;
  return {
    kind: MANAGED, module: "", display: text, short: text, signature: "", nameless: false,
    origin: ORIGINS.indexOf("framework"), key: `wait\0${name}`,
  };
}

// tiersOf sums up the weight of some frames by compilation tier.
function tiersOf(tree, recording, wanted) {
  const sums = new Map();
  const add = (node, w) => {
    const tier = recording.tiers[recording.locationTier[recording.nodeLocation[node]]];
    if (tier) sums.set(tier, (sums.get(tier) || 0) + w);
  };
  for (const g of tree.memos[0]) {
    const folded = g.shown.size > 0, total = new Map(folded ? [] : g.weight);
    for (const [leaf, shown] of g.shown) {
      const w = g.weight.get(leaf), base = recording.nodeParent[shown[shown.length - 1][0]];
      if (leaf === 0) continue;
      total.set(base, (total.get(base) || 0) + w);
      shown.forEach(([n, frame], k) => {
        const caller = k + 1 < shown.length ? shown[k + 1][1] : g.frames.get(base);
        if (frame !== caller && wanted.has(tree.place[frame])) add(n, w);
      });
    }
    const nodes = [...g.frames.keys()].sort((a, b) => b - a); // children first
    for (const n of nodes) {
      if (n === 0) continue;
      const fold = folded && recording.folds.isFold(n), frame = g.frames.get(n);
      const w = total.get(n) || 0, p = fold ? recording.folds.before[n] : recording.nodeParent[n];
      total.set(p, (total.get(p) || 0) + w);
      if (!fold && frame !== g.frames.get(p) && wanted.has(tree.place[frame])) add(n, w);
    }
  }
  return [...sums].sort((a, b) => b[1] - a[1]);
}

// functionTable sums up by function. Recursion counts once in a total.
function functionTable(tree, functionCount) {
  const rows = new Map(), open = new Map(), stack = [];
  for (let i = 0; i < tree.size; i++) {
    while (stack.length && tree.end[stack[stack.length - 1]] <= i) {
      const f = tree.func[stack.pop()];
      open.set(f, open.get(f) - 1);
    }
    const f = tree.func[i];
    stack.push(i);
    const depth = open.get(f) || 0;
    open.set(f, depth + 1);
    if (f < 0 || f >= functionCount) continue;
    let row = rows.get(f);
    if (!row) rows.set(f, row = { func: f, self: 0, total: 0, count: 0, events: 0, baseSelf: 0, baseTotal: 0 });
    row.self += tree.self[i]; row.baseSelf += tree.baseSelf[i];
    if (depth > 0) continue;
    row.total += tree.total[i]; row.baseTotal += tree.baseTotal[i];
    row.count += tree.count[i]; row.events += tree.events[i];
  }
  return [...rows.values()];
}

// sandwich makes a tree whose root is a function, with its callees below and its
// callers above. Of recursive calls the outermost counts.
function sandwich(tree, func) {
  const grow = new Growing();
  grow.func[0] = func;
  tree.outermost((i) => tree.func[i] === func, (at) => {
    const to = new Int32Array(tree.end[at] - at);
    for (let i = at; i < tree.end[at]; i++) {
      if (i > at) to[i - at] = grow.child(to[tree.parent[i] - at], tree.func[i]);
      grow.add(to[i - at], tree.self[i], withoutCallees(tree, tree.count, i),
        withoutCallees(tree, tree.events, i), tree.baseSelf[i]);
    }
  });
  const down = grow.finish();
  const callers = new Growing();
  callers.func[0] = func;
  tree.outermost((i) => tree.func[i] === func, (at) => {
    let to = 0;
    for (let i = tree.parent[at]; i > 0; i = tree.parent[i]) to = callers.child(to, tree.func[i], 1);
    callers.add(to, tree.total[at], tree.count[at], tree.events[at], tree.baseTotal[at]);
  });
  return joinWings(down, callers.finish());
}

// withoutCallees returns the part of a sum over subtrees that is of a frame itself.
function withoutCallees(tree, sums, i) {
  let n = sums[i];
  for (let c = i + 1; c < tree.end[i]; c = tree.end[c]) n -= sums[c];
  return n;
}

// joinWings puts the callers after the callees. Both have the same root.
function joinWings(down, up) {
  const tree = new Tree(down.size + up.size - 1), shift = down.size - 1;
  for (const name of ["func", "depth", "self", "total", "count", "events", "baseSelf", "baseTotal", "up"]) {
    tree[name].set(down[name]);
    tree[name].set(up[name].subarray(1), down.size);
  }
  for (let i = 0; i < down.size; i++) { tree.parent[i] = down.parent[i]; tree.end[i] = down.end[i]; }
  for (let i = 1; i < up.size; i++) {
    tree.parent[i + shift] = up.parent[i] === 0 ? 0 : up.parent[i] + shift;
    tree.end[i + shift] = up.end[i] + shift;
  }
  tree.end[0] = tree.size;
  tree.wings = true;
  return tree;
}
