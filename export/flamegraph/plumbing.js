// Plumbing: the frames of .NET that only lead from a thread to the program's code. Runs of them
// become one frame, as in snapshot/frameworkframes.go, unless the selection asks for plumbing.

// readPlumbing gives each recording the part of .NET that its functions are plumbing of: plumbing[f]
// is the index of the part, or -1. It returns all parts.
function readPlumbing(element, recording, base) {
  const { parts, minFold, ...pairs } = JSON.parse(element.textContent);
  for (const [r, list] of [[recording, pairs.recording], [base, pairs.base]]) {
    if (!r) continue;
    r.plumbing = new Int8Array(r.functions.length).fill(-1);
    for (let i = 0; i < list.length; i += 2) {
      r.plumbing[list[i]] = list[i + 1];
      r.functions[list[i]].plumbing = true;
    }
    r.folds = new Folds(r, parts, minFold);
  }
}

// Folds has the runs of plumbing of a recording. A run ends at each of its nodes: length is its frames
// up to there, before the node that called it, and parts what it leads through, as an index into labels.
class Folds {
  constructor(recording, parts, minFold) {
    const n = recording.nodeParent.length;
    this.minFold = minFold;
    this.length = new Int32Array(n);
    this.before = new Int32Array(n);
    this.parts = new Int32Array(n);
    this.labels = [""];
    this.any = false;
    const lists = [[]], known = new Map();
    const extend = (list, part) => {
      if (lists[list].includes(part)) return list;
      const key = list * parts.length + part;
      if (!known.has(key)) {
        known.set(key, lists.length);
        lists.push([...lists[list], part]);
        this.labels.push(partsText(lists[lists.length - 1].map((p) => parts[p])));
      }
      return known.get(key);
    };
    for (let i = 1; i < n; i++) {
      const part = recording.plumbing[recording.nodeFunction(i)], p = recording.nodeParent[i];
      if (part < 0) continue;
      const first = this.length[p] === 0;
      this.length[i] = this.length[p] + 1;
      this.before[i] = first ? p : this.before[p];
      this.parts[i] = extend(first ? 0 : this.parts[p], part);
      if (this.length[i] >= minFold) this.any = true;
    }
  }

  // isFold tells whether the run that ends at a node is one frame.
  isFold(node) { return this.length[node] >= this.minFold; }

  // caller returns the node that called a node, or the run that ends there.
  caller(recording, node) { return this.isFold(node) ? this.before[node] : recording.nodeParent[node]; }
}

function partsText(parts) {
  const has = new Set(parts.map((p) => p.name));
  return parts.filter((p) => !p.implied.some((by) => has.has(by))).map((p) => p.name).join(" → ");
}

// foldFunction is what stands for a run among the functions of the page.
function foldFunction(label) {
  const text = `[${label}]`;
  return {
    kind: MANAGED, module: "", display: text, short: text, signature: "", nameless: false,
    origin: ORIGINS.indexOf("framework"), key: `fold\0${label}`, fold: label,
  };
}

// foldLabel returns the name of a run with the number of its frames.
function foldLabel(label, [least, most]) {
  return `[${label}: ${least === most ? least : `${least}–${most}`} frames]`;
}
