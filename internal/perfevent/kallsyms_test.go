package perfevent

import (
	"slices"
	"strings"
	"testing"

	"clrsnap/internal/testenv"
)

const someSymbols = `ffffffff81000000 T _stext
ffffffff81000100 t do_one
ffffffff81000100 T do_one_alias
ffffffff81000200 W weak_one
ffffffff81000300 D data_one
ffffffff81000400 d data_two
ffffffffc0001000 t in_module	[ext4]
ffffffffc0000000 t lower	[ext4]
ffffffffc0002000 d its_data	[ext4]
0000000000000000 A fixed_percpu_data
a line that is none of these at all
ffffffffc0003000
`

func TestKernelSymbols(t *testing.T) {
	tests := []struct {
		addr         uint64
		name, module string
	}{
		{0, "", ""},
		{0xffffffff80ffffff, "", ""},
		{0xffffffff81000000, "_stext", ""},
		{0xffffffff810000ff, "_stext", ""},
		{0xffffffff81000100, "do_one", ""},
		{0xffffffff81000234, "weak_one", ""},
		{0xffffffff81000300, "", ""},
		{0xffffffff81000500, "", ""},
		{0xffffffffc0000fff, "lower", "ext4"},
		{0xffffffffc0001000, "in_module", "ext4"},
		{0xffffffffc0002000, "", ""},
		{^uint64(0), "", ""},
	}
	var addrs []uint64
	for _, tt := range tests {
		addrs = append(addrs, tt.addr)
	}
	check := func(asked string, addrs []uint64) {
		found, err := nameKernel(strings.NewReader(someSymbols), addrs)
		if err != nil {
			t.Fatal(err)
		}
		for _, tt := range tests {
			f, ok := found[tt.addr]
			if want := (KernelFunction{tt.name, tt.module}); slices.Contains(addrs, tt.addr) &&
				(f != want || ok != (tt.name != "")) {
				t.Errorf("%s: %#x: %+v %v, want %+v", asked, tt.addr, f, ok, want)
			}
		}
	}
	check("together", addrs)
	slices.Reverse(addrs)
	check("together, and twice", append(addrs, addrs...))
	for i := range addrs {
		check("alone", addrs[i:i+1])
	}
}

func TestHiddenKernelSymbols(t *testing.T) {
	found, err := nameKernel(strings.NewReader("0000000000000000 T _stext\n0000000000000000 t do_one\n"),
		[]uint64{0, 1, 0xffffffff81000000})
	if err != nil || len(found) != 0 {
		t.Errorf("%v, %v", found, err)
	}
}

func FuzzKernelSymbols(f *testing.F) {
	f.Add(someSymbols, uint64(0xffffffff81000234))
	f.Add("81000234 t  \n", uint64(0x81000234))
	f.Fuzz(func(t *testing.T, text string, addr uint64) {
		var found map[uint64]KernelFunction
		var err error
		testenv.Allocates(t, len(text), 10, 1<<16, func() {
			found, err = nameKernel(strings.NewReader(text), []uint64{addr, addr / 2})
		})
		if err != nil {
			return
		}
		for at, f := range found {
			if f.Name == "" || !strings.Contains(text, f.Name) || !strings.Contains(text, f.Module) {
				t.Errorf("%#x is in %+v", at, f)
			}
		}
	})
}
