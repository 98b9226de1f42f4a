package heap

import (
	"errors"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"clrsnap/internal/arch"
	"clrsnap/internal/target"
)

// Walking all objects
//
// Objects lie one behind the other. A walk that knows the beginning of a region and the size of each object meets all
// objects, and nothing else. A running program makes the walk harder.
//
//   - Threads allocate. The allocation contexts tell the memory that each thread has been given. The walk passes over
//     this memory from the thread's next object on.
//   - The collector frees dead objects in place, in old generations even while the program runs. The collector turns
//     dead objects into free space, and free space has a size like an object. Memory is copied upwards, so the copy
//     of the beginning of free space is never older than the copy of the memory behind.
//   - The collector moves objects while the program's threads stand still. So the walk treats the young generations
//     as one unit, and walks them once more if there has been a collection meanwhile. In the oldest generation,
//     objects move only in full collections that compact. But any collection can fill the free space of the oldest
//     generation with younger objects, which the walk has met already. Both change the collector's record of the
//     oldest generation: see oldest. After a change of the record, the walk repeats the young generations and the
//     oldest one, for some rounds. If every round meets a change, the round with the most consistent bytes counts.
//     Objects of the oldest generation that are read after the change are not consistent. Nor are regions of any old
//     generation that have become shorter, are gone, or serve another generation.
//
// The allocation contexts tell whether there has been a collection, because a collection takes the contexts away from
// all threads (src/coreclr/gc/gc.cpp, fix_allocation_context): see epoch.

// Options control a walk. Memory and Check are required.
type Options struct {
	// Memory is the memory to walk, without a cache. With several Workers, all workers use Memory.
	Memory target.Memory
	// Threads lists the runtime's Thread objects. Two goroutines never call Threads at the same time.
	Threads func() ([]arch.Addr, error)
	// Check reports whether mt is a MethodTable. Walk calls Check once for each MethodTable, and never from two
	// goroutines at the same time.
	Check func(mt arch.Addr) error
	// Still: nothing changes while the walk reads.
	Still bool
	// Held: the memory is still because all threads of a running process are stopped, wherever they are. Walk ends
	// with ErrTorn as soon as the walk meets an action that a thread or the collector has left half done.
	Held bool
	// Workers is the number of goroutines that walk; 0 stands for 1.
	Workers int

	// Want chooses the classes whose objects Visit receives; nil: none. The rules of Check hold for Want, too.
	Want func(mt arch.Addr) bool
	// Data: the walk also keeps the contents of wanted objects.
	Data bool
	// Visit receives wanted objects of one region, by address, some hundred thousand at most. Two goroutines never
	// call Visit at the same time. In a heap that changes, an object can come twice if the collector has moved the
	// object in between.
	Visit func(*Region, []Object)

	// Graph: the walk keeps the references between objects, in Census.Graph. One worker walks.
	Graph bool

	// Progress is called from time to time with the bytes walked and the bytes in all; nil: no calls.
	Progress func(done, all uint64)
	// Stopped is called often, and reports whether to end early; nil: never.
	Stopped func() bool
	// Rest is called by each worker between pieces of old generations, and may wait; nil: no calls.
	Rest func()

	nap func(time.Duration) // replaces time.Sleep in tests
}

// ErrTorn: the threads of a process were stopped in the middle of an action, a move of objects for example, during
// which the heap cannot be walked. A moment later the threads may have finished the action.
var ErrTorn = errors.New("the heap was being changed at the moment at which the threads were stopped")

// Bounds of the attempts to get a consistent copy.
const (
	rounds      = 4
	youngPasses = 10
	oldTries    = 4
	firstWait   = time.Millisecond // times four before each further try
	longestWait = 50 * time.Millisecond
	pieceSize   = 4 << 20 // bytes of a region that are walked in one go
	maxKept     = 1 << 18 // wanted objects that wait for the end of a pass, 64 bytes of contents being one more
)

// Walk goes through all objects. Even with an error, Walk returns the part of the census that was found.
func (r *Reader) Walk(o Options) (*Census, error) {
	w, err := r.newWalk(o)
	if err != nil {
		return &Census{}, err
	}
	if err = w.run(); err == nil && w.torn.Load() {
		err = ErrTorn
	}
	return w.census(), err
}

