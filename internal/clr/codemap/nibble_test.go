package codemap

import (
	"testing"

	"clrsnap/internal/arch"
	"clrsnap/internal/clr/clrtest"
)

// block is a piece of code: distances in bytes from the map's base.
type block struct{ start, end uint64 }

// buildNibbles writes the map as the runtime does (codeman.cpp, EECodeGenManager::NibbleMapSetUnlocked, of .NET 10;
// older maps have no distances).
func buildNibbles(mem memory, at arch.Addr, blocks []block, distances bool) {
	words := map[uint64]uint32{}
	last := uint64(0)
	for _, b := range blocks {
		index, slot := b.start/wordBytes, b.start/bucketBytes%nibblesInWord
		words[index] |= uint32(b.start%bucketBytes/4+1) << (28 - 4*slot)
		last = max(last, b.end/wordBytes)
		for index++; distances && (index+1)*wordBytes <= b.end; index++ {
			words[index] = uint32(b.start)&^nibbleMask + uint32(b.start)&nibbleMask>>2 + nibblePointer
		}
	}
	for i := uint64(0); i <= last+2; i++ {
		mem.u32(at+arch.Addr(i*4), words[i])
	}
}

// naive finds the last block that starts at or before rel.
func naive(blocks []block, rel uint64) (b block, ok bool) {
	for _, c := range blocks {
		if c.start <= rel {
			b, ok = c, true
		}
	}
	return b, ok
}

func checkNibbles(t *testing.T, blocks []block, rels []uint64) {
	t.Helper()
	for version, distances := range map[string]bool{clrtest.Net9: false, clrtest.Net10: true} {
		checkNibblesOf(t, version, distances, blocks, rels)
	}
}

func checkNibblesOf(t *testing.T, version string, distances bool, blocks []block, rels []uint64) {
	t.Helper()
	const at = 0x40000
	mem := memory{}
	buildNibbles(mem, at, blocks, distances)
	m := newMapOf(t, mem, clrtest.Descriptor(t, version))
	for _, rel := range rels {
		got, ok, err := m.nibble(at, rel)
		want, exists := naive(blocks, rel)
		switch {
		case err != nil:
			t.Fatalf("%s: %#x: %v", version, rel, err)
		case exists && rel < want.end:
			if !ok || got != want.start {
				t.Fatalf("%s: %#x in %#x: got %#x, %v", version, rel, want, got, ok)
			}
		case ok && (!exists || got != want.start):
			// Between blocks, the lookup may find the block before, and no other.
			t.Fatalf("%s: %#x behind %#x: got %#x", version, rel, want, got)
		}
	}
}

func TestNibbleMap(t *testing.T) {
	for _, tt := range []struct {
		name   string
		blocks []block
	}{
		{"nothing", nil},
		{"the first four bytes", []block{{0, 4}}},
		{"the last step of a bucket", []block{{28, 60}}},
		{"a bucket that begins in another block", []block{{0, 36}, {40, 64}}},
		{"neighbours in one word", []block{{8, 40}, {64, 96}, {104, 250}}},
		{"over the end of a word", []block{{200, 300}}},
		{"exactly a word", []block{{0, 256}, {256, 512}}},
		{"a word that one block covers", []block{{16, 512}, {520, 530}}},
		{"a long one", []block{{4, 20}, {236, 100_000}, {100_032, 100_100}}},
		{"a distance with each low nibble", []block{{256, 1000}, {1028, 2000}, {2056, 3000}, {3084, 4000}}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var rels []uint64
			for _, b := range tt.blocks {
				for d := uint64(0); d < 300; d++ {
					rels = append(rels, b.start+d, b.end+d)
					if b.start >= d {
						rels = append(rels, b.start-d)
					}
				}
			}
			checkNibbles(t, tt.blocks, append(rels, 0, 1, 255, 256))
		})
	}
}

func FuzzNibbleMap(f *testing.F) {
	f.Add([]byte{1, 8, 200, 3, 0, 90, 7, 255}, uint16(40))
	f.Add([]byte{0, 255, 255, 255, 0, 1}, uint16(7000))
	f.Fuzz(func(t *testing.T, data []byte, probe uint16) {
		if len(data) > 200 {
			return
		}
		var blocks []block
		at := uint64(0)
		for i := 0; i+1 < len(data); i += 2 {
			start := at + uint64(data[i])*4
			size := uint64(data[i+1])*uint64(data[i+1])/16 + 1
			if n := len(blocks); n > 0 && blocks[n-1].start/bucketBytes == start/bucketBytes {
				start = (start/bucketBytes + 1) * bucketBytes // the runtime never has two starts in a bucket
			}
			blocks = append(blocks, block{start, start + size})
			at = (start + size + 3) &^ 3
		}
		rels := []uint64{uint64(probe), at}
		for _, b := range blocks {
			rels = append(rels, b.start, b.end-1, (b.start+b.end)/2, b.start+uint64(probe)%(b.end-b.start))
		}
		checkNibbles(t, blocks, rels)
	})
}
