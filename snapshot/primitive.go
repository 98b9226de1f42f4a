package snapshot

import (
	"iter"
	"strings"
)

// Primitive is a wait as the frames of a thread show it. The zero value: the frames show no wait.
type Primitive struct {
	Kind  WaitKind // "": the frames show no wait
	Guess bool     // Kind is the likelier of two kinds
	Outer int      // the frame of the outermost primitive, or of a part of any primitive; counted from the leaf
}

// The assemblies that have primitives.
const (
	threading  = "System.Threading"
	concurrent = "System.Collections.Concurrent"
	sockets    = "System.Net.Sockets"
)

// waitRule maps methods of a framework's type to the kind of wait.
type waitRule struct {
	module, method string // the method's prefix
	kind           WaitKind
	guess          bool
}

// waitRules are the methods that wait, callees of primitives included. The JIT compiler may inline any method, so
// each method can be the outermost. The first rule that fits counts.
var waitRules = []waitRule{
	{coreLib, "System.Threading.Monitor.Wait", MonitorWait, false},
	{coreLib, "System.Threading.Monitor.ObjWait", MonitorWait, false},
	{coreLib, "System.Threading.Condition.Wait", MonitorWait, false},
	{coreLib, "System.Threading.Lock.Wait", MonitorWait, false},
	{coreLib, "System.Threading.Monitor.", MonitorEnter, false},
	{coreLib, "System.Threading.ObjectHeader.", MonitorEnter, false},
	{coreLib, "System.Threading.Lock.", LockEnter, false},
	{coreLib, "System.Threading.ManualResetEventSlim.Wait", EventWait, false},
	{coreLib, "System.Threading.SemaphoreSlim.Wait", SemaphoreWait, false},
	{coreLib, "System.Threading.Tasks.Task.WaitAll", TaskWaitAll, false},
	{coreLib, "System.Threading.Tasks.Task.WaitAny", TaskWaitAny, false},
	{coreLib, "System.Threading.Tasks.Task.Wait", TaskWait, false},
	{coreLib, "System.Threading.Tasks.Task.InternalWait", TaskWait, false},
	{coreLib, "System.Threading.Tasks.Task.SpinThenBlockingWait", TaskWait, false},
	{coreLib, "System.Threading.Tasks.Task.SpinWait", TaskWait, false},
	{coreLib, "System.Threading.Tasks.Task`1.GetResultCore", TaskWait, false},
	{coreLib, "System.Threading.Tasks.Task`1.get_Result", TaskWait, false},
	{coreLib, "System.Runtime.CompilerServices.TaskAwaiter", TaskWait, false},
	{coreLib, "System.Runtime.CompilerServices.ConfiguredTaskAwaitable", TaskWait, false},
	{coreLib, "System.Runtime.CompilerServices.ValueTaskAwaiter", TaskWait, false},
	{coreLib, "System.Runtime.CompilerServices.ConfiguredValueTaskAwaitable", TaskWait, false},
	{coreLib, "System.Threading.Thread.Join", ThreadJoin, false},
	{coreLib, "System.Threading.Thread.Sleep", ThreadSleep, false},
	{coreLib, "System.Threading.Thread.UninterruptibleSleep0", ThreadSleep, false},
	{coreLib, "System.Threading.ReaderWriterLockSlim.EnterReadLock", ReadLock, false},
	{coreLib, "System.Threading.ReaderWriterLockSlim.TryEnterReadLock", ReadLock, false},
	{coreLib, "System.Threading.ReaderWriterLockSlim.EnterUpgradeableReadLock", UpgradeableLock, false},
	{coreLib, "System.Threading.ReaderWriterLockSlim.TryEnterUpgradeableReadLock", UpgradeableLock, false},
	{coreLib, "System.Threading.ReaderWriterLockSlim.EnterWriteLock", WriteLock, false},
	{coreLib, "System.Threading.ReaderWriterLockSlim.TryEnterWriteLock", WriteLock, false},
	{coreLib, "System.Threading.ReaderWriterLockSlim.", ReadLock, true},
	{coreLib, "System.Threading.WaitHandle.WaitAll", HandleAll, false},
	{coreLib, "System.Threading.WaitHandle.WaitAny", HandleAny, false},
	{coreLib, "System.Threading.WaitHandle.WaitMultiple", HandleAny, true},
	{coreLib, "System.Threading.WaitHandle.", HandleOne, false},
	{coreLib, signalAndWait, HandleOne, false},
	{coreLib, "System.Threading.NamedMutex", HandleOne, false},
	{threading, "System.Threading.Barrier.", BarrierWait, false},
	{threading, "System.Threading.CountdownEvent.Wait", CountdownWait, false},
	{coreLib, "System.Threading.CountdownEvent.Wait", CountdownWait, false},
	{sockets, "System.Net.Sockets.SocketAsyncContext.", WaitIO, false},
	{sockets, "System.Net.Sockets.Socket.", WaitIO, false},
	{sockets, "System.Net.Sockets.NetworkStream.", WaitIO, false},
	{concurrent, "System.Collections.Concurrent.BlockingCollection`1.Add", CollectionAdd, false},
	{concurrent, "System.Collections.Concurrent.BlockingCollection`1.TryAdd", CollectionAdd, false},
	{concurrent, "System.Collections.Concurrent.BlockingCollection`1.Take", CollectionTake, false},
	{concurrent, "System.Collections.Concurrent.BlockingCollection`1.TryTake", CollectionTake, false},
	{concurrent, "System.Collections.Concurrent.BlockingCollection`1+<GetConsumingEnumerable>", CollectionTake, false},
}

