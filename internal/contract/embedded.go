package contract

import (
	"embed"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"clrsnap/internal/arch"
	"clrsnap/internal/target"
)

// TableSymbol is the exported name of the runtime's table for debuggers: an array of the addresses of global
// variables, functions and virtual tables (struct DacGlobals of src/coreclr/inc/daccess.h, in the order of dacvars.h,
// gfunc_list.h and vptr_list.h). The runtime fills the table on starting.
const TableSymbol = "g_dacTable"

// maxTable bounds the entries of the table to read. .NET 9 has 158 entries.
const maxTable = 1 << 10

//go:embed embedded/*.json
var embedded embed.FS

// Embedded is the embedded description of the runtimes of one version and architecture. The description is a file in
// the folder embedded. README.md there has the format, and the source of every fact.
type Embedded struct {
	name    string
	text    []byte
	tested  []string
	entries int // of the table that indirect globals index
	tail    int // the first entry that counts from the table's end
}

// platforms are the descriptors' names of architectures.
var platforms = map[arch.Machine]string{arch.MachineAMD64: "x64"}

// EmbeddedFor returns the embedded description of a version such as "9.0.5", and false if there is none. Builds that
// differ in the third number only share one descriptor.
func EmbeddedFor(version string, m arch.Machine) (*Embedded, bool) {
	major, rest, _ := strings.Cut(version, ".")
	minor, _, _ := strings.Cut(rest, ".")
	return readEmbedded("net" + major + "." + minor + "-" + platforms[m])
}

// EmbeddedAhead is EmbeddedFor for the runtime of native AOT programs. The description has the fields of managed
// classes.
func EmbeddedAhead(version string, m arch.Machine) (*Embedded, bool) {
	major, rest, _ := strings.Cut(version, ".")
	minor, _, _ := strings.Cut(rest, ".")
	return readEmbedded("aot" + major + "." + minor + "-" + platforms[m])
}

// EmbeddedLike returns the embedded description of the one version with the contracts of d. d is the descriptor of a
// runtime with an unknown version, or with a version newer than all embedded descriptions.
func EmbeddedLike(d *Descriptor, m arch.Machine) (like *Embedded, ok bool) {
	files, _ := embedded.ReadDir("embedded") // never fails
	for _, f := range files {
		name := strings.TrimSuffix(f.Name(), ".json")
		if !strings.HasPrefix(name, "net") || !strings.HasSuffix(name, "-"+platforms[m]) {
			continue
		}
		e, _ := readEmbedded(name)
		ours, err := e.Layout(nil, 0, 0)
		if err != nil || d.Require(ours.versions()) != nil {
			continue
		}
		if like != nil {
			return nil, false
		}
		like = e
	}
	return like, like != nil
}

// versions returns the contracts of d as an argument for Require.
func (d *Descriptor) versions() map[string][]Version {
	out := map[string][]Version{}
	for name, v := range d.Contracts {
		out[name] = []Version{v}
	}
	return out
}

func readEmbedded(name string) (*Embedded, bool) {
	text, err := embedded.ReadFile("embedded/" + name + ".json")
	if err != nil {
		return nil, false
	}
	e, err := parseEmbedded(name, text)
	if err != nil {
		panic(err) // TestEmbedded parses every file
	}
	return e, true
}

func parseEmbedded(name string, text []byte) (*Embedded, error) {
	var extra struct {
		Tested  []string
		Entries int
		Tail    int
	}
	if err := json.Unmarshal(text, &extra); err != nil {
		return nil, fmt.Errorf("embedded descriptor %s: %w", name, err)
	}
	if extra.Entries < 0 || extra.Entries > maxTable || extra.Tail < 0 || extra.Tail > extra.Entries {
		return nil, fmt.Errorf("embedded descriptor %s: %d entries, tail %d", name, extra.Entries, extra.Tail)
	}
	tail := extra.Tail
	if tail == 0 {
		tail = extra.Entries
	}
	return &Embedded{name: name, text: text, tested: extra.Tested, entries: extra.Entries, tail: tail}, nil
}

// Tested reports whether clrsnap's tests have walked the stacks of the build.
func (e *Embedded) Tested(version string) bool { return slices.Contains(e.tested, version) }

// Layout returns the descriptor of a runtime with a table of size bytes at address table. Globals from the table are
// 0 until the runtime has started, and without a table (address 0).
func (e *Embedded) Layout(mem target.Memory, table arch.Addr, size uint64) (*Descriptor, error) {
	pointers, err := e.readTable(mem, table, size)
	if err != nil {
		return nil, err
	}
	d, err := FromJSON(e.text, pointers)
	if err != nil {
		return nil, fmt.Errorf("embedded descriptor %s: %w", e.name, err)
	}
	return d, nil
}

// readTable reads the known entries. Servicing builds insert variables in the middle, so later entries, above all the
// virtual tables, keep only their distance from the table's end. A table of unknown size counts as having the known
// number of entries.
func (e *Embedded) readTable(mem target.Memory, table arch.Addr, size uint64) ([]uint64, error) {
	pointers := make([]uint64, e.entries)
	if table == 0 || e.entries == 0 {
		return pointers, nil
	}
	n := e.entries
	if size != 0 {
		n = int(min(size/8, maxTable))
	}
	b := make([]byte, 8*n)
	if err := mem.ReadMemory(b, table); err != nil {
		return nil, fmt.Errorf("the table %s of the runtime: %w", TableSymbol, err)
	}
	for i := range pointers {
		at := i
		if i >= e.tail {
			at += n - e.entries
		}
		if at < 0 || at >= n {
			return nil, fmt.Errorf("the table %s of the runtime has only %d entries", TableSymbol, n)
		}
		pointers[i] = binary.LittleEndian.Uint64(b[8*at:])
	}
	return pointers, nil
}

// Complete returns d completed from more: contracts, types, sizes, fields and globals. Everything in d stays. If d
// and more contradict each other, they describe different structures, and Complete does not mix them: a type stays as
// in d if more has another size for the type, or another offset for one of its fields. If d and more have different
// versions of a contract, the second result is false.
func (d *Descriptor) Complete(more *Descriptor) (*Descriptor, bool) {
	for name, v := range d.Contracts {
		if o, ok := more.Contracts[name]; ok && o != v {
			return nil, false
		}
	}
	out := &Descriptor{
		Types: maps.Clone(more.Types), Globals: maps.Clone(more.Globals), Contracts: maps.Clone(more.Contracts),
		SubDescriptors: d.SubDescriptors, Runtime: d.Runtime,
	}
	for name, t := range d.Types {
		out.Types[name] = t.complete(more.Types[name])
	}
	maps.Copy(out.Globals, d.Globals)
	maps.Copy(out.Contracts, d.Contracts)
	return out, true
}

// complete returns t completed from more, or t if they differ.
func (t Type) complete(more Type) Type {
	if t.HasSize && more.HasSize && t.Size != more.Size {
		return t
	}
	fields := map[string]Field{}
	maps.Copy(fields, more.Fields)
	for name, f := range t.Fields {
		o, ok := more.Fields[name]
		if ok && o.Offset != f.Offset {
			return t
		}
		if f.Type == "" {
			f.Type = o.Type
		}
		fields[name] = f
	}
	t.Fields = fields
	if !t.HasSize {
		t.Size, t.HasSize = more.Size, more.HasSize
	}
	return t
}
