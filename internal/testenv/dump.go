package testenv

import (
	"debug/elf"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"clrsnap/internal/testenv/layer"

	"golang.org/x/sys/unix"
)

// A DumpKind is a way of making a core dump. The zero value is none.
type DumpKind string

// The kinds. DumpOptions says how a program must be started for the kind.
const (
	DumpGCore  DumpKind = "gcore"  // by gdb; the program survives
	DumpKernel DumpKind = "kernel" // the program is killed by a signal

	// .NET's own createdump, by its type, on a runtime with a createdump. The program survives.
	DumpNormal   DumpKind = "createdump-normal"
	DumpWithHeap DumpKind = "createdump-withheap"
	DumpTriage   DumpKind = "createdump-triage"
	DumpFull     DumpKind = "createdump-full"

	// Also createdump, but the runtime itself starts its createdump because of a SIGABRT. A single-file host contains
	// createdump, and can only make this type, because the library for the other types is missing.
	DumpCrash DumpKind = "crash-full"
)

// DumpKinds are all kinds.
var DumpKinds = []DumpKind{DumpGCore, DumpKernel, DumpNormal, DumpWithHeap, DumpTriage, DumpFull, DumpCrash}

// Kills reports whether the program is dead after a dump of this kind.
func (k DumpKind) Kills() bool { return k == DumpKernel || k == DumpCrash }

// Runs reports whether a program on runtime ("" for the default) can have a dump of this kind.
func (k DumpKind) Runs(runtime string) bool {
	return k.createdumpType() == "" || Ordinary(runtime)
}

// createdumpType is the option of the program createdump, or "".
func (k DumpKind) createdumpType() string {
	kind, ok := strings.CutPrefix(string(k), "createdump-")
	if !ok {
		return ""
	}
	return "--" + kind
}

const (
	coreName  = "core" // in the program's working directory
	crashName = "crash.dump"
)

// DumpOptions returns o with the settings that a program needs from its start for a dump of kind k. The program gets a
// working directory of its own.
func DumpOptions(tb testing.TB, k DumpKind, o Options) Options {
	tb.Helper()
	o.Dir = tb.TempDir()
	if k == DumpCrash {
		const fullDump = "4" // DbgMiniDumpType
		o.Env = append(slices.Clone(o.Env), "DOTNET_DbgEnableMiniDump=1", "DOTNET_DbgMiniDumpType="+fullDump,
			"DOTNET_DbgMiniDumpName="+filepath.Join(o.Dir, crashName))
	}
	return o
}

// Dump makes a core dump of a program started with DumpOptions. The returned path is valid until the test ends. Where
// the kind is impossible on this machine, the test is skipped, or fails, as with Kit.
func Dump(tb testing.TB, app *App, k DumpKind) string {
	tb.Helper()
	switch {
	case k == DumpKernel:
		return KernelDump(tb, app.PID, app.ended)
	case k == DumpGCore:
		return GCoreDump(tb, app.PID)
	case k == DumpCrash:
		return app.crash()
	}
	return app.createdump(k.createdumpType())
}

// GCoreDump has gdb dump any process.
func GCoreDump(tb testing.TB, pid int) string {
	tb.Helper()
	gcore, err := exec.LookPath("gcore")
	if err != nil {
		layer.Lacking(tb, "no gcore to make a core dump with: install gdb")
	}
	prefix := filepath.Join(tb.TempDir(), "gcore")
	runDump(tb, gcore, "-o", prefix, strconv.Itoa(pid))
	return dumpAt(tb, fmt.Sprintf("%s.%d", prefix, pid))
}

// DumpShared puts memory that a process shares with others by way of files, such as the memory of named mutexes, into
// the process's dumps. By default the dumps lack shared memory (core(5), coredump_filter; gcore keeps to the filter,
// too).
func DumpShared(tb testing.TB, pid int) {
	tb.Helper()
	dumpFilter(tb, pid, "0x3b") // the default, and shared mappings of files
}

// DumpWhole puts all memory of a process into the process's dumps, also the unchanged memory of files.
func DumpWhole(tb testing.TB, pid int) {
	tb.Helper()
	dumpFilter(tb, pid, "0x7f")
}

