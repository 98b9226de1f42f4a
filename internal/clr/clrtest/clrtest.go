// Package clrtest is shared by the tests of the packages around it: data descriptors of different runtimes, and
// memory for structures.
package clrtest

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"sync"
	"testing"

	"clrsnap/internal/arch"
	"clrsnap/internal/contract"
	"clrsnap/internal/target"
)

// The descriptors: internal/contract/testdata/README.md describes their origin. The descriptors of .NET 8, with the
// most different structures, and of .NET 9 are the embedded descriptors. The descriptor of .NET 10 is completed by
// the embedded descriptor, like the descriptor of a process.
const (
	Net8  = "net8.0-x64"
	Net9  = "net9.0-x64"
	Net10 = "net10.0.12"
	Net11 = "net11.0.0"

	net10 = "net10.0-x64"
)

// folders are the descriptors' folders in internal/contract.
var folders = map[string]string{
	Net8: "embedded", Net9: "embedded", Net10: "testdata", Net11: "testdata", net10: "embedded",
}

// pointers is the number of pointers that the largest descriptor indexes.
const pointers = 160

var descriptors = sync.OnceValues(func() (map[string]*contract.Descriptor, error) {
	data := make([]uint64, pointers)
	for i := range data {
		data[i] = 0x10000 + 0x1000*uint64(i) // a page of its own
	}
	all := map[string]*contract.Descriptor{}
	for name := range folders {
		text, err := read(name)
		if err != nil {
			return nil, err
		}
		if all[name], err = contract.FromJSON(text, data); err != nil {
			return nil, err
		}
	}
	text, err := read(net10)
	if err != nil {
		return nil, err
	}
	ours, err := contract.FromJSON(text, data)
	if err != nil {
		return nil, err
	}
	var ok bool
	if all[Net10], ok = all[Net10].Complete(ours); !ok {
		return nil, errors.New("what is embedded about .NET 10 has other contracts")
	}
	return all, nil
})

// read reads a descriptor from the working directory of a test: internal/clr, or a folder in internal/clr.
func read(name string) ([]byte, error) {
	file := filepath.Join("../contract", folders[name], name+".json")
	text, err := os.ReadFile(file)
	if errors.Is(err, fs.ErrNotExist) {
		return os.ReadFile(filepath.Join("..", file))
	}
	return text, err
}

// Descriptor returns a descriptor. The caller must not change the descriptor.
func Descriptor(t testing.TB, name string) *contract.Descriptor {
	t.Helper()
	all, err := descriptors()
	if err != nil {
		t.Fatal(err)
	}
	return all[name]
}

// OnEach runs a test with each descriptor that begins with a runtime's own.
func OnEach(t *testing.T, test func(t *testing.T, d *contract.Descriptor)) {
	t.Helper()
	for _, name := range []string{Net10, Net11} {
		t.Run(name, func(t *testing.T) { test(t, Descriptor(t, name)) })
	}
}

// Words is memory: eight bytes at each address that is a multiple of eight.
// Addresses without a word cannot be read.
type Words map[arch.Addr]uint64

// ReadMemory implements target.Memory.
func (w Words) ReadMemory(p []byte, addr arch.Addr) error {
	for i := range p {
		at := addr + arch.Addr(i)
		v, ok := w[at&^7]
		if !ok {
			return &target.ReadError{Addr: addr, Len: len(p)}
		}
		p[i] = byte(v >> (8 * (at & 7)))
	}
	return nil
}

// Uint32 sets four bytes at an address that is a multiple of four.
func (w Words) Uint32(at arch.Addr, v uint32) {
	shift := 8 * (at & 7)
	w[at&^7] = w[at&^7]&^(0xffff_ffff<<shift) | uint64(v)<<shift
}

// Zero makes n bytes from an address on readable.
func (w Words) Zero(at arch.Addr, n int) {
	for end := at + arch.Addr(n); at < end; at += 8 {
		w[at&^7] = 0
	}
}
