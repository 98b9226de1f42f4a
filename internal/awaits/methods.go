package awaits

import (
	"clrsnap/internal/arch"
	"clrsnap/internal/clr/async"
	"clrsnap/internal/clr/permits"
	"clrsnap/snapshot"
)

// class is a class of .NET with methods that are looked for in the program's code.
type class struct {
	name    string
	methods []string
}

// The classes whose methods take items from a channel (System.Threading.Channels, ChannelReader.cs) or from a queue
// (System.Collections.Concurrent, BlockingCollection.cs), or pulse a monitor.
var (
	channelReader = &class{"System.Threading.Channels.ChannelReader`1",
		[]string{"ReadAsync", "ReadAllAsync", "WaitToReadAsync", "TryRead"}}
	blockingCollection = &class{"System.Collections.Concurrent.BlockingCollection`1",
		[]string{"Take", "TryTake", "GetConsumingEnumerable", "TakeFromAny", "TryTakeFromAny"}}
	pulses = &class{"System.Threading.Monitor", []string{"Pulse", "PulseAll"}}
)

// maxCallers bounds the methods whose code is remembered.
const maxCallers = 1 << 14

// caller is a method that may call methods of a class.
type caller struct {
	methodPlace
	of *class
}

// calls reports whether a method calls some method of a class, by its IL. The IL does not tell of which object.
func (p *Program) calls(m methodPlace, of *class) bool {
	if p.runtime == nil || m.module == 0 || m.rid == 0 {
		return false
	}
	key := caller{m, of}
	does, known := p.callers[key]
	if !known {
		does, _ = p.runtime.Names.Calls(m.module, m.rid, of.name, of.methods...)
		if p.callers == nil || len(p.callers) >= maxCallers {
			p.callers = map[caller]bool{}
		}
		p.callers[key] = does
	}
	return does
}

// stepMethod is the method of a step of a chain; false: not known.
func (p *Program) stepMethod(s *async.Step) (methodPlace, bool) {
	switch {
	case p.runtime == nil:
	case s.Box != nil:
		return methodPlace{s.Box.Machine.Module, s.Box.Machine.RID}, true
	case s.Resumption != nil:
		m, collectible, ok := p.ResumedMethod(s.Resumption)
		return methodPlace{m.Module, m.RID}, ok && !collectible
	}
	return methodPlace{}, false
}

// StepReads is ReadsChannel for a step of a chain.
func (p *Program) StepReads(s *async.Step) bool {
	m, ok := p.stepMethod(s)
	return ok && p.calls(m, channelReader)
}

// frameMethod is the method of a frame outside .NET; false: not known.
func (p *Program) frameMethod(f *snapshot.Frame) (methodPlace, bool) {
	if p.runtime == nil || f.FunctionID == 0 || f.Origin() == snapshot.OfFramework {
		return methodPlace{}, false
	}
	m, err := p.runtime.Methods.Read(arch.Addr(f.FunctionID))
	return methodPlace{m.Module, m.RID}, err == nil
}

// frameCalls is calls for the method of a frame; for frames of .NET it is false.
func (p *Program) frameCalls(f *snapshot.Frame, of *class) bool {
	m, ok := p.frameMethod(f)
	return ok && p.calls(m, of)
}

// ReadsChannel reports whether the method of a frame takes items from a channel, by its IL. For frames of .NET the
// answer is false.
func (p *Program) ReadsChannel(f *snapshot.Frame) bool {
	return p.frameCalls(f, channelReader)
}

// TakesItems reports whether the method of a frame takes items from a BlockingCollection, by its IL. For frames of .NET
// the answer is false.
func (p *Program) TakesItems(f *snapshot.Frame) bool {
	return p.frameCalls(f, blockingCollection)
}

// Pulses reports whether the method of a frame pulses a monitor, by its IL. For frames of .NET the answer is false.
func (p *Program) Pulses(f *snapshot.Frame) bool {
	return p.frameCalls(f, pulses)
}

// completes reports whether a method completes a TaskCompletionSource, by its IL or by that of the methods that it
// calls in its module. The IL does not tell which.
func (p *Program) completes(m methodPlace) bool {
	if p.runtime == nil || p.managed.Objects == nil || m.module == 0 || m.rid == 0 ||
		!p.PermitReader().Matters(m.module) {
		return false
	}
	c, err := p.PermitReader().Code(m.module, m.rid)
	return err == nil && c.Completes()
}

// StepCompletes is Completes for a step of a chain.
func (p *Program) StepCompletes(s *async.Step) bool {
	m, ok := p.stepMethod(s)
	return ok && p.completes(m)
}

// Completes reports whether the method of a frame completes a TaskCompletionSource, by its IL. For frames of .NET the
// answer is false.
func (p *Program) Completes(f *snapshot.Frame) bool {
	m, ok := p.frameMethod(f)
	return ok && p.completes(m)
}

// PermitReader reads what the IL of methods does with semaphores and tasks.
func (p *Program) PermitReader() *permits.Reader {
	if p.permits == nil {
		p.permits = permits.New(p.managed.Objects, p.runtime.Names, p.runtime.Types)
	}
	return p.permits
}
