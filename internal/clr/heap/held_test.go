package heap

import (
	"errors"
	"testing"
	"time"

	"clrsnap/internal/arch"
	"clrsnap/internal/clr/clrtest"
)

// aged is spread, but the older of the two generations is the oldest generation of the runtime.
func aged(t testing.TB, mem clrtest.Words) *Reader {
	r := spread(t, mem)
	mem[varsAt+varGenerations] = 3
	mem.Zero(tableAt+2*genSize, genSize)
	mem[tableAt+2*genSize+firstSeg], mem[tableAt+genSize+firstSeg] = uint64(segsAt+0x100), 0
	return r
}

// An action that stopped threads have left half done ends a walk at once. An object that a stopped thread was about
// to make is counted instead.
func TestWalkHeld(t *testing.T) {
	for name, tt := range map[string]struct {
		spoil      func(clrtest.Words)
		torn       bool
		unfinished int
	}{
		"at rest":   {func(clrtest.Words) {}, false, 0},
		"moving":    {func(m clrtest.Words) { m[listAt+0x800] = 1 }, true, 0},
		"young":     {func(m clrtest.Words) { m[youngStart+0x200] = 0x6666_0000 }, true, 0},
		"old":       {func(m clrtest.Words) { m[oldStart+0x200] = 0x6666_0000 }, true, 0},
		"no object": {func(m clrtest.Words) { m[contextNext-32], m[contextNext-24] = 0, 0 }, false, 1},
		"no length": {func(m clrtest.Words) { m[contextNext-24] = 0 }, false, 1},
		"unused": { // behind the thread's next object
			func(m clrtest.Words) { m.Zero(contextNext+0x80, 0x40) }, false, 0},
	} {
		mem := clrtest.Words{}
		r := spread(t, mem)
		tt.spoil(mem)
		o := still(mem)
		o.Held = true
		c, err := r.Walk(o)
		if errors.Is(err, ErrTorn) != tt.torn || err != nil && !tt.torn {
			t.Errorf("%s: %v", name, err)
		}
		if !tt.torn && (c.Unfinished != tt.unfinished || c.Consistent != c.Size || c.Stopped) {
			t.Errorf("%s: %+v", name, c)
		}
	}
}

// Objects that are moved into the oldest generation after the walk of the young generations would count twice. Memory
// that is read after the move is not consistent; memory that was read before is consistent.
func TestWalkFilled(t *testing.T) {
	for name, tt := range map[string]struct {
		at   arch.Addr // address of the read at the time of the move
		want uint64    // consistent bytes
	}{
		"before": {youngStart - front, 0}, "first region": {oldStart - front, 0}, "never": {1, 0x1100},
		"second region": {otherStart - front, 0x1000},
	} {
		mem := &changing{Words: clrtest.Words{}, change: func(arch.Addr) {}}
		r := aged(t, mem.Words)
		o := still(mem)
		o.Still, o.nap = false, func(time.Duration) {}
		mem.change = func(at arch.Addr) {
			if at == tt.at {
				mem.Words[tableAt+2*genSize+128] += 4096 // bytes of free space given to objects, for example
			}
		}
		c, err := r.Walk(o)
		if err != nil || part(c, Gen2).Consistent != tt.want {
			t.Errorf("%s: %#x bytes are consistent, not %#x: %v", name, part(c, Gen2).Consistent, tt.want, err)
		}
	}
}

// After a few moves only, the next round is consistent. Objects of the earlier rounds are not handed out.
func TestWalkFilledAgain(t *testing.T) {
	for name, tt := range map[string]struct {
		times int
		want  uint64 // consistent bytes
	}{"once": {1, 0x1100}, "three times": {rounds - 1, 0x1100}, "four times": {rounds, 0x1000}} {
		mem := &changing{Words: clrtest.Words{}, change: func(arch.Addr) {}}
		r := aged(t, mem.Words)
		o := still(mem)
		o.Still, o.nap = false, func(time.Duration) {}
		met := map[arch.Addr]int{}
		o.Want = func(arch.Addr) bool { return true }
		o.Visit = func(_ *Region, objects []Object) {
			for i := range objects {
				met[objects[i].Addr]++
			}
		}
		changes := 0
		mem.change = func(at arch.Addr) {
			if at == otherStart-front && changes < tt.times {
				changes++
				mem.Words[tableAt+2*genSize+128] += 4096
			}
		}
		c, err := r.Walk(o)
		if err != nil || part(c, Gen2).Consistent != tt.want || c.Size != c.Walked {
			t.Errorf("%s: %v, %#x bytes of the oldest generation: %v", name, c, part(c, Gen2).Consistent, err)
		}
		if changes != tt.times || c.Passes != min(tt.times+1, rounds) {
			t.Errorf("%s: %d changes, %d passes", name, changes, c.Passes)
		}
		objects := uint64(0)
		for i := range c.Parts {
			objects += c.Parts[i].Objects.Count
		}
		if uint64(len(met)) != objects || objects == 0 {
			t.Errorf("%s: %d objects are handed out, of %d", name, len(met), objects)
		}
		for at, n := range met {
			if n != 1 {
				t.Errorf("%s: %v is handed out %d times", name, at, n)
			}
		}
	}
}

// If the walk ends in a later round, an earlier round counts if the earlier round has read more.
func TestWalkFilledStopped(t *testing.T) {
	mem := &changing{Words: clrtest.Words{}, change: func(arch.Addr) {}}
	r := aged(t, mem.Words)
	o := still(mem)
	o.Still, o.nap = false, func(time.Duration) {}
	filled, stop := false, false
	o.Stopped = func() bool { return stop }
	mem.change = func(at arch.Addr) {
		switch {
		case at == otherStart-front && !filled:
			filled = true
			mem.Words[tableAt+2*genSize+128] += 4096
		case at == youngStart-front && filled:
			stop = true
		}
	}
	c, err := r.Walk(o)
	if p := part(c, Gen2); err != nil || !stop || !c.Stopped || p.Consistent != 0x1000 || p.Objects.Count == 0 {
		t.Errorf("%v, %+v: %v", c, p, err)
	}
}

// The rest of a region that has become shorter is read, and is not consistent.
func TestWalkCut(t *testing.T) {
	mem := &changing{Words: clrtest.Words{}, change: func(arch.Addr) {}}
	r := aged(t, mem.Words)
	o := still(mem)
	o.Still, o.nap = false, func(time.Duration) {}
	const end = oldStart + 0x800
	looks := 0
	mem.change = func(at arch.Addr) {
		if at != oldStart-front {
			return
		}
		if looks++; looks < rounds {
			mem.Words[tableAt+2*genSize+128] += 4096 // there will be another round
		} else if looks == rounds {
			mem.Words[segsAt+0x100] = uint64(end)
			for at := end; at < oldEnd; at += 8 {
				mem.Words[at] = 0x6666_0000
			}
		}
	}
	c, err := r.Walk(o)
	if err != nil || looks < rounds {
		t.Fatal(looks, err)
	}
	const free = 32 + 40 // between them
	if p := part(c, Gen2); p.Objects.Bytes+free < uint64(end-oldStart+otherEnd-otherStart) || p.Consistent > 0x100 {
		t.Errorf("%+v", p)
	}
}
