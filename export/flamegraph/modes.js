// The modes of a recording: what their samples measure, the words for them, and how their
// weights are written. docs/recording.md describes the modes.

// Units of weights. lasts: the weight is a time, which ends when the sample was taken.
const TIME = { format: formatTime, lasts: true };
const BYTES = { format: formatBytes, lasts: false };
const COUNT = { format: formatCount, lasts: false };

// MODES are indexed by the mode of a sample:
//
//   name      in the file
//   label     on the switch; title is its tooltip
//   total     text for a weight
//   rate      text for a weight per nanosecond
//   samples   the name of a sample, in the singular and the plural
//   none      why there are none
//   states    there is a choice between running and waiting threads
//
// and for event modes only:
//
//   events    the name of an event, in the singular and the plural
//   every     text for which events were kept, by stats.every
//   estimates an event that was kept stands for others
//   leaf      what the last frame of a stack is; leaves: its title, in the plural
const MODES = [
  {
    name: "cpu", label: "CPU", title: "CPU time", unit: TIME, samples: ["CPU sample", "CPU samples"],
    total: (w) => `${formatTime(w)} of CPU time`, rate: (r) => `${digits(r)} CPUs`,
    none: "The program used no CPU time while it was recorded.",
  },
  {
    name: "wall", label: "Wall", unit: TIME, samples: ["wall-clock sample", "wall-clock samples"],
    title: "Wall-clock time of all threads together, running and waiting, in thread-seconds",
    total: (w) => `${digits(w / 1e9)} thread-seconds`, rate: (r) => `${digits(r)} threads`, states: true,
    none: "No thread was sampled while the program was recorded.",
  },
  {
    name: "alloc", label: "Alloc", unit: BYTES, samples: ["allocation", "allocations"],
    title: "Bytes that were allocated on the managed heap",
    total: (w) => `${formatBytes(w)} allocated`, rate: (r) => `${formatBytes(1e9 * r)}/s`,
    none: "The program allocated nothing while it was recorded, or too little for a sample.",
    events: ["object", "objects"], every: (n) => `about one for each ${formatBytes(n)}`, estimates: true,
    leaf: "class that was allocated", leaves: "Classes",
  },
  {
    name: "exception", label: "Exceptions", unit: COUNT, samples: ["exception", "exceptions"],
    title: "Exceptions that were thrown, caught or not",
    total: (w) => plural(w, "exception", "exceptions"), rate: (r) => perSecond(r, "exceptions"),
    none: "No exception was thrown while the program was recorded.",
    events: ["exception", "exceptions"], every: (n) => `about one in ${formatCount(n)}`, estimates: true,
    leaf: "exception, and who caught it", leaves: "Types",
  },
  {
    name: "contention", label: "Locks", unit: TIME, samples: ["wait for a lock", "waits for locks"],
    title: "Time that threads waited for locks that others held",
    total: (w) => `${formatTime(w)} of waiting for locks`, rate: (r) => `${digits(r)} threads waiting`,
    none: "No thread waited for a lock while the program was recorded.",
    events: ["wait", "waits"], every: (n) => `only those of ${formatTime(n)} or longer`,
    leaf: "who held the lock", leaves: "Owners",
  },
  {
    name: "thread", label: "Threads", unit: COUNT, samples: ["thread start", "thread starts"],
    title: "Threads that were started, and by whom",
    total: (w) => `${plural(w, "thread", "threads")} started`, rate: (r) => perSecond(r, "threads"),
    none: "No thread was started while the program was recorded.",
    events: ["thread", "threads"],
    leaf: "thread that was started", leaves: "New threads",
  },
  {
    name: "gc", label: "GC", unit: TIME, samples: ["GC pause", "GC pauses"],
    title: "Time that the garbage collector stopped the program, and what triggered it",
    total: (w) => `${formatTime(w)} of GC pauses`, rate: (r) => `${formatShare(r, 1)} of the time`,
    none: "There was no garbage collection while the program was recorded.",
    events: ["collection", "collections"],
    leaf: "generation and reason", leaves: "Reasons",
  },
  {
    name: "wait", label: "Waits", unit: TIME, samples: ["wait", "waits"],
    title: "Time that threads waited for locks, events, tasks and threads",
    total: (w) => `${formatTime(w)} of waiting`, rate: (r) => `${digits(r)} threads waiting`,
    none: "No thread waited while the program was recorded, or all waits were too short.",
    events: ["wait", "waits"], every: (n) => `only those of ${formatTime(n)} or longer`,
    leaf: "what was waited for", leaves: "Primitives",
  },
  {
    name: "live", label: "Live", unit: BYTES, samples: ["live object", "live objects"],
    title: "Bytes that were allocated while the program was recorded, and were still alive at the end",
    total: (w) => `${formatBytes(w)} alive`, rate: (r) => `${formatBytes(1e9 * r)}/s`,
    none: "Nothing that was sampled was alive at the end, or too little for a sample.",
    events: ["object", "objects"], every: (n) => `about one for each ${formatBytes(n)}`, estimates: true,
    leaf: "class of the live objects", leaves: "Classes",
  },
];

// eventsText returns how many events a weight is the sum of: "~3 400 objects". It is empty if
// that is not known, or if the weight is that number.
function eventsText({ mode, stats }, events, samples) {
  if (!mode.events || mode.unit === COUNT || events <= 0) return "";
  const [one, many] = mode.events;
  const count = isSampled(mode, stats) ? estimatedCount(events, samples) : formatCount(events);
  return `${count} ${events === 1 ? one : many}`;
}

// estimatedCount returns a number of events that was estimated from samples, rounded to the digits that are
// known: up to the first one of its standard error, which takes the samples to be equal.
function estimatedCount(n, samples) {
  const error = samples > 0 && n > samples ? n * Math.sqrt((1 - samples / n) / samples) : 0;
  if (error < 0.5) return formatCount(n);
  const unit = 10 ** Math.max(0, Math.floor(Math.log10(error)));
  return `~${formatCount(Math.round(n / unit) * unit)}`;
}

// isSampled tells whether a sample of a mode can stand for more than one event, or for time.
function isSampled(mode, stats) { return !mode.events || Boolean(mode.estimates && stats && stats.every > 1); }

// everyText returns which events were recorded. It is empty if all were.
function everyText(mode, every) { return mode.every && every > 1 ? mode.every(every) : ""; }

// whyNone returns why a recording has no samples of a mode.
function whyNone(mode, stats) {
  if (!mode.events || !stats || !(stats.lost || stats.seen)) return mode.none;
  const which = everyText(mode, stats.every);
  const happened = `${plural(Math.max(stats.seen, stats.lost), ...mode.samples)} happened, but none was recorded`;
  return `${happened}${which && ` (${which})`}${stats.lost ? ": there was no room" : ""}.`;
}
