package replay_test

import (
	"encoding/binary"
	"fmt"
	"maps"
	"math/rand/v2"
	"runtime/debug"
	"runtime/metrics"
	"slices"
	"testing"
	"time"

	"clrsnap/internal/arch"
	"clrsnap/internal/engine"
	"clrsnap/internal/replay"
	"clrsnap/internal/target"
	"clrsnap/internal/target/recorded"
	"clrsnap/internal/testenv"
	"clrsnap/internal/testenv/layer"
)

// The bounds of one walk, for any contents of memory. The walks of one attack share an engine,
// and so its memory.
const (
	maxTime   = time.Second
	maxMemory = 256 << 20 // bytes allocated by one attack: opening and all walks
)

// attacks is the number of TestHostile's attacks.
var attacks = layer.Size(600, 6600)

// TestHostile walks corpora with changed memory, files, stacks and registers. There may be
// errors, and wrong frames if the stack itself lies, but never a panic, a hang or memory without
// bound. If nothing was changed but something is missing, every reported frame is true, and a
// walk that calls itself complete has all frames. FuzzHostile makes one attack of each kind in
// other layers.
func TestHostile(t *testing.T) {
	layer.Proof(t)
	names := corpus(t)
	whole := make([]*replay.Corpus, len(names))
	for i, name := range names {
		whole[i] = read(t, name)
	}
	for _, k := range kinds {
		t.Run(k.name, func(t *testing.T) {
			var total outcome
			for i := range attacks / len(kinds) {
				seed := uint64(i)
				total.add(attack(t, whole[i%len(whole)], k, seed))
				if t.Failed() {
					t.Fatalf("the attack with seed %d", seed)
				}
			}
			t.Logf("%v", &total)
			if total.same == total.walks {
				t.Error("no attack changed anything: this tests nothing")
			}
		})
	}
}

// kind is a kind of attack.
type kind struct {
	name  string
	apply func(*victim)
	lies  bool // the remains may be false, not only incomplete
}

var kinds = []kind{
	{"stack words", (*victim).stackWords, true},
	{"registers", (*victim).registers, true},
	{"thread object", (*victim).threadObject, true},
	{"memory words", (*victim).memoryWords, true},
	{"memory pages", (*victim).memoryPages, true},
	{"pointers to themselves", (*victim).loops, true},
	{"file words", (*victim).fileWords, true},
	{"missing memory", (*victim).missingMemory, false},
	{"missing files", (*victim).missingFiles, false},
	{"missing stack", (*victim).missingStack, false},
	{"holes in the stack", (*victim).holesInStack, false},
}

// outcome counts walks.
type outcome struct {
	attacks, closed         int // closed: the runtime could not even be opened
	walks, same, incomplete int
	different               int // complete, with other frames than recorded
	slowest                 time.Duration
	most                    uint64 // bytes allocated by one attack
}

func (o *outcome) add(p outcome) {
	o.attacks, o.closed, o.walks, o.same = o.attacks+p.attacks, o.closed+p.closed, o.walks+p.walks, o.same+p.same
	o.incomplete, o.different = o.incomplete+p.incomplete, o.different+p.different
	o.slowest, o.most = max(o.slowest, p.slowest), max(o.most, p.most)
}

func (o *outcome) String() string {
	return fmt.Sprintf("%d attacks, %d of them fatal to opening; %d walks: %d as recorded, %d incomplete and said so, "+
		"%d complete and different; slowest %v, most memory %d KB",
		o.attacks, o.closed, o.walks, o.same, o.incomplete, o.different, o.slowest.Round(time.Microsecond), o.most>>10)
}

// victim is a corpus under attack. Pages are changed in a copy.
type victim struct {
	rnd   *rand.Rand
	r     *replay.Corpus
	m     *replay.Moment
	words []uint64 // interesting values: words from memory and stacks
}

// newVictim copies the parts of a corpus that attacks change.
func newVictim(whole *replay.Corpus, seed uint64) *victim {
	v := &victim{rnd: rand.New(rand.NewPCG(seed, 1)), r: &replay.Corpus{Machine: whole.Machine}}
	for _, f := range whole.Files {
		c := *f
		c.Pages = copyPages(&f.Pages)
		v.r.Files = append(v.r.Files, &c)
	}
	m := *whole.Moments[v.rnd.IntN(len(whole.Moments))]
	m.Memory = copyPages(&m.Memory)
	chosen := make([]*replay.Thread, 3)
	for i := range chosen {
		th := *m.Threads[v.rnd.IntN(len(m.Threads))]
		th.Stack = slices.Clone(th.Stack)
		chosen[i] = &th
	}
	m.Threads = chosen
	v.m, v.r.Moments = &m, []*replay.Moment{&m}
	return v
}

