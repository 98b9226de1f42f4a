// Package testenv builds and starts the .NET programs of testdata/apps.
//
// The runtimes and the compiler come from the kit that scripts/get-dotnet.sh
// makes. The programs say on stdout what is on their stacks before they block
// (testdata/apps/scenarios/Program.cs has the protocol), so that a test compares
// what it sees from outside with what the program knew itself.
package testenv

import (
	"crypto/sha256"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"sort"
	"strconv"
	"strings"
	"syscall"
	"testing"
)

// DefaultRuntime is the runtime that programs are built for and run on.
const DefaultRuntime = "net10"

// A DotNet is a kit made by scripts/get-dotnet.sh.
type DotNet struct {
	Dir string // absolute
}

// Kit finds the kit in $CLRSNAP_DOTNET or the default cache directory. Without
// one the test is skipped; it fails if CI or CLRSNAP_REQUIRE_DOTNET says that
// .NET must be there.
func Kit(tb testing.TB) DotNet {
	tb.Helper()
	dir, err := kitDir()
	if err == nil {
		kit := DotNet{dir}
		if err = kit.check(DefaultRuntime); err == nil {
			return kit
		}
	}
	missing(tb, err)
	panic("unreachable")
}

// Need ends the test if the kit lacks a runtime, as Kit does without a kit.
func (k DotNet) Need(tb testing.TB, runtime string) {
	tb.Helper()
	if err := k.check(runtime); err != nil {
		missing(tb, err)
	}
}

// missing ends the test because a part of the kit is missing.
func missing(tb testing.TB, err error) {
	tb.Helper()
	msg := fmt.Sprintf("no .NET to test with: %v: run scripts/get-dotnet.sh", err)
	if required() {
		tb.Fatal(msg)
	}
	tb.Skip("SKIPPED, NOTHING WAS TESTED: " + msg + " (CLRSNAP_REQUIRE_DOTNET=1 makes this a failure)")
}

func required() bool {
	return os.Getenv("CI") == "true" || os.Getenv("CLRSNAP_REQUIRE_DOTNET") == "1"
}

func kitDir() (string, error) {
	if dir := os.Getenv("CLRSNAP_DOTNET"); dir != "" {
		return filepath.Abs(dir)
	}
	cache, err := os.UserCacheDir()
	if err != nil {
		return "", err
	}
	return filepath.Join(cache, "clrsnap-dotnet"), nil
}

// check returns an error if the compiler or the runtime is not there.
func (k DotNet) check(runtime string) error {
	for _, file := range []string{k.Compiler(), k.Host(runtime)} {
		if _, err := os.Stat(file); err != nil {
			return err
		}
	}
	return nil
}

// Compiler is the path of the C# compiler.
func (k DotNet) Compiler() string { return filepath.Join(k.Dir, "bin", "csc") }

// Host is the path of the program that runs assemblies on a runtime: "net10",
// "net10:dotnet-10.0.8" for another host of the same framework, or a host that the
// kit has not by its absolute path.
func (k DotNet) Host(runtime string) string {
	framework, host, ok := strings.Cut(runtime, ":")
	if !ok {
		host = "dotnet"
	}
	if filepath.IsAbs(host) {
		return host
	}
	return filepath.Join(k.Dir, framework, host)
}

// Build compiles a program of testdata/apps for the default runtime and returns
// the path of its assembly. It compiles each state of the sources once, however
// many tests and test binaries ask at the same time.
func Build(tb testing.TB, app string) string {
	tb.Helper()
	return buildFor(tb, Kit(tb), app, DefaultRuntime)
}

func buildFor(tb testing.TB, kit DotNet, app, runtime string) string {
	tb.Helper()
	if err := kit.check(runtime); err != nil {
		missing(tb, err)
	}
	framework, _, _ := strings.Cut(runtime, ":")
	dll, err := kit.build(app, framework)
	if err != nil {
		tb.Fatalf("building %s for %s: %v", app, framework, err)
	}
	return dll
}

