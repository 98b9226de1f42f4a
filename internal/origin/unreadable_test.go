package origin

import (
	"errors"
	"fmt"
	"testing"

	"clrsnap/internal/contract"
	"clrsnap/internal/engine"
)

// pretended is an Origin with nothing but answers about the runtime.
type pretended struct {
	Origin
	isStarting, lacks bool
}

func (pretended) PID() int             { return 5 }
func (p pretended) Starting() bool     { return p.isStarting }
func (p pretended) LeftOut(error) bool { return p.lacks }

// TestRuntimeError: the reason and the remedy are separate, and the text has both.
func TestRuntimeError(t *testing.T) {
	unfit := fmt.Errorf("%w: a: b", engine.ErrUnfit)
	version := &contract.UnknownVersionError{Contract: "Thread", Found: "9", Understood: []contract.Version{"1"}}
	format := &contract.UnknownFormatError{Detail: "version 7", Remedy: "update"}
	const own = "this .NET runtime follows version 9 of the contract Thread; this clrsnap understands 1"
	for _, tt := range []struct {
		from           pretended
		err            error
		reason, remedy string
		unsupported    bool
	}{
		{err: fmt.Errorf("%w: x", engine.ErrUnknown), unsupported: true,
			reason: "process 5: " + engine.ErrUnknown.Error() + ": x",
			remedy: "update clrsnap, or see native stacks only with --native"},
		{err: unfit, unsupported: true, reason: "process 5: " + unfit.Error(),
			remedy: "update clrsnap, or see native stacks only with --native"},
		{from: pretended{isStarting: true}, err: unfit,
			reason: "process 5 seems to be starting: " + unfit.Error(), remedy: "try again in a moment"},
		{from: pretended{isStarting: true}, err: errors.New("a: b"),
			reason: "cannot read the .NET runtime in process 5: a: b"},
		{from: pretended{lacks: true}, err: unfit, unsupported: true, reason: "process 5: " + unfit.Error(),
			remedy: "see native stacks only with --native, or make a dump with more memory"},
		{err: version, unsupported: true, reason: "process 5: " + own, remedy: "update clrsnap"},
		{err: format, reason: "cannot read the .NET runtime in process 5: unreadable data descriptor: version 7",
			remedy: "update"},
		{err: errors.New("a: b"), reason: "cannot read the .NET runtime in process 5: a: b"},
	} {
		err := Unreadable(tt.err, tt.from)
		e, ok := errors.AsType[*UnreadableError](err)
		if !ok || e.Reason() != tt.reason || e.Remedy != tt.remedy {
			t.Errorf("%v: reason %q, remedy %q", err, e.Reason(), e.Remedy)
		}
		text := tt.reason
		if tt.unsupported {
			text = ErrUnsupported.Error() + ": " + text
		}
		if tt.remedy != "" {
			text += ": " + tt.remedy
		}
		if err.Error() != text || errors.Is(err, ErrUnsupported) != tt.unsupported || !errors.Is(err, tt.err) {
			t.Errorf("%q, want %q", err, text)
		}
	}
	for _, err := range []error{nil, engine.ErrNativeAOT} {
		if err := Unreadable(err, pretended{}); err != nil {
			t.Error(err)
		}
	}
}
