package heap

import (
	"encoding/binary"
	"errors"

	"clrsnap/internal/arch"
	"clrsnap/internal/target"
)

// errAstray: no object can be at an address. The memory has changed during the read, or is damaged.
var errAstray = errors.New("what should be an object makes no sense")

// errStopped: the caller has stopped the walk.
var errStopped = errors.New("stopped")

const (
	maxBlock = 512 << 10 // bytes of one read
	minBlock = 4 << 10
	maxData  = 64 << 10 // bytes of a wanted object that the walk keeps
	front    = 8        // bytes in front of an object: the word that counts as part of the object before
	words    = 16       // bytes of an object that determine the object's size
)

// piece is the range of one step of a walk: the objects that begin in [at, stop).
type piece struct {
	at, stop arch.Addr
	start    arch.Addr // of the region
	end      arch.Addr // of the region
	contexts []context // in the piece, by address
	zeros    bool      // the piece can have memory without objects yet
	slots    bool      // Graph.Slots covers arrays in the piece
	newest   bool      // the youngest generation
}

// hole returns where the next allocation context begins, and where objects go on behind the context.
func (p *piece) hole(at arch.Addr) (from, to arch.Addr, ok bool) {
	for len(p.contexts) > 0 && p.contexts[0].next < at {
		p.contexts = p.contexts[1:]
	}
	if len(p.contexts) == 0 {
		return 0, 0, false
	}
	c := p.contexts[0]
	return c.next, c.limit + contextGap, true
}

// reaches reports whether zeros lead up to the place of the next thread's next object. A thread clears all memory
// that it gets, and then puts one object behind the other: so an object is missing in the zeros.
func (p *piece) reaches(from, to arch.Addr) bool {
	return len(p.contexts) > 0 && from < p.contexts[0].next && p.contexts[0].next <= to
}

// walker walks pieces, for one goroutine.
type walker struct {
	mem     target.Memory
	tables  *tables
	stopped func() bool
	untag   uint64
	keeps   bool   // contents of wanted objects
	graph   *Graph // nil: references are not kept
	far     []byte
	known   cache

	buf   []byte
	data  []byte    // the last block read
	base  arch.Addr // of data
	block int       // bytes to read next

	// Of the present piece.
	cells   []Tally // by Table.Index
	touched []int32 // the cells that are not zero
	unused  uint64  // bytes of allocation contexts and of zeros
	objects []Object

	unfinished int // threads in the middle of an allocation

	draft *draft // of graph
}

// reset forgets the present piece.
func (w *walker) reset() {
	for _, i := range w.touched {
		w.cells[i] = Tally{}
	}
	w.touched, w.unused, w.unfinished, w.objects = w.touched[:0], 0, 0, nil
	if w.graph != nil {
		w.draft = &draft{}
	}
}

// walk goes through a piece, object by object, and sets p.at to the first object behind the piece.
func (w *walker) walk(p *piece) error {
	w.block = maxBlock
	for p.at < p.stop {
		if w.stopped() {
			return errStopped
		}
		if err := w.load(p.at, p.end); err != nil {
			return err
		}
		loaded := w.base + arch.Addr(len(w.data))
		from, block := p.at, w.block
		if err := w.scan(p); err != nil {
			return err
		}
		switch { // large objects are passed over, and their contents are not read
		case p.at == from && w.block == block:
			return w.rest(p)
		case p.at == from: // scan has asked for a larger block
		case p.at > loaded+minBlock:
			w.block = minBlock
		default:
			w.block = min(4*w.block, maxBlock)
		}
	}
	return nil
}

// rest handles the end of a region that is too short for an object.
func (w *walker) rest(p *piece) error {
	if !p.zeros {
		return errAstray
	}
	w.unused += uint64(p.end - p.at)
	p.at = p.end
	return nil
}

// load reads a block, from the word in front of an object on.
func (w *walker) load(at, end arch.Addr) error {
	n := int(min(uint64(w.block), uint64(end-at))) + front
	if len(w.buf) < n {
		w.buf = make([]byte, max(n, maxBlock+front))
	}
	w.base, w.data = at-front, w.buf[:n]
	err := w.mem.ReadMemory(w.data, w.base)
	if err != nil { // the word in front of the first object may be in no memory
		clear(w.data[:front])
		err = w.mem.ReadMemory(w.data[front:], at)
	}
	return err
}

