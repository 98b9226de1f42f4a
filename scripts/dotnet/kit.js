// Takes .NET programs apart and puts them together again.
//   kit.js list   BUNDLE
//   kit.js root   DIST OUT                 multi-file self-contained app -> DOTNET_ROOT
//   kit.js frame  BUNDLE OUT               single-file app -> OUT/*.dll + OUT/.framework.json
//   kit.js pick   BUNDLE OUT NAME...       single files out of a bundle
//   kit.js launch HOST FRAME OUT RUN.dll   host + CoreLib + RUN.dll; the rest of FRAME stays beside it
//   kit.js single HOST FRAME OUT APP.dll [FILE...] [--compress] [--base]
//                                          a whole single-file application; --base: without ASP.NET Core
//   kit.js folder TEMPLATE ROOT OUT APP.dll          a self-contained application in the folder OUT
//   kit.js apphost TEMPLATE OUT APP.dll              a ./app that finds its runtime by DOTNET_ROOT
//
// A single-file application is an ELF host with files behind it. Eight bytes in
// front of the SHA-256 of ".net core bundle\n" hold the offset of a header that
// lists them; a zero-padded buffer of 1024 bytes holds the name of the assembly
// to start. An empty header offset means: no bundle.
'use strict';
const fs = require('fs'), path = require('path'), zlib = require('zlib'), crypto = require('crypto');
const SIG = crypto.createHash('sha256').update('.net core bundle\n').digest();
const KIND = { unknown: 0, assembly: 1, native: 2, deps: 3, config: 4, symbols: 5 };

function parse(d) {
  const sig = d.indexOf(SIG);
  if (sig < 0) throw new Error('not a single-file host');
  let p = Number(d.readBigInt64LE(sig - 8));
  if (!p) return null;
  const int = () => (p += 4, d.readInt32LE(p - 4)), long = () => (p += 8, Number(d.readBigInt64LE(p - 8)));
  const str = () => {
    let n = 0, s = 0, b;
    do { b = d[p++]; n += (b & 127) * 2 ** s; s += 7; } while (b & 128);
    p += n;
    return d.toString('utf8', p - n, p);
  };
  const major = int(), minor = int(), count = int(), id = str();
  if (major >= 2) p += 40;                       // deps.json, runtimeconfig.json, flags
  const files = [];
  for (let i = 0; i < count; i++) {
    const f = { offset: long(), size: long(), packed: major >= 6 ? long() : 0, kind: d[p++] };
    f.name = str();
    files.push(f);
  }
  return { major, minor, id, files, hostSize: Math.min(...files.map(f => f.offset)) };
}

function body(d, f) {
  const raw = d.subarray(f.offset, f.offset + (f.packed || f.size)), b = f.packed ? zlib.inflateRawSync(raw) : raw;
  if (b.length !== f.size) throw new Error(f.name + ': wrong size');
  return b;
}

function find(d, info, end) {
  return JSON.parse(body(d, info.files.find(f => !f.name.includes('/') && f.name.endsWith(end))));
}

// The framework that an assembly from a package of its own belongs to.
const OF_ASPNET = new RegExp('^Microsoft\\.Extensions\\.(Caching|Configuration|DependencyInjection|Diagnostics|'
  + 'FileProviders|FileSystemGlobbing|Hosting|Logging|Options|Primitives|Localization|ObjectPool|WebEncoders|Http)\\b');
function frameworkOf(assembly) {
  if (assembly === 'System.Formats.Asn1.dll') return 'Microsoft.NETCore.App';
  if (OF_ASPNET.test(assembly) || assembly === 'System.Diagnostics.EventLog.dll') return 'Microsoft.AspNetCore.App';
  return null;
}

