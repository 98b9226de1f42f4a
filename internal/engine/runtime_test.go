package engine

import (
	"cmp"
	"errors"
	"maps"
	"slices"
	"strings"
	"testing"

	"clrsnap/internal/arch"
	"clrsnap/internal/clr/thread"
	"clrsnap/internal/contract"
	"clrsnap/internal/locate"
	"clrsnap/internal/target"
	"clrsnap/internal/target/live"
	"clrsnap/internal/testenv"
	"clrsnap/internal/testenv/layer"
)

// undescribed is a runtime that does not describe itself.
const undescribed = "net10:dotnet-10.0.8"

func openIdle(t *testing.T, runtime string) (*Engine, *locate.Runtime) {
	t.Helper()
	testenv.Kit(t).Need(t, runtime)
	a := testenv.Start(t, "idle", testenv.Options{Runtime: runtime, Args: []string{"--threads", "4"}})
	e := openProcess(t, a.PID)
	r, err := e.OpenRuntime()
	if err != nil {
		t.Fatal(err)
	}
	return e, r
}

// openProcess returns an engine on a process.
func openProcess(t *testing.T, pid int) *Engine {
	t.Helper()
	p, err := live.Open(pid)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { p.Close() })
	e, err := New(p)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(e.Close)
	return e
}

// checked are the fields that walks depend on in any program, so that a wrong offset is found even in a program that
// does next to nothing. No check can find a wrong offset in a structure that exists only during an event (an
// exception, a hijack, a debugger), nor a wrong offset that turns a name or a tier into another valid name or tier.
var checked = map[string][]string{
	"CodeHeapListNode":     {"HeaderMap", "MapBase", "StartAddress"},
	"EEClass":              {"MethodTable"},
	"HashMap":              {"Buckets"},
	"InlinedCallFrame":     {"CallerReturnAddress"},
	"MethodDesc":           {"ChunkIndex", "Flags3AndTokenRemainder"},
	"MethodDescChunk":      {"MethodTable"},
	"MethodTable":          {"EEClassOrCanonMT", "MTFlags2", "Module"},
	"Module":               {"Assembly", "Base", "DynamicMetadata", "ReadyToRunInfo"},
	"RangeSection":         {"HeapList", "NextForDelete", "R2RModule", "RangeBegin", "RangeEndOpen"},
	"RangeSectionFragment": {"Next", "RangeBegin", "RangeSection"},
	"ReadyToRunInfo": {
		"CompositeInfo", "EntryPointToMethodDescMap", "NumRuntimeFunctions", "ReadyToRunHeader", "RuntimeFunctions",
	},
	"RealCodeHeader":  {"MethodDesc", "NumUnwindInfos", "UnwindInfos"},
	"RuntimeFunction": {"BeginAddress", "UnwindData"},
	"Thread":          {"Frame", "Id", "LinkNext", "OSId", "State"},
	"ThreadStore":     {"FirstThreadLink"},
}

// TestWrongLayouts: a description of a runtime with one wrong field is refused, whatever the field.
func TestWrongLayouts(t *testing.T) {
	layer.Matrix(t)
	for _, runtime := range []string{"net8", "net9", "net10:dotnet-10.0.8", testenv.NewestRuntime} {
		t.Run(runtime, func(t *testing.T) {
			e, r := openIdle(t, runtime)
			right := e.Layout
			fields, refused := 0, 0
			for _, typ := range slices.Sorted(maps.Keys(right.Types)) {
				for _, field := range slices.Sorted(maps.Keys(right.Types[typ].Fields)) {
					wrong := withOffset(right, typ, field, 8)
					err := e.bindChecked(r, wrong, true)
					noticed := slices.Contains(checked[typ], field)
					if field == "DynamicMetadata" && runtime == testenv.NewestRuntime {
						noticed = false // null in this program, and so is the word behind it
					}
					if fields++; err != nil {
						refused++
					}
					if noticed && err == nil {
						t.Errorf("%s.%s + 8: not noticed", typ, field)
					}
					if err != nil && e.Runtime != nil {
						t.Errorf("%s.%s + 8: refused but bound: %v", typ, field, err)
					}
				}
			}
			t.Logf("%d of %d fields are noticed", refused, fields)
			if err := e.bindChecked(r, right, false); err != nil {
				t.Errorf("the right one: %v", err)
			}
			if runtime != "net8" && runtime != "net9" {
				return // from .NET 10 on, kinds of Frame are numbers, not entries of a table
			}
			if err := e.bindChecked(r, withFramesMoved(right), true); err == nil {
				t.Error("a runtime whose kinds of Frame are confused with one another is not refused")
			}
		})
	}
}

