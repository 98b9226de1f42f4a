package matrix

import (
	"slices"
	"testing"

	"clrsnap/internal/testenv"
	"clrsnap/snapshot"
)

// shown is the expected frame of a scenario's thread.
type shown struct {
	scenario, method string
	display          string
	signature        string
	tier             string
}

var displays = []shown{
	// made by the C# compiler
	{"lambda", "Scenarios.Calls+<>c.<Lambda>b__1_0", "Scenarios.Calls.Lambda{lambda 1_0}", "()", "tier-0"},
	{
		"closure", "Scenarios.Calls+<>c__DisplayClass2_0.<Closure>b__0",
		"Scenarios.Calls.Closure{lambda 2_0}", "(int)", "tier-0",
	},
	{"linq", "Scenarios.Calls+<>c.<Linq>b__5_1", "Scenarios.Calls.Linq{lambda 5_1}", "(int)", "tier-0"},
	{"stackalloc", "Scenarios.Catalog+<>c.<.cctor>b__1_3", "Scenarios.Catalog..cctor{lambda 1_3}", "()", "tier-0"},
	{
		"local-func", "Scenarios.Calls.<LocalFunction>g__Local|3_0",
		"Scenarios.Calls.LocalFunction{local Local}", "(int, ref Calls.<>c__DisplayClass3_0)", "tier-0",
	},
	{
		"iterator", "Scenarios.Calls+<<Iterator>g__Inner|4_1>d.MoveNext",
		"Scenarios.Calls.Iterator{local Inner}{iterator}", "()", "tier-0",
	},
	{
		"async-blocked", "Scenarios.Async+<Outer>d__1.MoveNext",
		"Scenarios.Async.Outer{async}", "(Func<Task<int>>)", "tier-0",
	},
	{"async-blocked", "Scenarios.Async.Outer", "Scenarios.Async.Outer", "(Func<Task<int>>)", "tier-0"},
	{
		"async-resumed", "Scenarios.Async+<<Resumed>g__YieldAndBlock|4_0>d.MoveNext",
		"Scenarios.Async.Resumed{local YieldAndBlock}{async}", "()", "tier-0",
	},
	{
		"async-lambda", "Scenarios.Async+<>c.<Lambdas>b__12_0",
		"Scenarios.Async.Lambdas{lambda 12_0}", "(string, int)", "tier-0",
	},
	{
		"async-lambda", "Scenarios.Async+<>c+<<Lambdas>b__12_0>d.MoveNext",
		"Scenarios.Async.Lambdas{lambda 12_0}{async}", "(string, int)", "tier-0",
	},
	{
		"async-lambda", "Scenarios.Async+<>c__DisplayClass12_0+<<Lambdas>b__1>d.MoveNext",
		"Scenarios.Async.Lambdas{lambda 12_1}{async}", "(long)", "tier-0",
	},
	{
		"async-lambda", "Scenarios.Async+<>c__DisplayClass13_0`1+<<Generic>b__0>d.MoveNext",
		"Scenarios.Async.Generic<byte>{lambda 13_0}{async}", "(char, Dictionary<byte, int>)", "tier-0",
	},
	// made by other compilers
	{
		"names-fsharp", "FSharp.Shop+loop@16-2.Invoke",
		"FSharp.Shop.loop<System.__Canon>{lambda 16-2}", "(__Canon, int)", "tier-0",
	},
	{"names-fsharp", "FSharp.Shop+work@20-1.MoveNext", "FSharp.Shop.work{async}", "", "tier-0"},
	{"names-fsharp", "FSharp.Shop+items@30.GenerateNext", "FSharp.Shop.items{iterator}", "", "tier-0"},
	{
		"names-vb", "VisualBasic.Shop+VB$StateMachine_5_RunAsync.MoveNext",
		"VisualBasic.Shop.RunAsync{async}", "(string, int)", "tier-0",
	},
	{
		"names-vb", "VisualBasic.Shop+VB$StateMachine_6_Items.MoveNext",
		"VisualBasic.Shop.Items{iterator}", "(int)", "tier-0",
	},
	{"names-vb", "VisualBasic.Shop+_Closure$__9-0._Lambda$__1", "VisualBasic.Shop.{lambda 9-1}", "(int)", "tier-0"},
	{
		"names-vb", "VisualBasic.Shop+_Closure$__+VB$StateMachine___Lambda$__9-0.MoveNext",
		"VisualBasic.Shop.{lambda 9-0}{async}", "(long)", "tier-0",
	},
	// members of types
	{"cctor", "Scenarios.Calls+Lazy..cctor", "Scenarios.Calls+Lazy..cctor", "()", "tier-0"},
	{"activator", "Scenarios.Calls+Made..ctor", "Scenarios.Calls+Made..ctor", "()", "tier-0"},
	{"finalizer", "Scenarios.Async+Finalized.Finalize", "Scenarios.Async+Finalized.Finalize", "()", "tier-0"},
	{"unbox-stub", "Scenarios.Calls+Counter.GetHashCode", "Scenarios.Calls+Counter.GetHashCode", "()", "tier-0"},
	{"page-frame", "Scenarios.Calls.Touch", "Scenarios.Calls.Touch", "(ReadOnlySpan<byte>)", "tier-0"},
	{
		"qsort-delegate", "Scenarios.Native.CompareInDelegate",
		"Scenarios.Native.CompareInDelegate", "(int*, int*)", "tier-0",
	},
	// generic code, shared and not
	{"gen-ref", "Scenarios.Generics+Box`1.Use", "Scenarios.Generics+Box<System.__Canon>.Use", "()", "tier-0"},
	{
		"gen-ref", "Scenarios.Generics+Box`1.Static",
		"Scenarios.Generics+Box<System.__Canon>.Static", "(__Canon)", "tier-0",
	},
	{"gen-value", "Scenarios.Generics+Box`1.Static", "Scenarios.Generics+Box<int>.Static", "(int)", "tier-0"},
	{"gen-struct", "Scenarios.Generics+Pair`2.Use", "Scenarios.Generics+Pair<System.__Canon, int>.Use", "()", "tier-0"},
	{
		"gen-method", "Scenarios.Generics.Twice",
		"Scenarios.Generics.Twice<System.__Canon, int>", "(__Canon, int, int)", "tier-0",
	},
	{
		"gen-method", "Scenarios.Generics.Twice",
		"Scenarios.Generics.Twice<int, System.Collections.Generic.KeyValuePair<int, System.__Canon>>",
		"(int, KeyValuePair<int, __Canon>, int)", "tier-0",
	},
	{
		"gen-nested", "Scenarios.Generics+Outer`1+Inner`1.Go",
		"Scenarios.Generics+Outer<System.__Canon>+Inner<int>.Go<double>", "(double)", "tier-0",
	},
	{
		"gen-virtual", "Scenarios.Generics+BlockingVisitor.Visit",
		"Scenarios.Generics+BlockingVisitor.Visit<System.__Canon>", "(__Canon)", "tier-0",
	},
	{
		"gen-iface", "Scenarios.Generics+IMaker`1.Make",
		"Scenarios.Generics+IMaker<System.__Canon>.Make", "(__Canon)", "tier-0",
	},
	{"iface-dispatch", "Scenarios.Calls+Shape`1.Area", "Scenarios.Calls+Shape<System.__Canon>.Area", "(int)", "tier-0"},
	// made at run time
	{"dynamic-method", "EmittedBlock", "EmittedBlock", "()", "dynamic"},
	{"expression", "lambda_method1", "lambda_method1", "(Closure, int)", "dynamic"},
	{"run-and-collect", "Emitted.Collected.BlockInCollected", "Emitted.Collected.BlockInCollected", "()", "optimized"},
	{"collectible-alc", "Scenarios.Plugin.Inner", "Scenarios.Plugin.Inner", "(Func<int>, int)", "optimized"},
	{"multicast", "IL_STUB_MulticastDelegate_Invoke", "[multicast delegate System.Action]", "()", "IL stub"},
	{"pinvoke-read", "IL_STUB_PInvoke", "[P/Invoke read in libc]", "(int, byte[], nint)", "IL stub"},
	{"pinvoke-shared", "IL_STUB_PInvoke", "[P/Invoke sleep in libc]", "(uint)", "IL stub"},
	{"pinvoke-string", "IL_STUB_PInvoke", "[P/Invoke write in libc]", "(int, string, nint)", "IL stub"},
	{"qsort-delegate", "IL_STUB_PInvoke", "[P/Invoke qsort in libc]", "(int[], nuint, nuint, Native.Compare)",
		"IL stub"},
	{"qsort-delegate", "IL_STUB_ReversePInvoke", "[IL stub: reverse P/Invoke]", "(int*, int*)", "IL stub"},
	// the framework's, compiled ahead of time
	{"monitor-wait", "System.Threading.Monitor.Wait", "System.Threading.Monitor.Wait", "(object, int)", "ReadyToRun"},
	{"sleep", "System.Threading.Thread.Sleep", "System.Threading.Thread.Sleep", "(int)", "ReadyToRun"},
	{"join", "System.Threading.Thread.Join", "System.Threading.Thread.Join", "(int)", "ReadyToRun"},
	{
		"linq", "System.Linq.Enumerable+OrderedIterator`2.MoveNext",
		"System.Linq.Enumerable+OrderedIterator<int, int>.MoveNext", "()", "ReadyToRun",
	},
	// exceptions
	{"eh-filter", "Scenarios.Exceptions.Filter", "Scenarios.Exceptions.Filter [filter]", "()", "tier-0"},
	{
		"eh-filter", "System.Runtime.EH.DispatchEx",
		"System.Runtime.EH.DispatchEx", "(ref StackFrameIterator, ref EH.ExInfo)", "ReadyToRun",
	},
	{"eh-fault", "Emitted.Fault.TryFault", "Emitted.Fault.TryFault", "()", "tier-0"},
}

