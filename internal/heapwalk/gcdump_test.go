package heapwalk_test

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"clrsnap"
	"clrsnap/export/gcdump"
	"clrsnap/internal/livetest"
	"clrsnap/internal/testenv"
	"clrsnap/snapshot"
)

// TestGCDumpWitness: Microsoft's own reader finds the contents of the heap in a .gcdump file: the same objects and
// bytes by type, the same number of references, and a path to each object from the root.
func TestGCDumpWitness(t *testing.T) { testenv.EachOfKit(t, testGCDumpWitness) }

func testGCDumpWitness(t *testing.T, runtime string) {
	a := testenv.Start(t, "heap", testenv.Options{Runtime: runtime, Args: []string{"--megabytes", "1"}})
	h, err := livetest.Open(t, a, clrsnap.Options{}).Heap(t.Context(), clrsnap.HeapOptions{Graph: true})
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "heap.gcdump")
	var b bytes.Buffer
	if err := gcdump.Write(&b, h, gcdump.Options{Version: "0"}); err != nil {
		t.Fatal(err)
	}
	for _, text := range []string{"xxxxxxxx", "x\x00x\x00x\x00x\x00"} {
		if bytes.Contains(b.Bytes(), []byte(text)) {
			t.Error("the file has the text of a string")
		}
	}
	if err := os.WriteFile(file, b.Bytes(), 0o600); err != nil {
		t.Fatal(err)
	}
	cmd := testenv.GCDumpReader(t, file)
	cmd.Stderr = t.Output()
	out, err := cmd.Output()
	if err != nil {
		t.Fatal(err)
	}
	first, rest, _ := strings.Cut(string(out), "\n")
	checkGCDumpTotals(t, a, h, first)
	checkGCDumpTypes(t, h, rest, runtime)
	livetest.EndsWell(t, a)
}

// checkGCDumpTotals: all objects are there, and all can be reached.
func checkGCDumpTotals(t *testing.T, a *testenv.App, h *snapshot.Heap, line string) {
	t.Helper()
	var nodes, references, reachable, pid, segments int
	const form = "TOTALS %d %d %d %d %d clrsnap 0"
	if _, err := fmt.Sscanf(line, form, &nodes, &references, &reachable, &pid, &segments); err != nil {
		t.Fatalf("%s: %v", line, err)
	}
	t.Log(line)
	want := 0
	for o := range h.Graph.Objects {
		want += len(o.References)
	}
	if pid != a.PID || reachable != nodes || nodes < h.Graph.Count || references < want ||
		segments != len(h.Graph.Regions) {
		t.Errorf("%s; the heap has %d objects and %d references in %d regions", line, h.Graph.Count, want,
			len(h.Graph.Regions))
	}
	if all := h.Objects().Count; all != uint64(h.Graph.Count) {
		t.Errorf("%d objects were counted, and %d are in the graph", all, h.Graph.Count)
	}
}

// checkGCDumpTypes: each type has its objects and bytes. The other lines are roots, without bytes.
func checkGCDumpTypes(t *testing.T, h *snapshot.Heap, lines, runtime string) {
	t.Helper()
	types := map[string]snapshot.HeapAmount{}
	for i := range h.Types {
		x := &h.Types[i]
		types[x.Name+"\t"+x.Assembly+".dll"] = x.HeapAmount
	}
	named := 0
	for line := range strings.Lines(lines) {
		f := strings.Split(strings.TrimSuffix(line, "\n"), "\t")
		if len(f) != 4 {
			t.Fatalf("%q", line)
		}
		var got snapshot.HeapAmount
		fmt.Sscan(f[2], &got.Count)
		fmt.Sscan(f[3], &got.Bytes)
		if strings.HasPrefix(f[0], "[") {
			if got.Bytes != 0 {
				t.Errorf("a root has bytes: %q", line)
			}
			if f[0] == "[static var Shop.Bus.Raised]" || f[0] == "[static var Shop.Shelves.All]" {
				named++
			}
			continue
		}
		key := f[0] + "\t" + f[1]
		if want := types[key]; got != want {
			t.Errorf("%s: %+v, not %+v", key, got, want)
		}
		delete(types, key)
	}
	if len(types) > 0 {
		t.Errorf("the file lacks %v", types)
	}
	if named == 0 && runtime != "net8" {
		t.Error("no static field has its name")
	}
}