func (k DotNet) build(app, framework string) (string, error) {
	apps, err := appsDir()
	if err != nil {
		return "", err
	}
	sources, err := sourcesOf(apps, app)
	if err != nil {
		return "", err
	}
	args := []string{framework, "-o+", "-deterministic+", "--rtc", "-define:" + symbols(framework),
		"-pathmap:" + apps + "=/testdata/apps"}
	if app == aspNetApp {
		args = slices.Insert(args, 1, "--aspnet")
	}
	hash, err := k.hash(args[:len(args)-1], apps, sources)
	if err != nil {
		return "", err
	}
	dir := filepath.Join(k.Dir, "apps", app+"-"+hash)
	dll := filepath.Join(dir, app+".dll")
	if exists(dll) {
		return dll, nil
	}
	unlock, err := lock(filepath.Join(k.Dir, "apps", ".lock"))
	if err != nil {
		return "", err
	}
	defer unlock()
	if exists(dll) { // another process was faster
		return dll, nil
	}
	// Other processes see the directory only when it is complete.
	tmp := dir + ".tmp"
	if err := os.RemoveAll(tmp); err != nil {
		return "", err
	}
	args = append(append(args, "-out:"+filepath.Join(tmp, app+".dll")), sources...)
	if out, err := exec.Command(k.Compiler(), args...).CombinedOutput(); err != nil {
		return "", fmt.Errorf("%w\n%s", err, out)
	}
	if err := os.RemoveAll(dir); err != nil {
		return "", err
	}
	return dll, os.Rename(tmp, dir)
}

// aspNetApp is the program that needs ASP.NET Core, which net8 of the kit has not.
const aspNetApp = "web"

// symbols are the conditional symbols that the SDK defines for a framework such as
// "net9": what this release and those before it have.
func symbols(framework string) string {
	major, err := strconv.Atoi(strings.TrimPrefix(framework, "net"))
	if err != nil {
		return ""
	}
	var all []string
	for n := 8; n <= major; n++ {
		all = append(all, fmt.Sprintf("NET%d_0_OR_GREATER", n))
	}
	return strings.Join(all, ";")
}

// hash names a state of everything that the compiled program depends on.
func (k DotNet) hash(args []string, apps string, sources []string) (string, error) {
	h := sha256.New()
	fmt.Fprintln(h, args)
	kitMarks, err := filepath.Glob(filepath.Join(k.Dir, ".done-*"))
	if err != nil {
		return "", err
	}
	for _, file := range append(kitMarks, sources...) {
		text, err := os.ReadFile(file)
		if err != nil {
			return "", err
		}
		name, err := filepath.Rel(apps, file)
		if err != nil {
			return "", err
		}
		fmt.Fprintf(h, "%s %d\n%s", name, len(text), text)
	}
	return fmt.Sprintf("%x", h.Sum(nil)[:8]), nil
}

// sourcesOf lists the C# files of a program, those of common among them.
func sourcesOf(apps, app string) ([]string, error) {
	var all []string
	for _, dir := range []string{"common", app} {
		files, err := filepath.Glob(filepath.Join(apps, dir, "*.cs"))
		if err != nil {
			return nil, err
		}
		if len(files) == 0 {
			return nil, fmt.Errorf("no C# files in %s", filepath.Join(apps, dir))
		}
		all = append(all, files...)
	}
	sort.Strings(all)
	return all, nil
}

// appsDir finds testdata/apps from the directory that the test runs in.
func appsDir() (string, error) {
	dir, err := os.Getwd()
	if err != nil {
		return "", err
	}
	for !exists(filepath.Join(dir, "go.mod")) {
		parent := filepath.Dir(dir)
		if parent == dir {
			return "", fmt.Errorf("no go.mod above the working directory")
		}
		dir = parent
	}
	return filepath.Join(dir, "testdata", "apps"), nil
}

func exists(file string) bool {
	_, err := os.Stat(file)
	return err == nil
}

// lock waits for an exclusive lock among processes.
func lock(file string) (unlock func(), err error) {
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
		return nil, err
	}
	f, err := os.OpenFile(file, os.O_CREATE|os.O_RDWR, 0o644)
	if err != nil {
		return nil, err
	}
	for {
		err = syscall.Flock(int(f.Fd()), syscall.LOCK_EX)
		if err != syscall.EINTR {
			break
		}
	}
	if err != nil {
		f.Close()
		return nil, fmt.Errorf("locking %s: %w", file, err)
	}
	return func() { f.Close() }, nil
}