// copyPages copies the set of pages; page copies their contents.
func copyPages(p *recorded.Pages) recorded.Pages {
	return recorded.Pages{Data: maps.Clone(p.Data), Blank: maps.Clone(p.Blank)}
}

// attack makes one attack on a copy and checks the results.
func attack(t *testing.T, whole *replay.Corpus, k kind, seed uint64) (out outcome) {
	t.Helper()
	v := newVictim(whole, seed)
	chosen := v.m.Threads
	want := make([]map[replay.How]replay.Walk, len(chosen))
	for i := range chosen {
		want[i] = chosen[i].Walks
	}
	v.collect()
	k.apply(v)

	defer func() {
		if p := recover(); p != nil {
			t.Errorf("panic: %v\n%s", p, debug.Stack())
		}
	}()
	before := allocated()
	out.attacks = 1
	e := open(t, v)
	if e == nil {
		out.closed = 1
		return out
	}
	defer e.Close()
	v.readThreads(t, e)
	for i, th := range chosen {
		for _, how := range replay.Ways {
			w, known := want[i][how]
			if o := check(t, e, th, how, &w, k.lies || !known); known {
				out.add(o)
			}
		}
	}
	if out.most = allocated() - before; out.most > maxMemory {
		t.Errorf("%d MB allocated", out.most>>20)
	}
	return out
}

// open opens the runtime; nil if it cannot be opened.
func open(t *testing.T, v *victim) *engine.Engine {
	t.Helper()
	var e *engine.Engine
	took := testenv.Worked(func() { e, _ = v.r.Open(v.m) })
	if took > maxTime {
		t.Errorf("opening took %v", took)
	}
	return e
}

// check walks a thread.
func check(
	t *testing.T, e *engine.Engine, th *replay.Thread, how replay.How, want *replay.Walk, lies bool,
) (out outcome) {
	t.Helper()
	out.walks = 1
	var got replay.Walk
	out.slowest = testenv.Worked(func() { got = th.Walk(e, how) })
	if out.slowest >= maxTime {
		t.Errorf("%s, walk %q took %v", th.Name, how, out.slowest)
	}
	switch {
	case got.Equal(want):
		out.same = 1
	case got.Complete:
		out.different = 1
	default:
		out.incomplete = 1
	}
	if !lies {
		if out.different > 0 && !slices.EqualFunc(got.Frames, want.Frames, sameFrame) {
			t.Errorf("%s, walk %q is complete, but not as recorded:\n got\n%v want\n%v", th.Name, how, &got, want)
		}
		if !within(got.Frames, want.Frames) {
			t.Errorf("%s, walk %q reports frames that are none:\n got\n%v want\n%v", th.Name, how, &got, want)
		}
	}
	if err := climbs(got.Frames); err != nil {
		t.Errorf("%s, walk %q: %v\n%v", th.Name, how, err, &got)
	}
	return out
}

// within reports whether got has only frames of want, in the same order.
func within(got, want []replay.Frame) bool {
	for i := range want {
		if len(got) > 0 && sameFrame(got[0], want[i]) {
			got = got[1:]
		}
	}
	return len(got) == 0
}

// sameFrame also accepts an explicit Frame's data about a method, where a walk had to go on from
// the Frame: an address a few bytes from the true address, or the method's stack pointer before
// an allocation on the stack.
func sameFrame(got, want replay.Frame) bool {
	if got == want {
		return true
	}
	return want.MethodDesc != 0 && got.MethodDesc == want.MethodDesc &&
		(got.SP == want.SP || got.IP == want.IP && got.SP > want.SP)
}

// climbs checks a property of any walk: the stack pointer goes up, except for the few times that
// a signal handler is on its own stack.
func climbs(frames []replay.Frame) error {
	down := 0
	for i := 1; i < len(frames); i++ {
		if frames[i].SP <= frames[i-1].SP {
			down++
		}
		if frames[i].SP%8 != 0 {
			return fmt.Errorf("stack pointer %v of frame %d", frames[i].SP, i)
		}
	}
	if down > 32 {
		return fmt.Errorf("the stack pointer goes down %d times", down)
	}
	if len(frames) > 1<<18 {
		return fmt.Errorf("%d frames", len(frames))
	}
	return nil
}

