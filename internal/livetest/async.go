package livetest

import "strings"

// RuntimeAsync has the compiler leave the suspension of methods to the runtime.
var RuntimeAsync = []string{"-langversion:preview", "-features:runtime-async=on"}

// PassOn are methods of the program "tasks", and of .NET, that are not async, and return another
// method's task: each method has a frame of its own if the runtime suspends the method with its
// caller.
var PassOn = []string{
	"Plan.Next", "Plan.NextTask", "Levels..cctor{lambda}", "SemaphoreSlim.WaitAsync", "Socket.ReceiveAsync",
}

// SharedName is Unbound with a dot before the name of a nested class.
func SharedName(name string) string { return strings.ReplaceAll(Unbound(name), "+", ".") }

// Unbound is a name without type arguments, at any depth.
func Unbound(name string) string {
	var b strings.Builder
	depth := 0
	for _, r := range name {
		switch {
		case r == '<':
			depth++
		case r == '>':
			depth--
		case depth == 0:
			b.WriteRune(r)
		}
	}
	return b.String()
}

// A ResumedWay is a way to run a program with methods that the runtime itself suspends.
type ResumedWay struct {
	Name       string
	Env        []string
	Compile    []string
	ReadyToRun bool
	Composite  bool
	Args       []string
	Unknown    int // lines of 100, at most
}

var ResumedWays = []ResumedWay{
	{Name: "tiered"},
	{Name: "jitted", Env: []string{"DOTNET_ReadyToRun=0"}},
	{Name: "optimised", Env: []string{"DOTNET_TieredCompilation=0"}, Unknown: 5},
	{Name: "compiled before", ReadyToRun: true, Unknown: 5},
}
