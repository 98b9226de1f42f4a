package moments

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"clrsnap/internal/target/recorded"
	"clrsnap/report"
	"clrsnap/snapshot"
)

// textLooks are the looks whose results are kept as text, by the moment.
var textLooks = map[string]Look{
	"deadlocks": Waits, "deadlocks-suspended": Waits, "waits": Waits, "tasks": Tasks,
	"tasks-suspended": Tasks, "requests": Requests, "heap": Retained, "keepers": Roots,
	"contexts": Contexts,
}

// TestRecordedTexts: what people see of the recorded moments. The other tests compare with the programs' own truths;
// the texts have the rest. To write the texts anew: go test -run TestRecordedTexts ./internal/moments -update.
func TestRecordedTexts(t *testing.T) {
	for name, l := range textLooks {
		t.Run(name, func(t *testing.T) {
			Each(t, name, func(t *testing.T, m *recorded.Moment) {
				text := textOf(t, At[any](t, m, l))
				file := filepath.Join(folder, t.Name()[len("TestRecordedTexts/"):]+".txt")
				if *update {
					if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
						t.Fatal(err)
					}
					if err := os.WriteFile(file, text, 0o644); err != nil {
						t.Fatal(err)
					}
				}
				want, err := os.ReadFile(file)
				if err != nil {
					t.Fatal(err)
				}
				if !bytes.Equal(text, want) {
					t.Errorf("%s differs:\n%s", file, firstDifference(text, want))
				}
			})
		})
	}
}

// textOf is the text of a result. The time that the look took is left out.
func textOf(t *testing.T, result any) []byte {
	t.Helper()
	var b bytes.Buffer
	var err error
	const rows = 40
	switch r := result.(type) {
	case *snapshot.Snapshot:
		err = report.WaitGraph(&b, r, r.WaitGraph(), report.WaitGraphOptions{})
	case *snapshot.Tasks:
		r.Duration = 0
		err = report.TasksText(&b, r, report.TasksOptions{})
	case *snapshot.Requests:
		r.Duration = 0
		err = report.RequestsText(&b, r, report.RequestsOptions{})
	case *snapshot.Heap:
		r.Duration = 0
		err = report.HeapText(&b, r, report.HeapOptions{Rows: rows})
	default:
		err = fmt.Errorf("no text of %T", result)
	}
	if err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// firstDifference shows where two texts begin to differ.
func firstDifference(got, want []byte) string {
	n := 0
	for n < min(len(got), len(want)) && got[n] == want[n] {
		n++
	}
	const before, after = 120, 200
	part := func(text []byte) []byte { return text[max(n-before, 0):min(n+after, len(text))] }
	line := 1 + bytes.Count(want[:n], []byte("\n"))
	return fmt.Sprintf("byte %d in line %d:\n%s\nand wanted is\n%s", n, line, part(got), part(want))
}
