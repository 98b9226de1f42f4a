package waits

import (
	"maps"
	"testing"

	"clrsnap/internal/arch"
	"clrsnap/internal/clr"
	"clrsnap/internal/clr/clrtest"
)

// TestReadCountsInBuckets: of a thread of .NET 8, either the ReaderWriterCount among the thread's static references is
// found, or it is certain that the thread reads no lock. If two words of a Thread seem to lead to statics, nothing is
// certain.
func TestReadCountsInBuckets(t *testing.T) {
	p := clrtest.NewProgram(t, clrtest.Net9)
	object := &clrtest.Class{Name: "System.Object", Size: 16}
	count := &clrtest.Class{Name: countClass, Base: object, Size: 40}
	p.Assembly(coreLib, object, count)
	d := *clrtest.Descriptor(t, clrtest.Net9)
	d.Types = maps.Clone(d.Types)
	thread := d.Types["Thread"]
	thread.Fields = maps.Clone(thread.Fields)
	delete(thread.Fields, "ThreadLocalDataPtr") // as in the descriptor of .NET 8
	d.Types["Thread"] = thread
	runtime, err := clr.New(p, &d, arch.AMD64)
	if err != nil {
		t.Fatal(err)
	}
	array := p.ArrayOf(object)
	statics := func(refs ...arch.Addr) arch.Addr {
		table, bucket, handle := p.Room(localLen), p.Room(bucketLen), p.Room(8)
		p.Words[table] = uint64(bucket)
		p.Words[bucket+bucketSize] = uint64(len(refs))
		p.Words[bucket+bucketHandle] = uint64(handle)
		p.Words[handle] = uint64(p.Array(array, refs...))
		return table
	}
	none, reads := statics(0, p.Object(object), 0), p.Object(count)
	for name, tt := range map[string]struct {
		words map[int]arch.Addr // of the Thread, by offset
		first arch.Addr
		read  bool
		at    int // where the Thread has its statics
	}{
		"no lock":        {map[int]arch.Addr{0x140: none}, 0, true, 0x140},
		"a lock":         {map[int]arch.Addr{0x140: statics(0, reads)}, reads, true, 0x140},
		"two words":      {map[int]arch.Addr{0x140: none, 0x200: none}, 0, false, 0},
		"another Thread": {map[int]arch.Addr{runtime.Threads.LinkOffset(): none, 0x140: none}, 0, true, 0x140},
		"no statics":     {nil, 0, false, 0},
	} {
		thread := p.Room(threadLen)
		for at, word := range tt.words {
			p.Words[thread+arch.Addr(at)] = uint64(word)
		}
		r := &Reader{Managed: &runtime.Managed, Runtime: runtime}
		if first, read := r.readCounts(thread); first != tt.first || read != tt.read || r.localAt != tt.at {
			t.Errorf("%s: %v, %v at %#x, want %v, %v at %#x", name, first, read, r.localAt, tt.first, tt.read, tt.at)
		}
	}
}
