package waits

import (
	"testing"

	"clrsnap/internal/arch"
	"clrsnap/internal/target"
)

// atOnce is a program whose memory is read in several pieces at once.
type atOnce struct {
	*subsystemProgram
	vectors int
}

func (p *atOnce) ReadMany(pieces []target.Region) error {
	p.vectors++
	return target.ReadMany(p.subsystemProgram, pieces)
}

// TestQueue: the number of waiting threads is right after each change of the list, and an unchanged list takes one
// read.
func TestQueue(t *testing.T) {
	p := &atOnce{subsystemProgram: newSubsystem(t)}
	at := p.waited(2, 20, 0)
	r := &Reader{Managed: &p.runtime.Managed, Runtime: p.runtime, People: p, Live: p}
	r.Managed.Seen.Directly(p)
	var nodes []arch.Addr
	for node := arch.Addr(p.Words[at+24]); node != 0; node = arch.Addr(p.Words[node+24]) {
		nodes = append(nodes, node)
	}
	want := func(what string, waiters, vectors int) {
		t.Helper()
		p.vectors = 0
		o, err := r.waitable(at)
		if err != nil || o.Waiters != waiters || p.vectors != vectors {
			t.Errorf("%s: %d wait, after %d reads at once, %v", what, o.Waiters, p.vectors, err)
		}
	}
	want("at first", 20, 0)
	want("again", 20, 1)
	p.Words[nodes[9]+24] = uint64(nodes[11])
	want("one fewer", 19, 1)
	want("again one fewer", 19, 1)
	p.Words[nodes[19]+24] = uint64(p.Object(p.node))
	want("one more", 20, 1)
	p.Words[at+24] = uint64(nodes[1])
	want("without the first", 19, 0)
	p.Words[nodes[19]+24] = uint64(nodes[1])
	if o, err := r.waitable(at); err == nil {
		t.Errorf("a circle: %d wait", o.Waiters)
	}
}
