// Reading the recording inside the page. docs/recording.md describes the document. Here it
// becomes typed arrays, which everything else works on.

const RUNNING = 0, WAITING = 1;
const MANAGED = 0, NATIVE = 1, KERNEL = 2, EVENT = 3, ASYNC = 4;
const ORIGINS = ["user", "package", "framework", "native", "kernel", "event"];

// The values of the column "owner" of functions, as indices into ORIGINS; 0: the name says it.
const OWNERS = [undefined, 0, 1, 2];

// readRecording decodes base64 → gzip → JSON of one script element.
async function readRecording(element) {
  const text = atob(element.textContent.trim());
  element.textContent = ""; // it can be large
  const bytes = new Uint8Array(text.length);
  for (let i = 0; i < bytes.length; i++) bytes[i] = text.charCodeAt(i);
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"));
  return new Recording(JSON.parse(await new Response(stream).text()));
}

class Recording {
  constructor(doc) {
    this.creator = doc.creator;
    this.start = new Date(doc.start);
    this.duration = doc.duration;
    this.processes = doc.processes;
    this.threads = doc.threads;
    this.cost = doc.cost;
    this.notes = doc.notes;
    this.modes = doc.modes;
    this.functions = functionsOf(doc);
    this.locationFunction = Int32Array.from(doc.locations.function);
    this.locationTier = Int32Array.from(doc.locations.tier);
    this.tiers = doc.strings; // indexed by locationTier
    this.sources = new Sources(doc);
    this.nodeParent = Int32Array.from(doc.nodes.parent);
    this.nodeLocation = Int32Array.from(doc.nodes.location);
    this.readSamples(doc.samples);
    this.idle = new Uint8Array(this.samples);
    this.idleKinds = doc.idle ?? {};
    for (const samples of Object.values(this.idleKinds)) for (const i of samples) this.idle[i] = 1;
    this.readWaits(doc.waits ?? {});
  }

  // readWaits gives each sample of a waiting thread what it waits for: waits[i] is an index into waitNames, or -1.
  readWaits(table) {
    this.waits = new Int32Array(this.samples).fill(-1);
    this.waitNames = [...Object.keys(table), "idle"];
    Object.values(table).forEach((list, k) => { for (const i of list) this.waits[i] = k; });
    const idle = this.waitNames.length - 1;
    for (let i = 0; i < this.samples; i++) {
      if (this.idle[i] && this.state[i] === WAITING) this.waits[i] = idle;
    }
  }

  readSamples(s) {
    this.samples = s.node.length;
    this.at = new Float64Array(this.samples);
    for (let i = 0, at = 0; i < this.samples; i++) this.at[i] = at += s.at[i];
    this.weight = Float64Array.from(s.weight);
    this.count = Int32Array.from(s.count);
    this.events = Float64Array.from(s.events);
    this.thread = Int32Array.from(s.thread);
    this.node = Int32Array.from(s.node);
    this.mode = Uint8Array.from(s.mode);
    this.state = Uint8Array.from(s.state);
    this.incomplete = new Uint8Array(this.samples);
    for (const i of s.incomplete) this.incomplete[i] = 1;
  }

  // hasMode tells whether a mode was recorded, even if it has no samples.
  hasMode(mode) { return this.stats(mode) !== undefined || this.mode.includes(mode); }

  stats(mode) { return this.modes.find((m) => m.mode === MODES[mode].name); }

  // hasLeaves tells whether stacks of a mode end with a frame for the event.
  hasLeaves(mode) {
    const endsWithEvent = (node) => node > 0 && this.functions[this.nodeFunction(node)].kind === EVENT;
    return this.mode.some((m, i) => m === mode && endsWithEvent(this.node[i]));
  }

  // hasWaits tells whether samples of a mode say what they wait for.
  hasWaits(mode) { return this.waits.some((w, i) => w >= 0 && this.mode[i] === mode); }