// alike are the kinds of Frame that are read in the same way.
var alike = []string{
	"PInvokeCalliFrame PrestubMethodFrame StubDispatchFrame " +
		"CallCountingHelperFrame ExternalMethodFrame DynamicHelperFrame",
	"ResumableFrame RedirectedThreadFrame",
	"HelperMethodFrame HelperMethodFrame_1OBJ HelperMethodFrame_2OBJ HelperMethodFrame_3OBJ " +
		"HelperMethodFrame_PROTECTOBJ",
	"DebuggerClassInitMarkFrame DebuggerSecurityCodeMarkFrame DebuggerExitFrame DebuggerU2MCatchHandlerFrame " +
		"ProtectByRefsFrame ProtectValueClassFrame ExceptionFilterFrame",
}

// TestWrongKinds: a description that confuses a kind of Frame with a kind that is read in another way is refused:
// with a class too many in the list, a class too few, or two classes in the wrong order.
func TestWrongKinds(t *testing.T) {
	layer.Matrix(t)
	for _, runtime := range []string{"net8", "net8:dotnet-8.0.4", "net9", "net9:dotnet-9.0.9"} {
		t.Run(runtime, func(t *testing.T) {
			e, r := openIdle(t, runtime)
			right := e.Layout
			refuse := func(what string, wrong *contract.Descriptor) {
				t.Helper()
				if err := e.bindChecked(r, wrong, true); !errors.Is(err, thread.ErrFrameKinds) {
					t.Errorf("%s: %v", what, err)
				}
			}
			for i, group := range alike {
				for _, one := range strings.Fields(group) {
					for j, others := range alike {
						if other := strings.Fields(others)[0]; i != j {
							refuse(one+" for "+other, withKinds(right, map[string]string{one: other, other: one}))
						}
					}
					refuse(one+" for InlinedCallFrame",
						withKinds(right, map[string]string{one: "InlinedCallFrame", "InlinedCallFrame": one}))
				}
			}
			// An old bug: .NET 9 has no MulticastFrame (vptr_list.h).
			behind := strings.Fields("PInvokeCalliFrame PrestubMethodFrame " +
				"ProtectByRefsFrame ProtectValueClassFrame ResumableFrame RedirectedThreadFrame " +
				"StubDispatchFrame CallCountingHelperFrame ExternalMethodFrame DynamicHelperFrame ExceptionFilterFrame")
			more, less := map[string]string{}, map[string]string{}
			for i := range len(behind) - 1 {
				more[behind[i]], less[behind[i+1]] = behind[i+1], behind[i]
			}
			refuse("a class too many", withKinds(right, more))
			refuse("a class too few", withKinds(right, less))
			if err := e.bindChecked(r, right, false); err != nil {
				t.Errorf("the right one: %v", err)
			}
		})
	}
}

// withKinds returns d with kinds of Frame that have the identifiers of other kinds.
func withKinds(d *contract.Descriptor, as map[string]string) *contract.Descriptor {
	out := &contract.Descriptor{Types: d.Types, Globals: maps.Clone(d.Globals), Contracts: d.Contracts}
	for kind, other := range as {
		out.Globals[kind+"Identifier"] = d.Globals[other+"Identifier"]
	}
	return out
}

// without is a target with an unreadable page. leftOut: a dump left the page out.
type without struct {
	*live.Process
	page    arch.Addr
	leftOut bool
}

func (w *without) ReadMemory(p []byte, addr arch.Addr) error {
	const pageSize = 4096
	if addr < w.page+pageSize && w.page < addr+arch.Addr(len(p)) {
		return &target.ReadError{Addr: addr, Len: len(p)}
	}
	return w.Process.ReadMemory(p, addr)
}

func (w *without) Lacks(addr arch.Addr, n int) bool {
	return w.leftOut && w.ReadMemory(make([]byte, n), addr) != nil && addr < 1<<47
}

// TestUncheckable: a description that cannot be checked is accepted only if the memory for the check was left out of
// a dump, and only for a tested build.
func TestUncheckable(t *testing.T) {
	whole, r := openIdle(t, undescribed)
	global, _ := whole.Layout.Global("ThreadStore")
	store, err := target.NewReader(whole.Cache).Pointer(arch.Addr(global))
	if err != nil {
		t.Fatal(err)
	}
	// The store may lie across two pages: the hidden page has the field that the check reads.
	at := store + arch.Addr(whole.Layout.Types["ThreadStore"].Fields["FirstThreadLink"].Offset)
	garbage := *whole.Layout
	garbage.Globals = maps.Clone(garbage.Globals)
	garbage.Globals["FinalizerThread"] = contract.Global{Value: 1 << 50, Number: true}
	for _, tt := range []struct {
		name     string
		leftOut  bool
		layout   *contract.Descriptor
		tested   bool
		believed bool
	}{
		{"left out, of a tested build", true, whole.Layout, true, true},
		{"left out, of another build", true, whole.Layout, false, false},
		{"unreadable in a live process", false, whole.Layout, true, false},
		{"an address that was never right", true, &garbage, true, false},
	} {
		e, err := New(&without{Process: whole.src.(*live.Process), page: at &^ 4095, leftOut: tt.leftOut})
		if err != nil {
			t.Fatal(err)
		}
		err = e.bindChecked(r, tt.layout, tt.tested)
		if (err == nil) != tt.believed || (e.Runtime != nil) != tt.believed || err != nil && !errors.Is(err, ErrUnfit) {
			t.Errorf("%s: %v", tt.name, err)
		}
		e.Close()
	}
}

