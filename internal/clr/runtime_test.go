package clr

import (
	"errors"
	"os"
	"strings"
	"testing"

	"clrsnap/internal/arch"
	"clrsnap/internal/clr/clrtest"
	"clrsnap/internal/clr/codemap"
	"clrsnap/internal/contract"
	"clrsnap/internal/ecma335"
	"clrsnap/internal/target"
)

var styles = [2]ecma335.Style{ecma335.Full, ecma335.Short}

// descriptor returns a descriptor whose text a test has changed.
func descriptor(name string, change func(string) string) (*contract.Descriptor, error) {
	text, err := os.ReadFile("../contract/testdata/" + name + ".json")
	if err != nil {
		return nil, err
	}
	d, err := contract.FromJSON([]byte(change(string(text))), make([]uint64, 64))
	if err == nil {
		d.Runtime = "1.2.3"
	}
	return d, err
}

// wrapped is memory of fuzz data, repeated: everything can be read, except one page in
// eight and long pieces.
type wrapped []byte

func (w wrapped) ReadMemory(p []byte, addr arch.Addr) error {
	if len(p) > 1<<16 || addr>>12&7 == 7 {
		return &target.ReadError{Addr: addr, Len: len(p)}
	}
	for n := 0; n < len(p); {
		n += copy(p[n:], w[(uint64(addr)+uint64(n))%uint64(len(w)):])
	}
	return nil
}

// FuzzRuntime: every reader of the runtime's structures, on arbitrary memory. There is an answer or an error, in
// bounded time.
func FuzzRuntime(f *testing.F) {
	f.Add(make([]byte, 16), uint64(0x1000))
	f.Add(
		[]byte(
			"\x00\x10\x00\x00\x00\x00\x00\x00BSJB\x01\x00\x01\x00IL_STUB_PInvoke\x00\x07\x00\x00\x00\x00\x00\x00\x00"),
		uint64(8))
	f.Fuzz(func(t *testing.T, data []byte, addr uint64) {
		if len(data) == 0 || len(data) > 4096 {
			return
		}
		for _, name := range []string{clrtest.Net8, clrtest.Net9, clrtest.Net10, clrtest.Net11} {
			r, err := New(wrapped(data), clrtest.Descriptor(t, name), arch.AMD64)
			if err != nil {
				t.Fatal(err)
			}
			readAll(t, r, arch.Addr(addr))
			r.Names.Check(doubtful{})
			readAll(t, r, arch.Addr(addr))
		}
	})
}

// doubtful are images without any proof.
type doubtful struct{}

func (doubtful) Proved(arch.Addr) bool    { return false }
func (doubtful) Refused(arch.Addr, error) {}

// readAll reads every structure that may lie at an address.
func readAll(t *testing.T, r *Runtime, at arch.Addr) {
	r.Begin()
	c, err := r.Code.Lookup(at)
	if err == nil && c.Kind == codemap.None {
		c = codemap.Code{Kind: codemap.JIT, MethodDesc: at, MethodStart: at}
	}
	r.Code.IsFilter(&c)
	r.IL.Of(&c)
	for _, desc := range []arch.Addr{at, c.MethodDesc} {
		r.Names.Hidden(desc)
		m, err := r.Methods.Read(desc)
		if err != nil {
			continue
		}
		for _, volatile := range []bool{false, true} {
			n, err := r.Names.Method(&m, volatile)
			if err == nil && n.Display == "" {
				t.Fatalf("%+v has no name: %+v", m, n)
			}
		}
		r.Methods.Tier(&m, &c)
		r.Methods.Dynamic(&m)
	}
	r.Types.Read(at)
	r.Types.Check(at)
	r.Types.LoaderAllocator(at)
	r.Types.LoadContext(at)
	r.Names.RuntimeName(at)
	r.Inlined.MethodAt(at)
	if o, err := r.Objects.Class(at); err == nil {
		r.Meaning(at, o)
	}
	for style := range 2 {
		r.Names.Type(at, styles[style])
	}
	if at%8 == 0 {
		if samples, _ := r.Code.Samples(64); len(samples) > 64+4 {
			t.Fatalf("%d samples", len(samples))
		}
	}
	if at%32 == 0 { // a list can have 131,072 entries
		list, _ := r.Threads.List()
		for i := range list[:min(len(list), 3)] {
			r.Threads.Name(&list[i])
			r.Threads.ReadException(r.Threads.LastException(&list[i]))
		}
	}
	r.Threads.Finalizer()
}

