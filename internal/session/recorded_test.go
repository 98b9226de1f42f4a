package session_test

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"clrsnap/internal/session"
	"clrsnap/internal/target/recorded"
	"clrsnap/internal/testenv"
	"clrsnap/internal/testenv/layer"
)

var update = flag.Bool("update", false, "record the moments of testdata anew, from live programs")

// moment is a moment of a program that was recorded.
type moment struct {
	app     string
	args    []string
	env     []string
	compile []string
	asks    []string // questions to the program about itself: the answers are the moment's truths
	options session.Options
	looks   []look
}

// look asks everything of a process that a test compares.
type look func(*session.Process) (any, error)

// moments are the recorded moments, by the names of their files.
var moments = map[string]moment{
	"deadlocks": {app: "deadlocks", asks: []string{"truths"}, looks: []look{waitsLook}},
}

var everything = session.Options{ExactGenerics: true, Lines: true, Inlined: true, Async: true}

func waitsLook(p *session.Process) (any, error) { return p.SnapshotWaits(context.Background(), nil) }

// TestRecordMoments records the moments.
func TestRecordMoments(t *testing.T) {
	layer.Proof(t)
	if !*update {
		t.Skip("writes testdata: go test -tags proof -run TestRecordMoments ./internal/session -args -update")
	}
	for name, m := range moments {
		for _, runtime := range testenv.Supported() {
			t.Run(name+"/"+testenv.Name(runtime), func(t *testing.T) { recordMoment(t, name, runtime, &m) })
		}
	}
}

func recordMoment(t *testing.T, name, runtime string, m *moment) {
	a := testenv.Start(t, m.app, testenv.Options{
		Runtime: runtime, Args: m.args, Env: m.env, Compile: m.compile, Dir: "/", Prepare: nameless,
	})
	out := &recorded.Moment{Note: fmt.Sprintf("%s %s on %s", m.app, strings.Join(m.args, " "), runtime)}
	for _, question := range m.asks {
		out.Truths = append(out.Truths, a.Ask(question)...)
	}
	testenv.DumpWhole(t, a.PID)
	dump := testenv.GCoreDump(t, a.PID)
	for _, look := range m.looks {
		p, err := session.Record(t.Context(), dump, out, session.CoreOptions{Options: everything})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := look(p); err != nil {
			t.Fatal(err)
		}
		p.Close()
	}
	neutral(t, out)
	file := filepath.Join("testdata", name+"-"+runtime+".moment")
	if err := out.WriteFile(file); err != nil {
		t.Fatal(err)
	}
	st, err := os.Stat(file)
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("%s: %d bytes, %d pages of memory", file, st.Size(), len(out.Memory.Data))
	for _, f := range out.Files {
		t.Logf("%s: %d pages %s", f.Path, len(f.Pages.Data), f.Error)
	}
	for i := range out.Mapped {
		n := 0
		mm := &out.Mapped[i]
		for pg := range out.Memory.Data { if pg*4096 >= uint64(mm.Start) && pg*4096 < uint64(mm.End) { n++ } }
		if n > 20 { t.Logf("%v-%v %s %s: %d", mm.Start, mm.End, mm.Perm, mm.Path, n) }
	}
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

// neutral replaces the folder of the kit and the name of the machine.
func neutral(t *testing.T, m *recorded.Moment) {
	kit := testenv.Kit(t).Dir
	m.Neutral(kit, "/srv/"+strings.Repeat("x", len(kit)-len("/srv/")))
	if host, err := os.Hostname(); err == nil && len(host) > 4 {
		m.Neutral(host, strings.Repeat("x", len(host)))
	}
}

func openMoment(t *testing.T, name string) (*session.Process, *recorded.Moment) {
	m, err := recorded.ReadFile(filepath.Join("testdata", name+".moment"))
	if err != nil {
		t.Fatal(err)
	}
	p, err := session.OpenRecorded(t.Context(), m, everything)
	if err != nil {
		t.Fatal(err)
	}
	return p, m
}
