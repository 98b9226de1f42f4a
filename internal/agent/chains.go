package agent

import (
	"encoding/binary"
	"fmt"
	"slices"
	"sync/atomic"
)

// Bounds and the layout of the rules for chains (agent/protocol.h).
const (
	chainRules     = 4096
	chainRuleSize  = 64
	chainRulesSize = chainRules * chainRuleSize
	chainHash      = 0x9e3779b97f4a7c15
	chainShift     = 52
	chainProbes    = 16

	// MaxChainWords bounds ChainRule.Words.
	MaxChainWords = 11

	ruleFlags  = 8 // offsets in bytes of struct chain_rule
	ruleFollow = 10
	ruleCount  = 12
	ruleBase   = 13
	ruleField  = 14
	ruleOffset = 16
	ruleWords  = 20

	maxChain      = 768 // MOST_CHAIN_WORDS
	chainHeadSize = 8   // the number of words of a record's chain
	chainWordSize = 16  // struct chain_word
)

// Flags of a rule (enum chain_flags).
const (
	chainObject = 1 << iota
	chainOnStack
	chainBase
	chainResumes
)

// ChainRegister is a register of a frame (enum chain_register).
type ChainRegister uint8

// The registers.
const (
	ChainSP ChainRegister = iota
	ChainRBP
	ChainRBX
	ChainR12
	ChainR13
	ChainR14
	ChainR15
)

// ChainRule says which words of memory the agent copies: the words of objects on the way from a
// frame's argument to the awaiter of the frame's method. A rule is for frames with an instruction
// pointer, or for objects of a class.
type ChainRule struct {
	Key     uint64 // instruction pointer, or MethodTable
	Derived bool   // of a class: also for derived classes without a rule

	// Of a frame: the place of its argument.
	Register ChainRegister
	OnStack  bool  // in memory at Register's value plus Offset; else in Register
	Offset   int32 // in bytes
	Object   bool  // the argument is an object; follow the object
	// Resumes: the frame resumes methods, and its argument is a structure in the frame. Offset is
	// the offset in a thread of the address of the thread's static fields, and Field the offset
	// in these fields of the newest structure's address. Words[0] is the address of the previous
	// structure.
	Resumes bool
	Field   uint16

	Words  []int32 // offsets in bytes of the copied words, from the argument or in the object
	Follow uint16  // bit i: Words[i] is a reference; follow its object
}

// ChainWord is a word that the agent has copied.
type ChainWord struct {
	Address, Value uint64
	Table          bool // the first word of an object
}

// ChainArgument is the argument of a frame with a rule.
type ChainArgument struct {
	Frame int // the frame's index
	Value uint64
}

// Chain is the agent's copy for a record: words that all existed at one moment.
type Chain struct {
	Arguments []ChainArgument
	Words     []ChainWord
}

// FollowChains tells the agent that chains are wanted. moving is the address of the collector's
// count of reasons why references may be wrong. base is the offset in a MethodTable of its base
// class's address.
func (c *Conn) FollowChains(moving uint64, base uint32) {
	if c.ring == nil {
		return
	}
	c.ring.set(offBase, uint64(base))
	c.ring.set(offMoving, moving)
}

// AddChainRule gives the agent a rule. A rule is never taken away. False: there is no room.
func (c *Conn) AddChainRule(rule *ChainRule) bool { return c.ring != nil && c.ring.addRule(rule) }

// addRule puts a rule into the table, its key last.
func (r *ring) addRule(rule *ChainRule) bool {
	if rule.Key == 0 || len(rule.Words) > MaxChainWords {
		return false
	}
	place := rule.Key * chainHash >> chainShift
	for i := range uint64(chainProbes) {
		at := controlSize + int((place+i)%chainRules)*chainRuleSize
		key := r.word(at)
		switch atomic.LoadUint64(key) {
		case rule.Key:
			return true
		case 0:
			rule.encode(r.memory[at:][:chainRuleSize])
			atomic.StoreUint64(key, rule.Key)
			return true
		}
	}
	return false
}