// The shared frameworks inside an application's deps.json, with their files.
function frameworks(deps, config) {
  const target = deps.targets[deps.runtimeTarget.name], out = {};
  for (const { name, version } of config.runtimeOptions.includedFrameworks) {
    const pack = target[`runtimepack.${name}.Runtime.linux-x64/${version}`];
    out[name] = { version, runtime: { ...pack.runtime }, native: { ...(pack.native || {}) } };
  }
  // Some framework assemblies come from newer packages that the app refers to.
  for (const [k, v] of Object.entries(target)) {
    if (k.startsWith('runtimepack.')) continue;
    for (const [file, info] of Object.entries(v.runtime || {})) {
      const base = path.basename(file), to = frameworkOf(base);
      if (to && out[to] && !Object.values(out).some(o => o.runtime[base])) out[to].runtime[base] = info;
    }
  }
  return { tfm: config.runtimeOptions.tfm, frameworks: out };
}

function root(dist, out) {
  const read = end => JSON.parse(fs.readFileSync(path.join(dist, fs.readdirSync(dist).find(f => f.endsWith(end)))));
  const fw = frameworks(read('.deps.json'), read('.runtimeconfig.json'));
  const T = '.NETCoreApp,Version=v' + fw.tfm.slice(3), TR = T + '/linux-x64';
  for (const [name, { version, runtime, native }] of Object.entries(fw.frameworks)) {
    const dir = path.join(out, 'shared', name, version);
    fs.mkdirSync(dir, { recursive: true });
    if (native['libhostfxr.so']) {
      delete native['libhostfxr.so'];
      const fxr = path.join(out, 'host/fxr', version);
      fs.mkdirSync(fxr, { recursive: true });
      fs.copyFileSync(path.join(dist, 'libhostfxr.so'), path.join(fxr, 'libhostfxr.so'));
    }
    for (const f of [...Object.keys(runtime), ...Object.keys(native)]) {
      fs.copyFileSync(path.join(dist, f), path.join(dir, f));
      fs.chmodSync(path.join(dir, f), f === 'createdump' ? 0o755 : 0o644);
    }
    const id = `${name}.Runtime.linux-x64/${version}`, entry = { runtime };
    if (Object.keys(native).length) entry.native = native;
    fs.writeFileSync(path.join(dir, name + '.deps.json'), JSON.stringify({
      runtimeTarget: { name: TR, signature: '' }, compilationOptions: {}, targets: { [T]: {}, [TR]: { [id]: entry } },
      libraries: { [id]: { type: 'package', serviceable: true, sha512: '', path: id.toLowerCase() } },
    }, null, 2));
    if (name === 'Microsoft.NETCore.App')
      fs.writeFileSync(path.join(dir, '.framework.json'), JSON.stringify({
        tfm: fw.tfm, frameworks: { [name]: { version, runtime, native } },
      }));
    else
      fs.writeFileSync(path.join(dir, name + '.runtimeconfig.json'), JSON.stringify({
        runtimeOptions: {
          tfm: fw.tfm,
          framework: { name: 'Microsoft.NETCore.App', version: fw.frameworks['Microsoft.NETCore.App'].version },
        },
      }, null, 2));
    console.log(name, version, Object.keys(runtime).length, 'assemblies,', Object.keys(native).length, 'native files');
  }
}

function frame(bundle, out) {
  const d = fs.readFileSync(bundle), info = parse(d);
  const fw = frameworks(find(d, info, '.deps.json'), find(d, info, '.runtimeconfig.json'));
  fs.mkdirSync(out, { recursive: true });
  for (const [name, f] of Object.entries(fw.frameworks)) {
    for (const file of Object.keys(f.runtime))
      fs.writeFileSync(path.join(out, file), body(d, info.files.find(x => x.name === file)));
    console.log(name, f.version, Object.keys(f.runtime).length, 'assemblies');
  }
  fs.writeFileSync(path.join(out, '.framework.json'), JSON.stringify(fw));
}

function pick(bundle, out, names) {
  const d = fs.readFileSync(bundle), info = parse(d);
  fs.mkdirSync(out, { recursive: true });
  for (const n of names)
    fs.writeFileSync(path.join(out, path.basename(n)), body(d, info.files.find(x => x.name === n)));
}

