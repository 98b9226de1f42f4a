package assemblies

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"strings"
	"testing"

	"clrsnap/internal/arch"
	"clrsnap/internal/target"
	"clrsnap/snapshot"
)

// shop is the SDK's deps.json for a self-contained program with a native asset, a satellite assembly, a package with a
// file for each platform, and an assembly from a folder.
const shop = "\xef\xbb\xbf" + `{
  "runtimeTarget": { "name": ".NETCoreApp,Version=v8.0/linux-x64", "signature": "" },
  "compilationOptions": {},
  "targets": {
    ".NETCoreApp,Version=v8.0": {},
    ".NETCoreApp,Version=v8.0/linux-x64": {
      "Shop/1.0.0": { "dependencies": { "Npgsql": "8.0.3" }, "runtime": { "Shop.dll": {} } },
      "runtimepack.Microsoft.NETCore.App.Runtime.linux-x64/8.0.8": {
        "runtime": { "System.Private.CoreLib.dll": { "assemblyVersion": "8.0.0.0" }, "System.Linq.dll": {} },
        "native": { "libcoreclr.so": { "fileVersion": "0.0.0.0" } }
      },
      "Microsoft.EntityFrameworkCore/8.0.8": {
        "runtime": { "lib/net8.0/Microsoft.EntityFrameworkCore.dll": { "assemblyVersion": "8.0.8.0" } },
        "resources": { "lib/net8.0/de/Microsoft.EntityFrameworkCore.resources.dll": { "locale": "de" } }
      },
      "Npgsql/8.0.3": { "runtime": { "lib/net8.0/Npgsql.dll": {} } },
      "SqlClient/5.2.0": { "runtimeTargets": {
        "runtimes/unix/lib/net8.0/SqlClient.dll": { "rid": "unix", "assetType": "runtime" },
        "runtimes/unix/native/libsni.so": { "rid": "unix", "assetType": "native" }
      } },
      "System.Shared/1.0.0": { "runtime": { "System.Shared.dll": {} } },
      "Vendor.Reference/1.0.0.0": { "runtime": { "Vendor.dll": {} } },
      "Unlisted/1.0.0": { "runtime": { "Unlisted.dll": {} } },
      "Strange/1.0.0": { "runtime": { "Strange.dll": {} } }
    }
  },
  "libraries": {
    "Shop/1.0.0": { "type": "project", "serviceable": false, "sha512": "" },
    "runtimepack.Microsoft.NETCore.App.Runtime.linux-x64/8.0.8": { "type": "runtimepack" },
    "Microsoft.EntityFrameworkCore/8.0.8": { "type": "package", "path": "a", "hashPath": "b" },
    "Npgsql/8.0.3": { "type": "package" },
    "SqlClient/5.2.0": { "type": "package" },
    "System.Shared/1.0.0": { "type": "project" },
    "Vendor.Reference/1.0.0.0": { "type": "reference" },
    "Strange/1.0.0": { "type": "winmd" }
  }
}`

var shopWants = map[string]snapshot.Origin{
	"Shop": snapshot.OfUser, "System.Private.CoreLib": snapshot.OfFramework, "System.Linq": snapshot.OfFramework,
	"Microsoft.EntityFrameworkCore": snapshot.OfPackage, "Npgsql": snapshot.OfPackage, "SqlClient": snapshot.OfPackage,
	"System.Shared": snapshot.OfUser, "Vendor": snapshot.OfUser,
}

func TestParse(t *testing.T) {
	got, err := Parse([]byte(shop))
	if err != nil || !maps.Equal(got, shopWants) {
		t.Errorf("%v, %v\nwant %v", got, err, shopWants)
	}
}

// TestParseHostile: a text other than a deps.json is an error, and costs no more than its own size.
func TestParseHostile(t *testing.T) {
	nested := strings.Repeat("[", 1<<20)
	for name, text := range map[string]string{
		"empty": "", "no object": `[]`, "cut off": shop[:len(shop)/2], "nested": `{"other":` + nested,
		"nested libraries": `{"libraries":{"a":{"other":` + strings.Repeat(`{"a":`, 1<<20),
		"no text":          `{"libraries":{"a":{"type":{}}}}`,
		"targets":          `{"targets":7}`,
		"asset":            `{"targets":{"a":{"b":{"runtime":[1]}}}}`,
		"large":            strings.Repeat(" ", maxDeps+1),
		"many": `{"targets":{"a":{"b":{"runtime":{` + strings.Repeat(`"x.dll":0,`, maxListed+1) +
			`"x.dll":0}}}}}`,
	} {
		if got, err := Parse([]byte(text)); !errors.Is(err, errDeps) || got != nil {
			t.Errorf("%s: %v, %v", name, got, err)
		}
	}
	odd := `{"targets":{"t":{"a":{"runtime":{"` + strings.Repeat("x", 300) + `.dll":0,".dll":0,"dll":0,"a/.DLL":0,` +
		`"B.Exe":0}}}},"libraries":{"a":{"type":"package"}}}`
	want := map[string]snapshot.Origin{"B": snapshot.OfPackage}
	if got, err := Parse([]byte(odd)); err != nil || !maps.Equal(got, want) {
		t.Errorf("odd names: %v, %v", got, err)
	}
}

