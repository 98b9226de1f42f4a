package judge

import (
	"regexp"
	"strings"
)

// perfTiers are our names for the perf map's tiers (perfmap.cpp and
// NativeCodeVersion's names in eventtrace.cpp). The perf map calls all code
// without tiering "Optimized".
var perfTiers = map[string][]string{
	"QuickJitted":               {"tier-0"},
	"InstrumentedTier":          {"tier-0 instrumented"},
	"InstrumentedTierOptimized": {"tier-1 instrumented"},
	"OptimizedTier1":            {"tier-1"},
	"OptimizedTier1OSR":         {"OSR"},
	"Optimized":                 {"optimized", "dynamic", "IL stub"},
	"MinOptJitted":              {"minopts"},
	"PreJIT":                    {"ReadyToRun"},
}

// switched are methods with optimised code although the runtime asked the JIT
// for tier 0 (the method has a stackalloc in a loop, an explicit tail call, a
// caller in native code): only the runtime's call counting table knows the
// tier, and its data descriptor does not describe the table.
var switched = map[string]bool{
	"Emitted.TailLoop.Loop": true, "Scenarios.Calls.StackAlloc": true,
	"Scenarios.Native.CompareAndBlock": true, "Scenarios.Native.CompareAndSleep": true,
	"Scenarios.Workers.Compare": true, "Scenarios.Workers.QsortStorm": true,
	"Scenarios.StormThrow.Compare": true, "Scenarios.StormThrow.AroundNative": true,
}

// unoptimized are methods marked NoOptimization in an otherwise optimised assembly; the
// assembly says nothing about the mark. Static constructors of unloadable code are
// listed, too: .NET 8 compiles them once, without optimisation.
var unoptimized = map[string]bool{"Scenarios.Gen…..cctor": true}

// perfName is the name of a perf map's entry, taken apart:
//
//	int32 [scenarios] Scenarios.Calls+Shape`1[System.__Canon]::Area(int32)[QuickJitted]
//
// Rules: the return type and the parameters are left out, because the map
// writes them as in IL; so are the type's arguments; the type dynamicClass
// stands for no type; nested types have a plus, as in our names.
type perfName struct {
	method   string // as snapshot.Frame.Method
	assembly string
	tier     string
	dynamic  bool
	family   string // method, without the numbers of the generation
}

var generation = regexp.MustCompile(`\b(Gen|Emit|Dyn|Expr)[0-9]{6}\b`)

func parsePerfName(s string) perfName {
	n := splitPerfName(s)
	n.family = generation.ReplaceAllString(n.method, "$1…")
	return n
}

func splitPerfName(s string) perfName {
	var n perfName
	if i := strings.LastIndexByte(s, '['); i >= 0 && strings.HasSuffix(s, "]") {
		s, n.tier = s[:i], s[i+1:len(s)-1]
	}
	left, right, ok := strings.Cut(s, "::")
	if !ok {
		n.method = s
		return n
	}
	method, _, _ := strings.Cut(right, "(")
	if i := strings.LastIndex(left, "] "); i >= 0 {
		n.assembly = left[strings.LastIndexByte(left[:i], '[')+1 : i]
		left = left[i+2:]
	}
	typ, _, _ := strings.Cut(left, "[")
	if n.dynamic = typ == "dynamicClass"; n.dynamic {
		n.method = method
		return n
	}
	n.method = typ + "." + method
	return n
}
