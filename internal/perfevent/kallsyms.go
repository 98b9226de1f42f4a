package perfevent

import (
	"bufio"
	"bytes"
	"cmp"
	"fmt"
	"io"
	"os"
	"slices"
	"strconv"
	"sync"
)

// KernelSymbols names the functions of a kernel and its modules. It is kept
// compact: sorted addresses, and the names in one string.
type KernelSymbols struct {
	symbols []kernelSymbol
	names   string
	modules []string // [0] is the kernel itself
}

// kernelSymbol is a function, or the end of one where none follows: the name is
// empty then.
type kernelSymbol struct {
	addr     uint64
	from, to uint32 // of the name in names
	module   uint32 // index in modules
}

var loadKernel = sync.OnceValues(func() (*KernelSymbols, error) {
	f, err := os.Open("/proc/kallsyms")
	if err != nil {
		return nil, fmt.Errorf("kernel symbols: %w", err)
	}
	defer f.Close()
	return parseKallsyms(f)
})

// LoadKernelSymbols reads the symbols of the running kernel, once. To those who
// may not see addresses (kernel.kptr_restrict) the kernel shows zeros; then
// there are no names.
func LoadKernelSymbols() (*KernelSymbols, error) { return loadKernel() }

// Name returns the function that an address is in, its module ("" for the kernel
// itself), and false if it is not known.
func (k *KernelSymbols) Name(addr uint64) (name, module string, ok bool) {
	i, found := slices.BinarySearchFunc(k.symbols, addr,
		func(s kernelSymbol, a uint64) int { return cmp.Compare(s.addr, a) })
	if !found {
		i--
	}
	if i < 0 {
		return "", "", false
	}
	s := k.symbols[i]
	return k.names[s.from:s.to], k.modules[s.module], s.from != s.to
}

// parseKallsyms reads lines "address type name" with an optional "[module]"
// (s_show in kernel/kallsyms.c). There are no sizes; a function ends where the
// next symbol begins, whether that is a function or not.
func parseKallsyms(r io.Reader) (*KernelSymbols, error) {
	p := kallsyms{modules: map[string]uint32{"": 0}, k: &KernelSymbols{modules: []string{""}}}
	lines := bufio.NewScanner(r)
	for lines.Scan() {
		p.line(lines.Bytes())
	}
	if err := lines.Err(); err != nil {
		return nil, fmt.Errorf("kernel symbols: %w", err)
	}
	return p.done(), nil
}

type kallsyms struct {
	k       *KernelSymbols
	names   bytes.Buffer
	modules map[string]uint32
}

func (p *kallsyms) line(line []byte) {
	var f [4][]byte // address, type, name, module
	n := 0
	for field := range bytes.FieldsSeq(line) {
		if n < len(f) {
			f[n] = field
		}
		n++
	}
	if n < 3 || n > 4 {
		return
	}
	addr, err := strconv.ParseUint(string(f[0]), 16, 64)
	if err != nil || addr == 0 {
		return
	}
	s := kernelSymbol{addr: addr, module: p.module(bytes.Trim(f[3], "[]"))}
	const text = "TtWw"
	if len(f[1]) == 1 && bytes.Contains([]byte(text), f[1]) {
		s.from = uint32(p.names.Len())
		p.names.Write(f[2])
		s.to = uint32(p.names.Len())
	}
	p.k.symbols = append(p.k.symbols, s)
}

func (p *kallsyms) module(name []byte) uint32 {
	i, ok := p.modules[string(name)]
	if !ok {
		i = uint32(len(p.k.modules))
		p.modules[string(name)] = i
		p.k.modules = append(p.k.modules, string(name))
	}
	return i
}

// done sorts the symbols. Of several at one address the first function is kept,
// of several in a row that are no functions the first.
func (p *kallsyms) done() *KernelSymbols {
	slices.SortStableFunc(p.k.symbols, func(a, b kernelSymbol) int {
		if c := cmp.Compare(a.addr, b.addr); c != 0 {
			return c
		}
		return named(b) - named(a)
	})
	kept := p.k.symbols[:0]
	for _, s := range p.k.symbols {
		if n := len(kept); n > 0 && (kept[n-1].addr == s.addr || named(kept[n-1])+named(s) == 0) {
			continue
		}
		kept = append(kept, s)
	}
	p.k.symbols = slices.Clone(kept)
	p.k.names = p.names.String()
	return p.k
}

func named(s kernelSymbol) int { return min(1, int(s.to-s.from)) }
