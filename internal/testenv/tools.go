package testenv

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"clrsnap/internal/testenv/layer"
)

// tool finds a program in the folder of CLRSNAP_DOTNET_ROOTS. Without the program the test is skipped.
func tool(tb testing.TB, path string) string {
	tb.Helper()
	roots := os.Getenv(rootsVariable)
	if roots == "" {
		tb.Skipf("SKIPPED, NOTHING WAS TESTED: %s does not say where %s is", rootsVariable, filepath.Dir(path))
	}
	file, err := filepath.Abs(filepath.Join(roots, path))
	if err == nil {
		_, err = os.Stat(file)
	}
	if err != nil {
		tb.Skipf("SKIPPED, NOTHING WAS TESTED: %v", err)
	}
	return file
}

// ClrMD returns the command with which ClrMD, the reader below SOS, answers a question about a process: "stacks",
// "lines", "locks", "heap", "tasks", "roots" or "exceptions". The command prints a JSON document on each line. "roots"
// also takes the name of a class. ClrMD holds the process meanwhile, and the process's runtime must have a
// libmscordaccore.so. Without ClrMD the test is skipped.
func ClrMD(tb testing.TB, question string, a *App, class ...string) *exec.Cmd {
	tb.Helper()
	dll := tool(tb, clrMDFor(Framework(a.runtime))+"/clrmd.dll")
	host := tool(tb, "10.0.14/dotnet")
	return exec.Command(host, append([]string{dll, question, fmt.Sprint(a.PID)}, class...)...)
}

// clrMDFor is the folder of the ClrMD for programs of a framework: the newest framework has ClrMD 4.2.
func clrMDFor(framework string) string {
	if framework == NewestRuntime {
		return "clrmd42"
	}
	return "clrmd"
}

// clrMDRuns bounds the runs of ClrMD for one answer.
const clrMDRuns = 4

// AskClrMD returns ClrMD's answer about a process. Once in a hundred times ClrMD, or the runtime's debugging library
// inside ClrMD, ends in a fault: then AskClrMD runs ClrMD again. That does not help if the library does not understand
// something in the process: then each run ends in a fault.
func AskClrMD(tb testing.TB, question string, a *App) []byte {
	tb.Helper()
	for run := 1; ; run++ {
		out, err := ClrMD(tb, question, a).Output()
		if err == nil {
			return out
		}
		var exit *exec.ExitError
		if !errors.As(err, &exit) || run == clrMDRuns || !crashed(exit) {
			tb.Fatalf("ClrMD %s: %v\n%s", question, err, out)
		}
		tb.Logf("ClrMD %s, run %d: %v", question, run, err)
	}
}

func crashed(exit *exec.ExitError) bool {
	status, ok := exit.Sys().(syscall.WaitStatus)
	return ok && status.Signaled() && (status.Signal() == syscall.SIGSEGV || status.Signal() == syscall.SIGABRT)
}

// GCDumpReader returns the command that reads a .gcdump file with Microsoft's own reader, and prints the contents:
// testdata/apps/gcdump. Without that reader the test is skipped.
func GCDumpReader(tb testing.TB, file string) *exec.Cmd {
	tb.Helper()
	reader := tool(tb, "dotnet-trace/Microsoft.Diagnostics.Monitoring.EventPipe.dll")
	host := tool(tb, "10.0.14/dotnet")
	cmd := exec.Command(host, BuildFor(tb, "gcdump", DefaultRuntime), filepath.Dir(reader), file)
	cmd.Env = append(os.Environ(), "DOTNET_SYSTEM_GLOBALIZATION_INVARIANT=1")
	return cmd
}

// precompile makes a ReadyToRun image of an assembly, in a copy of the assembly's folder, and returns the path of the
// image. A composite image has the code in a file beside the image. Without crossgen2 the test is skipped.
func (k DotNet) precompile(tb testing.TB, dll, runtime string, composite bool) string {
	tb.Helper()
	folder := "crossgen2"
	if Framework(runtime) == NewestRuntime { // the newest runtime's images have another version
		folder += "-11"
	}
	compiler := tool(tb, folder+"/crossgen2")
	dir, name := filepath.Dir(dll)+"-r2r", filepath.Base(dll)
	if composite {
		dir, name = filepath.Dir(dll)+"-composite", strings.TrimSuffix(name, ".dll")+".r2r.dll"
	}
	image := filepath.Join(dir, filepath.Base(dll))
	unlock, err := lock(filepath.Join(k.Dir, "apps", ".lock"))
	if err != nil {
		tb.Fatal(err)
	}
	defer unlock()
	if exists(image) {
		return image
	}
	tmp := dir + ".tmp"
	if err := os.RemoveAll(tmp); err != nil {
		tb.Fatal(err)
	}
	if err := copyTree(filepath.Dir(dll), tmp); err != nil {
		tb.Fatal(err)
	}
	made := filepath.Join(tmp, filepath.Base(dll))
	if err := os.Remove(made); err != nil { // a link to the assembly itself
		tb.Fatal(err)
	}
	cmd := exec.Command(compiler, dll, "-o", filepath.Join(tmp, name), "-r",
		filepath.Join(k.framework(tb, runtime), "*.dll"), "--targetos", "linux", "--targetarch", "x64", "-O")
	if composite {
		cmd.Args = append(cmd.Args, "--composite")
	}
	if out, err := cmd.CombinedOutput(); err != nil {
		tb.Fatalf("crossgen2: %v\n%s", err, out)
	}
	if err := os.RemoveAll(dir); err != nil {
		tb.Fatal(err)
	}
	if err := os.Rename(tmp, dir); err != nil {
		tb.Fatal(err)
	}
	return image
}

// framework is the folder of a runtime's assemblies.
func (k DotNet) framework(tb testing.TB, runtime string) string {
	tb.Helper()
	const core = "System.Private.CoreLib.dll"
	root := filepath.Dir(k.Host(runtime))
	for _, pattern := range []string{core, filepath.Join(frameworkFolder, "*", core)} {
		if files, _ := filepath.Glob(filepath.Join(root, pattern)); len(files) > 0 {
			return filepath.Dir(files[len(files)-1])
		}
	}
	layer.Lacking(tb, "no "+core+" below "+root)
	panic("unreachable")
}