func TestNewUnknown(t *testing.T) {
	for _, tt := range []struct {
		name, of, old, new string
		want               []string
	}{
		{"an unknown version of a contract", clrtest.Net10,
			`"ExecutionManager":2`, `"ExecutionManager":"c9"`, []string{"ExecutionManager", "c9", "1.2.3"}},
		{"an old name of a version", clrtest.Net11,
			`"ExecutionManager":"c1"`, `"ExecutionManager":"c2"`, []string{"ExecutionManager", "c2", "1.2.3"}},
		{"a missing contract", clrtest.Net10, `"ExecutionManager":2,`, ``, []string{"ExecutionManager", "1.2.3"}},
		{"a missing field", clrtest.Net10, `"OSId":296,`, ``, []string{"Thread", "OSId", "1.2.3"}},
		{"a missing field of two names", clrtest.Net10,
			`"GCHandle":[304,"GCHandle"],`, ``, []string{"Thread.GCHandle", "Thread.ExposedObject", "1.2.3"}},
		{"nothing that tells an array's rank", clrtest.Net11,
			`"ArrayBaseSize":"0x18",`, ``, []string{"ArrayBaseSize", "1.2.3"}},
	} {
		found := false
		d, err := descriptor(tt.of, func(s string) string {
			found = strings.Contains(s, tt.old)
			return strings.Replace(s, tt.old, tt.new, 1)
		})
		if err != nil || !found {
			t.Fatalf("%s: %v, %v", tt.name, found, err)
		}
		_, err = New(wrapped{0}, d, arch.AMD64)
		if err == nil {
			err = errors.New("")
		}
		for _, w := range tt.want {
			if !strings.Contains(err.Error(), w) {
				t.Errorf("%s: %q does not mention %s", tt.name, err, w)
			}
		}
	}
}

// A runtime is read without the parts that depend on an unknown contract.
func TestUnknown(t *testing.T) {
	for _, name := range []string{"DebugInfo", "GCInfo", "SyncBlock"} {
		d, err := descriptor(clrtest.Net11, func(s string) string {
			return strings.Replace(s, `"`+name+`":"c1"`, `"`+name+`":"c9"`, 1)
		})
		if err != nil {
			t.Fatal(err)
		}
		r, err := New(wrapped{0}, d, arch.AMD64)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		unknown := r.Unknown()
		if len(unknown) != 1 || unknown[0].Contract != name ||
			!strings.Contains(unknown[0].Error(), ".NET 1.2.3 follows version c9 of the contract "+name) {
			t.Errorf("%s: %v", name, unknown)
		}
		if (r.Locks == nil) != (name == "SyncBlock") {
			t.Errorf("%s: locks are %v", name, r.Locks)
		}
	}
}

// gone is the memory of a program that has ended.
type gone struct{}

func (gone) ReadMemory(p []byte, addr arch.Addr) error {
	return &target.ReadError{Addr: addr, Len: len(p), Err: os.ErrProcessDone}
}

// TestCheckGone: for a runtime that cannot be read, Check does not return ErrNotStarted.
func TestCheckGone(t *testing.T) {
	r, err := New(gone{}, clrtest.Descriptor(t, clrtest.Net10), arch.AMD64)
	if err != nil {
		t.Fatal(err)
	}
	if err := r.Check(Outside{}); !errors.Is(err, os.ErrProcessDone) || errors.Is(err, ErrNotStarted) {
		t.Error(err)
	}
}
