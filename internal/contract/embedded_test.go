package contract

import (
	"encoding/binary"
	"path"
	"reflect"
	"strings"
	"testing"

	"clrsnap/internal/arch"
	"clrsnap/internal/testenv"
)

// TestEmbedded parses every embedded file. The tests of package engine use the files on processes.
func TestEmbedded(t *testing.T) {
	files, err := embedded.ReadDir("embedded")
	if err != nil || len(files) < 3 {
		t.Fatal(files, err)
	}
	for _, f := range files {
		name := strings.TrimSuffix(path.Base(f.Name()), ".json")
		find, prefix := EmbeddedFor, "net"
		if strings.HasPrefix(name, "aot") {
			find, prefix = EmbeddedAhead, "aot"
		}
		version, _, _ := strings.Cut(strings.TrimPrefix(name, prefix), "-")
		e, ok := find(version+".3", arch.MachineAMD64)
		if !ok || e.name != name {
			t.Errorf("%s is not for .NET %s.3", name, version)
			continue
		}
		if len(e.tested) == 0 || e.Tested(version+".999") {
			t.Errorf("%s: builds %q are tested", name, e.tested)
		}
		for _, build := range e.tested {
			if !strings.HasPrefix(build, version+".") || !e.Tested(build) {
				t.Errorf("%s: build %q is tested", name, build)
			}
		}
		d, err := e.Layout(tableOf(maxTable), at, uint64(8*e.entries))
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if e.entries == 0 { // the runtime's own descriptor has all globals
			continue
		}
		if v, ok := d.Global("GCDacGlobals"); !ok || v < 100 {
			t.Errorf("%s: the collector's variables are at %d, %v", name, v, ok)
		}
		// Without a table everything is known but the addresses.
		if d, err = e.Layout(image{}, 0, 0); err != nil {
			t.Errorf("%s without a table: %v", name, err)
		} else if v, ok := d.Global("GCDacGlobals"); !ok || v != 0 {
			t.Errorf("%s without a table: the collector's variables are at %d, %v", name, v, ok)
		}
		if _, err := e.Layout(image{}, at, 0); err == nil {
			t.Errorf("%s with a table that cannot be read: no error", name)
		}
	}
}

func TestEmbeddedForNothing(t *testing.T) {
	for _, version := range []string{"", "7.0.1", "9", "9.", "9.1.0", "10.00.1", "../embedded/net9.0", "net9.0"} {
		if e, ok := EmbeddedFor(version, arch.MachineAMD64); ok {
			t.Errorf("%q: %s", version, e.name)
		}
	}
	if e, ok := EmbeddedFor("9.0.5", arch.MachineARM64); ok {
		t.Errorf("arm64: %s", e.name)
	}
}

// TestEmbeddedLike: the contracts of a runtime identify its version.
func TestEmbeddedLike(t *testing.T) {
	text, _ := net10(t)
	own, err := FromJSON(text, make([]uint64, 24))
	if err != nil {
		t.Fatal(err)
	}
	if e, ok := EmbeddedLike(own, arch.MachineAMD64); !ok || e.name != "net10.0-x64" {
		t.Errorf("of .NET 10: %+v", e)
	}
	if e, ok := EmbeddedLike(own, arch.MachineARM64); ok {
		t.Errorf("arm64: %s", e.name)
	}
	own.Contracts["ExecutionManager"] = "3"
	if e, ok := EmbeddedLike(own, arch.MachineAMD64); ok {
		t.Errorf("with a contract of no known version: %s", e.name)
	}
	delete(own.Contracts, "ExecutionManager")
	if e, ok := EmbeddedLike(own, arch.MachineAMD64); ok {
		t.Errorf("without a contract: %s", e.name)
	}
}

func parsed(t *testing.T, text string) *Descriptor {
	t.Helper()
	d, err := FromJSON([]byte(text), []uint64{10, 11})
	if err != nil {
		t.Fatal(err)
	}
	return d
}

