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

// TableSymbol is the exported name of the runtime's table for debuggers: an array
// of the addresses of global variables, functions and virtual tables (struct
// DacGlobals of src/coreclr/inc/daccess.h; their order is that of dacvars.h,
// gfunc_list.h and vptr_list.h). The runtime
// fills it when it starts.
const TableSymbol = "g_dacTable"

// maxTable bounds the entries of the table that are read. .NET 9 has 158.
const maxTable = 1 << 10

//go:embed embedded/*.json
var embedded embed.FS

// Embedded is what this program itself knows of the runtimes of one version and
// architecture. It comes from a file in the folder embedded, whose README.md has
// the form and the source of every fact.
type Embedded struct {
	name     string
	text     []byte
	tested   []string
	entries  int // of the table that indirect globals index
	tail     int // the first entry that is counted from the table's end
	variants []json.RawMessage
}

// platforms are the descriptors' names of architectures.
var platforms = map[arch.Machine]string{arch.MachineAMD64: "x64"}

// EmbeddedFor returns what is embedded about a version such as "9.0.5", and false
// if nothing is known about it. Builds that differ in the third number only share
// one descriptor.
func EmbeddedFor(version string, m arch.Machine) (*Embedded, bool) {
	major, rest, _ := strings.Cut(version, ".")
	minor, _, _ := strings.Cut(rest, ".")
	name := "net" + major + "." + minor + "-" + platforms[m]
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
		Tested   []string
		Entries  int
		Tail     int
		Variants []json.RawMessage
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
	return &Embedded{name: name, text: text, tested: extra.Tested, entries: extra.Entries, tail: tail, variants: extra.Variants}, nil
}

// Tested reports whether clrsnap's tests have walked the stacks of this build.
func (e *Embedded) Tested(version string) bool { return slices.Contains(e.tested, version) }

// Layouts returns the descriptors that a runtime whose table of size bytes is at
// address table may have, the likeliest first. Which of them it has is for the caller to check.
// Until the runtime has started, and without a table, globals that come from it
// are 0.
func (e *Embedded) Layouts(mem target.Memory, table arch.Addr, size uint64) ([]*Descriptor, error) {
	pointers, err := e.readTable(mem, table, size)
	if err != nil {
		return nil, err
	}
	base, err := FromJSON(e.text, pointers)
	if err != nil {
		return nil, fmt.Errorf("embedded descriptor %s: %w", e.name, err)
	}
	if len(e.variants) == 0 {
		return []*Descriptor{base}, nil
	}
	var all []*Descriptor
	for i, text := range e.variants {
		v, err := FromJSON(text, pointers)
		if err != nil {
			return nil, fmt.Errorf("embedded descriptor %s, variant %d: %w", e.name, i, err)
		}
		v, _ = v.Complete(base)
		all = append(all, v)
	}
	return all, nil
}

// readTable reads the entries that are known. Servicing builds insert variables
// in the middle, so that what follows them, the virtual tables above all, keeps its
// place only before the table's end. A table of unknown size is taken to have as
// many entries as are known.
func (e *Embedded) readTable(mem target.Memory, table arch.Addr, size uint64) ([]uint64, error) {
	pointers := make([]uint64, e.entries)
	if table == 0 {
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

// Complete returns d with everything that it lacks taken from more: contracts,
// types, sizes, fields and globals. What d has stays. If the two have a contract in
// different versions, they describe different structures: they are not mixed, and
// the second result is false.
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
		m := more.Types[name]
		if !t.HasSize {
			t.Size, t.HasSize = m.Size, m.HasSize
		}
		fields := maps.Clone(m.Fields)
		if fields == nil {
			fields = map[string]Field{}
		}
		maps.Copy(fields, t.Fields)
		t.Fields = fields
		out.Types[name] = t
	}
	maps.Copy(out.Globals, d.Globals)
	maps.Copy(out.Contracts, d.Contracts)
	return out, true
}
