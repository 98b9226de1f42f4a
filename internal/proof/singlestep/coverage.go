package singlestep

import (
	"bytes"
	"fmt"
	"strings"

	"clrsnap/internal/arch"
	"clrsnap/internal/clr/codemap"
)

// coverage counts the executed instructions by kind of code.
type coverage struct {
	ips      map[uint64]*place
	methods  map[uint64]bool // entry points
	tiers    map[string]int  // methods by tier
	steps    map[string]int  // instructions executed, by kind of code
	distinct map[string]int  // the same, each address once
	natives  map[string]bool
	frames   map[string]int // explicit Frames on top of the chain, in steps
	states   map[string]int // of the thread, in steps
	shapes   map[string]int // prolog and epilog instructions executed
}

// place is the kind of code at an instruction address.
type place struct{ kind string }

func newCoverage() coverage {
	return coverage{
		ips: map[uint64]*place{}, methods: map[uint64]bool{}, tiers: map[string]int{}, steps: map[string]int{},
		distinct: map[string]int{}, natives: map[string]bool{}, frames: map[string]int{}, states: map[string]int{},
		shapes: map[string]int{},
	}
}

// forget drops addresses: in another process they have another meaning.
func (c *coverage) forget() { clear(c.ips); clear(c.methods) }

func (r *Report) cover(run *runner, t *transition) {
	c := &r.coverage
	ip := t.after.Rip
	p := c.ips[ip]
	if p == nil {
		p = c.classify(run, ip)
		c.ips[ip] = p
		c.distinct[p.kind]++
	}
	c.steps[p.kind]++
	if sh := t.in.shape; sh != noShape || t.in.class == ret {
		c.shapes[c.shapeName(t)]++
	}
	c.state(run)
}

// shapeName counts the instruction by its shape and the kind of its code.
func (c *coverage) shapeName(t *transition) string {
	what := shapeNames[t.in.shape]
	if t.in.class == ret {
		what = "ret"
	}
	where := "native code"
	if p := c.ips[t.before.Rip]; p != nil && strings.HasPrefix(p.kind, "managed") {
		where = "managed code"
	}
	return what + ", " + where
}

func (c *coverage) classify(r *runner, ip uint64) *place {
	at := arch.Addr(ip)
	code, err := r.eng.Runtime.Code.Lookup(at)
	switch {
	case err != nil:
		return &place{"unreadable"}
	case code.Kind == codemap.Stub:
		if code.StubKind == 0 {
			return &place{"stub: " + stubCode(r.view.code[:])}
		}
		return &place{"stub: " + stubName(code.StubKind)}
	case code.Kind.Managed():
		return c.managed(r, &code)
	}
	mod := r.eng.Modules.Find(at)
	switch {
	case mod == nil:
		return &place{"runtime helper: " + stubCode(r.view.code[:])}
	case mod.InPLT(at):
		return &place{"native: PLT"}
	}
	if sym, _, ok := mod.Symbol(at); ok {
		c.natives[mod.Name+"!"+sym.Short] = true
	}
	return &place{"native: " + mod.Name}
}

func (c *coverage) managed(r *runner, code *codemap.Code) *place {
	tier := "managed"
	if m, err := r.eng.Runtime.Methods.Read(code.MethodDesc); err == nil {
		if t, err := r.eng.Runtime.Methods.Tier(&m, code); err == nil {
			tier = string(t)
		}
	}
	if !c.methods[uint64(code.MethodStart)] {
		c.methods[uint64(code.MethodStart)] = true
		c.tiers[tier]++
	}
	if code.Funclet {
		return &place{"managed: funclet, " + tier}
	}
	return &place{"managed: " + tier}
}

// state notes the thread's state.
func (c *coverage) state(r *runner) {
	info := &r.thread.Info
	if info.Address == 0 {
		c.states["not (yet, any more) a thread of the runtime"]++
		return
	}
	if info.Cooperative {
		c.states["cooperative mode"]++
	} else {
		c.states["preemptive mode"]++
	}
	if info.Hijacked() {
		c.states["a return address is hijacked"]++
	}
	if info.Exception != 0 {
		c.states["an exception is in flight"]++
		if r.thread.UnwoundHigh != 0 {
			c.states["an exception has unwound frames"]++
		}
	}
	if len(r.sh.asides) > 0 {
		c.states["a fault is handled on the ordinary stack"]++
	}
	if kind, ok := r.eng.Runtime.Chain.Kind(r.thread.Stack, info.Frame); ok {
		c.frames[kind.String()]++
	}
}

// stubKinds are the runtime's numbers (codeman.h, enum StubCodeBlockKind).
var stubKinds = []string{
	"", "jump stub", "precode", "dynamic helper", "stub precode", "fixup precode",
	"virtual dispatch: dispatch", "virtual dispatch: resolve", "virtual dispatch: lookup", "virtual dispatch: vtable",
}

func stubName(k uint8) string {
	if k > 0 && int(k) < len(stubKinds) {
		return stubKinds[k]
	}
	return fmt.Sprintf("kind %d", k)
}

// stubCode names code by its instruction (amd64/ThunkTemplates.S) where the
// runtime's map says only "stub", or nothing.
func stubCode(code []byte) string {
	for _, k := range []struct {
		name string
		code []byte
	}{
		{"precode: jmp through a cell", []byte{0xff, 0x25}},
		{"precode: load of the MethodDesc", []byte{0x4c, 0x8b, 0x15}},
		{"call counting: load", []byte{0x48, 0x8b, 0x05}},
		{"call counting: decrement", []byte{0x66, 0xff, 0x08}},
		{"call counting: branch", []byte{0x74, 0x06}},
		{"delay-load thunk: load", []byte{0x49, 0x8b, 0xc3}},
		{"delay-load thunk: push", []byte{0x6a}},
		{"delay-load thunk: push", []byte{0xff, 0x35}},
	} {
		if bytes.HasPrefix(code, k.code) {
			return k.name
		}
	}
	return "other"
}
