package heapwalk_test

import (
	"maps"
	"regexp"
	"slices"
	"strings"
	"testing"

	"clrsnap"
	"clrsnap/internal/livetest"
	"clrsnap/internal/testenv"
	"clrsnap/snapshot"
)

// TestContexts: clrsnap finds the paths that keep unloaded load contexts. An object of a collectible type keeps the
// type's LoaderAllocator. A running method keeps its LoaderAllocator, too. The LoaderAllocator keeps the static fields
// of the type.
func TestContexts(t *testing.T) { testenv.EachOfKit(t, testContexts) }

func testContexts(t *testing.T, runtime string) {
	a := testenv.Start(t, "contexts", testenv.DumpOptions(t, testenv.DumpGCore, testenv.Options{Runtime: runtime}))
	checkContexts(t, livetest.Open(t, a, clrsnap.Options{}))
	core, err := clrsnap.OpenCore(t.Context(), testenv.Dump(t, a, testenv.DumpGCore), clrsnap.CoreOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer core.Close()
	checkContexts(t, core)
}

// contextKeepers are the paths that keep the load context, by cause.
var contextKeepers = map[string]string{
	"handle":       "handle (strong): Contexts.Plugin⇒",
	"threadstatic": "thread static field Contexts.Program.own of \"main\": Contexts.Plugin⇒",
	"table":        "static field Contexts.Program.key: object⇢ Contexts.Plugin⇒",
	"list":         "static field Contexts.Program.list: System.Collections.Generic.List<Contexts.Plugin>⇒",
	"array":        "static field Contexts.Program.array: Contexts.Plugin[]⇒",
	"thread":       `running code of "plugin" in Contexts.Plugin.Spin:`,
}

func checkContexts(t *testing.T, p *clrsnap.Process) {
	t.Helper()
	h, err := p.Heap(t.Context(), clrsnap.HeapOptions{
		Roots: regexp.MustCompile(`^(Contexts\.Treasure|System\.Reflection\.LoaderAllocator)$`), Retained: true,
	})
	if err != nil {
		t.Fatal(err)
	}
	livetest.Unmark(h)
	ways := map[string][]string{}
	for i := range h.Paths {
		x := &h.Paths[i]
		class := x.Steps[len(x.Steps)-1].Type
		if x.Root == snapshot.RootThreadStatic {
			x.Thread.Name = "main"
		}
		ways[class] = append(ways[class], wayOf(x))
	}
	t.Logf("%q", ways)
	has := func(class, want string) (n int) {
		for _, way := range ways[class] {
			if strings.HasPrefix(way, want) {
				n++
			}
		}
		return n
	}
	is8 := strings.HasPrefix(p.Info().Runtime.Version, "8.")
	const allocator = "System.Reflection.LoaderAllocator"
	for cause, want := range contextKeepers {
		if is8 && cause == "threadstatic" { // likewise
			want = "handle (strong): object[]. Contexts.Plugin⇒"
		}
		if n := has(allocator, want); n != 1 {
			t.Errorf("%s: %d load contexts are kept by %s; ways: %q", cause, n, want, ways[allocator])
		}
		want += " " + allocator + ".m_slots object[]"
		if !is8 { // .NET 8: the place of such fields is unknown
			want += "(Contexts.Plugin.Kept)"
		}
		if n := has("Contexts.Treasure", want); n != 1 {
			t.Errorf("%s: %d static fields are kept by %s; ways: %q", cause, n, want, ways["Contexts.Treasure"])
		}
	}
	rows := map[string]snapshot.HeapType{}
	for _, c := range h.Types {
		if c.Name == "Contexts.Plugin" {
			rows[c.Context] = c
		}
	}
	names := []string{"handle", "threadstatic", "table"}
	if is8 || strings.HasPrefix(p.Info().Runtime.Version, "9.") { // the load contexts there have no names
		names = slices.DeleteFunc(slices.Collect(maps.Keys(rows)), func(name string) bool {
			return !strings.HasPrefix(name, "a load context")
		})
	}
	if len(names) != 3 {
		t.Errorf("the rows are %v", rows)
	}
	for _, cause := range names {
		c, ok := rows[cause]
		if !ok || c.Count != 1 || c.Retained <= c.Bytes {
			t.Errorf("the object of the load context %s: %+v", cause, c)
		}
	}
}
