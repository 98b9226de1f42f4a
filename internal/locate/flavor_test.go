package locate

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"clrsnap/internal/testenv"
)

// described is a program with a description like a runtime's.
const described = `
#include <stdio.h>
static const char text[] = "{\"version\":2,\"globals\":{\"RuntimeFlavor\":[\"" FLAVOR "\",\"string\"]}}";
struct {
	unsigned long long magic;
	unsigned flags, size;
	const char *json;
	unsigned count, pad;
	const void *pointers;
} DotNetRuntimeContractDescriptor = {MAGIC, 1, sizeof text - 1, text, 0, 0, 0};
#ifdef TABLE
unsigned long long g_dacTable[4];
#endif
int main(void)
{
	puts("READY");
	fflush(stdout);
	return getchar();
}
`

// TestRuntimeFlavor: a program's description of its runtime tells CoreCLR, as in a single-file program, from the
// runtime of code compiled ahead of time.
func TestRuntimeFlavor(t *testing.T) {
	const magic, none = "0x0043414443434e44ull", "0"
	for _, tt := range []struct {
		name, flavor, magic string
		table               bool
		want                Shape
	}{
		{"ahead of time", "NativeAot", magic, false, NativeAOT},
		{"CoreCLR", "Coreclr", magic, true, SingleFile},
		{"CoreCLR without a table", "Coreclr", magic, false, SingleFile},
		{"without a description", "NativeAot", none, false, NativeAOT},
		{"a table without a description", "Coreclr", none, true, SingleFile},
	} {
		t.Run(tt.name, func(t *testing.T) {
			exe := filepath.Join(t.TempDir(), "described")
			args := []string{"-rdynamic", `-DFLAVOR="` + tt.flavor + `"`, "-DMAGIC=" + tt.magic, "-o", exe, exe + ".c"}
			if tt.table {
				args = append(args, "-DTABLE")
			}
			if err := os.WriteFile(exe+".c", []byte(described), 0o600); err != nil {
				t.Fatal(err)
			}
			if out, err := exec.Command(testenv.CC(t), args...).CombinedOutput(); err != nil {
				t.Fatalf("%v\n%s", err, out)
			}
			r, err := find(t, runDescribed(t, exe), exe)
			if err != nil || r.Shape != tt.want {
				t.Errorf("%+v, %v", r, err)
			}
		})
	}
}

// runDescribed starts the program, and returns the process id as soon as the program runs.
func runDescribed(t *testing.T, exe string) (pid int) {
	t.Helper()
	cmd := exec.Command(exe)
	if said := testenv.StartFed(t, cmd); said == "" {
		t.Fatalf("%s said nothing", exe)
	}
	return cmd.Process.Pid
}