// TestMissingField: a runtime with an unknown field is not mistaken for a starting runtime.
func TestMissingField(t *testing.T) {
	e, r := openIdle(t, undescribed)
	less := *e.Layout
	less.Types = maps.Clone(less.Types)
	delete(less.Types, "RangeSection")
	err := e.bindChecked(r, &less, true)
	if !errors.Is(err, ErrUnknown) || errors.Is(err, ErrUnfit) || !strings.Contains(err.Error(), "RangeSection.") {
		t.Error(err)
	}
}

// TestEmbeddedAgrees: a runtime's own descriptor and the embedded descriptor agree.
func TestEmbeddedAgrees(t *testing.T) {
	testenv.EachOf(t, []string{"net10", "net9"}, func(t *testing.T, runtime string) {
		e, r := openIdle(t, runtime)
		known, ok := contract.EmbeddedFor(r.Version, e.Arch.Machine)
		if !ok {
			t.Fatalf("nothing is embedded about .NET %s", r.Version)
		}
		ours, err := known.Layout(e.Cache, r.Table, r.TableSize)
		if err != nil {
			t.Fatal(err)
		}
		equal := 0
		for name, typ := range ours.Types {
			own := e.Own.Types[name]
			if typ.HasSize && own.HasSize && typ.Size != own.Size {
				t.Errorf("size of %s: %d, the runtime says %d", name, typ.Size, own.Size)
			}
			for field, f := range typ.Fields {
				if o, ok := own.Fields[field]; ok && o.Offset != f.Offset {
					t.Errorf("%s.%s: %d, the runtime says %d", name, field, f.Offset, o.Offset)
				} else if ok {
					equal++
				}
			}
		}
		for name, g := range ours.Globals {
			if o, ok := e.Own.Globals[name]; ok && o.Value != g.Value {
				t.Errorf("%s: %#x, the runtime says %#x", name, g.Value, o.Value)
			} else if ok {
				equal++
			}
		}
		if t.Logf("%d values are equal", equal); equal < 30 {
			t.Error("next to nothing was compared")
		}
	})
}

// TestThreadOfAnother: a Thread object counts only for a thread with the object's id. The runtime may have freed the
// object, and given the memory to another thread.
func TestThreadOfAnother(t *testing.T) { testenv.EachRuntime(t, testThreadOfAnother) }

func testThreadOfAnother(t *testing.T, runtime string) {
	e, _ := openIdle(t, runtime)
	threads := e.Runtime.Threads
	list, err := threads.List()
	if err != nil {
		t.Fatal(err)
	}
	alive := 0
	for i := range list {
		at := list[i].Address
		head := make([]byte, threads.HeadLen())
		if err := e.Cache.ReadMemory(head, at); err != nil {
			t.Fatal(err)
		}
		info := threads.Parse(head, at)
		if !info.Alive() {
			continue
		}
		alive++
		c := Captured{Object: at, OSID: info.OSID, Head: head, Stack: &target.Stack{}}
		if got, _ := e.Thread(&c); got.Info.Address != at {
			t.Errorf("thread %d: %+v", c.OSID, got.Info)
		}
		c.OSID++
		if got, _ := e.Thread(&c); got.Info.Address != 0 {
			t.Errorf("thread %d is taken for thread %d", c.OSID, info.OSID)
		}
	}
	if alive == 0 {
		t.Error("no thread is alive")
	}
}

// withFramesMoved returns d with every kind of Frame in the place of the next kind.
func withFramesMoved(d *contract.Descriptor) *contract.Descriptor {
	out := &contract.Descriptor{Types: d.Types, Globals: maps.Clone(d.Globals), Contracts: d.Contracts}
	var names []string
	for name := range d.Globals {
		if strings.HasSuffix(name, "Identifier") {
			names = append(names, name)
		}
	}
	slices.SortFunc(names, func(a, b string) int { return cmp.Compare(d.Globals[a].Value, d.Globals[b].Value) })
	for i, name := range names {
		out.Globals[name] = d.Globals[names[(i+1)%len(names)]]
	}
	return out
}

// withOffset returns d with another offset of a field.
func withOffset(d *contract.Descriptor, typ, field string, change uint32) *contract.Descriptor {
	out := &contract.Descriptor{Types: maps.Clone(d.Types), Globals: d.Globals, Contracts: d.Contracts}
	changed := out.Types[typ]
	changed.Fields = maps.Clone(changed.Fields)
	f := changed.Fields[field]
	f.Offset += change
	changed.Fields[field] = f
	out.Types[typ] = changed
	return out
}