func TestComplete(t *testing.T) {
	own := parsed(t,
		`{"version":0,"types":{"Both":{"A":1,"B":2},"Own":{"!":8}},`+
			`"globals":{"X":1,"Y":[0]},"contracts":{"Thread":1}}`)
	own.Runtime = "9.0.5"
	ours := parsed(t,
		`{"version":0,"types":{"Both":{"!":32,"B":2,"C":3},"Own":{"!":99},"Ours":{"D":4}},`+
			`"globals":{"Y":[1],"Z":7},"contracts":{"Thread":1,"StackWalk":1}}`)
	want := parsed(t,
		`{"version":0,"types":{"Both":{"!":32,"A":1,"B":2,"C":3},"Own":{"!":8},"Ours":{"D":4}},`+
			`"globals":{"X":1,"Y":[0],"Z":7},"contracts":{"Thread":1,"StackWalk":1}}`)
	want.Runtime = own.Runtime
	got, ok := own.Complete(ours)
	if !ok || !reflect.DeepEqual(got, want) {
		t.Errorf("got %+v, want %+v", got, want)
	}
	if len(own.Types) != 2 || len(ours.Types["Both"].Fields) != 2 {
		t.Errorf("what was merged has changed: %+v, %+v", own, ours)
	}
	other := parsed(t, `{"version":0,"contracts":{"Thread":2}}`)
	if got, ok := other.Complete(ours); ok {
		t.Errorf("structures of two versions are mixed: %+v", got)
	}
}

// TestCompleteContradicts: if the two disagree on any part of a type, they are different structures, and nothing is
// taken from the second.
func TestCompleteContradicts(t *testing.T) {
	ours := parsed(t, `{"version":0,"types":{"T":{"!":32,"A":8,"B":16,"C":24}}}`)
	for own, want := range map[string]string{
		`{"A":8}`:         `{"!":32,"A":8,"B":16,"C":24}`,
		`{"!":32,"D":28}`: `{"!":32,"A":8,"B":16,"C":24,"D":28}`,
		`{"A":8,"B":24}`:  `{"A":8,"B":24}`,
		`{"!":40,"A":8}`:  `{"!":40,"A":8}`,
		`{"!":40}`:        `{"!":40}`,
		`{"!":32,"C":0}`:  `{"!":32,"C":0}`,
	} {
		got, ok := parsed(t, `{"version":0,"types":{"T":`+own+`}}`).Complete(ours)
		if w := parsed(t, `{"version":0,"types":{"T":`+want+`}}`); !ok || !reflect.DeepEqual(got.Types, w.Types) {
			t.Errorf("%s: %+v, want %s", own, got.Types, want)
		}
	}
}

func TestLayoutBad(t *testing.T) {
	for _, text := range []string{
		`{`, `{"entries":1}`, `{"version":0,"entries":1,"globals":{"G":[1]}}`,
		`{"version":0,"types":{"A":{"X":1,"X":2}}}`, `{"version":7}`,
	} {
		e, err := parseEmbedded("test", []byte(text))
		if err == nil {
			_, err = e.Layout(tableOf(1), at, 8)
		}
		if err == nil {
			t.Errorf("%s: no error", text)
		}
	}
}

// FuzzLayout: any file, on any table.
func FuzzLayout(f *testing.F) {
	f.Add([]byte(`{"version":0,"entries":3,"tail":2,"types":{"A":{"X":24}},"globals":{"G":[1]}}`),
		[]byte{1, 2, 3, 4, 5, 6, 7, 8}, uint64(24))
	f.Fuzz(func(t *testing.T, text, table []byte, size uint64) {
		var e *Embedded
		var err error
		testenv.Allocates(t, len(text), 200, 1<<16, func() { e, err = parseEmbedded("fuzz", text) })
		if err != nil {
			return
		}
		d, err := e.Layout(image{{Base: at, Data: binary.LittleEndian.AppendUint64(table, 1)}}, at, size)
		if (err == nil) != (d != nil) {
			t.Fatalf("%+v, %v", d, err)
		}
	})
}
