package heapwalk

import (
	"cmp"
	"encoding/binary"
	"slices"
	"time"

	"clrsnap/internal/arch"
	"clrsnap/internal/clr/heap"
	"clrsnap/internal/session"
	"clrsnap/internal/target"
	"clrsnap/snapshot"
)

// Handle is a weak handle of an object: a word that the garbage collector keeps, with the object's address, or 0
// once the object is dead (src/coreclr/gc/handletable.cpp).
type Handle struct {
	Address arch.Addr // of the word
	Table   arch.Addr // the object's MethodTable
}

// Sound reports whether h can be a handle: a process may send anything.
func (h Handle) Sound() bool {
	const end = 1 << 57 // of the addresses of a user's program
	return h.Address != 0 && h.Address%8 == 0 && h.Address < end
}

// Followed is the target of a handle.
type Followed struct {
	Object arch.Addr // 0: the object is dead, unless Unread
	Unread bool      // the word of the handle cannot be read
	// Generation is the generation of the object, if Placed. An object that has moved meanwhile is
	// not Placed.
	Generation snapshot.Generation
	Placed     bool
}

// Bounds of the reads of handles' words. The runtime keeps the words of one kind of handle side by
// side.
const (
	handleGap   = 512 // bytes between two words that are read with one piece
	handlePiece = 32 << 10
)

// Follow reads handles, all Sound. The results belong to no single moment, but an object reported
// as dead is dead. The error is that none of the handles can be read, or that the process is gone.
func Follow(p *session.Process, handles []Handle) ([]Followed, error) {
	out := make([]Followed, len(handles))
	order := make([]int, len(handles))
	for i := range order {
		order[i] = i
	}
	slices.SortFunc(order, func(a, b int) int { return cmp.Compare(handles[a].Address, handles[b].Address) })
	var pieces []target.Region
	firsts := []int{} // of each piece, in order
	for i, k := range order {
		at := handles[k].Address
		if n := len(pieces) - 1; n >= 0 {
			last := &pieces[n]
			end := last.Base + arch.Addr(len(last.Data))
			if need := int(at + 8 - last.Base); at < end+handleGap && need <= handlePiece {
				last.Data = slices.Grow(last.Data, max(0, need-len(last.Data)))[:max(need, len(last.Data))]
				continue
			}
		}
		pieces = append(pieces, target.Region{Base: at, Data: make([]byte, 8)})
		firsts = append(firsts, i)
	}
	if p.Live.ReadMany(pieces) != nil {
		return out, followEach(p, handles, out)
	}
	for n, first := range firsts {
		end := len(order)
		if n+1 < len(firsts) {
			end = firsts[n+1]
		}
		for _, k := range order[first:end] {
			at := handles[k].Address - pieces[n].Base
			out[k].Object = arch.Addr(binary.LittleEndian.Uint64(pieces[n].Data[at:]))
		}
	}
	return out, nil
}

// followEach is Follow, handle by handle.
func followEach(p *session.Process, handles []Handle, out []Followed) (err error) {
	unread := 0
	var word [8]byte
	for i := range handles {
		if err = p.Live.ReadMemory(word[:], handles[i].Address); err != nil {
			if gone := p.Live.Alive(); gone != nil {
				return gone
			}
			out[i], unread = Followed{Unread: true}, unread+1
			continue
		}
		out[i].Object = arch.Addr(binary.LittleEndian.Uint64(word[:]))
	}
	if unread < len(handles) {
		return nil
	}
	return err
}

// Looks at handles for the generations of objects.
const (
	placeTries = 10
	placeEvery = 2 * time.Millisecond
)

// FollowPlaced is Follow with the generations of the objects. The look is repeated while the
// collector moves objects. If the collector moves objects all the time, or the layout of the heap
// is unknown, nothing is Placed.
func FollowPlaced(p *session.Process, handles []Handle) (out []Followed, err error) {
	if p.Runtime == nil || p.Managed.Heap == nil {
		return Follow(p, handles)
	}
	for range placeTries {
		p.Engine.Begin()
		before := p.Moments().Epoch()
		if out, err = Follow(p, handles); err != nil || !p.Moments().Known() {
			return out, err
		}
		if regions, err := p.Managed.Heap.Regions(); err == nil && before != 0 {
			place(p, regions, handles, out)
			if p.Moments().Unmoved(before) {
				return out, nil
			}
		}
		time.Sleep(placeEvery)
	}
	return Follow(p, handles)
}

// place finds the generations of objects. An object with another MethodTable is at another place by
// now.
func place(p *session.Process, regions []heap.Region, handles []Handle, out []Followed) {
	slices.SortFunc(regions, func(a, b heap.Region) int { return cmp.Compare(a.Start, b.Start) })
	const marks = 7 // the collector's, in the low bits of an object's first word
	var word [8]byte
	for i := range out {
		f := &out[i]
		if f.Object == 0 {
			continue
		}
		r, ok := slices.BinarySearchFunc(regions, f.Object, func(r heap.Region, at arch.Addr) int {
			switch {
			case r.End <= at:
				return -1
			case r.Start > at:
				return 1
			}
			return 0
		})
		if !ok || p.Live.ReadMemory(word[:], f.Object) != nil {
			continue
		}
		if arch.Addr(binary.LittleEndian.Uint64(word[:]))&^marks == handles[i].Table {
			f.Generation, f.Placed = snapshot.Generation(regions[r].Generation), true
		}
	}
}
