package walk

import (
	"testing"

	"clrsnap/internal/arch"
	"clrsnap/internal/clr/codemap"
)

// TestFrameOfTheRuntime: a frame reported by the runtime has no walk to ask.
func TestFrameOfTheRuntime(t *testing.T) {
	f := Frame{Kind: Managed, Context: &arch.Context{IP: 0x1000}, Code: &codemap.Code{}}
	if sp, ok := f.CallerSP(); ok || f.Epilog() {
		t.Errorf("%v", sp)
	}
	if w, ok := f.Word(0x2000); ok {
		t.Errorf("%#x", w)
	}
}
