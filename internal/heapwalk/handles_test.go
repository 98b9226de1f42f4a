package heapwalk

import (
	"os"
	"runtime"
	"testing"
	"unsafe"

	"clrsnap/internal/arch"
	"clrsnap/internal/session"
	"clrsnap/internal/target/live"
)

// TestFollowUnread: a handle that cannot be read costs the others nothing. The handles are words of
// the test's process.
func TestFollowUnread(t *testing.T) {
	l, err := live.Open(os.Getpid())
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	p := &session.Process{Live: l}
	words := []uint64{0x1110, 0, 0x3330}
	var pin runtime.Pinner
	pin.Pin(&words[0])
	defer pin.Unpin()
	at := func(i int) Handle { return Handle{Address: arch.Addr(uintptr(unsafe.Pointer(&words[i])))} }
	const nowhere = 0x1000 // the first page is never mapped (vm.mmap_min_addr)
	got, err := Follow(p, []Handle{at(2), {Address: nowhere}, at(0), at(1)})
	want := []Followed{{Object: 0x3330}, {Unread: true}, {Object: 0x1110}, {}}
	if err != nil || len(got) != len(want) {
		t.Fatalf("%v, %v", got, err)
	}
	for i := range want {
		if got[i] != want[i] {
			t.Errorf("%d: %+v, want %+v", i, got[i], want[i])
		}
	}
	if got, err := Follow(p, []Handle{{Address: nowhere}}); err == nil {
		t.Errorf("%+v, and nothing can be read", got)
	}
}