  // idleShares returns the kinds of idle thread that have samples of a mode, the largest first, each
  // with its share of all.
  idleShares(mode) {
    const sum = (list) => list.reduce((n, i) => n + (this.mode[i] === mode ? this.weight[i] : 0), 0);
    let all = 0;
    for (let i = 0; i < this.samples; i++) if (this.mode[i] === mode) all += this.weight[i];
    return Object.entries(this.idleKinds).map(([kind, list]) => ({ kind, share: all > 0 ? sum(list) / all : 0 }))
      .filter((k) => k.share > 0).sort((a, b) => b.share - a.share);
  }

  nodeFunction(node) { return this.locationFunction[this.nodeLocation[node]]; }
}

// functionsOf returns one object for each function. The names that are shown have passed clean.
function functionsOf(doc) {
  const f = doc.functions, strings = doc.strings;
  return f.kind.map((kind, i) => {
    const module = strings[f.module[i]];
    // Formats of other tools may have no display names.
    const name = clean(strings[f.display[i]] || strings[f.method[i]] || `[${module || "unknown"}]`);
    const fate = f.fate ? clean(strings[f.fate[i]]) : ""; // recordings of earlier versions have it in the name
    const withFate = (name, fate) => fate ? `${name}, ${fate}` : name;
    return {
      kind, module: clean(module), display: withFate(name, fate),
      short: withFate(clean(strings[f.short[i]]) || name, shortFate(fate)),
      signature: clean(strings[f.signature[i]]),
      nameless: strings[f.method[i]] === "",
      origin: originOf(kind, module, OWNERS[f.owner[i]]),
      // what identifies a function in two recordings
      key: [kind, strings[f.method[i]], strings[f.display[i]], strings[f.signature[i]], module, fate].join("\0"),
    };
  });
}

// shortFate leaves out the namespace of the method that caught an exception: all but the last two names.
function shortFate(fate) {
  const mark = "caught by ", at = fate.indexOf(mark);
  if (at < 0) return fate;
  const by = fate.slice(at + mark.length), dots = [];
  for (let i = 0, depth = 0; i < by.length; i++) {
    if ("<([{".includes(by[i])) depth++;
    else if (">)]}".includes(by[i])) depth--;
    else if (by[i] === "." && depth <= 0) dots.push(i);
  }
  return fate.slice(0, at + mark.length) + (dots.length > 1 ? by.slice(dots[dots.length - 2] + 1) : by);
}

// originOf is profile.Function.Origin, as an index into ORIGINS: whose code a function is, or
// that it is an event.
function originOf(kind, module, owner) {
  if (kind === EVENT) return 5;
  if (kind === KERNEL) return 4;
  if (kind === NATIVE) return 3;
  if (owner !== undefined) return owner;
  const framework = module === "" || module === "mscorlib" || module === "netstandard" || module === "System" ||
    module.startsWith("System.") || module.startsWith("Microsoft.");
  return framework ? 2 : 0;
}

// clean writes control characters, invisible ones and those that change the direction of
// writing as escapes. Names come from the recorded program, and could look like others.
function clean(name) {
  return name.replace(/[\p{Cc}\p{Cf}\p{Zl}\p{Zp}\p{Co}\p{Cn}\p{Cs}]/gu, (c) => {
    const hex = c.codePointAt(0).toString(16);
    return c.codePointAt(0) < 0x80 ? "\\x" + hex.padStart(2, "0") : "\\u" + hex.padStart(4, "0");
  });
}

// threadLabel returns the name of a thread for people.
function threadLabel(recording, t) {
  const name = clean(t.name) || clean(t.role);
  const ids = t.osThreadId ? ` (${t.osThreadId})` : "";
  const process = recording.processes.length > 1 ? `${recording.processes[t.process].pid}: ` : "";
  if (!t.osThreadId) return process + (name || "threads that have ended");
  return process + (name ? name + ids : `thread ${t.osThreadId}`);
}
