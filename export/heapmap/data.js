// What the page shows: the types of a heap, and one or two trees of areas. The lists of the types and of the nodes of a
// tree are parallel.

const ORIGINS = ["user", "package", "framework"], EVENT = -1, INCOMPLETE = -1e9; // as Colors knows them
const GENERATIONS = ["gen0", "gen1", "gen2", "large", "pinned", "frozen"];

class Heap {
  constructor(data) {
    Object.assign(this, data);
    const t = this.types;
    this.functions = t.name.map((display, k) => ({ display, origin: t.origin[k], module: t.assembly[k], kind: 0 }));
    this.trees = data.trees.map((tree) => new Tree(this, tree));
    this.greatest = 1;
    if (this.base) for (const d of t.bytesChange) this.greatest = Math.max(this.greatest, Math.abs(d));
  }

  // old is the share of a type's bytes that are neither in gen0 nor in gen1.
  old(type) {
    const t = this.types;
    return t.bytes[type] ? 1 - (t.generations[type][0] + t.generations[type][1]) / t.bytes[type] : 0;
  }
}

// Tree has nodes, each of which comes before those below it.
class Tree {
  constructor(heap, { id, parent, type, label, count, bytes, own }) {
    Object.assign(this, { heap, id, parent, type, label, count, bytes, own });
    this.size = parent.length;
    this.below = Array.from({ length: this.size }, () => []);
    for (let i = 1; i < this.size; i++) this.below[parent[i]].push(i);
    this.change = new Float64Array(this.size); // of bytes
    this.growth = new Float64Array(this.size); // the parts of it that have grown
    const t = heap.types;
    for (let i = this.size - 1; i >= 0 && heap.base && id === "namespaces"; i--) {
      if (type[i] >= 0) {
        this.change[i] += t.bytesChange[type[i]];
        this.growth[i] += Math.max(0, t.bytesChange[type[i]]);
      }
      if (i > 0) { this.change[parent[i]] += this.change[i]; this.growth[parent[i]] += this.growth[i]; }
    }
  }

  // weights returns the sizes of the areas, by node.
  weights(size) { return size === "objects" ? this.count : size === "growth" ? this.growth : this.bytes; }

  name(i) { return this.type[i] >= 0 ? this.heap.types.short[this.type[i]] : this.label[i]; }

  fullName(i) { return this.type[i] >= 0 ? this.heap.types.name[this.type[i]] : this.path(i).join("."); }

  // path is a group's name from the outermost one on.
  path(i) {
    const path = [];
    for (let at = i; at > 0; at = this.parent[at]) path.unshift(this.name(at));
    return path.length && this.id === "namespaces" ? path : [this.name(i)];
  }

  isBelow(i, of) {
    for (; i > of; i = this.parent[i]);
    return i === of;
  }
}
