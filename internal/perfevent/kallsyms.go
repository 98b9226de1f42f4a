package perfevent

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"os"
	"slices"
	"strconv"
)

// KernelFunction is a function of the kernel.
type KernelFunction struct {
	Name, Module string // Module is "" for the kernel itself
}

// NameKernel returns the functions around addresses of the running kernel, without unknown
// functions. To users who may not see addresses (kernel.kptr_restrict) the kernel shows zeros;
// then there are no names. Reading the kernel's symbols takes a twentieth of a second of CPU
// time, mostly in the kernel.
func NameKernel(addrs []uint64) (map[uint64]KernelFunction, error) {
	f, err := os.Open("/proc/kallsyms")
	if err != nil {
		return nil, fmt.Errorf("kernel symbols: %w", err)
	}
	defer f.Close()
	return nameKernel(f, addrs)
}

// nameKernel reads lines "address type name" with an optional "[module]" (s_show in
// kernel/kallsyms.c). There are no sizes; a function ends at the next symbol, whether the symbol
// is a function or not.
func nameKernel(r io.Reader, addrs []uint64) (map[uint64]KernelFunction, error) {
	k := newKallsyms(addrs)
	lines := bufio.NewScanner(r)
	for lines.Scan() {
		k.line(lines.Bytes())
	}
	if err := lines.Err(); err != nil {
		return nil, fmt.Errorf("kernel symbols: %w", err)
	}
	return k.found(), nil
}

// kallsyms finds the symbols around addresses. It keeps one symbol for each address, in any order
// of symbols.
type kallsyms struct {
	addrs []uint64       // sorted
	last  []kernelSymbol // the highest symbol up to addrs[i] and above addrs[i-1]
}

// kernelSymbol is a line, split into the address and the rest.
type kernelSymbol struct {
	addr uint64
	line []byte
}

func newKallsyms(addrs []uint64) *kallsyms {
	addrs = slices.Clone(addrs)
	slices.Sort(addrs)
	addrs = slices.Compact(addrs)
	return &kallsyms{addrs, make([]kernelSymbol, len(addrs))}
}

// line takes a line. Of several symbols at one address the first function counts.
func (k *kallsyms) line(line []byte) {
	digits, rest, _ := bytes.Cut(line, []byte{' '})
	addr, err := strconv.ParseUint(string(digits), 16, 64)
	if err != nil || addr == 0 {
		return
	}
	i, _ := slices.BinarySearch(k.addrs, addr)
	if i == len(k.addrs) {
		return
	}
	if s := &k.last[i]; addr > s.addr || addr == s.addr && !isFunction(s.line) {
		s.addr, s.line = addr, append(s.line[:0], rest...)
	}
}

// isFunction reports whether a line without its address is a function's.
func isFunction(line []byte) bool {
	return len(line) > 2 && line[1] == ' ' && bytes.IndexByte([]byte("TtWw"), line[0]) >= 0
}

// function is the line's function; its name is empty if the line is not a function's.
func (s *kernelSymbol) function() (f KernelFunction) {
	fields := bytes.Fields(s.line) // type, name, module
	if n := len(fields); !isFunction(s.line) || n < 2 || n > 3 {
		return f
	}
	f.Name = string(fields[1])
	if len(fields) > 2 {
		f.Module = string(bytes.Trim(fields[2], "[]"))
	}
	return f
}

// found are the functions around the addresses.
func (k *kallsyms) found() map[uint64]KernelFunction {
	out := map[uint64]KernelFunction{}
	var f KernelFunction
	for i, addr := range k.addrs {
		if k.last[i].addr > 0 {
			f = k.last[i].function()
		}
		if f.Name != "" {
			out[addr] = f
		}
	}
	return out
}