func dumpFilter(tb testing.TB, pid int, filter string) {
	tb.Helper()
	if err := os.WriteFile(fmt.Sprintf("/proc/%d/coredump_filter", pid), []byte(filter), 0); err != nil {
		tb.Fatal(err)
	}
}

// KernelDump kills any process by a signal without a handler in .NET, and returns the kernel's core dump. The process
// needs a working directory of its own. ended is closed when the parent has waited for the process.
func KernelDump(tb testing.TB, pid int, ended <-chan struct{}) string {
	tb.Helper()
	return kernelDump(tb, pid, ended, func() {
		if err := unix.Kill(pid, unix.SIGSYS); err != nil {
			tb.Fatalf("killing process %d: %v", pid, err)
		}
	})
}

// KernelDump makes a program die that was started with the options for DumpKernel, and returns the kernel's core dump.
func (a *App) KernelDump(die func()) string {
	a.tb.Helper()
	return kernelDump(a.tb, a.PID, a.ended, die)
}

func kernelDump(tb testing.TB, pid int, ended <-chan struct{}, die func()) string {
	tb.Helper()
	restore := wantCorePattern(tb)
	defer restore()
	dir, err := os.Readlink(fmt.Sprintf("/proc/%d/cwd", pid))
	if err != nil {
		tb.Fatalf("where process %d will dump core: %v", pid, err)
	}
	limit := unix.Rlimit{Cur: unix.RLIM_INFINITY, Max: unix.RLIM_INFINITY}
	var old unix.Rlimit
	if err := unix.Prlimit(pid, unix.RLIMIT_CORE, nil, &old); err == nil && old.Max != unix.RLIM_INFINITY {
		limit = unix.Rlimit{Cur: old.Max, Max: old.Max}
	}
	if err := unix.Prlimit(pid, unix.RLIMIT_CORE, &limit, nil); err != nil {
		tb.Fatalf("letting process %d dump core: %v", pid, err)
	}
	die()
	select {
	case <-ended:
	case <-time.After(Hang):
		tb.Fatalf("process %d does not end", pid)
	}
	return KernelDumpIn(tb, dir)
}

// KernelDumpIn returns the core dump in dir, the working directory of a process that died by itself.
func KernelDumpIn(tb testing.TB, dir string) string {
	tb.Helper()
	found, err := filepath.Glob(filepath.Join(dir, coreName+"*")) // core, or core.PID
	if err != nil || len(found) != 1 {
		tb.Fatalf("the kernel has left no core dump in %s: found %q", dir, found)
	}
	return dumpAt(tb, found[0])
}

const corePattern = "/proc/sys/kernel/core_pattern"

// wantCorePattern makes the kernel write core dumps to the working directory; restore undoes that. Test binaries that
// change the pattern at the same time wait for each other.
func wantCorePattern(tb testing.TB) (restore func()) {
	tb.Helper()
	old, err := os.ReadFile(corePattern)
	if err != nil {
		tb.Fatal(err)
	}
	if strings.TrimSpace(string(old)) == coreName {
		return func() {}
	}
	unlock, err := lock(filepath.Join(os.TempDir(), "clrsnap-core-pattern.lock"))
	if err != nil {
		tb.Fatal(err)
	}
	if err := os.WriteFile(corePattern, []byte(coreName), 0); err != nil {
		unlock()
		layer.Lacking(tb, fmt.Sprintf("the kernel gives core dumps to %q: as root, sysctl kernel.core_pattern=%s",
			strings.TrimSpace(string(old)), coreName))
	}
	return func() {
		if err := os.WriteFile(corePattern, old, 0); err != nil {
			tb.Errorf("kernel.core_pattern was %q and is %q now: %v", old, coreName, err)
		}
		unlock()
	}
}

// createdump runs the createdump that came with the app's runtime.
func (a *App) createdump(option string) string {
	a.tb.Helper()
	file := filepath.Join(a.tb.TempDir(), "createdump")
	runDump(a.tb, createdumpOf(a.tb, a.runtime), option, "-f", file, strconv.Itoa(a.PID))
	return dumpAt(a.tb, file)
}

