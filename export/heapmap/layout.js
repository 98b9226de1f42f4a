// The areas. A group's area is divided among what is in it, so that areas are as square as they can be: the squarified
// treemaps of Bruls, Huizing and van Wijk (2000).

const HEAD = 18, GAP = 2, DEEPEST = 7;
const OWN = 1, REST = 2; // parts of a group that are no node: its own objects, and what is too little to be a node

// divide calls place with the areas of weights, which are sorted, the largest first.
function divide(weights, { x, y, w, h }, place) {
  let left = weights.reduce((a, b) => a + b, 0);
  for (let from = 0; from < weights.length && left > 0 && w > 0 && h > 0;) {
    const side = Math.min(w, h), scale = w * h / left;
    let sum = 0, to = from, worst = Infinity;
    for (; to < weights.length; to++) {
      const next = sum + weights[to], thick = next * scale / side;
      const most = weights[from] * scale / thick, least = weights[to] * scale / thick;
      const ratio = Math.max(most / thick, thick / least);
      if (ratio > worst) break;
      worst = ratio; sum = next;
    }
    const thick = sum * scale / side;
    let at = 0;
    for (let k = from; k < to; k++) {
      const length = weights[k] / sum * side;
      place(k, w < h ? { x: x + at, y, w: length, h: thick } : { x, y: y + at, w: thick, h: length });
      at += length;
    }
    if (w < h) { y += thick; h -= thick; } else { x += thick; w -= thick; }
    left -= sum; from = to;
  }
}

// chainOf returns a keeper, and those in it that are as large, nearly.
function chainOf(tree, weights, node) {
  const chain = [node];
  for (; tree.id === "keepers"; chain.push(node)) {
    const next = tree.below[node].find((i) => weights[i] >= 0.99 * weights[node]);
    if (next === undefined) break;
    node = next;
  }
  return chain;
}

// layout returns the areas of what is below a node, each before those in it: {node, chain, part, x, y, w, h, head,
// open}. open: areas are in it; head: the height of its title. A keeper that keeps nearly nothing but one other is one
// area with it, and so on: these are its chain, from outside.
function layout(tree, weights, focus, width, height) {
  const cells = [];
  const inside = (node, box, depth) => {
    const all = [];
    let sum = 0;
    for (const i of tree.below[node]) {
      if (weights[i] <= 0) continue;
      all.push({ node: i, part: 0, weight: weights[i] });
      sum += weights[i];
    }
    if (tree.id === "keepers") {
      const own = tree.own[node], rest = weights[node] - own - sum;
      if (own > 0 && tree.type[node] >= 0) all.push({ node, part: OWN, weight: own });
      if (rest > 0) all.push({ node, part: REST, weight: rest });
    }
    all.sort((a, b) => b.weight - a.weight || a.node - b.node);
    divide(all.map((a) => a.weight), box, (k, cell) => {
      if (cell.w >= 0.7 && cell.h >= 0.7) put(all[k], cell, depth);
    });
  };
  const put = ({ node, part }, box, depth) => {
    const chain = part ? [node] : chainOf(tree, weights, node);
    const cell = { node, chain, part, ...box, depth, head: 0, open: false };
    cells.push(cell);
    node = chain[chain.length - 1];
    if (part || !tree.below[node].length || depth >= DEEPEST) return;
    const gap = box.w > 24 && box.h > 24 ? GAP : 1;
    if (box.w >= 46 && box.h >= 40) cell.head = HEAD;
    const w = box.w - 2 * gap, h = box.h - gap - Math.max(cell.head, gap);
    if (w < 6 || h < 6) return;
    cell.open = true;
    inside(node, { x: box.x + gap, y: box.y + Math.max(cell.head, gap), w, h }, depth + 1);
  };
  if (tree.below[focus].length) inside(focus, { x: 0, y: 0, w: width, h: height }, 0);
  else put({ node: focus, part: 0 }, { x: 0, y: 0, w: width, h: height }, 0);
  return cells;
}
