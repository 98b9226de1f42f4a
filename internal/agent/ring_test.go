package agent

import (
	"encoding/binary"
	"errors"
	"math/rand/v2"
	"reflect"
	"strings"
	"sync/atomic"
	"testing"
	"unicode/utf16"
	"unicode/utf8"
	"unsafe"
)

// producer writes records like the agent.
type producer struct {
	r    *ring
	head uint64
}

func makeRing(tb testing.TB, capacity int) (*ring, *producer) {
	tb.Helper()
	r, file, err := newRing(capacity)
	if err != nil {
		tb.Fatal(err)
	}
	file.Close()
	tb.Cleanup(func() { r.close() })
	return r, &producer{r: r}
}

// put writes a record; false if there is no room.
func (p *producer) put(b []byte) bool {
	capacity := uint64(len(p.r.records))
	place, padding := p.head&(capacity-1), uint64(0)
	if place+uint64(len(b)) > capacity {
		padding = capacity - place
	}
	if p.head+padding+uint64(len(b))-atomic.LoadUint64(p.r.word(offTail)) > capacity {
		return false
	}
	if padding > 0 {
		binary.LittleEndian.PutUint32(p.r.records[place:], uint32(padding))
	}
	p.head += padding
	copy(p.r.records[p.head&(capacity-1):], b)
	p.head += uint64(len(b))
	atomic.StoreUint64(p.r.word(offHead), p.head)
	return true
}

// encodeRecord is a record in the agent's format.
func encodeRecord(r *Record) []byte {
	le := binary.LittleEndian
	b := make([]byte, recordSize)
	b[recordType] = byte(r.Type)
	for flag, on := range map[byte]bool{flagHeld: r.Held, flagCut: r.Truncated, flagRegisters: r.Registers,
		flagHandle: r.HasHandle, flagChain: r.Chain != nil} {
		if on {
			b[recordFlags] |= flag
		}
	}
	le.PutUint16(b[recordFrames:], uint16(len(r.Frames)))
	le.PutUint64(b[recordTime:], r.Time)
	le.PutUint64(b[recordThread:], r.Thread)
	le.PutUint32(b[recordOSID:], r.OSID)
	le.PutUint32(b[recordResult:], r.Result)
	for i, v := range r.Values {
		le.PutUint64(b[recordValues+8*i:], v)
	}
	for _, f := range r.Frames {
		words := []uint64{f.Function, f.IP, f.ContextIP, f.SP, f.RBP, f.RBX, f.R12, f.R13, f.R14, f.R15}
		if !r.Registers {
			words = words[:2]
		}
		for _, w := range words {
			b = le.AppendUint64(b, w)
		}
	}
	if r.Chain != nil {
		b = append(b, encodeChain(r.Chain)...)
	}
	if r.HasHandle {
		b = le.AppendUint64(le.AppendUint64(b, r.Handle.Address), uint64(r.Handle.Slot))
	}
	if r.Type == EventRethrown {
		b = le.AppendUint64(le.AppendUint64(b, r.First.Function), r.First.IP)
	}
	for _, u := range utf16.Encode([]rune(r.Name + r.Message)) {
		b = le.AppendUint16(b, u)
	}
	b = append(b, make([]byte, align(len(b))-len(b))...)
	le.PutUint32(b, uint32(len(b)))
	return b
}

func encodeChain(c *Chain) []byte {
	le := binary.LittleEndian
	b := le.AppendUint64(nil, uint64(len(c.Arguments)+len(c.Words)))
	for _, a := range c.Arguments {
		b = le.AppendUint64(le.AppendUint64(b, uint64(a.Frame)*(chainKinds+1)|chainArgument), a.Value)
	}
	for _, w := range c.Words {
		kind := uint64(chainWord)
		if w.Table {
			kind = chainTable
		}
		b = le.AppendUint64(le.AppendUint64(b, w.Address|kind), w.Value)
	}
	return b
}

func randomChain(frames int) *Chain {
	c := &Chain{}
	for range rand.IntN(min(frames, 3) + 1) {
		c.Arguments = append(c.Arguments, ChainArgument{Frame: rand.IntN(frames), Value: rand.Uint64()})
	}
	for range rand.IntN(20) {
		w := ChainWord{Address: rand.Uint64() &^ chainKinds, Value: rand.Uint64(), Table: rand.IntN(2) == 0}
		c.Words = append(c.Words, w)
	}
	return c
}

