// Package testenv builds and starts the .NET programs of testdata/apps.
//
// The runtimes and the compiler come from the kit of scripts/get-dotnet.sh. The programs describe their stacks on
// stdout before they block (testdata/apps/scenarios/Program.cs has the protocol). So a test compares the stacks seen
// from outside with the program's own knowledge.
package testenv

import (
	"crypto/sha256"
	"errors"
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

	"clrsnap/internal/testenv/layer"
)

// DefaultRuntime is the default runtime for programs, to compile for and to run on.
const DefaultRuntime = "net10"

// NewestRuntime is the newest runtime. Tests that depend on the runtime are repeated on the newest runtime in every
// layer. The kit has the newest runtime only where the kit could copy an installed .NET: no npm package has it.
const NewestRuntime = "net11"

// A DotNet is a kit made by scripts/get-dotnet.sh.
type DotNet struct {
	Dir string // absolute
}

// Kit finds the kit in $CLRSNAP_DOTNET or the default cache directory. Kit ends the test if there is no kit
// (layer.Lacking), or if tests with .NET do not run in this layer.
func Kit(tb testing.TB) DotNet {
	tb.Helper()
	layer.Kit(tb)
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

// AllRuntimes are the runtimes for repeated tests: a runtime that describes itself, a runtime of the same version that
// does not, and older runtimes, with a description in part or without any. The runtimes installed beside the kit are
// ordinary: a libcoreclr.so and many other files.
func AllRuntimes() []string {
	all := KitRuntimes()
	for _, b := range InstalledRuntimes() {
		all = append(all, b.Runtime)
	}
	return all
}

// KitRuntimes are the kit's runtimes.
func KitRuntimes() []string {
	return []string{DefaultRuntime, NewestRuntime, "net10:dotnet-10.0.8", "net9", "net8"}
}

// Versions are one build of each version of .NET in the kit.
func Versions() []string { return []string{DefaultRuntime, NewestRuntime, "net9", "net8"} }

// Supported are the runtimes that Microsoft supports.
func Supported() []string { return []string{DefaultRuntime, NewestRuntime} }

// Framework is the framework of a runtime: "net10" of "net10:dotnet-10.0.8".
func Framework(runtime string) string {
	framework, _, _ := strings.Cut(runtime, ":")
	return framework
}

// InLayer reports whether this layer is for tests on a runtime. check and live are for the default and the newest
// runtime, matrix is for the other runtimes. proof is for the default and the newest runtime, and in its full form for
// all.
func InLayer(runtime string) bool {
	supported := slices.Contains(Supported(), runtime)
	switch layer.Now() {
	case "matrix":
		return !supported
	case "proof":
		return layer.Size(supported, true)
	}
	return supported
}

// OrdinaryRuntime is a runtime that is a library of its own, beside other files: the newest runtime, and in matrix .NET
// 9, which the kit always has.
func OrdinaryRuntime(tb testing.TB) string {
	tb.Helper()
	layer.Each(tb)
	runtime := NewestRuntime
	if layer.Now() == "matrix" {
		runtime = "net9"
	}
	Kit(tb).Need(tb, runtime)
	return runtime
}

// EachRuntime runs a test on the runtimes of AllRuntimes that this layer is for. Of an unsupported version EachRuntime
// takes one build, but all builds in the full form.
func EachRuntime(t *testing.T, test func(t *testing.T, runtime string)) {
	t.Helper()
	old := func(runtime string) bool {
		return strings.Contains(runtime, ":") && !slices.Contains(Supported(), Framework(runtime))
	}
	EachOf(t, layer.Size(slices.DeleteFunc(AllRuntimes(), old), AllRuntimes()), test)
}

// EachOfKit is EachRuntime without installed runtimes, but in the full form.
func EachOfKit(t *testing.T, test func(t *testing.T, runtime string)) {
	t.Helper()
	EachOf(t, layer.Size(KitRuntimes(), AllRuntimes()), test)
}

// EachVersion is EachOfKit with one build of each version, but in the full form with all builds. EachVersion is for
// long tests that do not depend on how a build describes itself.
func EachVersion(t *testing.T, test func(t *testing.T, runtime string)) {
	t.Helper()
	EachOf(t, layer.Size(Versions(), AllRuntimes()), test)
}

// EachOf runs a test on the given runtimes that this layer is for.
func EachOf(t *testing.T, runtimes []string, test func(t *testing.T, runtime string)) {
	t.Helper()
	layer.Each(t)
	for _, runtime := range runtimes {
		if !InLayer(runtime) {
			continue
		}
		t.Run(Name(runtime), func(t *testing.T) {
			Kit(t).Need(t, runtime)
			test(t, runtime)
		})
	}
}

// Need ends the test if the kit lacks a runtime, as Kit does without a kit.
func (k DotNet) Need(tb testing.TB, runtime string) {
	tb.Helper()
	if err := k.check(runtime); err != nil {
		k.lacks(tb, runtime, err)
	}
}

// lacks ends the test because the kit lacks a runtime. Only the newest runtime may be missing.
func (k DotNet) lacks(tb testing.TB, runtime string, err error) {
	tb.Helper()
	if runtime == NewestRuntime && k.check(DefaultRuntime) == nil {
		tb.Skipf("SKIPPED, NOTHING WAS TESTED ON %s: %v: scripts/get-dotnet.sh --help says where it comes from",
			runtime, err)
	}
	missing(tb, err)
}

// missing ends the test because a part of the kit is missing.
func missing(tb testing.TB, err error) {
	tb.Helper()
	layer.Lacking(tb, fmt.Sprintf("no .NET to test with: %v: run scripts/get-dotnet.sh", err))
}

// InKit is the path of a file in the kit, whether there is a kit or not. InKit is for tests that read files of .NET and
// start no program: those tests belong to any layer.
func InKit(name string) string {
	dir, err := kitDir()
	if err != nil {
		dir = "no kit: " + err.Error() // the path leads nowhere
	}
	return filepath.Join(dir, name)
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

// Host is the path of the program that runs assemblies on a runtime: "net10", or "net10:dotnet-10.0.8" for another host
// of the same framework, or an absolute path after the colon for a host outside the kit.
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

// Build compiles a program of testdata/apps for the default runtime and returns the path of its assembly. Build
// compiles each state of the sources once, however many tests and test binaries ask at the same time.
func Build(tb testing.TB, app string) string {
	tb.Helper()
	return BuildFor(tb, app, DefaultRuntime)
}

// BuildFor is Build for another runtime.
func BuildFor(tb testing.TB, app, runtime string) string {
	tb.Helper()
	return buildFor(tb, Kit(tb), app, runtime)
}

// BuildWith is Build for a runtime, with more arguments for the compiler, such as "-o-" for a debug build or
// "-debug:embedded" for an assembly with its PDB inside. Without them a program is optimised and has a portable PDB
// beside the assembly.
func BuildWith(tb testing.TB, app, runtime string, args ...string) string {
	tb.Helper()
	return buildFor(tb, Kit(tb), app, runtime, args...)
}

// BuildEach is BuildWith for several programs, in one process of the compiler.
func BuildEach(tb testing.TB, apps []string, runtime string, args ...string) (dlls []string) {
	tb.Helper()
	kit := Kit(tb)
	var all []assembly
	for _, app := range apps {
		a, err := kit.assembly(app, Framework(runtime), args...)
		if err != nil {
			tb.Fatalf("building %s: %v", app, err)
		}
		all, dlls = append(all, a), append(dlls, a.dll())
	}
	if err := kit.compile(all...); err != nil {
		tb.Fatalf("building for %s: %v", runtime, err)
	}
	return dlls
}

func buildFor(tb testing.TB, kit DotNet, app, runtime string, args ...string) string {
	tb.Helper()
	if err := kit.check(runtime); err != nil {
		kit.lacks(tb, runtime, err)
	}
	framework := Framework(runtime)
	if now := layer.Now(); (now == "check" || now == "live") && !slices.Contains(Supported(), framework) {
		tb.Fatalf("a test on %s is of the layer matrix, not %s", framework, now)
	}
	dll, err := kit.build(app, framework, args...)
	if err != nil {
		tb.Fatalf("building %s for %s: %v", app, framework, err)
	}
	return dll
}

func (k DotNet) build(app, framework string, more ...string) (string, error) {
	a, err := k.assembly(app, framework, more...)
	if err != nil {
		return "", err
	}
	return a.dll(), k.compile(a)
}

// BuildAll compiles the programs of testdata/apps for a framework in one process of the compiler: the JIT compiles the
// compiler's own code for more than two seconds. A program that the compiler refuses is left out. Some programs are for
// newer frameworks, and a test that needs the program tells the error. A framework that the kit lacks is no error.
func BuildAll(framework string) error {
	kit, err := kitDir()
	if err != nil {
		return err
	}
	k := DotNet{kit}
	if k.check(framework) != nil {
		return nil
	}
	apps, err := appsDir()
	if err != nil {
		return err
	}
	dirs, err := os.ReadDir(apps)
	if err != nil {
		return err
	}
	var all []assembly
	for _, d := range dirs {
		if d.Name() == "common" || !d.IsDir() {
			continue
		}
		a, err := k.assembly(d.Name(), framework)
		if err != nil {
			return err
		}
		all = append(all, a)
	}
	if err := k.compile(all...); !errors.As(err, new(*exec.ExitError)) {
		return err
	}
	return nil
}

// An assembly is a state of the sources of a program, compiled for a framework.
type assembly struct {
	app  string
	dir  string   // of the assembly; other processes see the directory only when all of its files are there
	args []string // of the compiler, without the framework and the output
}

func (a *assembly) dll() string { return filepath.Join(a.dir, a.app+".dll") }
func (a *assembly) tmp() string { return a.dir + ".tmp" }

func (k DotNet) assembly(app, framework string, more ...string) (assembly, error) {
	apps, err := appsDir()
	if err != nil {
		return assembly{}, err
	}
	sources, err := sourcesOf(apps, app)
	if err != nil {
		return assembly{}, err
	}
	args := []string{framework, "-o+", "-deterministic+", "--rtc", "-define:" + symbols(framework)}
	if slices.Contains(aspNetApps, app) {
		args = append(args, "--aspnet")
	}
	args = append(args, more...)
	hash, err := k.hash(args, apps, sources)
	if err != nil {
		return assembly{}, err
	}
	return assembly{
		app: app, dir: filepath.Join(k.Dir, "apps", app+"-"+hash),
		args: slices.Concat(args, []string{"-pathmap:" + apps + "=/testdata/apps"}, sources),
	}, nil
}

// compile compiles those of the assemblies that are not there yet. The framework of all is the same.
func (k DotNet) compile(all ...assembly) error {
	there := func(a assembly) bool { return exists(a.dll()) }
	if all = slices.DeleteFunc(all, there); len(all) == 0 {
		return nil
	}
	unlock, err := lock(filepath.Join(k.Dir, "apps", ".lock"))
	if err != nil {
		return err
	}
	defer unlock()
	if all = slices.DeleteFunc(all, there); len(all) == 0 { // another process was faster
		return nil
	}
	args := []string{all[0].args[0]}
	for i := range all {
		a := &all[i]
		if err := os.RemoveAll(a.tmp()); err != nil {
			return err
		}
		if i > 0 {
			args = append(args, "--")
		}
		args = append(append(args, a.args[1:]...), "-out:"+filepath.Join(a.tmp(), a.app+".dll"))
	}
	out, failed := exec.Command(k.Compiler(), args...).CombinedOutput()
	for i := range all {
		a := &all[i]
		if !exists(filepath.Join(a.tmp(), a.app+".dll")) {
			continue
		}
		if err := errors.Join(os.RemoveAll(a.dir), os.Rename(a.tmp(), a.dir)); err != nil {
			return err
		}
	}
	if failed != nil {
		return fmt.Errorf("%w\n%s", failed, out)
	}
	return nil
}

// aspNetApps are the programs that need ASP.NET Core. The kit's net8 lacks ASP.NET Core.
var aspNetApps = []string{"hosted", "requests", "shop", "web"}

// symbols are the conditional symbols that the SDK defines for a framework such as "net9": the symbols of this release
// and of the earlier releases.
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

// hash names a state of everything that a compiled program depends on.
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
		name := strings.TrimPrefix(strings.TrimPrefix(file, apps), k.Dir) // the same in all checkouts and kits
		fmt.Fprintf(h, "%s %d\n%s", name, len(text), text)
	}
	return fmt.Sprintf("%x", h.Sum(nil)[:8]), nil
}

// sourcesOf lists the C# files of a program, with the files of common.
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

// appsDir finds testdata/apps from the test's working directory.
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
