package moments

import (
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"clrsnap/internal/session"
	"clrsnap/internal/target/recorded"
	"clrsnap/internal/testenv"
	"clrsnap/internal/testenv/layer"
	"clrsnap/snapshot"
)

var update = flag.Bool("update", false, "record the moments of testdata anew, from live programs")

// TestRecordMoments records the moments, without the pages that the looks do not need. Pages that several moments of
// a runtime have are in a file of their own.
func TestRecordMoments(t *testing.T) {
	layer.Proof(t)
	if !*update {
		t.Skip("writes testdata: go test -tags proof -run TestRecordMoments ./internal/moments -args -update")
	}
	for runtime, version := range runtimes {
		t.Run(runtime, func(t *testing.T) {
			for name, m := range programs {
				if m.only == "" || m.only == runtime {
					t.Run(name, func(t *testing.T) { recordMoment(t, name+"-"+runtime, version, m) })
				}
			}
		})
		t.Run("share/"+runtime, func(t *testing.T) { shareMoments(t, runtime) })
	}
}

func recordMoment(t *testing.T, name, version string, m program) {
	out := &recorded.Moment{Note: fmt.Sprintf("%s %s on .NET %s", m.app, strings.Join(m.o.Args, " "), version)}
	pid, folders := 0, []string{testenv.Kit(t).Dir}
	if m.ahead {
		file := testenv.AheadOfTimeNewest(t, m.app)
		folders = append(folders, filepath.Dir(file))
		withoutEnvironment(t, func() { pid, out.Truths = testenv.StartAheadOfTimeNewest(t, file) })
	} else {
		host, err := testenv.Installed(version)
		if err != nil {
			t.Fatal(err)
		}
		_, file, _ := strings.Cut(host, ":")
		folders = append(folders, filepath.Dir(file))
		pid, out.Truths = m.run(t, host)
	}
	record(t, out, pid, m.looks)
	withoutDebug(out)
	for _, folder := range folders {
		out.Neutral(folder, "/"+strings.Repeat("x", len(folder)-1))
	}
	if host, err := os.Hostname(); err == nil && len(host) > 4 {
		out.Neutral(host, strings.Repeat("x", len(host)))
	}
	reduce(t, out, m.looks)
	if err := out.WriteFile(fileOf(name), nil); err != nil {
		t.Fatal(err)
	}
	t.Logf("%s: %d pages of memory", name, len(out.Memory.Data))
}

// run starts the program on a runtime, up to the moment.
func (m *program) run(t *testing.T, runtime string) (pid int, truths []string) {
	t.Helper()
	o := m.o
	o.Runtime, o.Dir, o.Prepare = runtime, "/", nameless
	if m.start != nil {
		m.start(t, &o)
	}
	a := testenv.Start(t, m.app, o)
	if m.begin != nil {
		m.begin(t, a)
	}
	for _, question := range m.asks {
		truths = append(truths, a.Ask(question)...)
	}
	if m.stderr {
		truths = append(truths, a.Stderr())
	}
	return a.PID, truths
}

// record records the looks at a program.
func record(t *testing.T, out *recorded.Moment, pid int, looks []Look) {
	t.Helper()
	testenv.DumpWhole(t, pid)
	dump := testenv.GCoreDump(t, pid)
	for _, look := range looks {
		p, err := session.Record(t.Context(), dump, out, session.CoreOptions{Options: everything})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := look(p); err != nil {
			t.Fatal(err)
		}
		p.Close()
	}
}

// withoutDebug removes the machine's files with symbols: other machines have none.
func withoutDebug(m *recorded.Moment) {
	for _, f := range m.Files {
		if strings.HasPrefix(f.Path, "/usr/lib/debug/") {
			f.None, f.Pages = true, recorded.NewPages()
		}
	}
}

// reduce blanks pages of files that the looks do not need: most of the metadata of large assemblies.
func reduce(t *testing.T, m *recorded.Moment, looks []Look) {
	t.Helper()
	gistOf := func(l Look) string {
		p, err := session.OpenRecorded(t.Context(), m, everything)
		if err != nil {
			return err.Error()
		}
		result, err := l(p)
		return gist(t, result, err)
	}
	var want []string
	for i, l := range looks {
		want = append(want, gistOf(l))
		if again := gistOf(l); again != want[i] {
			t.Fatalf("two looks at the same moment differ: %s", firstDifference([]byte(again), []byte(want[i])))
		}
	}
	tries := 0
	recorded.Reduce(m.OfFiles(), 2, func() bool {
		tries++
		for i, l := range looks {
			if gistOf(l) != want[i] {
				return false
			}
		}
		return true
	})
	t.Logf("%d tries", tries)
}

// gist is a text that is equal for equal results.
func gist(t *testing.T, result any, err error) string {
	t.Helper()
	if err != nil {
		return err.Error()
	}
	if h, ok := result.(*snapshot.Heap); ok {
		copied := *h
		copied.Graph, result = nil, &copied
	}
	text, err := json.Marshal(result)
	if err != nil {
		t.Fatal(err)
	}
	return string(passing.ReplaceAll(text, nil))
}

// passing are the fields of results that depend on the time of the look.
var passing = regexp.MustCompile(`"(Duration|Due)":-?\d+`)

// shareMoments writes the moments of a runtime anew, with their common pages in one file.
func shareMoments(t *testing.T, runtime string) {
	names, err := filepath.Glob(fileOf("*-" + runtime))
	if err != nil {
		t.Fatal(err)
	}
	var all []*recorded.Moment
	for _, name := range names {
		m, err := recorded.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		withoutDebug(m)
		all = append(all, m)
	}
	shared := recorded.Share(runtime+".pages", all)
	if err := shared.WriteFile(folder); err != nil {
		t.Fatal(err)
	}
	for i, name := range names {
		if err := all[i].WriteFile(name, shared); err != nil {
			t.Fatal(err)
		}
	}
	t.Logf("%d shared pages", len(shared.Pages))
}

// nameless starts a program with nothing in its environment that names a person or a machine.
func nameless(cmd *exec.Cmd) {
	env := []string{"HOME=/", "PATH=/usr/bin"}
	for _, v := range cmd.Env {
		if strings.HasPrefix(v, "DOTNET_") || strings.HasPrefix(v, "MALLOC_") {
			env = append(env, v)
		}
	}
	cmd.Env = env
}

// withoutEnvironment calls a function that starts a program.
func withoutEnvironment(t *testing.T, start func()) {
	t.Helper()
	env := os.Environ()
	os.Clearenv()
	defer func() {
		for _, v := range env {
			name, value, _ := strings.Cut(v, "=")
			os.Setenv(name, value)
		}
	}()
	start()
}
