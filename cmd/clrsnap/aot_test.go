package main

import (
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"clrsnap/internal/testenv"
)

// TestNativeAOTCommand: the command's words about a native AOT program.
func TestNativeAOTCommand(t *testing.T) {
	pid := testenv.StartAheadOfTime(t)
	library := filepath.Base(testenv.AheadOfTime(t))
	for _, tt := range []struct {
		args []string
		want []string
	}{
		{[]string{"stack", strconv.Itoa(pid)},
			[]string{".NET " + testenv.AheadOfTimeVersion + " (native AOT)", library + "!+0x",
				library + "!napi_register_module_v1", "host!main"}},
		{[]string{"doctor", strconv.Itoa(pid)}, []string{"(native AOT)", "3 of 3 threads complete"}},
		{[]string{"ps"}, []string{strconv.Itoa(pid), "native AOT"}},
	} {
		r := command(t, tt.args...)
		out := r.stdout + r.stderr
		if r.status != 0 {
			t.Errorf("clrsnap %v: status %d\n%s", tt.args, r.status, out)
		}
		for _, want := range tt.want {
			if !strings.Contains(out, want) {
				t.Errorf("clrsnap %v does not say %q:\n%s", tt.args, want, out)
			}
		}
	}
	r := command(t, "record", strconv.Itoa(pid), "--event", "alloc", "-o", filepath.Join(t.TempDir(), "x.html"))
	if r.status != 1 || !strings.Contains(r.stderr, "native AOT") || strings.Contains(r.stderr, "recording process") {
		t.Errorf("clrsnap record --event: status %d\n%s", r.status, r.stderr)
	}
	if r := command(t, "ps", "--json"); r.status != 0 || strings.Contains(r.stdout, "native AOT program") {
		t.Errorf("clrsnap ps has a fault to find: status %d\n%s", r.status, r.stdout)
	}
}
