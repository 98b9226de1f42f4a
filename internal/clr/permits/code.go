package permits

import (
	"fmt"
	"slices"
	"strings"

	"clrsnap/internal/arch"
	"clrsnap/internal/clr/name"
	"clrsnap/internal/ecma335"
)

// builder finds the actions of one method.
type builder struct {
	r      *Reader
	m      *module
	module arch.Addr
	depth  int

	awaits []uint32 // where the method stores a state to suspend, or asks the runtime to suspend
	events []event
	code   Code
}

// event is a relevant instruction.
type event struct {
	at, from uint32 // from: behind this offset, the permit of a taking event is held
	kind     eventKind
	object   *ecma335.Value
	typ      ecma335.Token
}

type eventKind uint8

const (
	takes eventKind = iota
	gives
	opens  // an object is kept for Dispose
	closes // the object is disposed of
)

// maxEvents bounds the events of one method, including the events of its callees.
const maxEvents = 1 << 12

func (b *builder) build(rid uint32) (*Code, error) {
	il, err := b.r.names.IL(b.module, rid)
	if err != nil {
		return nil, err
	}
	if b.r.room -= len(il); b.r.room < 0 {
		return nil, fmt.Errorf("%w: a method that leads to too many others", ErrUnknown)
	}
	if !b.worthwhile(il) {
		return b.started(rid)
	}
	if err := b.look(il); err != nil {
		return nil, err
	}
	if b.depth > 0 && len(b.code.takes)+len(b.code.gives) == 0 && !b.code.completes {
		return b.started(rid)
	}
	return &b.code, nil
}

// look finds the actions of IL.
func (b *builder) look(il []byte) (err error) {
	states, err := ecma335.StateStores(il)
	if err != nil {
		return err
	}
	for _, s := range states {
		if s.State >= 0 {
			b.awaits = append(b.awaits, s.At)
		}
	}
	actions, err := b.m.Metadata.Evaluate(il)
	if err != nil {
		return err
	}
	for i := range actions {
		if a := &actions[i]; a.Kind == ecma335.Calling && name.IsAwait(a.Member) {
			b.awaits, b.code.async = append(b.awaits, a.At), true
		}
	}
	for i := range actions {
		b.action(&actions[i])
	}
	if len(b.events) > maxEvents || len(b.code.Promises) > maxEvents {
		return fmt.Errorf("%w: a method that does too much", ErrUnknown)
	}
	b.pair()
	return nil
}

// worthwhile reports whether IL has a relevant call, or a call that may lead to a relevant call.
func (b *builder) worthwhile(il []byte) bool {
	calls, err := ecma335.Calls(il)
	if err != nil {
		return false
	}
	return slices.ContainsFunc(calls, func(c ecma335.Call) bool {
		return b.m.tokens[c.Token] != nothing || b.depth < maxDepth && c.Token.Table() == ecma335.TableMethodDef ||
			b.depth == 0 && c.Op == ecma335.OpCallvirt
	})
}

// action adds the events of an action. Beyond maxEvents nothing is added.
func (b *builder) action(a *ecma335.Action) {
	if len(b.events) > maxEvents {
		return
	}
	switch a.Kind {
	case ecma335.Storing:
		if a.Object != nil && comes(a.Value) {
			field := &ecma335.Value{Kind: ecma335.FieldOf, Of: a.Object, Member: a.Member}
			b.events = append(b.events, event{at: a.At, kind: opens, object: field})
		}
	case ecma335.Setting:
		if comes(a.Value) {
			local := &ecma335.Value{Kind: ecma335.Local, Number: a.Variable}
			b.events = append(b.events, event{at: a.At, kind: opens, object: local})
		}
	case ecma335.Calling:
		if len(a.Arguments) > 0 && a.Member.This {
			b.call(a)
		} else if !a.Member.This {
			b.called(a, nil)
		}
	}
}

// comes reports whether a value may be the result of a call, and not just null.
func comes(v *ecma335.Value) bool {
	return v.Kind == ecma335.Result || v.Kind == ecma335.Local || v.Kind == ecma335.FieldOf
}

func (b *builder) call(a *ecma335.Action) {
	object := a.Arguments[0]
	switch verbOf(a.Member) {
	case waits:
		b.take(a.At, object, false)
	case begins:
		b.take(a.At, object, true)
	case releases:
		b.events = append(b.events, event{at: a.At, kind: gives, object: object})
	case completes:
		b.code.completes = true
		b.code.Promises = append(b.code.Promises, Promise{a.At, object})
	case nothing:
		if a.Member.Name == "Dispose" || a.Member.Name == "DisposeAsync" {
			b.events = append(b.events, event{at: a.At, kind: closes, object: object, typ: a.Type})
			return
		}
		b.called(a, object)
	}
}

