package testenv

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

// A Shape is a form in which .NET programs are shipped.
type Shape string

// The shapes.
const (
	FrameworkDependent Shape = "framework-dependent"    // an assembly, run by a `dotnet` that has the framework
	AppHost            Shape = "app host"               // the same with an executable of its own
	SelfContained      Shape = "self-contained"         // the executable, the runtime and the framework in one folder
	SingleFile         Shape = "single file"            // all files in the executable
	Compressed         Shape = "compressed single file" // the same, its assemblies compressed
	Trimmed            Shape = "trimmed single file"    // only what the program needs, nothing compiled
)

// Shapes are the possible shapes for programs of a runtime ("net10", "net9", …) with the kit. Some runtimes exist in
// the kit only as single-file hosts, without the libcoreclr.so of the first three shapes; there FrameworkDependent
// means a single-file host with the framework beside the host. A runtime installed beside the kit has no parts for
// other shapes. The parts for the newest runtime may lie beside the kit.
func Shapes(runtime string) []Shape {
	if _, ok := installed(runtime); ok {
		return []Shape{FrameworkDependent}
	}
	if runtime == NewestRuntime {
		return newestShapes()
	}
	if runtime == "net9" {
		return []Shape{FrameworkDependent, AppHost, SelfContained, SingleFile, Compressed}
	}
	return []Shape{FrameworkDependent, SingleFile, Compressed}
}

// Ordinary reports whether a runtime is a library of its own, beside other files: an installation, or a part of the kit
// that looks like an installation. The other runtimes are single-file hosts.
func Ordinary(runtime string) bool {
	_, ok := installed(runtime)
	return ok || runtime == "net9" || runtime == NewestRuntime
}

// A Program is a program in the form that users get.
type Program struct {
	Dir  string // contains everything that the program runs from, and nothing else
	Exe  string // below Dir
	Args []string
	Env  []string

	Assembly string // the program's assembly, in a file outside Dir

	app, runtime string
	more         []string // files in the bundle
}

// Publish makes a program of testdata/apps in a shape, in a new folder below parent; parent "" stands for a temporary
// folder. The new folder is removed at the end of the test. Without the packer that the shape needs the test is
// skipped.
func Publish(tb testing.TB, app, runtime string, shape Shape, parent string) *Program {
	tb.Helper()
	return PublishWith(tb, app, runtime, shape, parent)
}

// PublishWith is Publish of a single file with more files in its bundle.
func PublishWith(tb testing.TB, app, runtime string, shape Shape, parent string, more ...string) *Program {
	tb.Helper()
	if runtime == NewestRuntime && shape != FrameworkDependent {
		tool(tb, packer)
	}
	kit := Kit(tb)
	dll := buildFor(tb, kit, app, runtime)
	if parent == "" {
		parent = tb.TempDir()
	}
	p := &Program{Dir: filepath.Join(parent, "program"), Assembly: dll, app: app, runtime: runtime, more: more}
	if err := kit.publish(p, dll, shape); err != nil {
		tb.Fatalf("making %s for %s in the shape %s: %v", app, runtime, shape, err)
	}
	tb.Cleanup(func() { os.RemoveAll(p.Dir) })
	return p
}

// PublishMusl is Publish for a single-file application of .NET 9.0.9 for Alpine Linux, with the C library musl.
func PublishMusl(tb testing.TB, app, parent string) *Program {
	tb.Helper()
	kit := Kit(tb)
	runner := filepath.Join(kit.Dir, "musl", "env")
	if _, err := os.Stat(runner); err != nil {
		missing(tb, fmt.Errorf("%w: give it the word musl", err))
	}
	p := Publish(tb, app, "net9:musl-9.0.9", SingleFile, parent)
	p.Exe, p.Args = runner, []string{p.Exe}
	return p
}