// scan goes through the block.
func (w *walker) scan(p *piece) error {
	for p.at < p.stop {
		from, to, ok := p.hole(p.at)
		if ok && from == p.at {
			w.unused += uint64(min(to, p.end) - p.at)
			p.at = to
			continue
		}
		stop := p.stop
		if ok {
			stop = min(stop, from)
		}
		before := p.at
		if err := w.run(p, stop); err != nil {
			return err
		}
		if p.at == before || p.at >= w.base+arch.Addr(len(w.data)) {
			return nil // the rest has not been read
		}
	}
	return nil
}

// run is the innermost loop: run goes from object to object up to stop, or up to an object that has not been read.
func (w *walker) run(p *piece, stop arch.Addr) error {
	data := w.data
	i := uint64(p.at - w.base)
	last := min(uint64(stop-w.base), uint64(max(len(data)-words+1, 0)))
	for i < last {
		mt := binary.LittleEndian.Uint64(data[i:]) &^ w.untag
		k := w.known.slot(mt)
		if k.mt != mt || mt == 0 {
			if mt == 0 || mt>>32 != 0 && uint32(mt) == 0 {
				n := w.zeros(data[i:])
				if !p.zeros {
					return errAstray
				}
				if at := w.base + arch.Addr(i); p.reaches(at, at+arch.Addr(n)) {
					w.unfinished++
				}
				w.unused += n
				i += n
				continue
			}
			var err error
			if k, err = w.meet(arch.Addr(mt)); err != nil {
				return err
			}
		}
		size := uint64(k.base)
		if k.component != 0 {
			size += uint64(k.component) * uint64(binary.LittleEndian.Uint32(data[i+countAt:]))
		}
		size = (size + 7) &^ 7
		if size > uint64(p.end-w.base)-i || k.flags&knownFree == 0 && binary.LittleEndian.Uint32(data[i-front:]) != 0 {
			return errAstray
		}
		if k.flags&knownWanted != 0 && !w.take(i, size, k) {
			break
		}
		if w.graph != nil && k.flags&knownFree == 0 {
			if err := w.note(i, size, k, p); err != nil {
				return err
			}
		}
		c := &w.cells[k.index]
		if c.Count == 0 {
			w.touched = append(w.touched, k.index)
		}
		c.Count++
		c.Bytes += size
		i += size
	}
	p.at = w.base + arch.Addr(i)
	return nil
}

// zeros counts the bytes up to the first word that can be the beginning of an object.
func (w *walker) zeros(data []byte) uint64 {
	n := 0
	for ; n+words <= len(data); n += 8 {
		v := binary.LittleEndian.Uint64(data[n:])
		if v != 0 && (v>>32 == 0 || uint32(v) != 0) { // not the word in front of an object
			break
		}
	}
	return uint64(max(n, 8))
}

// meet looks up a MethodTable that the cache lacks.
func (w *walker) meet(mt arch.Addr) (*known, error) {
	t, err := w.tables.get(mt)
	if err != nil {
		return nil, err
	}
	for len(w.cells) <= t.Index {
		w.cells = append(w.cells, make([]Tally, t.Index+64)...)
	}
	return w.known.fill(t), nil
}

// take keeps a wanted object; false: a part of the object is missing, and the object is to be read again.
func (w *walker) take(i, size uint64, k *known) bool {
	o := Object{Addr: w.base + arch.Addr(i), Table: w.tables.at(int(k.index)), Size: size}
	if !w.keeps {
		w.objects = append(w.objects, o)
		return true
	}
	keep := min(size, maxData)
	if i+keep > uint64(len(w.data)) && (i > front || w.block < int(keep)) {
		w.block = max(w.block, int(keep))
		return false
	}
	if i+keep <= uint64(len(w.data)) {
		o.Data = append([]byte(nil), w.data[i:i+keep]...)
	}
	w.objects = append(w.objects, o)
	return true
}

func (s *tables) at(i int) *Table {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.all[i]
}