// otherDisplays are frames that some frameworks show in another way, and why. An empty shown means that the frameworks
// have no such frame.
var otherDisplays = []struct {
	frameworks       []string
	scenario, method string
	shown            shown
}{
	// The code that calls native code belongs to the DllImport method.
	{[]string{"net11"}, "pinvoke-read", "IL_STUB_PInvoke", shown{
		"pinvoke-read", "Scenarios.Native.read", "Scenarios.Native.read", "(int, byte[], nint)", "optimized",
	}},
	{[]string{"net11"}, "pinvoke-shared", "IL_STUB_PInvoke", shown{
		"pinvoke-shared", "Scenarios.Native.sleep", "Scenarios.Native.sleep", "(uint)", "optimized",
	}},
	{[]string{"net11"}, "pinvoke-string", "IL_STUB_PInvoke", shown{
		"pinvoke-string", "Scenarios.Native.write", "Scenarios.Native.write", "(int, string, nint)", "optimized",
	}},
	{[]string{"net11"}, "qsort-delegate", "IL_STUB_PInvoke", shown{
		"qsort-delegate", "Scenarios.Native.qsortDelegate",
		"Scenarios.Native.qsortDelegate", "(int[], nuint, nuint, Native.Compare)", "optimized",
	}},
	// Monitor.Wait ends in a tail call of a Condition, and the Condition's frame replaces the frame of Monitor.Wait.
	{[]string{"net11"}, "monitor-wait", "System.Threading.Monitor.Wait", shown{}},
	// Thread.Join(int) is implemented by the runtime, or inlined.
	{[]string{"net11", "net9", "net8"}, "join", "System.Threading.Thread.Join", shown{
		"join", "System.Threading.Thread.Join",
		"System.Threading.Thread.Join", "()", "ReadyToRun",
	}},
	// The stub has the native function's parameters.
	{[]string{"net8"}, "qsort-delegate", "IL_STUB_ReversePInvoke", shown{
		"qsort-delegate", "IL_STUB_ReversePInvoke",
		"[IL stub: reverse P/Invoke]", "(long, long)", "IL stub",
	}},
	// Linq has been rewritten since.
	{[]string{"net8"}, "linq", "System.Linq.Enumerable+OrderedIterator`2.MoveNext", shown{
		"linq", "System.Linq.OrderedEnumerable`1+<GetEnumerator>d__19.MoveNext",
		"System.Linq.OrderedEnumerable<int>.GetEnumerator{iterator}", "", "tier-0",
	}},
	// Exceptions are dispatched by native code.
	{[]string{"net8"}, "eh-filter", "System.Runtime.EH.DispatchEx", shown{}},
}

// displayOn is the frame that a runtime shows where most runtimes show tt. The frame depends on the framework, and all
// builds of a major version share a framework.
func displayOn(runtime string, tt shown) shown {
	framework := testenv.Framework(runtime)
	for _, o := range otherDisplays {
		if o.scenario == tt.scenario && o.method == tt.method && slices.Contains(o.frameworks, framework) {
			return o.shown
		}
	}
	return tt
}

func checkDisplay(t *testing.T, a *testenv.App, byTID map[int]*snapshot.Thread, runtime string) {
	t.Helper()
	for _, tt := range displays {
		if tt = displayOn(runtime, tt); tt.method == "" {
			continue
		}
		th := byTID[a.Stacks[tt.scenario].TID]
		if th == nil {
			continue // reported already
		}
		found := false
		var others []string
		for _, f := range th.Frames {
			if f.Method != tt.method {
				continue
			}
			found = found || f.Display == tt.display && f.Signature == tt.signature && f.Tier == tt.tier
			others = append(others, f.Display+f.Signature+" ["+f.Tier+"]")
		}
		if !found {
			t.Errorf("%s: %s is not shown as %s%s [%s], but as %q",
				tt.scenario, tt.method, tt.display, tt.signature, tt.tier, others)
		}
	}
}