func (k DotNet) publish(p *Program, dll string, shape Shape) error {
	if !slices.Contains(Shapes(p.runtime), shape) {
		return errors.New("the kit cannot make it")
	}
	if err := os.MkdirAll(p.Dir, 0o755); err != nil {
		return err
	}
	p.Exe = filepath.Join(p.Dir, p.app)
	if p.runtime == NewestRuntime {
		switch shape {
		case SelfContained:
			return errors.Join(k.pack(nil, "folder", p.Dir, dll), ownFiles(p.Dir))
		case SingleFile:
			return k.pack(nil, "plain", p.Exe, dll, p.more...)
		case Compressed:
			return k.pack(nil, "compressed", p.Exe, dll, p.more...)
		case Trimmed:
			return k.packTrimmed(p, dll)
		}
	}
	switch shape {
	case FrameworkDependent, AppHost:
		return k.publishWithFramework(p, dll, shape)
	case SelfContained:
		return k.command("folder", p.runtime, p.Dir, dll)
	case SingleFile:
		return k.command("single", append([]string{p.runtime, p.Exe, dll, "--base"}, p.more...)...)
	case Compressed:
		return k.command("single", append([]string{p.runtime, p.Exe, dll, "--base", "--compress"}, p.more...)...)
	}
	return fmt.Errorf("no shape %q", shape)
}

// publishWithFramework puts a framework and a program side by side into one folder, as hard links to the runtime's
// files where possible.
func (k DotNet) publishWithFramework(p *Program, dll string, shape Shape) error {
	root := filepath.Join(p.Dir, "dotnet")
	for from, to := range k.parts(p.runtime) {
		if err := linkTree(from, filepath.Join(root, to)); err != nil {
			return err
		}
	}
	own := filepath.Join(p.Dir, "app")
	if err := copyTree(filepath.Dir(dll), own); err != nil {
		return err
	}
	dll = filepath.Join(own, filepath.Base(dll))
	if shape == AppHost {
		p.Exe = strings.TrimSuffix(dll, ".dll")
		p.Env = []string{"DOTNET_ROOT=" + root}
		if p.runtime == NewestRuntime {
			return k.pack(nil, "apphost", p.Exe, dll)
		}
		return k.command("apphost", p.runtime, dll)
	}
	p.Exe = filepath.Join(root, filepath.Base(k.Host(p.runtime)))
	p.Args = []string{dll}
	return nil
}

// parts are the files and folders of a runtime that a program needs, and their places below a folder. An installation
// may have other runtimes, and an SDK, too.
func (k DotNet) parts(runtime string) map[string]string {
	b, ok := installed(runtime)
	if !ok {
		return map[string]string{filepath.Join(k.Dir, Framework(runtime)): "."}
	}
	parts := map[string]string{}
	for _, part := range []string{"dotnet", "host", filepath.Join(frameworkFolder, b.Version)} {
		parts[filepath.Join(filepath.Dir(k.Host(runtime)), part)] = part
	}
	return parts
}

func (k DotNet) command(name string, args ...string) error {
	if out, err := exec.Command(filepath.Join(k.Dir, "bin", name), args...).CombinedOutput(); err != nil {
		return fmt.Errorf("%s %v (is the kit as new as scripts/get-dotnet.sh?): %w\n%s", name, args, err, out)
	}
	return nil
}

// copyTree copies a folder. Hard links would not do: a link to a file changes the file's ctime, and then the file of
// the running program counts as possibly written to.
func copyTree(from, to string) error { return os.CopyFS(to, os.DirFS(from)) }

// linkTree makes to a copy of a folder or file, of hard links if possible.
func linkTree(from, to string) error {
	return filepath.WalkDir(from, func(file string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(from, file)
		if err != nil {
			return err
		}
		dest := filepath.Join(to, rel)
		if rel == "." {
			if err := os.MkdirAll(filepath.Dir(dest), 0o755); err != nil {
				return err
			}
		}
		switch {
		case d.IsDir():
			return os.MkdirAll(dest, 0o755)
		case d.Type() == fs.ModeSymlink:
			link, err := os.Readlink(file)
			if err != nil {
				return err
			}
			return os.Symlink(link, dest)
		case os.Link(file, dest) == nil:
			return nil
		}
		return copyFile(file, dest)
	})
}

