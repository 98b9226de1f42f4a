// Colours of frames. The range depends on whose code a function is, the hue on its module (or
// on the event), and the lightness on the function. The ranges differ in lightness and warmth
// too, so that people who do not see red or green can tell them apart. Events are not code:
// they are dark where code is light, and light where it is dark.

const PALETTE = {
  light: {
    user: { hue: 24, range: 22, saturation: 92, lightness: 64, text: "#221503" },
    package: { hue: 54, range: 12, saturation: 82, lightness: 72, text: "#262003" },
    framework: { hue: 202, range: 24, saturation: 68, lightness: 76, text: "#0a1c30" },
    native: { hue: 140, range: 30, saturation: 16, lightness: 74, text: "#13211a" },
    kernel: { hue: 335, range: 20, saturation: 17, lightness: 60, text: "#1d0c12" },
    event: { hue: 180, range: 24, saturation: 62, lightness: 26, text: "#effcfb" },
    plain: { fill: "#dfe3e9", text: "#16181d" },
    incomplete: { fill: "#f3e9c8", text: "#3a2c00", stripes: "#d8c27a" },
    same: [228, 231, 236], more: [232, 96, 74], less: [92, 146, 226], diffText: "#16181d",
  },
  dark: {
    user: { hue: 20, range: 20, saturation: 72, lightness: 36, text: "#fff3e2" },
    package: { hue: 52, range: 12, saturation: 58, lightness: 24, text: "#fff7d6" },
    framework: { hue: 205, range: 22, saturation: 46, lightness: 34, text: "#e6f1ff" },
    native: { hue: 140, range: 30, saturation: 13, lightness: 30, text: "#e3efe8" },
    kernel: { hue: 335, range: 20, saturation: 20, lightness: 24, text: "#f6dfe6" },
    event: { hue: 176, range: 24, saturation: 42, lightness: 70, text: "#04201e" },
    plain: { fill: "#343a45", text: "#eceff4" },
    incomplete: { fill: "#4a3f1c", text: "#fff1c4", stripes: "#6d5d2a" },
    same: [58, 63, 73], more: [188, 60, 48], less: [50, 100, 180], diffText: "#fff",
  },
};

// The names of the kinds, by their index in ORIGINS. The name of events depends on the mode.
const ORIGIN_NAMES = ["your code", "packages", "framework", "native", "kernel"];

class Colors {
  constructor(theme, functions) {
    this.palette = PALETTE[theme];
    this.functions = functions;
    this.known = new Map();
  }

  // ofFunction returns {fill, text} of a function, or of a frame that is not a function.
  ofFunction(func) {
    let c = this.known.get(func);
    if (!c) this.known.set(func, c = this.make(func));
    return c;
  }

  make(func) {
    if (func === INCOMPLETE) return this.palette.incomplete;
    if (func < 0) return this.palette.plain;
    const f = this.functions[func], kind = this.palette[ORIGINS[f.origin]];
    const hue = kind.hue + (spread(f.kind === EVENT ? f.display : f.module) - 0.2) * kind.range;
    const lightness = kind.lightness + (spread(f.display) - 0.5) * 11;
    return { fill: `hsl(${(hue + 360).toFixed(0)} ${kind.saturation}% ${lightness.toFixed(1)}%)`, text: kind.text };
  }

  ofKind(name) {
    const k = this.palette[name];
    return k.fill || `hsl(${k.hue + k.range * 0.3} ${k.saturation}% ${k.lightness}%)`;
  }

  // ofChange returns the colour of a change of a share, given as −1 … 1 of the greatest change.
  // The square root makes small changes visible.
  ofChange(change) {
    const { same, more, less } = this.palette, to = change > 0 ? more : less;
    const t = Math.sqrt(Math.min(Math.abs(change), 1));
    return `rgb(${same.map((v, k) => Math.round(v + (to[k] - v) * t)).join(" ")})`;
  }
}

// spread is a hash that maps a text to 0 … 1, evenly (FNV-1a).
function spread(text) {
  let h = 0x811c9dc5;
  for (let i = 0; i < text.length; i++) h = Math.imul(h ^ text.charCodeAt(i), 0x01000193);
  h = Math.imul(h ^ h >>> 15, 0x2c1b3c6d);
  return ((h ^ h >>> 12) >>> 0) / 2 ** 32;
}
