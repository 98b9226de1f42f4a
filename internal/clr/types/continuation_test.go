package types

import (
	"testing"

	"clrsnap/internal/clr/clrtest"
)

// A class of Continuations is accepted, and named as its base, although its EEClass belongs to another class. Another
// class that derives from Continuation by mistake, or before .NET 11, is not accepted.
func TestContinuation(t *testing.T) {
	p := clrtest.NewProgram(t, clrtest.Net11)
	object := &clrtest.Class{Name: "System.Object", Size: 8}
	base := &clrtest.Class{Name: "System.Runtime.CompilerServices.Continuation", Base: object, Size: 32}
	p.Assembly("System.Private.CoreLib", object, base)
	of := p.Continuation(base)
	s, err := New(p, clrtest.Descriptor(t, clrtest.Net11))
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Check(of.Table); err != nil {
		t.Error(err)
	}
	want, err := s.Read(base.Table)
	if got, err2 := s.Read(of.Table); err != nil || err2 != nil || got.RID != want.RID || got.Module != want.Module {
		t.Errorf("%+v, %v, want %+v, %v", got, err2, want, err)
	}
	if mt, err := s.Base(of.Table); err != nil || mt != base.Table {
		t.Errorf("derives from %v, %v", mt, err)
	}
	old, err := New(p, clrtest.Descriptor(t, clrtest.Net10))
	if err != nil {
		t.Fatal(err)
	}
	if old.Check(of.Table) == nil {
		t.Error("there is no such class in .NET 10")
	}
	p.Words[s.continuation] = uint64(object.Table)
	if s.Check(of.Table) == nil {
		t.Error("it derives from something else")
	}
}
