package moments

import (
	"encoding/binary"
	"maps"
	"math/rand/v2"
	"runtime/metrics"
	"slices"
	"strings"
	"testing"
	"time"

	"clrsnap/internal/session"
	"clrsnap/internal/target/recorded"
	"clrsnap/internal/testenv"
	"clrsnap/internal/testenv/layer"
)

// The bounds of a look at a damaged moment. Metadata with a missing page is read again for each name, so garbage comes
// to 20 times the bytes of an intact moment.
const (
	hostileTime   = 20 * time.Second // of CPU; an intact moment takes less than a second
	hostileMemory = 4 << 30          // allocated bytes
)

// damages are ways to damage pages.
var damages = []struct {
	name  string
	spoil func(v *victim, page []byte, base uint64) []byte // nil: the page is missing
}{
	{"words", (*victim).words},
	{"pointers to themselves", (*victim).loops},
	{"noise", (*victim).noise},
	{"bits", (*victim).bits},
	{"cut", (*victim).cut},
}

// victim is a moment under attack.
type victim struct {
	rnd   *rand.Rand
	m     recorded.Moment
	known []uint64 // words of the moment, for attacks that are more cunning than noise
}

// newVictim copies a moment.
func newVictim(m *recorded.Moment, seed uint64) *victim {
	v := &victim{rnd: rand.New(rand.NewPCG(seed, 43)), m: *m}
	v.m.Memory = copyPages(&m.Memory)
	v.m.Files = nil
	for _, f := range m.Files {
		c := *f
		c.Pages = copyPages(&f.Pages)
		v.m.Files = append(v.m.Files, &c)
	}
	v.m.Threads = slices.Clone(m.Threads)
	numbers := slices.Sorted(maps.Keys(m.Memory.Data))
	for range 200 {
		n := numbers[v.rnd.IntN(len(numbers))]
		at := v.rnd.IntN(recorded.PageSize/8) * 8
		v.known = append(v.known, binary.LittleEndian.Uint64(m.Memory.Data[n][at:]), n*recorded.PageSize+uint64(at))
	}
	return v
}

func copyPages(p *recorded.Pages) recorded.Pages {
	return recorded.Pages{Data: maps.Clone(p.Data), Blank: maps.Clone(p.Blank)}
}

// attack damages pages of memory, sometimes of a file, and sometimes the registers of threads.
func (v *victim) attack(kind int) {
	for range 1 + v.rnd.IntN(40) {
		v.spoil(&v.m.Memory, kind)
	}
	if v.rnd.IntN(4) == 0 && len(v.m.Files) > 0 {
		v.spoil(&v.m.Files[v.rnd.IntN(len(v.m.Files))].Pages, kind)
	}
	if v.rnd.IntN(4) == 0 {
		th := &v.m.Threads[v.rnd.IntN(len(v.m.Threads))]
		th.Context.Regs[v.rnd.IntN(16)] = v.value(0)
	}
}

func (v *victim) spoil(p *recorded.Pages, kind int) {
	numbers := slices.Sorted(maps.Keys(p.Data)) // the same choice from the same seed
	if len(numbers) == 0 {
		return
	}
	n := numbers[v.rnd.IntN(len(numbers))]
	page := damages[kind].spoil(v, slices.Clone(p.Data[n]), n*recorded.PageSize)
	if p.Data[n] = page; page == nil {
		delete(p.Data, n)
	}
}

// value makes up a word.
func (v *victim) value(at uint64) uint64 {
	switch v.rnd.IntN(6) {
	case 0:
		return at
	case 1:
		return uint64(v.rnd.Uint32()) // a huge count
	case 2:
		return ^uint64(0)
	case 3:
		return v.rnd.Uint64()
	}
	return v.known[v.rnd.IntN(len(v.known))]
}

