package display

import "testing"

func TestShortType(t *testing.T) {
	const tasks, threading = "System.Threading.Tasks.", "System.Threading."
	const runtimeAsync = "System.Runtime.CompilerServices.AsyncHelpers+RuntimeAsyncTask"
	for name, want := range map[string]string{
		tasks + "Task": "Task", tasks + "Task<int>": "Task<int>", tasks + "Task<Shop.Order>": "Task<Shop.Order>",
		tasks + "Task<" + noResult + ">":          "Task",
		tasks + "UnwrapPromise<" + noResult + ">": "Task",
		tasks + "UnwrapPromise<List<int>>":        "Task<List<int>>",
		runtimeAsync + "<string>":                 "Task<string>",
		runtimeAsync + "<" + noResult + ">":       "Task",
		threading + "SemaphoreSlim":               "SemaphoreSlim",
		threading + "Channels.ReadOperation":      threading + "Channels.ReadOperation",
		"Shop.Task<int>":                          "Shop.Task<int>",
		"":                                        "",
	} {
		if got := ShortType(name); got != want {
			t.Errorf("%s: %s, want %s", name, got, want)
		}
	}
}