// createdumpOf is the path of the createdump of a runtime.
func createdumpOf(tb testing.TB, runtime string) string {
	tb.Helper()
	major := strings.TrimPrefix(Framework(runtime), "net") + "."
	frameworks := filepath.Join(filepath.Dir(Kit(tb).Host(runtime)), frameworkFolder)
	versions := slices.DeleteFunc(versionsIn(frameworks), func(v string) bool { return !strings.HasPrefix(v, major) })
	if len(versions) == 0 {
		missing(tb, errors.New("no .NET "+major+"x in "+frameworks))
	}
	program := filepath.Join(frameworks, versions[len(versions)-1], "createdump")
	if !exists(program) {
		missing(tb, errors.New("no "+program))
	}
	return program
}

// DumpAheadOfTimeNewest has createdump dump a program of AheadOfTimeNewest, as one of createdump's kinds.
func DumpAheadOfTimeNewest(tb testing.TB, k DumpKind, pid int) string {
	tb.Helper()
	Kit(tb).Need(tb, "net11")
	file := filepath.Join(tb.TempDir(), "createdump")
	runDump(tb, createdumpOf(tb, "net11"), "--nativeaot", k.createdumpType(), "-f", file, strconv.Itoa(pid))
	return dumpAt(tb, file)
}

// CrashDump returns the runtime's dump of a program that was started with the options for DumpCrash, and died by
// itself.
func (a *App) CrashDump() string {
	a.tb.Helper()
	return dumpAt(a.tb, filepath.Join(a.cmd.Dir, crashName))
}

// crash makes the runtime dump the program at a SIGABRT. A SIGABRT from outside does not end the program, so crash
// kills the program when the dump is complete.
func (a *App) crash() string {
	a.tb.Helper()
	if err := unix.Kill(a.PID, unix.SIGABRT); err != nil {
		a.tb.Fatalf("killing %s: %v", a, err)
	}
	file := filepath.Join(a.cmd.Dir, crashName)
	for deadline := time.Now().Add(Hang); !isWhole(file); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(deadline) {
			a.tb.Fatalf("%s has not written %s: was it started with DumpOptions?\n%s", a, file, a.Stderr())
		}
	}
	a.kill()
	a.Wait()
	return a.CrashDump()
}

// children are the program's child processes. In .NET 8, the child that has written the dump does not end.
func (a *App) children() (pids []int) {
	a.tb.Helper()
	lists, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", a.PID))
	if err != nil {
		a.tb.Fatal(err)
	}
	for _, list := range lists {
		text, err := os.ReadFile(list)
		if err != nil {
			continue // the thread has ended
		}
		for _, f := range strings.Fields(string(text)) {
			if pid, err := strconv.Atoi(f); err == nil {
				pids = append(pids, pid)
			}
		}
	}
	return pids
}

// isWhole reports whether a core dump is complete. A dump is written from its beginning to its end.
func isWhole(file string) bool {
	f, err := elf.Open(file)
	if err != nil {
		return false
	}
	defer f.Close()
	st, err := os.Stat(file)
	var end uint64
	for _, p := range f.Progs {
		end = max(end, p.Off+p.Filesz)
	}
	return err == nil && uint64(st.Size()) >= end
}

func runDump(tb testing.TB, name string, args ...string) {
	tb.Helper()
	// A debugger that waits for a thread ignores a SIGTERM.
	limit := []string{"--kill-after=10", strconv.Itoa(int(Hang.Seconds())), name}
	cmd := exec.Command("timeout", append(limit, args...)...)
	if out, err := cmd.CombinedOutput(); err != nil {
		tb.Fatalf("%s: %v\n%s", filepath.Base(name), err, out)
	}
}

// dumpAt makes sure that a dump exists.
func dumpAt(tb testing.TB, file string) string {
	tb.Helper()
	if st, err := os.Stat(file); err != nil || st.Size() == 0 {
		tb.Fatalf("no core dump was made: %v", err)
	}
	return file
}
