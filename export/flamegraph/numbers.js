// Numbers as text.

function formatTime(ns) {
  const abs = Math.abs(ns);
  if (abs === 0) return withUnit("0", "s");
  if (abs < 1e3) return withUnit(formatCount(Math.round(ns)), "ns");
  if (abs < 1e6) return withUnit(digits(ns / 1e3), "µs");
  if (abs < 1e9) return withUnit(digits(ns / 1e6), "ms");
  return withUnit(digits(ns / 1e9), "s");
}

function formatBytes(n) {
  const units = ["B", "KiB", "MiB", "GiB", "TiB"];
  let unit = 0;
  for (; Math.abs(n) >= 1023.5 && unit < units.length - 1; unit++) n /= 1024;
  return withUnit(unit ? digits(n) : formatCount(Math.round(n)), units[unit]);
}

// withUnit keeps a number and its unit on one line.
function withUnit(number, unit) { return `${number}\u00a0${unit}`; }

// perSecond returns text for how often something happens, given how often in a nanosecond.
function perSecond(rate, what) {
  const second = 1e9 * rate;
  return second >= 0.1 || second === 0 ? `${digits(second)} ${what}/s` : `${digits(60 * second)} ${what}/min`;
}

// digits returns a number with three significant digits, or rounded to an integer if that has
// more.
function digits(v) {
  const abs = Math.abs(v);
  return group(v.toFixed(abs < 9.995 ? 2 : abs < 99.95 ? 1 : 0));
}

function group(text) { return text.replace(/\B(?=(\d{3})+(?!\d)(?:\.|$))/g, "\u202f"); }

function formatCount(n) { return group(String(n)); }

function formatShare(part, whole) {
  const percent = whole > 0 ? 100 * part / whole : 0;
  if (percent > 0 && percent < 0.05) return withUnit("<0.1", "%");
  return withUnit(percent.toFixed(1), "%");
}

// formatPoints returns text for a change of a share, in percentage points.
function formatPoints(change) {
  const points = 100 * change;
  if (Math.abs(points) < 0.05) return "±0.0";
  return (points > 0 ? "+" : "−") + Math.abs(points).toFixed(1);
}

function plural(n, one, many) { return `${formatCount(n)} ${n === 1 ? one : many}`; }