func FuzzParse(f *testing.F) {
	f.Add([]byte(shop))
	f.Fuzz(func(t *testing.T, text []byte) {
		all, _ := Parse(text)
		for name, of := range all {
			if rank[of] == 0 || name == "" || len(name) > maxName {
				t.Errorf("%q: %q", name, of)
			}
		}
	})
}

// bundled makes a single-file program (see package bundle).
func bundled(deps string) []byte {
	const mark = "\x8b\x12\x02\xb9\x6a\x61\x20\x38\x72\x7b\x93\x02\x14\xd7\xa0\x32" +
		"\x13\xf5\xb9\xe6\xef\xae\x33\x18\xee\x3b\x2d\xce\x24\xb3\x6a\xae"
	le := binary.LittleEndian
	b := append(le.AppendUint64(make([]byte, 4096), uint64(4096+8+len(mark))), mark...)
	b = append(le.AppendUint32(b, 6), make([]byte, 8)...)
	b = append(b, "\x020a"...)
	b = le.AppendUint64(b, uint64(len(b)+40))
	b = le.AppendUint64(b, uint64(len(deps)))
	return append(append(b, make([]byte, 24)...), deps...)
}

// files is a target: its files by their paths, and their mappings.
type files struct {
	text map[string]string
	maps target.Mappings
}

type file struct{ *bytes.Reader }

func (file) Close() error { return nil }

func (f *files) OpenFile(path string) (target.File, error) {
	text, ok := f.text[path]
	if !ok {
		return nil, fs.ErrNotExist
	}
	return file{bytes.NewReader([]byte(text))}, nil
}

func (f *files) OpenMapping(m *target.Mapping) (target.File, error) { return f.OpenFile(m.Path) }

func (f *files) Mappings() (target.Mappings, error) { return f.maps, nil }

// load maps a file, and returns where.
func (f *files) load(path, text string) arch.Addr {
	if f.text == nil {
		f.text = map[string]string{}
	}
	f.text[path] = text
	at := arch.Addr(0x10000 * (1 + len(f.maps)))
	f.maps = append(f.maps, target.Mapping{Start: at, End: at + 0x1000, Path: path})
	return at
}

// file is the path of the file at an address.
func (f *files) file(at arch.Addr) func() (string, bool) {
	return func() (string, bool) { return f.maps.Find(at).Path, true }
}