// ExtendChainRule adds a word to the rule of a class, for copying from the objects of the class.
// head: the word is a reference, and the first word of its object is copied as well. False: the
// class has no rule, or the rule has no room.
func (c *Conn) ExtendChainRule(class uint64, offset int32, head bool) bool {
	return c.ring != nil && c.ring.extendRule(class, offset, head)
}

// extendRule adds a word to a rule for a class. The part before the words is written last, and at
// once.
func (r *ring) extendRule(key uint64, offset int32, head bool) bool {
	place := key * chainHash >> chainShift
	for i := range uint64(chainProbes) {
		at := controlSize + int((place+i)%chainRules)*chainRuleSize
		if atomic.LoadUint64(r.word(at)) != key {
			continue
		}
		var b [ruleOffset - ruleFlags]byte
		le := binary.LittleEndian
		le.PutUint64(b[:], atomic.LoadUint64(r.word(at+ruleFlags)))
		n := int(b[ruleCount-ruleFlags])
		word := 0
		for word < min(n, MaxChainWords) && le.Uint32(r.memory[at+ruleWords+4*word:]) != uint32(offset) {
			word++
		}
		if word >= MaxChainWords {
			return false
		}
		if word == n {
			b[ruleCount-ruleFlags]++
			le.PutUint32(r.memory[at+ruleWords+4*n:], uint32(offset))
		}
		if head {
			heads := b[ruleField-ruleFlags:]
			le.PutUint16(heads, le.Uint16(heads)|1<<word)
		}
		atomic.StoreUint64(r.word(at+ruleFlags), le.Uint64(b[:]))
		return true
	}
	return false
}

// encode writes a rule without its key.
func (c *ChainRule) encode(b []byte) {
	le := binary.LittleEndian
	var flags uint16
	if c.Object {
		flags |= chainObject
	}
	if c.OnStack {
		flags |= chainOnStack
	}
	if c.Derived {
		flags |= chainBase
	}
	if c.Resumes {
		flags |= chainResumes
	}
	le.PutUint16(b[ruleFlags:], flags)
	le.PutUint16(b[ruleFollow:], c.Follow)
	b[ruleCount], b[ruleBase] = uint8(len(c.Words)), uint8(c.Register)
	le.PutUint16(b[ruleField:], c.Field)
	le.PutUint32(b[ruleOffset:], uint32(c.Offset))
	for i, w := range c.Words {
		le.PutUint32(b[ruleWords+4*i:], uint32(w))
	}
}

// Kinds of words, in the lowest bits of their addresses (enum chain_word_kind).
const (
	chainWord     = 0
	chainTable    = 1
	chainArgument = 2
	chainKinds    = 7
)

// chainSize returns the size in bytes of the chain that begins at a place in a record.
func chainSize(b []byte, at int) (int, error) {
	if at+chainHeadSize > len(b) {
		return 0, fmt.Errorf("a record of %d bytes, whose chain begins at %d", len(b), at)
	}
	count := binary.LittleEndian.Uint64(b[at:])
	if count > maxChain {
		return 0, fmt.Errorf("a chain of %d words", count)
	}
	return chainHeadSize + int(count)*chainWordSize, nil
}

// parseChain reads a chain; b is the whole chain. frames is the number of frames in the record's
// stack.
func parseChain(b []byte, frames int) (*Chain, error) {
	c := &Chain{}
	for w := range slices.Chunk(b[chainHeadSize:], chainWordSize) {
		address, value := binary.LittleEndian.Uint64(w), binary.LittleEndian.Uint64(w[8:])
		switch at := address &^ chainKinds; address & chainKinds {
		case chainWord, chainTable:
			c.Words = append(c.Words, ChainWord{Address: at, Value: value, Table: address&chainKinds == chainTable})
		case chainArgument:
			if at/(chainKinds+1) >= uint64(frames) {
				return nil, fmt.Errorf("the argument of frame %d of %d", at/(chainKinds+1), frames)
			}
			c.Arguments = append(c.Arguments, ChainArgument{Frame: int(at / (chainKinds + 1)), Value: value})
		default:
			return nil, fmt.Errorf("a word of kind %d", address&chainKinds)
		}
	}
	return c, nil
}
