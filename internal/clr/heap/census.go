package heap

import (
	"fmt"

	"clrsnap/internal/arch"
)

// Tally is a number of objects, and their bytes in all.
type Tally struct {
	Count, Bytes uint64
}

func (t *Tally) add(o Tally) {
	t.Count += o.Count
	t.Bytes += o.Bytes
}

// Object is an object of a walk.
type Object struct {
	Addr  arch.Addr
	Table *Table
	Size  uint64 // bytes, up to the next object
	// Data is a copy of the object from its MethodTable on: the first 64 KB at most. nil: the object could not be
	// read in one piece.
	Data []byte
}

// Census is the result of a walk.
type Census struct {
	Tables []*Table
	Counts [][NumGenerations]Tally // by Table.Index

	Graph *Graph // nil: not asked for
	Parts []Part // heap by heap, the youngest generation first

	// Bytes of memory with objects: in all, walked, and walked with proof that the collector moved nothing in them
	// meanwhile.
	Size, Walked, Consistent uint64
	Passes                   int  // walks of the young generations
	Collecting               bool // a dump was made in the middle of a collection
	Stopped                  bool // the walk ended early

	// Unfinished is the number of threads in the middle of an allocation. Such a thread has taken memory for an
	// object, and the object's beginning or end is still missing. The census counts the memory as unused.
	Unfinished int
}

// Part is one generation of one heap.
type Part struct {
	Heap       int
	Generation Generation
	Regions    int
	Size       uint64 // bytes of memory with objects
	Reserved   uint64 // bytes of address space
	Objects    Tally
	Free       Tally  // space between objects
	Unused     uint64 // bytes that a thread has been given and has not used yet
	Consistent uint64 // proved bytes: see Census
}

// String sums the census up for people.
func (c *Census) String() string {
	return fmt.Sprintf("%d bytes, %d walked, %d consistent, %d classes", c.Size, c.Walked, c.Consistent, len(c.Tables))
}

// sheet adds up the results that a goroutine, or a pass over the young generations, accepts.
type sheet struct {
	counts [][NumGenerations]Tally
	parts  map[[2]int]*Part

	unfinished int
}

func newSheet() *sheet { return &sheet{parts: map[[2]int]*Part{}} }

// part returns the part of a region.
func (s *sheet) part(r *Region) *Part {
	key := [2]int{r.Heap, int(r.Generation)}
	p := s.parts[key]
	if p == nil {
		p = &Part{Heap: r.Heap, Generation: r.Generation}
		s.parts[key] = p
	}
	return p
}

// accept adds a walker's results for a piece of a region.
func (s *sheet) accept(w *walker, r *Region, walked uint64, proved bool) {
	p := s.part(r)
	for _, i := range w.touched {
		c := w.cells[i]
		s.count(int(i), r.Generation, c)
		if w.tables.at(int(i)).Free {
			p.Free.add(c)
		} else {
			p.Objects.add(c)
		}
	}
	p.Unused += w.unused
	s.unfinished += w.unfinished
	if proved {
		p.Consistent += walked
	}
}

// count adds objects of a class, by Table.Index.
func (s *sheet) count(class int, in Generation, t Tally) {
	for class >= len(s.counts) {
		s.counts = append(s.counts, make([][NumGenerations]Tally, class+64)...)
	}
	s.counts[class][in].add(t)
}

// consistent returns the number of proved bytes.
func (s *sheet) consistent() (bytes uint64) {
	for _, p := range s.parts {
		bytes += p.Consistent
	}
	return bytes
}

func (s *sheet) add(o *sheet) {
	s.unfinished += o.unfinished
	if n := len(o.counts); n > len(s.counts) {
		s.counts = append(s.counts, make([][NumGenerations]Tally, n-len(s.counts))...)
	}
	for i := range o.counts {
		for g := range o.counts[i] {
			s.counts[i][g].add(o.counts[i][g])
		}
	}
	for key, p := range o.parts {
		mine := s.parts[key]
		if mine == nil {
			mine = &Part{Heap: p.Heap, Generation: p.Generation}
			s.parts[key] = mine
		}
		mine.Objects.add(p.Objects)
		mine.Free.add(p.Free)
		mine.Unused += p.Unused
		mine.Consistent += p.Consistent
	}
}