// walk is one call of Walk.
type walk struct {
	o        Options
	r        *Reader // of the present memory
	contexts contextLayout
	tables   *tables
	workers  []*walker
	*round   // the present round; in the end the round that counts
	threads  []arch.Addr
	visiting sync.Mutex // Visit and Progress
	looking  sync.Mutex // r and contexts

	all, done atomic.Uint64 // bytes
	passes    int
	final     atomic.Bool // this round counts in any case
	stale     atomic.Bool // part of the oldest generation has changed since the young ones were walked
	halted    atomic.Bool
	torn      atomic.Bool // see ErrTorn
	restless  atomic.Bool // the collector has moved objects for longer than the walk waits
}

// round is one attempt to walk the young generations and the oldest generation as one unit.
type round struct {
	sheet   *sheet
	graph   *Graph // nil: not asked for
	begun   *epoch // of the young generations
	regions []Region
	ahead   []remainder // of the oldest generation
	oldest  Stamp       // when the young generations were walked
	busy    bool        // the collector goes on moving objects
	wanted  []found     // handed out if the round counts
	kept    int         // objects in wanted, and 64 bytes of their contents
	walked  uint64      // bytes
}

// remainder is the rest of a region, from an address on, that is still to be walked.
type remainder struct {
	Region
	at arch.Addr
}

func (r *Reader) newWalk(o Options) (*walk, error) {
	if _, err := r.described(); err != nil {
		return nil, err
	}
	if r.l.Free == 0 || !r.contexts.known() {
		return nil, ErrUnknown
	}
	if o.nap == nil {
		o.nap = time.Sleep
	}
	w := &walk{o: o, contexts: r.contexts, round: &round{sheet: newSheet()}}
	w.r = &Reader{mem: target.NewReader(o.Memory), l: r.l, places: r.places}
	w.tables = &tables{
		mem: target.NewReader(o.Memory), l: &w.r.l, check: o.Check, want: o.Want, byAddr: map[arch.Addr]*Table{},
	}
	var err error
	if w.tables.free, err = w.r.mem.Pointer(r.l.Free); err != nil {
		return nil, err
	}
	w.tables.refs = o.Graph
	if o.Graph {
		w.o.Workers = 1
	}
	for range max(w.o.Workers, 1) {
		w.workers = append(w.workers, &walker{
			mem: o.Memory, tables: w.tables, stopped: w.stopped, untag: r.l.Untag, keeps: o.Data,
		})
	}
	return w, nil
}

// tear ends the walk of a held process after an error.
func (w *walk) tear(err error) {
	if w.o.Held && err != nil && !errors.Is(err, errStopped) {
		w.torn.Store(true)
		w.halted.Store(true)
	}
}

func (w *walk) stopped() bool {
	if w.o.Stopped != nil && w.o.Stopped() {
		w.halted.Store(true)
	}
	return w.halted.Load()
}

func (w *walk) run() error {
	if err := w.best(); err != nil {
		return err
	}
	w.handOut()
	w.restless.Store(false)
	others := w.remainders(func(g Generation) bool { return g > Gen2 })
	w.old(others)
	if !w.o.Still {
		w.doubt()
	}
	return nil
}

// best walks the young generations and the oldest generation until a round is consistent, or the rounds are used up.
func (w *walk) best() error {
	var best *round
	for n := 1; n <= rounds; n++ {
		w.begin()
		if err := w.young(); err != nil {
			return err
		}
		if w.busy && best != nil && !w.final.Load() {
			break // another round would be no better
		}
		w.ahead = w.remainders(func(g Generation) bool { return g == Gen2 })
		counts := w.final.Load()
		w.old(w.ahead)
		if !counts && w.final.Load() { // another worker has set final after this worker had given up
			w.old(w.ahead)
		}
		if w.stopped() && !w.final.Load() && best != nil && best.sheet.consistent() > w.sheet.consistent() {
			w.round = best // the best round had read more before the present round was ended
			w.done.Store(best.walked)
			return nil
		}
		if w.final.Load() || w.stopped() || !w.stale.Load() || w.busy || w.oldest == 0 {
			return nil
		}
		w.walked = w.done.Load()
		if best == nil || w.sheet.consistent() > best.sheet.consistent() {
			best = w.round
		}
	}
	w.round = best
	w.done.Store(best.walked)
	w.final.Store(true)
	w.old(best.ahead)
	return nil
}

// begin begins a round. A second copy of all references would take too much memory, so a walk with a graph has one
// round.
func (w *walk) begin() {
	w.round = &round{sheet: newSheet()}
	w.final.Store(w.o.Still || w.o.Graph)
	w.stale.Store(false)
	w.restless.Store(false)
	w.done.Store(0)
}

