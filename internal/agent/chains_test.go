package agent

import (
	"encoding/binary"
	"slices"
	"testing"
)

// TestCorruptChain: an invalid chain is an error.
func TestCorruptChain(t *testing.T) {
	word := func(address uint64) []byte {
		return binary.LittleEndian.AppendUint64(binary.LittleEndian.AppendUint64(nil, address), 7)
	}
	chain := func(count uint64, words ...[]byte) []byte {
		b := encodeRecord(&Record{Type: EventGCTriggered, Frames: make([]Frame, 2)})
		b[recordFlags] |= flagChain
		return append(binary.LittleEndian.AppendUint64(b, count), slices.Concat(words...)...)
	}
	r, err := parseRecord(chain(2, word(0x1000), word(1<<3|chainArgument)), 0)
	if err != nil || len(r.Chain.Words) != 1 {
		t.Fatalf("what is good: %+v, %v", r, err)
	}
	for name, b := range map[string][]byte{
		"fewer words":       chain(2, word(0x1000)),
		"more words":        chain(0, word(0x1000)),
		"many words":        chain(maxChain+1, slices.Repeat(word(0x1000), maxChain+1)),
		"very many words":   chain(1<<60, word(0x1000)),
		"a frame too many":  chain(1, word(2<<3|chainArgument)),
		"an unknown kind":   chain(1, word(0x1000|chainArgument+1)),
		"no number at all":  chain(0)[:recordSize+2*shortFrameSize],
		"half of the words": chain(1, word(0x1000))[:recordSize+2*shortFrameSize+16],
	} {
		if r, err := parseRecord(b, 0); err == nil {
			t.Errorf("%s: %+v", name, r)
		}
	}
}

// TestChainRules: each key has one rule, which is not changed any more, and a table without room
// says so.
func TestChainRules(t *testing.T) {
	r, _ := makeRing(t, minRing)
	rule := ChainRule{Key: 0x1234, OnStack: true, Register: ChainRBP, Offset: -8, Words: []int32{-8, 16}, Follow: 2}
	if !r.addRule(&rule) {
		t.Fatal("there is room")
	}
	before := slices.Clone(r.memory)
	if !r.addRule(&ChainRule{Key: rule.Key}) || !slices.Equal(before, r.memory) {
		t.Error("a rule was replaced")
	}
	if r.addRule(&ChainRule{}) || r.addRule(&ChainRule{Key: 1, Words: make([]int32, MaxChainWords+1)}) {
		t.Error("a rule without a key, or with too many words, was taken")
	}
	added := 1
	for key := uint64(0x7f0000000000); added < chainRules && r.addRule(&ChainRule{Key: key}); key += 40 {
		added++
	}
	if added < chainRules/2 || added == chainRules {
		t.Errorf("%d of %d rules", added, chainRules)
	}
	if len(before) != recordsAt+minRing {
		t.Errorf("%d bytes of memory", len(before))
	}
	for i := range r.records {
		if r.records[i] != 0 {
			t.Fatal("a rule was written into the records")
		}
	}
}
