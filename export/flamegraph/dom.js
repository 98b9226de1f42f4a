// What the pages of flame graphs and of heaps share: elements, switches, tooltips, searching.

function element(name, attributes = {}, ...children) {
  const e = document.createElement(name);
  for (const [k, v] of Object.entries(attributes)) {
    if (k.startsWith("on")) e.addEventListener(k.slice(2), v);
    else if (k === "class") e.className = v;
    else if (v === true) e.setAttribute(k, "");
    else if (v !== false && v !== undefined) e.setAttribute(k, v);
  }
  e.append(...children);
  return e;
}

const byId = (id) => document.getElementById(id);

function swatch(color) {
  const i = element("i", { "aria-hidden": "true" });
  i.style.background = color;
  return i;
}

function button(text, action, attributes = {}) {
  return element("button", { type: "button", onclick: action, ...attributes }, text);
}

// segments fills a group with radio buttons. An option is [value, text, title, whether it has no
// samples].
function segments(group, name, options, chosen, change) {
  group.replaceChildren(...options.map(([value, text, title, empty]) => {
    const input = element("input",
      { type: "radio", name, value, checked: value === chosen, onchange: () => change(value) });
    return element("label", { title, class: empty ? "empty" : "" }, input, element("span", {}, text));
  }));
}

// placeTip puts a tooltip beside the pointer, inside the window.
function placeTip(tip, e) {
  const { width, height } = tip.getBoundingClientRect();
  const x = Math.min(e.clientX + 14, innerWidth - width - 6);
  const y = e.clientY + 18 + height > innerHeight ? e.clientY - height - 10 : e.clientY + 18;
  tip.style.transform = `translate(${Math.max(4, x)}px, ${Math.max(4, y)}px)`;
}

// matcher returns a test for what was typed: null for nothing, undefined for an invalid regular
// expression.
function matcher(text) {
  if (!text) return null;
  const regex = /^\/(.+?)\/?$/.exec(text);
  if (!regex) { const lower = text.toLowerCase(); return (name) => name.toLowerCase().includes(lower); }
  try {
    const r = new RegExp(regex[1], "i");
    return (name) => r.test(name);
  } catch { return undefined; }
}
