package async

import (
	"errors"
	"slices"
	"testing"

	"clrsnap/internal/arch"
	"clrsnap/internal/clr/clrtest"
	"clrsnap/internal/target"
)

// copier copies words as the agent does (agent/chain.c): the first word of each object, and the words known for its
// class, following references.
type copier struct {
	from  *target.Reader
	told  map[arch.Addr]Words
	words map[arch.Addr]uint64
	met   map[arch.Addr]bool // MethodTables
}

func (c *copier) copy(at arch.Addr, w Words) {
	for i, offset := range w.Offsets {
		from := at + arch.Addr(int64(offset))
		word, err := c.from.Uint64(from)
		if err != nil {
			return
		}
		c.words[from] = word
		if w.Follow>>i&1 != 0 {
			c.follow(arch.Addr(word))
		}
	}
}

func (c *copier) follow(obj arch.Addr) {
	if _, ok := c.words[obj]; ok || obj == 0 {
		return
	}
	table, err := c.from.Uint64(obj)
	if err != nil {
		return
	}
	c.words[obj] = table
	c.met[arch.Addr(table)] = true
	c.copy(obj, c.told[arch.Addr(table)])
}

func (c *copier) ReadMemory(p []byte, addr arch.Addr) error {
	for i := range p {
		at := addr + arch.Addr(i)
		word, ok := c.words[at&^7]
		if !ok {
			return &target.ReadError{Addr: addr, Len: len(p)}
		}
		p[i] = byte(word >> (8 * (at & 7)))
	}
	return nil
}

// TestWords: a chain read from copied words is the same as a chain read from all memory, in each way to an awaiting
// method, once the words of each class on the chain are known.
func TestWords(t *testing.T) {
	for _, d := range descriptors {
		t.Run(d, func(t *testing.T) {
			p := newProgram(t, d)
			all := ways(p)
			for name, box := range map[string]*clrtest.Class{"pooled box": p.pooledBox, "async iterator": p.itemsBox} {
				all[name] = way{from: awaitedByOuter(p, box)}
			}
			if d == clrtest.Net11 {
				all["runtime async"] = way{from: awaitedByResumed(p)}
			}
			for name, tt := range all {
				c := &copier{from: target.NewReader(p), told: map[arch.Addr]Words{}}
				r := readerOf(t, c, p, p.Descriptor())
				r.ResumeInfoBy(p.reader(t).objects.Word)
				for known := -1; len(c.told) > known; {
					known = len(c.told)
					c.words, c.met = map[arch.Addr]uint64{}, map[arch.Addr]bool{}
					c.follow(tt.from)
					for table := range c.met {
						c.told[table], _, _ = r.Words(table) // behind a short array there are no references
					}
				}
				want, err := p.reader(t).Awaiting(tt.from)
				if err != nil {
					t.Fatalf("%s: %v", name, err)
				}
				got, err := r.Awaiting(tt.from)
				if want.Count > copiedContinuations {
					if missing := (*target.ReadError)(nil); !errors.As(err, &missing) {
						t.Errorf("%s: %v", name, err)
					}
					continue
				}
				if err != nil || !slices.Equal(steps(&got), steps(&want)) || got.End != want.End {
					t.Errorf("%s: %q, end %d (%v), want %q, end %d", name, steps(&got), got.End, err, steps(&want),
						want.End)
				}
			}
		})
	}
}

// awaitedByOuter makes a box of a class with the continuation in a struct, and a method that awaits the box.
func awaitedByOuter(p *program, class *clrtest.Class) arch.Addr {
	outer := p.suspended(p.outerBox, 0)
	core := arch.Addr(pooledCore)
	box := p.Object(class)
	if class == p.itemsBox {
		machine := p.Object(p.items)
		p.Words[box+boxState] = uint64(machine)
		core = machine + itemsCore - box
	}
	p.Words[box+core] = uint64(p.Object(p.actionOfObject))
	p.Words[box+core+8] = uint64(outer)
	return box
}

// awaitedByResumed makes a task, awaiting methods suspended by the runtime itself, and an awaiting method with a
// state machine.
func awaitedByResumed(p *program) arch.Addr {
	delay, outer, leaf := p.Object(p.task), p.suspended(p.outerBox, 0), p.Object(p.ofTask)
	task := p.resumed(p.Continuation(p.continuation), 0x7f00_1000, 0x7f00_2000)
	p.Words[leaf+8] = p.Words[task+16]
	p.Set(leaf, p.ofTask, "RuntimeAsyncTask", uint64(task))
	p.Set(task, p.runtimeTask, headField, uint64(leaf))
	p.continues(delay, leaf)
	p.continues(task, outer)
	return delay
}

// Offsets of the continuation in a pooled box, and in the state machine of an async iterator.
const pooledCore, itemsCore = 8, 32

// TestBaseWords: the word that leads on is known for a task of any class, once a task was met.
func TestBaseWords(t *testing.T) {
	p := newProgram(t, clrtest.Net10)
	_, bases, err := p.reader(t).Words(p.innerBox.Table)
	if err != nil {
		t.Fatal(err)
	}
	if w, ok := bases[p.task.Table]; !ok || !slices.Equal(w.Offsets, []int32{32}) || w.Follow != 1 {
		t.Errorf("%+v", bases)
	}
	if _, bases, err = p.reader(t).Words(p.task.Table); err != nil || len(bases[p.task.Table].Offsets) != 1 {
		t.Errorf("a task itself: %+v, %v", bases, err)
	}
	if _, bases, err = p.reader(t).Words(p.action.Table); err != nil || len(bases[p.delegate.Table].Offsets) != 1 {
		t.Errorf("%+v, %v", bases, err)
	}
}

// TestArgumentWords: the argument of a MoveNext leads to the builder, and the builder to the box.
func TestArgumentWords(t *testing.T) {
	p := newProgram(t, clrtest.Net10)
	r := p.reader(t)
	w, object, ok := r.ArgumentWords(p.inner.Table)
	if !ok || object || len(w.Offsets) == 0 || w.Offsets[0] != boxBuilder-boxState || w.Follow&1 == 0 {
		t.Errorf("%+v, %v, %v", w, object, ok)
	}
	if _, _, ok = r.ArgumentWords(p.task.Table); ok {
		t.Error("a task is a state machine")
	}
}
