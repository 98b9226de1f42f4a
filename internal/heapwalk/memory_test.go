package heapwalk

import (
	"testing"

	"clrsnap/internal/arch"
	"clrsnap/internal/target"
	"clrsnap/snapshot"
)

// TestPartition: each page counts once, in the right part.
func TestPartition(t *testing.T) {
	const rw = target.PermRead | target.PermWrite
	at := func(start, end arch.Addr, perm target.Perm, path string, bytes int64) resident {
		return resident{target.Mapping{Start: start, End: end, Perm: perm, Path: path}, bytes}
	}
	list := []resident{
		at(0x1000, 0x2000, target.PermRead|target.PermExec, "/lib/a.so", 1),
		at(0x10000, 0x20000, rw, "", 0x10000), // half of the mapping is the heap's: the kernel has joined two mappings
		at(0x20000, 0x30000, 0, "", 0),        // reserved
		at(0x30000, 0x40000, rw, "", 0x8000),  // a free region
		at(0x40000, 0x50000, rw, "", 0x10000), // the last region
		at(0x50000, 0x60000, rw, "", 0x1000),  // of somebody else
		at(0x70000, 0x80000, rw, "", 0x300),   // a stack
		at(0x90000, 0xa0000, rw|target.PermShared, doubleMapped, 0x40),
		at(0xb0000, 0xc0000, rw|target.PermShared, "/dev/shm/x", 0x50),
		at(0xd0000, 0xe0000, rw, "[heap]", 0x60),
		at(0xf0000, 0xf8000, rw, "[stack]", 0x70),
	}
	spans := []span{{0x18000, 0x50000}}
	got := partition(list, spans, []arch.Addr{0x7fff0})
	want := snapshot.Memory{
		Managed: 0x8000 + 0x8000 + 0x10000, Stacks: 0x370, Code: 0x40, Files: 1, Shared: 0x50,
		Native: 0x8000 + 0x1000 + 0x60,
	}
	want.RSS = want.Managed + want.Stacks + want.Code + want.Files + want.Shared + want.Native
	if got != want {
		t.Errorf("%+v, want %+v", got, want)
	}
}

// TestManagedSpans: free regions behind the last segment are the heap's, up to the end of the collector's reserve.
func TestManagedSpans(t *testing.T) {
	const rw, mb = target.PermRead | target.PermWrite, 1 << 20
	var list []resident
	at := arch.Addr(1 << 40)
	add := func(perm target.Perm, size arch.Addr, path string) {
		list = append(list, resident{target.Mapping{Start: at, End: at + size, Perm: perm, Path: path}, 0})
		at += size
	}
	add(rw, 8*mb, "") // two segments
	add(0, 4*mb, "")
	add(rw, 4*mb, "") // a free region
	add(0, 1<<30, "")
	reserve := at
	add(rw, 8*mb, "") // of somebody else
	add(0, 64*mb, "")
	areas := []area{{span: span{1 << 40, 1<<40 + 4*mb}}, {span: span{1<<40 + 4*mb, 1<<40 + 8*mb}}}
	if got := managedSpans(list, areas); len(got) != 1 || got[0] != (span{1 << 40, reserve}) {
		t.Errorf("%v, and the reserve ends at %v", got, reserve)
	}
	list[3].Path = "/lib/a.so"
	if got := managedSpans(list, areas); got[0].end != 1<<40+8*mb {
		t.Errorf("without a reserve: %v", got)
	}
}
