package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"clrsnap/internal/livetest"
	"clrsnap/internal/testenv"
	"clrsnap/internal/testenv/layer"
)

// recordedLines records the program hotlines into a file, and returns the folder of the programs' source.
func recordedLines(t *testing.T, exe, file string, args ...string) (apps string, a *testenv.App) {
	t.Helper()
	apps, err := filepath.Abs("../../testdata/apps")
	if err != nil {
		t.Fatal(err)
	}
	a = testenv.Start(t, "hotlines", testenv.Options{})
	a.Ask("lines")
	out, err := exec.Command(exe, append([]string{
		"record", strconv.Itoa(a.PID), "-d", "2s", "-r", "499", "--mode", "cpu", "-o", file,
	}, args...)...).CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	return apps, a
}

// heavyLine is the line of Work with three quarters of the method's time.
func heavyLine(t *testing.T, a *testenv.App) string {
	t.Helper()
	for _, l := range a.Ask("lines") {
		if n, ok := strings.CutPrefix(l, "LINE heavy "); ok {
			return n
		}
	}
	t.Fatal("the program does not say which line is heavy")
	return ""
}

// TestPprofList: go tool pprof lists C# source with the time of each line.
func TestPprofList(t *testing.T) {
	layer.Live(t)
	t.Parallel()
	file := filepath.Join(t.TempDir(), "hot.pb.gz")
	apps, a := recordedLines(t, livetest.Command(t), file)
	heavy := heavyLine(t, a)
	pprof := func(args ...string) string {
		t.Helper()
		cmd := exec.Command("go",
			append(append([]string{"tool", "pprof", "-trim_path", "/testdata/apps", "-source_path",
				apps}, args...), file)...)
		cmd.Env = append(os.Environ(), "PPROF_TMPDIR="+t.TempDir())
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
		return string(out)
	}
	// "         .      1.20s     49:            x = Burn(x, 3 * Unit); Mark("heavy");"
	list := pprof("-list", `Program\.Work`)
	line := regexp.MustCompile(`(?m)^\s+\S+\s+(\S+)\s+` + heavy +
		`:\s+x = Burn\(x, 3 \* Unit\)`).FindStringSubmatch(list)
	if line == nil || line[1] == "." {
		t.Errorf("line %s is not listed with its time:\n%s", heavy, list)
	}
	if !strings.Contains(list, "HotLines.Program.Work(Func<bool>) in hotlines/Program.cs") {
		t.Errorf("the routine has another name:\n%s", list)
	}
	page := filepath.Join(t.TempDir(), "web.html")
	pprof("-weblist", `Program\.Work`, "-output", page)
	web, err := os.ReadFile(page)
	line = regexp.MustCompile(`> *` + heavy + `</span>.*\d.*3 \* Unit`).FindStringSubmatch(string(web))
	if err != nil || line == nil {
		t.Errorf("weblist does not have the line and its time: %v\n%.5000s", err, web[max(0, len(web)-5000):])
	}
	top := pprof("-top", "-lines")
	if !strings.Contains(top, "hotlines/Program.cs:") {
		t.Errorf("the hottest lines:\n%s", top)
	}
}

// TestViewSymbols: a recording of a program without its PDB gets its lines on another machine, from a folder.
func TestViewSymbols(t *testing.T) {
	layer.Live(t)
	t.Parallel()
	exe, dir := livetest.Command(t), t.TempDir()
	file := filepath.Join(dir, "hot.clrsnap")
	apps, a := recordedLines(t, exe, file)
	heavy := heavyLine(t, a)
	view := func(args ...string) string {
		t.Helper()
		out, err := exec.Command(exe, append([]string{"view", "--plumbing"}, args...)...).CombinedOutput()
		if err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
		return string(out)
	}
	row := regexp.MustCompile(`hotlines/Program\.cs:~` + heavy + `(  x = Burn\(x, 3 \* Unit\); Mark\("heavy"\);)?\n`)
	has := func(what, out string, line, text bool) {
		t.Helper()
		m := row.FindStringSubmatch(out)
		if (m != nil) != line || line && (m[1] != "") != text {
			t.Errorf("%s: want the line: %v, its text: %v\n%s", what, line, text, out)
		}
	}
	has("recorded", view(file, "--lines"), true, false)
	has("without a table", view(file), false, false)
	has("never", view(file, "--lines=never"), false, false)
	has("with text", view(file, "--lines", "--source-root", "/testdata/apps="+apps), true, true)
	has("with text that is looked for", view(file, "--lines", "--source-root", apps), true, true)

	bare := filepath.Join(dir, "bare.clrsnap")
	b, err := exec.Command(exe, "record", strconv.Itoa(a.PID), "-d", "1s", "-r", "499", "--mode", "cpu", "-o", bare,
		"--lines=never").CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, b)
	}
	symbols := filepath.Dir(testenv.Build(t, "hotlines"))
	if out := view(bare, "--lines", "--symbols", symbols); !strings.Contains(out, "has no places in source files") {
		t.Errorf("--lines=never:\n%s", out)
	}
	other := filepath.Dir(testenv.BuildWith(t, "hotlines", testenv.DefaultRuntime, "-o-"))
	if out := view(file, "--lines", "--symbols", other); !row.MatchString(out) {
		t.Errorf("the lines that were recorded are gone:\n%s", out)
	}
	livetest.EndsWell(t, a)
}