func randomRecord() *Record {
	r := &Record{
		Type: 1 + EventType(rand.IntN(int(EventTypes)-1)),
		Held: rand.IntN(2) == 0, Truncated: rand.IntN(2) == 0, Registers: rand.IntN(2) == 0,
		Time: rand.Uint64(), Thread: rand.Uint64(), OSID: rand.Uint32(), Result: rand.Uint32(), Frames: []Frame{},
		Values: [4]uint64{rand.Uint64(), rand.Uint64(), rand.Uint64(), rand.Uint64()},
	}
	if r.Type == EventException || r.Type == EventRethrown {
		r.Name, r.Message = strings.Repeat("Ä", rand.IntN(20)), strings.Repeat("ö", rand.IntN(20))
		name, message := uint64(utf8.RuneCountInString(r.Name)), uint64(utf8.RuneCountInString(r.Message))
		whole := message + rand.Uint64N(2)
		r.HasMessage, r.MessageCut = true, whole > message
		if message == 0 && rand.IntN(2) == 0 {
			whole, r.HasMessage, r.MessageCut = noMessage, false, false
		}
		r.Values[3] = name | message<<16 | whole<<32
	}
	if r.Type == EventAlloc && rand.IntN(2) == 0 {
		r.HasHandle, r.Handle = true, Handle{Address: rand.Uint64(), Slot: rand.Uint32()}
	}
	if r.Type == EventRethrown {
		r.First = Frame{Function: rand.Uint64(), IP: rand.Uint64()}
	}
	for range rand.IntN(12) {
		f := Frame{Function: rand.Uint64(), IP: rand.Uint64()}
		if r.Registers {
			f.ContextIP, f.SP, f.RBP, f.RBX, f.R12, f.R13, f.R14, f.R15 = 1, 2, 3, 4, 5, 6, 7, rand.Uint64()
		}
		r.Frames = append(r.Frames, f)
	}
	if rand.IntN(2) == 0 {
		r.Chain = randomChain(len(r.Frames))
	}
	return r
}

// TestRing: written records are read, in order, over the end of the ring and over again, and the
// memory is zero afterwards.
func TestRing(t *testing.T) {
	r, p := makeRing(t, minRing)
	var written []*Record
	read := 0
	for range 10000 {
		record := randomRecord()
		if p.put(encodeRecord(record)) {
			written = append(written, record)
			continue
		}
		for {
			got, err := r.next()
			if err != nil {
				t.Fatal(err)
			}
			if got == nil {
				break
			}
			got.Position = 0
			if !reflect.DeepEqual(got, written[read]) {
				t.Fatalf("record %d\ngot  %+v\nwant %+v", read, got, written[read])
			}
			read++
		}
	}
	if read < 5000 || p.head < 100*minRing {
		t.Errorf("%d records, %d bytes", read, p.head)
	}
	for {
		got, err := r.next()
		if err != nil {
			t.Fatal(err)
		}
		if got == nil {
			break
		}
	}
	for i, b := range r.records {
		if b != 0 {
			t.Fatalf("byte %d is %d", i, b)
		}
	}
}

// TestUnfinished: an unfinished record hides the later records.
func TestUnfinished(t *testing.T) {
	r, p := makeRing(t, minRing)
	b := encodeRecord(&Record{Type: EventGCEnd})
	for range 3 {
		p.put(b)
	}
	size := (*uint32)(unsafe.Pointer(&r.records[len(b)]))
	atomic.StoreUint32(size, 0)
	if got, err := r.next(); got == nil || err != nil {
		t.Fatalf("%+v, %v", got, err)
	}
	if got, err := r.next(); got != nil || err != nil {
		t.Fatalf("an unfinished record: %+v, %v", got, err)
	}
	atomic.StoreUint32(size, uint32(len(b)))
	for range 2 {
		if got, err := r.next(); got == nil || err != nil {
			t.Fatalf("%+v, %v", got, err)
		}
	}
}

// TestCorrupt: the writes of a hostile process are errors.
func TestCorrupt(t *testing.T) {
	good := encodeRecord(&Record{Type: EventAlloc, Frames: make([]Frame, 3)})
	le := binary.LittleEndian
	thrown := func(t EventType, units uint64) func(*ring) {
		return func(r *ring) {
			r.records[recordType] = byte(t)
			le.PutUint64(r.records[recordValues+24:], units)
		}
	}
	for name, spoil := range map[string]func(r *ring){
		"head beyond the ring":   func(r *ring) { atomic.StoreUint64(r.word(offHead), minRing+8) },
		"head behind the tail":   func(r *ring) { atomic.StoreUint64(r.word(offHead), 1<<64-8) },
		"head not aligned":       func(r *ring) { atomic.StoreUint64(r.word(offHead), uint64(len(good)+4)) },
		"size beyond the head":   func(r *ring) { le.PutUint32(r.records, uint32(len(good)+8)) },
		"size not aligned":       func(r *ring) { le.PutUint32(r.records, uint32(len(good)-4)) },
		"size of less":           func(r *ring) { le.PutUint32(r.records, 8); r.records[recordType] = 1 },
		"size without frames":    func(r *ring) { le.PutUint32(r.records, recordSize) },
		"padding in the middle":  func(r *ring) { r.records[recordType] = 0 },
		"unknown type":           func(r *ring) { r.records[recordType] = byte(EventTypes) },
		"more frames":            func(r *ring) { le.PutUint16(r.records[recordFrames:], 4) },
		"many frames":            func(r *ring) { le.PutUint16(r.records[recordFrames:], 0xffff) },
		"frames with registers":  func(r *ring) { r.records[recordFlags] = flagRegisters },
		"a handle":               func(r *ring) { r.records[recordFlags] = flagHandle },
		"a chain":                func(r *ring) { r.records[recordFlags] = flagChain },
		"a name":                 thrown(EventException, 1),
		"a long name":            thrown(EventException, 0xffff),
		"a message":              thrown(EventException, 1<<16),
		"a long message":         thrown(EventException, 0xffff<<16),
		"two long texts":         thrown(EventException, 0xffffffff),
		"a rethrow":              thrown(EventRethrown, 0),
		"size of the whole ring": func(r *ring) { le.PutUint32(r.records, minRing) },
	} {
		r, p := makeRing(t, minRing)
		p.put(good)
		spoil(r)
		if got, err := r.next(); !errors.Is(err, ErrCorrupt) {
			t.Errorf("%s: %+v, %v", name, got, err)
		}
	}
}