func TestOwners(t *testing.T) {
	const shared = "/usr/share/dotnet/shared/"
	for _, c := range []struct {
		name   string
		beside map[string]string // files that are not loaded
		want   map[string]snapshot.Origin
	}{
		{"listed", map[string]string{"/app/Shop.deps.json": shop}, map[string]snapshot.Origin{
			"/app/Shop.dll": "", "/app/Npgsql.dll": snapshot.OfPackage,
			"/app/Microsoft.EntityFrameworkCore.dll": snapshot.OfPackage, "/app/System.Shared.dll": snapshot.OfUser,
			"/app/Vendor.dll": "", "/plugins/Other.dll": "", "/plugins/Microsoft.Other.dll": snapshot.OfPackage,
			shared + "Microsoft.NETCore.App/8.0.8/System.Private.CoreLib.dll": "",
			shared + "Microsoft.NETCore.App/8.0.8/System.Linq.dll":            "",
			// The program lists the assembly, but the framework's assembly is newer.
			shared + "Microsoft.AspNetCore.App/8.0.8/SqlClient.dll": snapshot.OfFramework,
		}},
		{"plugin", map[string]string{"/app/Shop.deps.json": shop, "/plugins/P.deps.json": `{"targets":{"t":{
			"P/1":{"runtime":{"P.dll":{}}},"Q/1":{"runtime":{"lib/Q.dll":{}}},
			"System.Shared/1":{"runtime":{"System.Shared.dll":{}}}}},
			"libraries":{"P/1":{"type":"project"},"Q/1":{"type":"package"},"System.Shared/1":{"type":"package"}}}`},
			map[string]snapshot.Origin{
				"/app/Shop.dll": "", "/plugins/P.dll": "", "/plugins/Q.dll": snapshot.OfPackage,
				"/app/System.Shared.dll": snapshot.OfUser,
			}},
		{"not listed", map[string]string{"/app/Microsoft.Shop.runtimeconfig.json": "{}"}, map[string]snapshot.Origin{
			"/app/Microsoft.Shop.dll": snapshot.OfUser, "/app/Npgsql.dll": "",
			"/app/Microsoft.Data.dll": snapshot.OfPackage,
			shared + "Microsoft.NETCore.App/8.0.8/System.Private.CoreLib.dll": "",
			shared + "Microsoft.AspNetCore.App/8.0.8/Odd.dll":                 snapshot.OfFramework,
		}},
		{"self-contained", map[string]string{"/app/Shop.runtimeconfig.json": "{}"}, map[string]snapshot.Origin{
			"/app/Shop.dll": "", "/app/System.Private.CoreLib.dll": "", "/app/Microsoft.Data.dll": "",
			"/app/Npgsql.dll": "",
		}},
		{"damaged", map[string]string{"/app/Shop.deps.json": shop[:200]}, map[string]snapshot.Origin{
			"/app/Shop.dll": "", "/app/Npgsql.dll": "",
			shared + "Microsoft.NETCore.App/8.0.8/System.Private.CoreLib.dll": "",
		}},
	} {
		f := &files{}
		at := map[string]arch.Addr{}
		for path := range c.want {
			at[path] = f.load(path, "MZ")
		}
		maps.Copy(f.text, c.beside)
		o := New(f, 0)
		o.Read(f.maps)
		for path, want := range c.want {
			for range 2 {
				if got := o.Of(SimpleName(path), at[path], f.file(at[path])); got != want {
					t.Errorf("%s: %s is %q, want %q", c.name, path, got, want)
				}
			}
		}
	}
}

// TestLoadedLater: assemblies that were not mapped when the files were read. While the file of an assembly is unknown,
// the name decides, and only for the moment.
func TestLoadedLater(t *testing.T) {
	f := &files{}
	f.load("/usr/dotnet/shared/Microsoft.NETCore.App/8.0.8/System.Private.CoreLib.dll", "MZ")
	o := New(f, 0)
	o.Read(f.maps)
	at := f.load("/app/Microsoft.Odd.dll", "MZ")
	if got := o.Of("Microsoft.Odd", at, func() (string, bool) { return "", false }); got != "" {
		t.Errorf("too early: %q", got)
	}
	asked := 0
	file := func() (string, bool) { asked++; return f.file(at)() }
	for range 2 {
		if got := o.Of("Microsoft.Odd", at, file); got != snapshot.OfPackage || asked != 1 {
			t.Errorf("%q after %d questions", got, asked)
		}
	}
	if got := o.Of("", 0, file); got != "" || asked != 1 {
		t.Errorf("dynamic methods: %q", got)
	}
}

// TestBundled: the deps.json of the bundle, not of a file.
func TestBundled(t *testing.T) {
	f := &files{}
	exe := f.load("/app/Shop", string(bundled(shop)))
	o := New(f, exe+8)
	o.Read(f.maps)
	for name, want := range map[string]snapshot.Origin{
		"Npgsql": snapshot.OfPackage, "System.Shared": snapshot.OfUser, "System.Linq": "", "Shop": "",
	} {
		if got := o.Of(name, exe, f.file(exe)); got != want {
			t.Errorf("%s is %q, want %q", name, got, want)
		}
	}
}

// TestManyFiles: however many assemblies have a deps.json, few are read.
func TestManyFiles(t *testing.T) {
	f := &files{}
	for i := range 3 * maxFiles {
		f.load(fmt.Sprintf("/app/A%d.dll", i), "MZ")
		f.text[fmt.Sprintf("/app/A%d.deps.json", i)] = "{}"
	}
	o := New(f, 0)
	o.Read(f.maps)
	if o.deps != maxFiles {
		t.Errorf("%d files were read", o.deps)
	}
	large := strings.Repeat(" ", maxDeps)
	for path := range f.text {
		f.text[path] = large
	}
	o = New(f, 0)
	o.Read(f.maps)
	if o.bytes != maxBytes {
		t.Errorf("%d bytes were read", o.bytes)
	}
}