function rename(host, main) {
  const m = [...host.toString('latin1').matchAll(/[\w.-]+\.dll\0{500,}/g)];
  if (m.length !== 1) throw new Error('no room for the application name in the host');
  host.fill(0, m[0].index, m[0].index + 1024).write(main, m[0].index);
}

// The runtimeconfig.json of a self-contained application, and its deps.json, which
// lists the framework's files as those of runtime packs.
function selfContained(fw, main, extra) {
  const name = main.replace(/\.dll$/, ''), TR = `.NETCoreApp,Version=v${fw.tfm.slice(3)}/linux-x64`;
  const target = { [`${name}/1.0.0`]: { dependencies: {}, runtime: { [main]: {} } } };
  const libraries = { [`${name}/1.0.0`]: { type: 'project', serviceable: false, sha512: '' } };
  for (const f of extra) target[`${name}/1.0.0`].runtime[f] = {};
  for (const [k, v] of Object.entries(fw.frameworks)) {
    const pack = `runtimepack.${k}.Runtime.linux-x64`;
    target[`${name}/1.0.0`].dependencies[pack] = v.version;
    target[`${pack}/${v.version}`] = { runtime: v.runtime, native: v.native || {} };
    libraries[`${pack}/${v.version}`] = { type: 'runtimepack', serviceable: false, sha512: '' };
  }
  const deps = {
    runtimeTarget: { name: TR, signature: '' }, compilationOptions: {},
    targets: { [TR.split('/')[0]]: {}, [TR]: target }, libraries,
  };
  const config = {
    runtimeOptions: {
      tfm: fw.tfm,
      includedFrameworks: Object.entries(fw.frameworks).map(([k, v]) => ({ name: k, version: v.version })),
      configProperties: { 'System.Runtime.Serialization.EnableUnsafeBinaryFormatterSerialization': false },
    },
  };
  const file = (end, json) => ({ name: name + end, data: Buffer.from(JSON.stringify(json)) });
  return { deps: file('.deps.json', deps), config: file('.runtimeconfig.json', config) };
}

// A folder with everything: links to the framework's files, where the file system
// is the same.
function folder(template, root, out, app) {
  const main = path.basename(app), shared = path.join(root, '.frame'), fw = frameOf(shared);
  const { deps, config } = selfContained(fw, main, []);
  const place = (from, name) => {
    const to = path.join(out, name);
    try { fs.linkSync(from, to); } catch { fs.copyFileSync(from, to); }
  };
  fs.mkdirSync(out, { recursive: true });
  for (const f of Object.values(fw.frameworks))
    for (const name of [...Object.keys(f.runtime), ...Object.keys(f.native)])
      place(fs.realpathSync(path.join(shared, name)), name);
  const fxr = path.join(root, 'host/fxr');
  place(path.join(fxr, fs.readdirSync(fxr)[0], 'libhostfxr.so'), 'libhostfxr.so');
  fs.copyFileSync(app, path.join(out, main));
  for (const f of [deps, config]) fs.writeFileSync(path.join(out, f.name), f.data);
  apphost(template, path.join(out, main.replace(/\.dll$/, '')), main);
}

function apphost(template, out, main) {
  const h = fs.readFileSync(template);
  rename(h, main);
  fs.writeFileSync(out, h, { mode: 0o755 });
}

// The kind of a file in a bundle, by its name.
function kindOf(name) {
  if (name.endsWith('.dll')) return 'assembly';
  if (name.endsWith('.deps.json')) return 'deps';
  if (name.endsWith('.runtimeconfig.json')) return 'config';
  if (name.endsWith('.pdb')) return 'symbols';
  return /\.so\b/.test(name) ? 'native' : 'unknown';
}