func copyFile(from, to string) error {
	in, err := os.Open(from)
	if err != nil {
		return err
	}
	defer in.Close()
	info, err := in.Stat()
	if err != nil {
		return err
	}
	out, err := os.OpenFile(to, os.O_WRONLY|os.O_CREATE|os.O_EXCL, info.Mode().Perm())
	if err != nil {
		return err
	}
	_, err = io.Copy(out, in)
	return errors.Join(err, out.Close())
}

// Start runs the program as the function Start runs the kit's programs; Options.Runtime says nothing here.
func (p *Program) Start(tb testing.TB, o Options) *App {
	tb.Helper()
	o.Env = append(slices.Clone(p.Env), o.Env...)
	return start(tb, p.app, exec.Command(p.Exe, p.Args...), o)
}

// At returns the program for a mount of p.Dir at another path.
func (p *Program) At(dir string) *Program {
	move := func(s string) string { return strings.ReplaceAll(s, p.Dir, dir) }
	q := *p
	q.Dir, q.Exe, q.Args, q.Env = dir, move(p.Exe), slices.Clone(p.Args), slices.Clone(p.Env)
	for i, s := range q.Args {
		q.Args[i] = move(s)
	}
	for i, s := range q.Env {
		q.Env[i] = move(s)
	}
	return &q
}

// Delete removes everything that the program runs from, as the removal of a package or of a container's layer does.
func (p *Program) Delete(tb testing.TB) {
	tb.Helper()
	if err := os.RemoveAll(p.Dir); err != nil {
		tb.Fatal(err)
	}
}

// Replace gives every file's name to a new file with other contents, as an upgrade does: native code becomes another
// program's code, and everything else nonsense.
func (p *Program) Replace(tb testing.TB) {
	tb.Helper()
	other, err := os.ReadFile("/bin/true")
	if err != nil {
		tb.Fatal(err)
	}
	replaced := 0
	err = filepath.WalkDir(p.Dir, func(file string, d fs.DirEntry, err error) error {
		if err != nil || !d.Type().IsRegular() {
			return err
		}
		replaced++
		return replaceFile(file, other)
	})
	if err != nil || replaced == 0 {
		tb.Fatalf("replaced %d files: %v", replaced, err)
	}
}

func replaceFile(file string, code []byte) error {
	head := make([]byte, 4)
	f, err := os.Open(file)
	if err != nil {
		return err
	}
	_, err = io.ReadFull(f, head)
	f.Close()
	if err != nil && err != io.ErrUnexpectedEOF && err != io.EOF {
		return err
	}
	content := []byte(strings.Repeat("not what it was\n", 4096))
	if bytes.Equal(head, []byte("\x7fELF")) {
		content = code
	}
	tmp := file + ".new"
	if err := os.WriteFile(tmp, content, 0o755); err != nil {
		return err
	}
	return os.Rename(tmp, file)
}

// MuslCC finds the C compiler of the kit's musl part. Without the compiler the test ends as with Kit.
func MuslCC(tb testing.TB) string {
	tb.Helper()
	path, err := exec.LookPath("musl-gcc")
	if err != nil {
		missing(tb, fmt.Errorf("%w: give it the word musl", err))
	}
	return path
}

// AheadOfTime is the path of a library compiled ahead of time, with a runtime of its own inside. Without the library
// the test ends as with Kit.
func AheadOfTime(tb testing.TB) string {
	tb.Helper()
	library := filepath.Join(Kit(tb).Dir, "aot", "library.so")
	if _, err := os.Stat(library); err != nil {
		missing(tb, fmt.Errorf("%w: give it the word aot", err))
	}
	return library
}

// AheadOfTimeVersion is the version of the runtime in AheadOfTime.
const AheadOfTimeVersion = "10.0.11"

