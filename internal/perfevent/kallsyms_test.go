package perfevent

import (
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
	k, err := parseKallsyms(strings.NewReader(someSymbols))
	if err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
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
	} {
		name, module, ok := k.Name(tt.addr)
		if name != tt.name || ok != (tt.name != "") || ok && module != tt.module {
			t.Errorf("%#x: %q %q %v, want %q %q", tt.addr, name, module, ok, tt.name, tt.module)
		}
	}
	if k.Len() != 5 {
		t.Errorf("%d functions", k.Len())
	}
}

func TestHiddenKernelSymbols(t *testing.T) {
	k, err := parseKallsyms(strings.NewReader("0000000000000000 T _stext\n0000000000000000 t do_one\n"))
	if err != nil {
		t.Fatal(err)
	}
	for _, addr := range []uint64{0, 1, 0xffffffff81000000} {
		if name, _, ok := k.Name(addr); ok || name != "" {
			t.Errorf("%#x: %q", addr, name)
		}
	}
}

func FuzzKernelSymbols(f *testing.F) {
	f.Add(someSymbols, uint64(0xffffffff81000234))
	f.Fuzz(func(t *testing.T, text string, addr uint64) {
		var k *KernelSymbols
		var err error
		testenv.Allocates(t, len(text), 50, 1<<16, func() { k, err = parseKallsyms(strings.NewReader(text)) })
		if err != nil {
			return
		}
		if name, _, ok := k.Name(addr); ok && (name == "" || !strings.Contains(text, name)) {
			t.Errorf("%#x is in %q", addr, name)
		}
	})
}