function build(hostFile, fw, out, main, files, compress) {
  let host = fs.readFileSync(hostFile);
  const old = parse(host);
  if (old) host = host.subarray(0, old.hostSize);
  host = Buffer.from(host);
  const sig = host.indexOf(SIG);
  rename(host, main);

  const extra = files.filter(f => f.name.endsWith('.dll') && f.extra).map(f => f.name);
  const { deps, config } = selfContained(fw, main, extra);
  files.push(deps, config);

  const parts = [host], list = [], special = { deps: [0, 0], config: [0, 0] }, hash = crypto.createHash('sha256');
  let at = host.length;
  for (const f of files) {
    const kind = kindOf(f.name);
    const packed = compress && kind === 'assembly', data = packed ? zlib.deflateRawSync(f.data, { level: 1 }) : f.data;
    const align = kind === 'assembly' && !packed ? 4096 : 16;   // assemblies are mapped, unless packed
    const pad = (align - at % align) % align;
    parts.push(Buffer.alloc(pad), data); at += pad;
    list.push([at, f.data.length, packed ? data.length : 0, KIND[kind], f.name]);
    if (special[kind]) special[kind] = [at, f.data.length];
    hash.update(f.data); at += data.length;
  }
  const header = at;
  const i32 = (...v) => {
    const b = Buffer.alloc(4 * v.length);
    v.forEach((x, i) => b.writeInt32LE(x, 4 * i));
    parts.push(b);
  };
  const i64 = (...v) => {
    const b = Buffer.alloc(8 * v.length);
    v.forEach((x, i) => b.writeBigInt64LE(BigInt(x), 8 * i));
    parts.push(b);
  };
  const str = s => {
    const b = Buffer.from(s), n = [];
    let k = b.length;
    for (; k > 127; k >>= 7) n.push(k & 127 | 128);
    n.push(k);
    parts.push(Buffer.from(n), b);
  };
  i32(6, 0, list.length); str(hash.digest('hex').slice(0, 12));
  i64(...special.deps, ...special.config, 0);
  for (const [off, size, packed, kind, n] of list) { i64(off, size, packed); parts.push(Buffer.from([kind])); str(n); }
  host.writeBigInt64LE(BigInt(header), sig - 8);
  const tmp = out + '.tmp';
  fs.writeFileSync(tmp, Buffer.concat(parts), { mode: 0o755 });
  fs.renameSync(tmp, out);
}

const [cmd, ...words] = process.argv.slice(2), a = words.filter(w => !w.startsWith('--'));
const flag = name => words.includes('--' + name);
const frameOf = dir => JSON.parse(fs.readFileSync(path.join(dir, '.framework.json')));
const load = (f, extra) => ({ name: path.basename(f), data: fs.readFileSync(f), extra });
if (cmd === 'list') {
  const i = parse(fs.readFileSync(a[0]));
  console.log(`bundle version ${i.major}.${i.minor}, ${i.files.length} files, host ${i.hostSize} bytes`);
  for (const f of i.files) {
    const kind = Object.keys(KIND)[f.kind];
    console.log(String(f.size).padStart(10), kind.padEnd(9), f.packed ? 'packed' : '      ', f.name);
  }
} else if (cmd === 'root') root(a[0], a[1]);
else if (cmd === 'frame') frame(a[0], a[1]);
else if (cmd === 'pick') pick(a[0], a[1], a.slice(2));
else if (cmd === 'apphost') apphost(a[0], a[1], path.basename(a[2]));
else if (cmd === 'folder') folder(a[0], a[1], a[2], a[3]);
else if (cmd === 'launch') {
  const files = [load(a[3]), load(path.join(a[1], 'System.Private.CoreLib.dll'))];
  build(a[0], frameOf(a[1]), a[2], path.basename(a[3]), files);
} else if (cmd === 'single') {
  const fw = frameOf(a[1]);
  if (flag('base')) fw.frameworks = { 'Microsoft.NETCore.App': fw.frameworks['Microsoft.NETCore.App'] };
  const names = Object.values(fw.frameworks).flatMap(f => Object.keys(f.runtime));
  const files = [load(a[3]), ...a.slice(4).map(f => load(f, true)), ...names.map(n => load(path.join(a[1], n)))];
  build(a[0], fw, a[2], path.basename(a[3]), files, flag('compress'));
} else { console.error('usage: see the top of this file'); process.exit(2); }