// readThreads reads the other data that the product reads of a runtime: the list of threads and
// the names of methods.
func (v *victim) readThreads(t *testing.T, e *engine.Engine) {
	t.Helper()
	start := time.Now()
	list, err := e.Runtime.Threads.List()
	if err == nil {
		for i := range list[:min(len(list), 8)] {
			e.Runtime.Threads.Name(&list[i])
		}
	}
	e.Runtime.Threads.Finalizer()
	for _, th := range v.m.Threads {
		for _, f := range th.Walks[replay.Unwind].Frames {
			if f.MethodDesc == 0 {
				continue
			}
			if m, err := e.Runtime.Methods.Read(f.MethodDesc); err == nil {
				_, _ = e.Runtime.Names.Method(&m, true) // the test only asks for no panic
			}
		}
	}
	if took := time.Since(start); took > 5*maxTime {
		t.Errorf("threads and names took %v", took)
	}
}

func allocated() uint64 {
	s := []metrics.Sample{{Name: "/gc/heap/allocs:bytes"}}
	metrics.Read(s)
	return s[0].Value.Uint64()
}

// collect gathers values from the target, for attacks that are more cunning than noise.
func (v *victim) collect() {
	for _, th := range v.m.Threads {
		for i := range th.Stack {
			s := &th.Stack[i]
			s.Data = slices.Clone(s.Data)
			for n := 0; n+8 <= len(s.Data) && n < 4096; n += 8 {
				v.words = append(v.words, binary.LittleEndian.Uint64(s.Data[n:]), uint64(s.Base)+uint64(n))
			}
		}
		th.Head = slices.Clone(th.Head)
	}
	for range 64 {
		if page, base := v.page(&v.m.Memory); page != nil {
			n := v.rnd.IntN(len(page)/8) * 8
			v.words = append(v.words, binary.LittleEndian.Uint64(page[n:]), base+uint64(n))
		}
	}
}

// page returns a random page, as a copy that can be changed, and its address.
func (v *victim) page(p *recorded.Pages) ([]byte, uint64) {
	if len(p.Data) == 0 {
		return nil, 0
	}
	numbers := make([]uint64, 0, len(p.Data))
	for n := range p.Data {
		numbers = append(numbers, n)
	}
	slices.Sort(numbers) // the same choice from the same seed
	n := numbers[v.rnd.IntN(len(numbers))]
	p.Data[n] = slices.Clone(p.Data[n])
	return p.Data[n], n * recorded.PageSize
}

// value makes up a replacement for a word.
func (v *victim) value(old, at uint64) uint64 {
	switch v.rnd.IntN(12) {
	case 0:
		return 0
	case 1:
		return ^uint64(0)
	case 2:
		return at // points to itself
	case 3:
		return at - 8
	case 4:
		return old ^ 1<<v.rnd.IntN(64)
	case 5:
		return old + 8
	case 6:
		return old - 8
	case 7:
		return uint64(v.rnd.Uint32()) // a huge count
	case 8:
		return 0x7fff_ffff
	case 9:
		return v.rnd.Uint64()
	}
	return v.words[v.rnd.IntN(len(v.words))]
}

func (v *victim) change(data []byte, base uint64, times int) {
	for range times {
		if len(data) < 8 {
			return
		}
		n := v.rnd.IntN(len(data)/8) * 8
		old := binary.LittleEndian.Uint64(data[n:])
		binary.LittleEndian.PutUint64(data[n:], v.value(old, base+uint64(n)))
	}
}

func (v *victim) stackWords() {
	for _, th := range v.m.Threads {
		for i := range th.Stack {
			s := &th.Stack[i]
			used := s.Data[:min(len(s.Data), 1<<(9+v.rnd.IntN(8)))]
			v.change(used, uint64(s.Base), 1+v.rnd.IntN(16))
		}
	}
}

func (v *victim) registers() {
	for _, th := range v.m.Threads {
		for range 1 + v.rnd.IntN(3) {
			r := v.rnd.IntN(17)
			if r == 16 {
				th.Context.IP = arch.Addr(v.value(uint64(th.Context.IP), uint64(th.Context.IP)))
				continue
			}
			th.Context.Regs[r] = v.value(th.Context.Regs[r], th.Context.Regs[r])
		}
		if v.rnd.IntN(4) == 0 {
			th.Context.Valid &= arch.RegMask(v.rnd.Uint32())
		}
	}
}

func (v *victim) threadObject() {
	for _, th := range v.m.Threads {
		v.change(th.Head, uint64(th.Object), 1+v.rnd.IntN(8))
		if v.rnd.IntN(8) == 0 {
			th.Head = th.Head[:v.rnd.IntN(len(th.Head)+1)]
		}
	}
}

func (v *victim) memoryWords() {
	for range 1 + v.rnd.IntN(8) {
		page, base := v.page(&v.m.Memory)
		v.change(page, base, 1+v.rnd.IntN(64))
	}
}