// waitRule returns the rule for a method that waits; nil: the method does not wait.
func (c *Code) waitRule() *waitRule {
	if c.Kind != Managed {
		return nil
	}
	for i := range waitRules {
		if r := &waitRules[i]; r.module == c.Module && strings.HasPrefix(c.Method, r.method) {
			return r
		}
	}
	return nil
}

// WaitKind is what a thread waits for in a method, if no caller of the method waits, too; "": the method does not wait.
func (c *Code) WaitKind() WaitKind {
	if r := c.waitRule(); r != nil {
		return r.kind
	}
	return ""
}

// pinvokeStub is the code between a managed method and the native function that the method calls.
const pinvokeStub = "IL_STUB_PInvoke"

// withinWaits are the beginnings of methods that are a part of their caller: spinning, during which primitives sleep
// or yield, and from .NET 11 on the wait subsystem, in which all primitives wait. These methods never name the
// primitive, whatever is inlined.
var withinWaits = []string{
	"System.Threading.SpinWait.", "Interop+Sys.LowLevel", "System.Threading.LowLevelMonitor.",
	"System.Threading.LowLevelLock.", "System.Threading.WaitSubsystem.", "System.Threading.WaitSubsystem+",
}

// signalAndWait is the only method of the wait subsystem with a single caller among the primitives:
// WaitHandle.SignalAndWait.
const signalAndWait = "System.Threading.WaitSubsystem.SignalAndWait"

// BetweenWaits reports whether a method is a part of its caller: a caller that waits waits in the method, too.
func (c *Code) BetweenWaits() bool {
	return c.Method == pinvokeStub ||
		c.Module == coreLib && hasPrefix(c.Method, withinWaits) && !strings.HasPrefix(c.Method, signalAndWait)
}

// PrimitiveOf finds the outermost primitive of a stack, leaf first. From the leaf on, the managed frames begin with a
// run of waiting methods; the last method of the run is the primitive.
func PrimitiveOf(frames []Frame) Primitive {
	return PrimitiveIn(func(yield func(int, Code) bool) {
		for i := range frames {
			if f := &frames[i]; !yield(i, Code{f.Kind, f.Module, f.Method}) {
				return
			}
		}
	})
}

// PrimitiveIn is PrimitiveOf of the code of a stack, leaf first, with the place of each frame.
func PrimitiveIn(frames iter.Seq2[int, Code]) (p Primitive) {
	managed := false
	for i, c := range frames {
		if c.Kind == Event || c.Kind != Managed && !managed {
			continue
		}
		if c.Kind != Managed {
			break // a callback of native code
		}
		managed = true
		if c.BetweenWaits() {
			if p.Kind == "" {
				p.Outer = i
			}
			continue
		}
		r := c.waitRule()
		if r == nil {
			break
		}
		p = Primitive{r.kind, r.guess, i}
	}
	return p
}