func (v *victim) words(page []byte, base uint64) []byte {
	for range 1 + v.rnd.IntN(64) {
		if n := v.rnd.IntN(len(page)/8+1) * 8; n+8 <= len(page) {
			binary.LittleEndian.PutUint64(page[n:], v.value(base+uint64(n)))
		}
	}
	return page
}

func (v *victim) loops(page []byte, base uint64) []byte {
	for n := 0; n+8 <= len(page); n += 8 {
		if v.rnd.IntN(3) == 0 {
			binary.LittleEndian.PutUint64(page[n:], base+uint64(v.rnd.IntN(recorded.PageSize/8)*8))
		}
	}
	return page
}

func (v *victim) noise(page []byte, _ uint64) []byte {
	fill := byte(v.rnd.IntN(3))
	for i := range page {
		if page[i] = -fill; fill == 2 {
			page[i] = byte(v.rnd.Uint32())
		}
	}
	return page
}

func (v *victim) bits(page []byte, _ uint64) []byte {
	for range 1 + v.rnd.IntN(20) {
		if len(page) > 0 {
			page[v.rnd.IntN(len(page))] ^= 1 << v.rnd.IntN(8)
		}
	}
	return page
}

func (v *victim) cut(page []byte, _ uint64) []byte {
	if v.rnd.IntN(2) == 0 {
		return nil
	}
	return page[:v.rnd.IntN(len(page)+1)]
}

// hostileLook looks at a damaged moment: any result or error is right that comes soon.
func hostileLook(t *testing.T, name string, which, kind int, m *recorded.Moment, seed uint64) {
	t.Helper()
	v := newVictim(m, seed)
	v.attack(kind)
	looks := programs[name[:strings.LastIndexByte(name, '-')]].looks
	before := allocated()
	took := testenv.Worked(func() {
		p, err := session.OpenRecorded(t.Context(), &v.m, everything)
		if err != nil {
			return
		}
		defer p.Close()
		_, _ = looks[which%len(looks)](p)
	})
	if n := allocated() - before; n > hostileMemory {
		t.Errorf("%s, look %d, %s, seed %d: %d MB allocated", name, which, damages[kind].name, seed, n>>20)
	}
	if took > hostileTime {
		t.Errorf("%s, look %d, %s, seed %d took %v", name, which, damages[kind].name, seed, took)
	}
}

func allocated() uint64 {
	s := []metrics.Sample{{Name: "/gc/heap/allocs:bytes"}}
	metrics.Read(s)
	return s[0].Value.Uint64()
}

// readMoments reads all moments, by name.
func readMoments(t testing.TB) map[string]*recorded.Moment {
	t.Helper()
	all := map[string]*recorded.Moment{}
	for program, of := range programs {
		for runtime := range runtimes {
			if of.only == "" || of.only == runtime {
				m, err := recorded.ReadFile(fileOf(program + "-" + runtime))
				if err != nil {
					t.Fatal(err)
				}
				all[program+"-"+runtime] = m
			}
		}
	}
	return all
}

// TestHostileMoments looks at damaged moments again and again.
func TestHostileMoments(t *testing.T) {
	layer.Proof(t)
	all := readMoments(t)
	names := slices.Sorted(maps.Keys(all))
	for seed := range uint64(layer.Size(500, 20_000)) {
		name := names[seed%uint64(len(names))]
		hostileLook(t, name, int(seed/uint64(len(names)))%4, int(seed%uint64(len(damages))), all[name], seed)
	}
}

// FuzzMoments lets the fuzzer choose the damage.
func FuzzMoments(f *testing.F) {
	all := readMoments(f)
	names := slices.Sorted(maps.Keys(all))
	for i := range names {
		f.Add(uint8(i), uint8(i/2), uint8(i), uint64(i))
	}
	f.Fuzz(func(t *testing.T, moment, look, kind uint8, seed uint64) {
		name := names[int(moment)%len(names)]
		hostileLook(t, name, int(look), int(kind)%len(damages), all[name], seed)
	})
}
