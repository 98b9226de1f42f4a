package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"clrsnap/internal/testenv"
)

// TestStackOfCore shows a core dump of a program that did not crash.
func TestStackOfCore(t *testing.T) {
	app := testenv.Start(t, "idle", testenv.Options{Args: []string{"--threads", "4", "--pool", "6"}})
	dump := testenv.GCoreDump(t, app.PID)
	if result, code := app.Stop(); result != "OK" || code != 0 {
		t.Errorf("the program ended with %q, %d", result, code)
	}
	r := good(t, "stack", "--core", dump)
	r.want(t,
		fmt.Sprintf(`^Process %d · \.NET 10\..* · core dump by gcore · `, app.PID),
		`^Thread \d+ "idle-3" \(managed \d+\) · waits for ManualResetEvent 0x[0-9a-f]+ \(.*\)$`,
		`^    Idle\.Program\.Step\(int, string\) \(\?\)  idle/Program\.cs:~\d+  idle$`,
		`^6 threads with this stack · ThreadPool worker · waits for ManualResetEvent 0x`,
		`^\d+ threads$`)
	if strings.Contains(r.stdout, "stopped") || strings.Contains(r.stdout, "Ended by") || r.stderr != "" {
		t.Errorf("%s%s", r.stdout, r.stderr)
	}
	good(t, "stack", "--core", dump, "--thread", "^idle-3$", "--managed").want(t, `^1 thread$`)
	good(t, "stack", "--json", "--core="+dump).want(t, `"core":\{"path":"[^"]*","writer":"gcore"[,}]`,
		`"name":"idle-3"`)

	t.Run("no such thread", func(t *testing.T) {
		command(t, "stack", "--core", dump, "-t", "1").says(t, 1,
			`^clrsnap: no thread of the core dump .* matches .*: clrsnap stack --core .* shows all\n$`)
	})
	t.Run("empty sysroot", func(t *testing.T) {
		r := command(t, "stack", "--core", dump, "--sysroot", t.TempDir())
		// The dump alone has no native unwind information.
		r.says(t, 0, `^clrsnap: warning: the stacks of \d+ of \d+ threads are incomplete`)
		r.want(t, `^missing: .*libc\.so\.6`)
	})
	t.Run("cut off", func(t *testing.T) {
		if err := os.Truncate(dump, 20000); err != nil {
			t.Fatal(err)
		}
		command(t, "stack", "--core", dump).says(t, 1, `^clrsnap: cannot read the core dump .*\n$`)
	})
}

// TestStackOfCoreRefused: a file other than a core dump is refused, in one sentence.
func TestStackOfCoreRefused(t *testing.T) {
	dir := t.TempDir()
	write := func(name, content string) string {
		file := filepath.Join(dir, name)
		if err := os.WriteFile(file, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		return file
	}
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		file, says string
	}{
		{filepath.Join(dir, "none"), `no such file`},
		{dir, `not a regular file`},
		{write("empty", ""), `empty`},
		{write("text", "Segmentation fault (core dumped)\n"), `not an ELF|no ELF|not a core`},
		{exe, `not a core dump|no core dump`},
		{write("packed", "\x28\xb5\x2f\xfd\x04\x00"), `zstd`},
	} {
		command(t, "stack", "--core", tt.file).says(t, 1, `^clrsnap: cannot read the core dump .*(`+tt.says+`).*\n$`)
	}
	for _, args := range [][]string{
		{"--core", "-"}, {"--core", "x", "--exe", ""}, {"--core", "x", "--sysroot", ""}, {exe},
		{"--core", ""}, {"--core", "x", "4242"}, {"4242", "--exe", "x"}, {"4242", "--sysroot", "x"},
		{"--core", "x", "--stop-all"}, {"--core", "x", "--max-pause", "5ms"},
	} {
		command(t, append([]string{"stack"}, args...)...).says(t, 2, `^clrsnap: `)
	}
}