// settled waits until the collector moves nothing; false: the collector goes on moving objects.
func (w *walk) settled() bool {
	if w.o.Still {
		return w.r.Settled(w.o.Memory)
	}
	for wait := 100 * time.Microsecond; ; wait *= 2 {
		if w.r.Settled(w.o.Memory) {
			return true
		}
		if wait > longestWait || w.stopped() || w.restless.Load() {
			w.restless.Store(true) // otherwise each further call would wait again
			return false
		}
		w.o.nap(wait)
	}
}

// list reads the regions, more than once if they change meanwhile.
func (w *walk) list() (regions []Region, err error) {
	for n := 0; ; n++ {
		if regions, err = w.r.Regions(); err == nil || w.o.Still || n == oldTries {
			return regions, err
		}
		w.o.nap(firstWait << (2 * n))
	}
}

// young walks the two youngest generations, as one unit.
func (w *walk) young() error {
	for n := 1; ; n++ {
		w.passes++
		p, err := w.newPass()
		if err != nil {
			return err
		}
		p.last.Store(n == youngPasses || w.o.Still)
		each(w, p.regions, p.walk)
		if w.stopped() || p.last.Load() || !p.broken.Load() {
			w.regions, w.oldest, w.busy = p.all, p.oldest, p.broken.Load()
			w.sheet.add(p.sheet)
			w.graph, w.wanted, w.kept, w.begun = p.graph, p.wanted, p.kept, &p.begin
			return nil
		}
		w.done.Store(0)
	}
}

// each has the workers do something with each thing of a list.
func each[T any](w *walk, things []T, do func(*walker, *T)) {
	var next atomic.Int64
	var wait sync.WaitGroup
	for _, one := range w.workers {
		wait.Go(func() {
			for !w.stopped() {
				n := int(next.Add(1)) - 1
				if n >= len(things) {
					return
				}
				do(one, &things[n])
			}
		})
	}
	wait.Wait()
}

// pass is one attempt to walk the young generations.
type pass struct {
	w        *walk
	begin    epoch
	contexts []context
	oldest   Stamp // as of contexts
	all      []Region
	graph    *Graph      // nil: not asked for
	regions  []Region    // the young regions of all
	last     atomic.Bool // results count even if they are not consistent
	broken   atomic.Bool

	mu     sync.Mutex
	sheet  *sheet
	wanted []found
	kept   int // objects in wanted, and 64 bytes of their contents
}

// found has wanted objects of a region.
type found struct {
	region  *Region
	objects []Object
}

func (w *walk) newPass() (*pass, error) {
	p := &pass{w: w, sheet: newSheet()}
	settled := w.settled()
	if !settled {
		w.tear(errAstray)
	}
	if w.o.Threads != nil {
		var err error
		if w.threads, err = w.o.Threads(); err != nil {
			return nil, err
		}
	}
	p.begin.contexts = w.contexts.contexts(w.r.mem, w.threads)
	p.oldest = w.r.oldest()
	var err error
	if p.all, err = w.list(); err != nil {
		return nil, err
	}
	p.begin.regions = p.all
	if w.o.Graph {
		if p.graph, err = newGraph(p.all); err != nil {
			return nil, err
		}
		w.workers[0].graph = p.graph
	}
	// Memory that a thread has been given since the list of regions was read lies behind the ends of the regions.
	p.contexts = w.contexts.contexts(w.r.mem, w.threads)
	p.broken.Store(!settled)
	all := uint64(0)
	for _, r := range p.all {
		if all += uint64(r.End - r.Start); r.young() {
			p.regions = append(p.regions, r)
		}
	}
	w.all.Store(all)
	return p, nil
}

// walk walks a young region, piece by piece.
func (p *pass) walk(one *walker, r *Region) {
	newest := r.Generation == Gen0
	at := piece{
		at: r.Start, start: r.Start, end: r.End, contexts: inside(p.contexts, r), zeros: newest, newest: newest,
	}
	for at.at < r.End && (!p.broken.Load() || p.last.Load()) {
		from := at.at
		at.stop = min(from+pieceSize, r.End)
		err := p.piece(one, r, &at)
		if err != nil {
			at.at = r.End
		}
		p.w.progress(uint64(min(at.at, r.End) - from))
	}
}