// StartAheadOfTime starts a C program (testdata/aot/host.c) that calls managed code of the library AheadOfTime. The
// managed code calls the program back: there the program blocks, or with the argument "spin" uses a CPU.
// StartAheadOfTime returns the process id and ends the process after the test.
func StartAheadOfTime(tb testing.TB, args ...string) (pid int) {
	tb.Helper()
	library := AheadOfTime(tb)
	apps, err := appsDir()
	if err != nil {
		tb.Fatal(err)
	}
	host := filepath.Join(tb.TempDir(), "host")
	source := filepath.Join(filepath.Dir(apps), "aot", "host.c")
	build := exec.Command(CC(tb), "-O2", "-rdynamic", "-o", host, source, "-ldl", "-lpthread")
	if out, err := build.CombinedOutput(); err != nil {
		tb.Fatalf("%v\n%s", err, out)
	}
	cmd := exec.Command(host, append([]string{library}, args...)...)
	cmd.Stderr = os.Stderr
	if said := StartFed(tb, cmd); said != "READY" {
		tb.Fatalf("%s said %q", host, said)
	}
	waitForThread(tb, cmd.Process.Pid, ".NET Finalizer")
	return cmd.Process.Pid
}

// waitForThread waits until a process has a thread of the given name.
func waitForThread(tb testing.TB, pid int, name string) {
	tb.Helper()
	for end := time.Now().Add(Hang); time.Now().Before(end); time.Sleep(time.Millisecond) {
		files, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/comm", pid))
		for _, file := range files {
			if comm, err := os.ReadFile(file); err == nil && string(comm) == name+"\n" {
				return
			}
		}
	}
	tb.Fatalf("process %d has no thread %q after %v", pid, name, Hang)
}

// AheadOfTimeNewest is a native AOT program of the newest .NET: "hello" with waiting threads, or the web service
// "slim". The program's symbols are in a file beside the program. Without the program the test is skipped.
func AheadOfTimeNewest(tb testing.TB, name string) (file string) {
	tb.Helper()
	return tool(tb, filepath.Join("aot-11", name, name))
}

// AheadOfTimeLines is the program "hello" built with StackTraceLineNumberSupport, without a file with symbols. Without
// the program the test is skipped.
func AheadOfTimeLines(tb testing.TB) (file string) {
	tb.Helper()
	return tool(tb, filepath.Join("aot-more-11", "hello-lines", "hello"))
}

// StartAheadOfTimeNewest starts a program of AheadOfTimeNewest, and ends the program after the test. said are the
// program's first words.
func StartAheadOfTimeNewest(tb testing.TB, file string, args ...string) (pid int, said []string) {
	tb.Helper()
	cmd := exec.Command(file, args...)
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		tb.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() {
		cmd.Process.Kill()
		cmd.Wait()
	})
	lines := bufio.NewScanner(stdout)
	for lines.Scan() {
		said = append(said, lines.Text())
		if lines.Text() == "ready" {
			return cmd.Process.Pid, said
		}
	}
	tb.Fatalf("%v: %q", lines.Err(), said)
	return 0, nil
}

// CrashAheadOfTimeNewest runs a program of AheadOfTimeNewest that dies by itself. dump is the kernel's core dump, said
// are the program's last words, about the unhandled exception.
func CrashAheadOfTimeNewest(tb testing.TB, file string, args ...string) (dump, said string) {
	tb.Helper()
	defer wantCorePattern(tb)()
	cmd := exec.Command("sh", append([]string{"-c", `ulimit -c unlimited; exec "$0" "$@"`, file}, args...)...)
	cmd.Dir = tb.TempDir()
	out, err := cmd.CombinedOutput()
	if status := (*exec.ExitError)(nil); !errors.As(err, &status) {
		tb.Fatalf("%s should have died: %v", file, err)
	}
	return KernelDumpIn(tb, cmd.Dir), string(out)
}
