package waits

import (
	"encoding/binary"
	"slices"
	"testing"

	"clrsnap/internal/arch"
	"clrsnap/internal/clr"
	"clrsnap/internal/clr/clrtest"
	"clrsnap/internal/clr/object"
	"clrsnap/internal/clr/thread"
	"clrsnap/internal/target"
	"clrsnap/snapshot"
)

// wrapped is memory of fuzz data, repeated: everything can be read, except one page in eight and long pieces.
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

// everybody is the threads of a process in which each id and each address belongs to a thread.
type everybody struct{}

func (everybody) OS(id int) *thread.Thread            { return &thread.Thread{OSID: id} }
func (everybody) Managed(id int) *thread.Thread       { return &thread.Thread{ManagedID: id} }
func (everybody) At(address arch.Addr) *thread.Thread { return &thread.Thread{Address: address} }
func (everybody) Renew() bool                         { return false }
func (everybody) Ref(t *thread.Thread) *snapshot.ThreadRef {
	return &snapshot.ThreadRef{OSThreadID: t.OSID, ManagedThreadID: t.ManagedID}
}
func (everybody) Other(osID int) *snapshot.ThreadRef { return &snapshot.ThreadRef{OSThreadID: osID} }
func (everybody) All() bool                          { return true }

// FuzzRelations: the code that finds holders and waiters, on memory with any content. There is an
// answer in bounded time, and no thread waits for a static constructor that the thread runs.
func FuzzRelations(f *testing.F) {
	f.Add(make([]byte, 64), uint64(0x10000), false)
	circle := make([]byte, 64) // each word leads to the next, the last to the first
	for i := range 8 {
		binary.LittleEndian.PutUint64(circle[8*i:], uint64(0x10000+8*((i+1)%8)))
	}
	f.Add(circle, uint64(0x10000), true)
	f.Fuzz(func(t *testing.T, data []byte, at uint64, async bool) {
		if len(data) == 0 || len(data) > 4096 {
			return
		}
		mem := wrapped(data)
		for _, name := range []string{clrtest.Net8, clrtest.Net9, clrtest.Net10, clrtest.Net11} {
			runtime, err := clr.New(mem, clrtest.Descriptor(t, name), arch.AMD64)
			if err != nil {
				t.Fatal(err)
			}
			r := &Reader{Managed: &runtime.Managed, Runtime: runtime, People: everybody{}, Live: mem}
			r.ReadLocks(arch.Addr(at))
			r.LockNumber(arch.Addr(at))
			head := make([]byte, 256)
			_ = mem.ReadMemory(head, arch.Addr(at))
			if w := r.Constructor(head, arch.Addr(at)); w != nil && (w.Owner == nil || w.Type == "") {
				t.Errorf("%+v", w)
			}
			method := "System.Threading.Tasks.Task.ExecuteWithThreadLocal"
			if async {
				method = "System.Runtime.CompilerServices.AsyncTaskMethodBuilder`1+AsyncStateMachineBox`1.MoveNext"
			}
			base := arch.Addr(0x7000_0000_0000)
			s := Subject{
				Frames: []snapshot.Frame{
					{Kind: snapshot.Native, SP: uint64(base)},
					{Kind: snapshot.Managed, Module: coreLib, Method: method, SP: uint64(base)},
				},
				Stack:  &target.Stack{Region: target.Region{Base: base, Data: data}},
				Thread: thread.Thread{Address: arch.Addr(at)},
			}
			r.Runs(&s)
			r.begin()
			r.nameFields(&s, 0, &snapshot.Wait{Certain: true, Object: at})
			for _, obj := range []uint64{at,
				binary.LittleEndian.Uint64(append(slices.Clone(data), make([]byte, 8)...))} {
				_, _ = r.awaiting(arch.Addr(obj), &object.Class{})
			}
		}
	})
}