func (v *victim) memoryPages() {
	for range 1 + v.rnd.IntN(4) {
		page, _ := v.page(&v.m.Memory)
		switch fill := v.rnd.IntN(4); fill {
		case 0:
			clear(page)
		case 1:
			for i := range page {
				page[i] = 0xff
			}
		default:
			for i := range page {
				page[i] = byte(v.rnd.Uint32())
			}
		}
	}
}

// loops makes every word of a page point to the page.
func (v *victim) loops() {
	for range 1 + v.rnd.IntN(4) {
		page, base := v.page(&v.m.Memory)
		to := base + uint64(v.rnd.IntN(512)*8)
		for n := 0; n+8 <= len(page); n += 8 {
			if v.rnd.IntN(2) == 0 {
				to = base + uint64(n)
			}
			binary.LittleEndian.PutUint64(page[n:], to)
		}
	}
}

func (v *victim) fileWords() {
	for range 1 + v.rnd.IntN(8) {
		f := v.r.Files[v.rnd.IntN(len(v.r.Files))]
		page, base := v.page(&f.Pages)
		v.change(page, base, 1+v.rnd.IntN(256))
	}
}

func (v *victim) missingMemory() {
	for range 1 + v.rnd.IntN(12) {
		if page, base := v.page(&v.m.Memory); page != nil {
			delete(v.m.Memory.Data, base/recorded.PageSize)
		}
	}
}

func (v *victim) missingFiles() {
	f := v.r.Files[v.rnd.IntN(len(v.r.Files))]
	switch v.rnd.IntN(3) {
	case 0:
		f.Error = "permission denied"
	case 1:
		if page, base := v.page(&f.Pages); page != nil {
			delete(f.Pages.Data, base/recorded.PageSize)
		}
	default:
		f.Size = v.rnd.Int64N(16 << 20)
	}
}

func (v *victim) missingStack() {
	for _, th := range v.m.Threads {
		s := &th.Stack[0]
		s.Data = s.Data[:v.rnd.IntN(len(s.Data)+1)&^7]
	}
}

// holesInStack leaves out used pieces of a stack. The stack behind a hole can be read: a walk
// must not continue there.
func (v *victim) holesInStack() {
	for _, th := range v.m.Threads {
		for range 1 + v.rnd.IntN(3) {
			last := &th.Stack[len(th.Stack)-1]
			words := min(len(last.Data), 16<<10) / 8
			if words < 2 {
				break
			}
			from := v.rnd.IntN(words) * 8
			to := min(len(last.Data), from+8<<v.rnd.IntN(10))
			above := target.Region{Base: last.Base + arch.Addr(to), Data: last.Data[to:]}
			last.Data = last.Data[:from]
			th.Stack = append(th.Stack, above)
		}
	}
}

// FuzzHostile lets the fuzzer choose attacks. The successful linking alone shows that the
// tracer's functions, which may not check their stack, have room when code is instrumented for
// fuzzing.
func FuzzHostile(f *testing.F) {
	for i := range kinds {
		f.Add(uint8(i), uint64(i))
	}
	whole := read(f, corpus(f)[0])
	f.Fuzz(func(t *testing.T, which uint8, seed uint64) {
		attack(t, whole, kinds[int(which)%len(kinds)], seed)
	})
}

// TestEverythingReadable: memory is endless, and every pointer leads somewhere. The reader has to
// bound all lists and counts.
func TestEverythingReadable(t *testing.T) {
	r := read(t, corpus(t)[0])
	for seed := range uint64(20) {
		m := r.Moments[0]
		src := endless{Source: r.Source(m), seed: seed}
		var err error
		if src.maps, err = src.Mappings(); err != nil {
			t.Fatal(err)
		}
		e, err := engine.Open(src)
		if err != nil {
			t.Fatal(err) // all needed bytes were recorded
		}
		before := allocated()
		for _, th := range m.Threads[:8] {
			for _, how := range replay.Ways {
				w := th.Walks[how]
				check(t, e, th, how, &w, true)
			}
		}
		if n := allocated() - before; n > maxMemory {
			t.Errorf("%d MB allocated", n>>20)
		}
		e.Close()
	}
}

// endless is a target with all memory readable: bytes that were not recorded are full of
// pointers. Only memory of files is not readable: made-up bytes would make them other files, and
// refused.
type endless struct {
	engine.Source
	maps target.Mappings
	seed uint64
}

func (s endless) ReadMemory(p []byte, addr arch.Addr) error {
	err := s.Source.ReadMemory(p, addr)
	if m := s.maps.Find(addr); err == nil || m != nil && m.IsFile() {
		return err
	}
	for i := range p {
		at := uint64(addr) + uint64(i)
		word := at&^7 + s.seed*8 // near by: an endless list
		p[i] = byte(word >> (8 * (at & 7)))
	}
	return nil
}