// take adds a wait for a permit. If the wait returns a task, the permit is held behind the await of the task.
func (b *builder) take(at uint32, object *ecma335.Value, task bool) {
	e := event{at: at, from: at, kind: takes, object: object}
	if task {
		if i := slices.IndexFunc(b.awaits, func(await uint32) bool { return await > at }); i >= 0 {
			e.from = b.awaits[i]
		}
	}
	b.events = append(b.events, e)
}

// called adds the actions of a called method of the same module. object is the callee's this; nil: there is none.
func (b *builder) called(a *ecma335.Action, object *ecma335.Value) {
	if b.depth == maxDepth || a.Member.Definition.Table() != ecma335.TableMethodDef {
		return
	}
	c, err := b.r.code(b.module, a.Member.Definition.RID(), b.depth+1)
	if c == nil || err != nil {
		return // nothing is known of the callee
	}
	b.code.completes = b.code.completes || c.completes
	for _, t := range c.takes {
		if v := substituted(t.object, object); v != nil {
			b.take(a.At, v, c.async)
		}
	}
	for _, v := range c.gives {
		if v = substituted(v, object); v != nil {
			b.events = append(b.events, event{at: a.At, kind: gives, object: v})
		}
	}
}

func substituted(v, first *ecma335.Value) *ecma335.Value {
	if first == nil {
		first = &ecma335.Value{}
	}
	if v = v.Substitute(first); v != nil && !known(v) {
		return nil
	}
	return v
}

// known reports whether a value can be told from others.
func known(v *ecma335.Value) bool {
	for ; v != nil; v = v.Of {
		if v.Kind == ecma335.Unknown || v.Kind == ecma335.Result && !v.IsProperty() {
			return false
		}
	}
	return true
}

// pair finds the sections: from the latest take or open of an object to its release or Dispose.
func (b *builder) pair() {
	type begin struct {
		kind eventKind
		key  string
	}
	last := map[begin]int{} // the first events of sections
	paired := map[int]bool{}
	for i := range b.events {
		e := &b.events[i]
		if !known(e.object) {
			continue
		}
		key := e.object.String()
		switch e.kind {
		case takes, opens:
			last[begin{e.kind, key}] = i
		case gives:
			at, ok := last[begin{takes, key}]
			if !ok {
				b.code.gives = append(b.code.gives, e.object)
				continue
			}
			paired[at] = true
			b.code.Sections = append(b.code.Sections, Section{From: b.events[at].from, To: e.at, Object: e.object})
		case closes:
			if at, ok := last[begin{opens, key}]; ok {
				b.code.Sections = append(b.code.Sections, Section{
					From: b.events[at].at, To: e.at, Object: e.object, Closes: true, Type: e.typ,
				})
			}
		}
	}
	for i := range b.events {
		if e := &b.events[i]; e.kind == takes && !paired[i] && known(e.object) {
			b.code.takes = append(b.code.takes, taking{e.from, e.object})
		}
	}
}

// thisField is the field of a state machine with the object of its method.
const thisField = "<>4__this"

// started returns the permits that an async method takes, for the method that starts the async method. The code is in
// the MoveNext of a nested type beside the starting method, named after the starting method.
func (b *builder) started(rid uint32) (*Code, error) {
	if b.depth == 0 || b.depth == maxDepth+1 {
		return nil, nil
	}
	md := b.m.Metadata
	def, err := md.MethodDef(rid)
	if err != nil {
		return nil, err
	}
	owner, err := md.MethodOwner(rid)
	if err != nil {
		return nil, err
	}
	machine := uint32(0)
	for _, n := range md.Nested(owner) {
		t, err := md.TypeDef(n)
		if err != nil || !strings.HasPrefix(t.Name, "<"+def.Name+">d") {
			continue
		}
		if machine != 0 {
			return nil, nil // the overload cannot be told
		}
		machine = n
	}
	if machine == 0 {
		return nil, nil
	}
	move, ok, err := md.OnlyMethod(machine, "MoveNext")
	if err != nil || !ok {
		return nil, err
	}
	c, err := b.r.code(b.module, move.RID, b.depth+1)
	if c == nil || err != nil {
		return nil, err
	}
	out := &Code{async: true, completes: c.completes}
	for _, t := range c.takes {
		if v := outside(t.object); v != nil {
			out.takes = append(out.takes, taking{object: v})
		}
	}
	return out, nil
}

// outside converts a value of a state machine to a value of its method; nil: not known.
func outside(v *ecma335.Value) *ecma335.Value {
	this := v
	for this.Of != nil && this.Of.Of != nil {
		this = this.Of
	}
	switch {
	case v.Kind == ecma335.StaticField:
		return v
	case this.Kind != ecma335.FieldOf || this.Member.Name != thisField:
		return nil
	}
	return replaced(v, this)
}

// replaced returns v with the argument this in place of old, a value on the way to v.
func replaced(v, old *ecma335.Value) *ecma335.Value {
	if v == old {
		return &ecma335.Value{Kind: ecma335.Argument}
	}
	out := *v
	out.Of = replaced(v.Of, old)
	return &out
}
