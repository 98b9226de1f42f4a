package waits

import (
	"strings"

	"clrsnap/profile"
)

// primitive is a wait as the frames of a thread show it.
type primitive struct {
	kind  profile.WaitKind // "": none
	first int              // the managed frame nearest to the leaf
	outer int              // the frame of the outermost primitive
	guess bool             // the kind is the likelier one of two
}

// The assemblies that have primitives.
const (
	coreLib    = "System.Private.CoreLib"
	threading  = "System.Threading"
	concurrent = "System.Collections.Concurrent"
	sockets    = "System.Net.Sockets"
)

// rule says what methods of a framework's type wait for.
type rule struct {
	module, method string // the method's prefix
	kind           profile.WaitKind
	guess          bool
}

// rules are the methods that wait, callees of primitives included: the JIT compiler inlines what it likes, so
// any of them can be the outermost one. The first that fits counts.
var rules = []rule{
	{coreLib, "System.Threading.Monitor.Wait", profile.MonitorWait, false},
	{coreLib, "System.Threading.Monitor.ObjWait", profile.MonitorWait, false},
	{coreLib, "System.Threading.Condition.Wait", profile.MonitorWait, false},
	{coreLib, "System.Threading.Monitor.", profile.MonitorEnter, false},
	{coreLib, "System.Threading.Lock.", profile.LockEnter, false},
	{coreLib, "System.Threading.ManualResetEventSlim.Wait", profile.EventWait, false},
	{coreLib, "System.Threading.SemaphoreSlim.Wait", profile.SemaphoreWait, false},
	{coreLib, "System.Threading.Tasks.Task.Wait", profile.TaskWait, false},
	{coreLib, "System.Threading.Tasks.Task.InternalWait", profile.TaskWait, false},
	{coreLib, "System.Threading.Tasks.Task.SpinThenBlockingWait", profile.TaskWait, false},
	{coreLib, "System.Threading.Tasks.Task`1.GetResultCore", profile.TaskWait, false},
	{coreLib, "System.Threading.Tasks.Task`1.get_Result", profile.TaskWait, false},
	{coreLib, "System.Runtime.CompilerServices.TaskAwaiter", profile.TaskWait, false},
	{coreLib, "System.Runtime.CompilerServices.ConfiguredTaskAwaitable", profile.TaskWait, false},
	{coreLib, "System.Runtime.CompilerServices.ValueTaskAwaiter", profile.TaskWait, false},
	{coreLib, "System.Runtime.CompilerServices.ConfiguredValueTaskAwaitable", profile.TaskWait, false},
	{coreLib, "System.Threading.Thread.Join", profile.ThreadJoin, false},
	{coreLib, "System.Threading.Thread.Sleep", profile.ThreadSleep, false},
	{coreLib, "System.Threading.Thread.UninterruptibleSleep0", profile.ThreadSleep, false},
	{coreLib, "System.Threading.ReaderWriterLockSlim.EnterReadLock", profile.ReadLock, false},
	{coreLib, "System.Threading.ReaderWriterLockSlim.TryEnterReadLock", profile.ReadLock, false},
	{coreLib, "System.Threading.ReaderWriterLockSlim.EnterUpgradeableReadLock", profile.UpgradeableLock, false},
	{coreLib, "System.Threading.ReaderWriterLockSlim.TryEnterUpgradeableReadLock", profile.UpgradeableLock, false},
	{coreLib, "System.Threading.ReaderWriterLockSlim.EnterWriteLock", profile.WriteLock, false},
	{coreLib, "System.Threading.ReaderWriterLockSlim.TryEnterWriteLock", profile.WriteLock, false},
	{coreLib, "System.Threading.ReaderWriterLockSlim.", profile.ReadLock, true},
	{coreLib, "System.Threading.WaitHandle.WaitAll", profile.HandleAll, false},
	{coreLib, "System.Threading.WaitHandle.WaitAny", profile.HandleAny, false},
	{coreLib, "System.Threading.WaitHandle.WaitMultiple", profile.HandleAny, true},
	{coreLib, "System.Threading.WaitHandle.", profile.HandleOne, false},
	{coreLib, "System.Threading.WaitSubsystem", profile.HandleOne, true},
	{threading, "System.Threading.Barrier.", profile.BarrierWait, false},
	{threading, "System.Threading.CountdownEvent.Wait", profile.CountdownWait, false},
	{coreLib, "System.Threading.CountdownEvent.Wait", profile.CountdownWait, false},
	{sockets, "System.Net.Sockets.SocketAsyncContext.", profile.WaitIO, false},
	{sockets, "System.Net.Sockets.Socket.", profile.WaitIO, false},
	{sockets, "System.Net.Sockets.NetworkStream.", profile.WaitIO, false},
	{concurrent, "System.Collections.Concurrent.BlockingCollection`1.Add", profile.CollectionAdd, false},
	{concurrent, "System.Collections.Concurrent.BlockingCollection`1.TryAdd", profile.CollectionAdd, false},
	{concurrent, "System.Collections.Concurrent.BlockingCollection`1.Take", profile.CollectionTake, false},
	{concurrent, "System.Collections.Concurrent.BlockingCollection`1.TryTake", profile.CollectionTake, false},
	{concurrent, "System.Collections.Concurrent.BlockingCollection`1+<GetConsumingEnumerable>", profile.CollectionTake,
		false},
}

func ruleOf(f *profile.Frame) *rule {
	for i := range rules {
		if r := &rules[i]; r.module == f.Module && strings.HasPrefix(f.Method, r.method) {
			return r
		}
	}
	return nil
}

// pinvokeStub is the code between a managed method and the native one that it calls.
const pinvokeStub = "IL_STUB_PInvoke"

// spinning is a part of several primitives, which sleep or yield meanwhile.
const spinning = "System.Threading.SpinWait."

// classify finds the outermost primitive: the last of the managed frames, counted from the leaf, that are
// all methods which wait.
func classify(frames []profile.Frame) primitive {
	p := primitive{first: -1}
	for i := range frames {
		f := &frames[i]
		if f.Kind != profile.Managed {
			if p.first < 0 {
				continue
			}
			break // a callback of native code
		}
		if p.first < 0 {
			p.first = i
		}
		if f.Method == pinvokeStub || f.Module == coreLib && strings.HasPrefix(f.Method, spinning) {
			continue
		}
		r := ruleOf(f)
		if r == nil {
			break
		}
		p.kind, p.guess, p.outer = r.kind, r.guess, i
	}
	return p
}