// TestControl: the other numbers of the control page.
func TestControl(t *testing.T) {
	r, p := makeRing(t, minRing)
	c := &Conn{ring: r}
	c.SetWalkedThread(7)
	p.put(encodeRecord(&Record{Type: EventGCEnd}))
	p.put(encodeRecord(&Record{Type: EventGCEnd}))
	var last *Record
	if err := c.Drain(func(r *Record) error { last = r; return nil }); err != nil || last == nil {
		t.Fatal(err)
	}
	c.Release(last)
	for i, offset := range []int{offSeen, offPublished, offDropped, offFailed} {
		*r.word(offset + 8*int(EventContention)) = uint64(i + 1)
	}
	if *r.word(offWalking) != 7 || last.Position != recordSize || *r.word(offReleased) != recordSize+1 ||
		*r.word(offTail) != 2*recordSize {
		t.Errorf("walking %d, position %d, released %d, tail %d", *r.word(offWalking), last.Position,
			*r.word(offReleased), *r.word(offTail))
	}
	if got := c.Stats()[EventContention]; got != (Counts{1, 2, 3, 4}) {
		t.Errorf("counts %+v", got)
	}
	for _, capacity := range []int{-1, 1, 5000, minRing / 2, 2 * maxRing} {
		if _, _, err := newRing(capacity); err == nil {
			t.Errorf("a ring of %d bytes", capacity)
		}
	}
}

// FuzzRing: reading ends, for any contents of the memory, with sound records or with an error.
func FuzzRing(f *testing.F) {
	f.Add(encodeRecord(&Record{Type: EventAlloc, Frames: make([]Frame, 3)}), uint64(112), uint64(0))
	f.Add(encodeRecord(&Record{Type: EventAlloc, HasHandle: true, Handle: Handle{8, 3}}), uint64(80), uint64(0))
	f.Add(encodeRecord(&Record{Type: EventAlloc, Frames: make([]Frame, 1), Chain: &Chain{
		Arguments: []ChainArgument{{0, 64}}, Words: []ChainWord{{Address: 64, Value: 8, Table: true}},
	}}), uint64(144), uint64(0))
	f.Add(encodeRecord(&Record{Type: EventGCEnd, Registers: true, Frames: make([]Frame, 1)}), uint64(4096), uint64(64))
	f.Fuzz(func(t *testing.T, memory []byte, head, at uint64) {
		r, _ := makeRing(t, minRing)
		at &^= recordAlignment - 1 // as after every record
		r.at = at
		for i := range r.records {
			if len(memory) > 0 {
				r.records[i] = memory[i%len(memory)]
			}
		}
		atomic.StoreUint64(r.word(offHead), at+head)
		for range 1 + minRing/recordAlignment {
			got, err := r.next()
			if err != nil || got == nil {
				return
			}
			if got.Type == eventPadding || got.Type >= EventTypes || len(got.Frames) > maxFrames {
				t.Fatalf("%+v", got)
			}
		}
		t.Error("more records than there is room for")
	})
}

// TestWaits: a wait is returned if it goes on and does not change during the reading. The memory
// can have any contents.
func TestWaits(t *testing.T) {
	r, _ := makeRing(t, minRing)
	put := func(i int, words ...uint64) {
		for j, w := range words {
			atomic.StoreUint64(r.word(offWaits+i*waitSize+8*j), w)
		}
	}
	if last := offBase + 8; last > controlSize {
		t.Fatalf("the control page ends at %d, what is in it at %d", controlSize, last)
	}
	if got := r.waits(nil); len(got) != 0 {
		t.Errorf("nobody waits, got %+v", got)
	}
	put(0, 11, 1000, 0xa, 0xb, 0xc)
	put(1, 12, 0, 0xa, 0xb, 0xc) // being changed, or over
	put(2, 0, 1000, 0xa, 0xb, 0xc)
	put(lockWaits-1, 1<<32|13, ^uint64(0), ^uint64(0), 1, 0)
	want := []Wait{{11, 1000, 0xa, 0xb, 0xc}, {13, ^uint64(0), ^uint64(0), 1, 0}}
	if got := r.waits(nil); !reflect.DeepEqual(got, want) {
		t.Errorf("got %+v, want %+v", got, want)
	}
}