func (p *pass) piece(one *walker, r *Region, at *piece) error {
	from := at.at
	one.reset()
	err := one.walk(at)
	p.w.tear(err)
	if !p.broken.Load() && (errors.Is(err, errAstray) && !p.w.o.Still || !p.w.quiet(&p.begin)) {
		p.broken.Store(true)
	}
	if err != nil && !errors.Is(err, errStopped) && !p.w.o.Still {
		return err // the objects met so far can be anything
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	proved := err == nil && !p.broken.Load()
	p.sheet.accept(one, r, uint64(min(at.at, r.End)-from), proved)
	if p.graph != nil {
		p.graph.accept(r, one.draft)
	}
	p.keep(r, one.objects)
	return err
}

// keep keeps wanted objects until the end of the pass. If there are too many wanted objects, the present pass and
// round are the last ones, and count.
func (p *pass) keep(r *Region, objects []Object) {
	if len(objects) == 0 {
		return
	}
	p.wanted = append(p.wanted, found{r, objects})
	if p.kept += weight(objects); p.kept > maxKept {
		p.last.Store(true)
		p.w.final.Store(true)
		p.w.visit(p.wanted)
		p.wanted, p.kept = nil, 0
	}
}

// weight is the cost of keeping objects, in objects and 64 bytes of contents.
func weight(objects []Object) int {
	n := len(objects)
	for i := range objects {
		n += len(objects[i].Data) / 64
	}
	return n
}

// offer hands out wanted objects of an old region. Objects of the oldest generation wait until their round counts. If
// there are too many objects to wait, the round counts at once.
func (w *walk) offer(r *Region, objects []Object) {
	if len(objects) == 0 {
		return
	}
	w.visiting.Lock()
	w.wanted = append(w.wanted, found{r, objects})
	w.kept += weight(objects)
	full := w.kept > maxKept
	w.visiting.Unlock()
	if full {
		w.final.Store(true)
	}
	if w.final.Load() || r.Generation > Gen2 {
		w.handOut()
	}
}

// handOut hands out the wanted objects of a round that counts.
func (w *walk) handOut() {
	w.visiting.Lock()
	all := w.wanted
	w.wanted, w.kept = nil, 0
	w.visiting.Unlock()
	w.visit(all)
}

// inside returns the allocation contexts in a region.
func inside(all []context, r *Region) []context {
	from, _ := slices.BinarySearchFunc(all, r.Start, func(c context, at arch.Addr) int {
		if c.next < at {
			return -1
		}
		return 1
	})
	to := from
	for to < len(all) && all[to].next < r.End {
		to++
	}
	return all[from:to]
}

// remainders returns the whole regions of some generations. The largest regions come first, so that no worker ends
// alone with a large region.
func (w *walk) remainders(of func(Generation) bool) (all []remainder) {
	for _, r := range w.regions {
		if of(r.Generation) {
			all = append(all, remainder{r, r.Start})
		}
	}
	slices.SortStableFunc(all, func(a, b remainder) int { return int(b.End-b.Start) - int(a.End-a.Start) })
	return all
}

// old walks remainders of old regions.
func (w *walk) old(all []remainder) {
	var mu sync.Mutex
	each(w, all, func(one *walker, r *remainder) {
		own := newSheet()
		w.oldRegion(one, r, own)
		mu.Lock()
		defer mu.Unlock()
		w.sheet.add(own)
	})
}

// oldRegion walks the remainder of a region of an old generation, piece by piece.
func (w *walk) oldRegion(one *walker, left *remainder, to *sheet) {
	r := &left.Region
	for left.at < r.End && !w.stopped() {
		if w.abandoned(r) {
			return
		}
		next, proved, err := w.oldPiece(one, r, left.at)
		if err != nil && !errors.Is(err, errStopped) && !w.o.Still {
			if w.stale.Store(true); w.cut(r, left.at) {
				continue
			}
			break
		}
		if !proved {
			w.stale.Store(true)
		}
		to.accept(one, r, uint64(next-left.at), proved)
		if w.graph != nil {
			w.graph.accept(r, one.draft)
		}
		if w.progress(uint64(next - left.at)); err != nil {
			return
		}
		w.offer(r, one.objects)
		if left.at = next; w.o.Rest != nil {
			w.o.Rest()
		}
	}
	w.progress(uint64(r.End - min(left.at, r.End)))
}

// abandoned reports whether the round can end early, because another round will follow.
func (w *walk) abandoned(r *Region) bool {
	return r.Generation == Gen2 && w.stale.Load() && !w.final.Load() && !w.busy && w.oldest != 0
}

// oldPiece walks one piece, and once more if the collector was moving objects. proved: the collector was not.
func (w *walk) oldPiece(one *walker, r *Region, from arch.Addr) (next arch.Addr, proved bool, err error) {
	for n := 0; ; n++ {
		one.reset()
		p := piece{
			at: from, stop: min(from+pieceSize, r.End), start: r.Start, end: r.End, slots: r.Generation == Pinned,
		}
		before := w.settled()
		err = one.walk(&p)
		w.tear(err)
		if w.o.Still || errors.Is(err, errStopped) {
			return p.at, true, err
		}
		proved = err == nil && before && w.r.Settled(w.o.Memory)
		if proved && r.Generation == Gen2 && !w.unfilled() {
			return p.at, false, nil // reading once more would not help
		}
		if proved || n == oldTries || w.restless.Load() || err != nil && n > 0 && !w.stays(r) {
			return p.at, proved, err
		}
		w.o.nap(firstWait << (2 * n))
	}
}

// unfilled reports whether certainly no object has been moved into the oldest generation, or within the generation,
// since the young generations were walked.
func (w *walk) unfilled() bool {
	w.looking.Lock()
	defer w.looking.Unlock()
	now := w.r.oldest()
	return now != 0 && now == w.oldest
}

// present returns the present state of a region; nil: the state is not known, or the region is gone.
func (w *walk) present(r *Region) *Region {
	w.looking.Lock()
	defer w.looking.Unlock()
	list, err := w.r.Regions()
	i := slices.IndexFunc(list, func(n Region) bool { return n.Start == r.Start && n.Generation == r.Generation })
	if err != nil || i < 0 {
		return nil
	}
	return &list[i]
}

// stays reports whether a region is at least as long as before.
func (w *walk) stays(r *Region) bool {
	n := w.present(r)
	return n != nil && n.End >= r.End
}

// cut shortens r to the region's present end, so that the rest can be walked from an address on; false: the region is
// not shorter, or nothing is left.
func (w *walk) cut(r *Region, at arch.Addr) bool {
	n := w.present(r)
	if n == nil || n.End >= r.End || n.End <= at {
		return false
	}
	r.End = n.End
	return true
}

// doubt takes back the consistent bytes of old regions that have become shorter, are gone, or now belong to another
// generation or heap: the collector may have moved their objects during the walk.
func (w *walk) doubt() {
	list, err := w.list()
	now := map[arch.Addr]*Region{}
	for i := range list {
		now[list[i].Start] = &list[i]
	}
	for i := range w.regions {
		r := &w.regions[i]
		n := now[r.Start]
		same := err == nil && n != nil && n.Generation == r.Generation && n.Heap == r.Heap && n.End >= r.End
		if r.young() || same {
			continue
		}
		p := w.sheet.part(r)
		p.Consistent -= min(p.Consistent, uint64(r.End-r.Start))
	}
}

func (w *walk) visit(all []found) {
	w.visiting.Lock()
	defer w.visiting.Unlock()
	for _, f := range all {
		if len(f.objects) > 0 {
			w.o.Visit(f.region, f.objects)
		}
	}
}

func (w *walk) progress(bytes uint64) {
	done := w.done.Add(bytes)
	if w.o.Progress != nil {
		w.visiting.Lock()
		defer w.visiting.Unlock()
		w.o.Progress(done, w.all.Load())
	}
}

func (w *walk) census() *Census {
	if w.graph != nil {
		w.addLate(w.graph)
	}
	c := &Census{Tables: w.tables.all, Counts: w.sheet.counts, Passes: w.passes, Stopped: w.halted.Load()}
	c.Collecting = w.o.Still && w.busy
	c.Unfinished = w.sheet.unfinished
	if c.Graph = w.graph; c.Graph != nil {
		c.Graph.count = 0
		c.Graph.complete(c.Tables)
	}
	for i := range w.regions {
		r := &w.regions[i]
		p := w.sheet.part(r)
		p.Regions++
		p.Size += uint64(r.End - r.Start)
		p.Reserved += r.Reserved
	}
	for _, p := range w.sheet.parts {
		c.Parts = append(c.Parts, *p)
		c.Size += p.Size
		c.Walked += p.Objects.Bytes + p.Free.Bytes + p.Unused
		c.Consistent += p.Consistent
	}
	slices.SortFunc(c.Parts, func(a, b Part) int {
		if a.Heap != b.Heap {
			return a.Heap - b.Heap
		}
		return int(a.Generation) - int(b.Generation)
	})
	return c
}
