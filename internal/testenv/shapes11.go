package testenv

import (
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

// packer is the script that makes the shapes of the newest runtime, in the folder of CLRSNAP_DOTNET_ROOTS. npm has no
// package with the hosts that packer uses. packer aligns assemblies in a bundle to 64 bytes, as the SDK's own bundler
// does; the kit's bundler aligns assemblies to pages. packer needs node.
const packer = "single-11/single11"

// muslPacker is the same for Alpine Linux.
const muslPacker = "musl-11/musl11"

// beside is the path of a file in the folder of CLRSNAP_DOTNET_ROOTS; false: there is no such file.
func beside(path string) (string, bool) {
	roots := os.Getenv(rootsVariable)
	if roots == "" {
		return "", false
	}
	file, err := filepath.Abs(filepath.Join(roots, path))
	if err == nil {
		_, err = os.Stat(file)
	}
	return file, err == nil
}

// newestShapes are the possible shapes for the newest runtime.
func newestShapes() []Shape {
	if _, ok := beside(packer); !ok {
		return []Shape{FrameworkDependent}
	}
	return []Shape{FrameworkDependent, AppHost, SelfContained, SingleFile, Compressed, Trimmed}
}

// pack makes a program of the newest runtime out of an assembly. The packer gets what as its command.
func (k DotNet) pack(env []string, what, out, dll string, more ...string) error {
	script, ok := beside(packer)
	if !ok {
		return fmt.Errorf("%s does not lead to %s", rootsVariable, packer)
	}
	cmd := exec.Command(script, append([]string{what, out, dll}, more...)...)
	cmd.Env = append(append(os.Environ(), "ROOT11="+filepath.Join(k.Dir, NewestRuntime)), env...)
	if text, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("%s %s: %w\n%s", packer, what, err, text)
	}
	return nil
}

// packTrimmed makes a trimmed single file. Its assembly differs from the assembly of the other shapes.
func (k DotNet) packTrimmed(p *Program, dll string) error {
	dir := p.Dir + "-trimmed"
	if err := k.pack(nil, "trim", dir, dll); err != nil {
		return err
	}
	p.Assembly = filepath.Join(dir, filepath.Base(dll))
	return k.pack(nil, "trimmed", p.Exe, p.Assembly)
}

// ownFiles puts copies in the place of links in a folder.
func ownFiles(dir string) error {
	return filepath.WalkDir(dir, func(file string, d fs.DirEntry, err error) error {
		if err != nil || d.Type() != fs.ModeSymlink {
			return err
		}
		target, err := filepath.EvalSymlinks(file)
		if err != nil {
			return err
		}
		if err := os.Remove(file); err != nil {
			return err
		}
		return linkTree(target, file)
	})
}

// PublishMuslNewest is PublishMusl for the newest runtime. Without the packers the test is skipped.
func PublishMuslNewest(tb testing.TB, app string) *Program {
	tb.Helper()
	runner, host := tool(tb, muslPacker), tool(tb, "musl-11/singlefilehost")
	tool(tb, packer)
	kit := Kit(tb)
	dll := buildFor(tb, kit, app, NewestRuntime)
	p := &Program{Dir: filepath.Join(tb.TempDir(), "program"), Assembly: dll, app: app, runtime: NewestRuntime}
	if err := os.MkdirAll(p.Dir, 0o755); err != nil {
		tb.Fatal(err)
	}
	exe := filepath.Join(p.Dir, app)
	if err := kit.pack([]string{"HOST=" + host, "RID=linux-musl-x64"}, "plain", exe, dll); err != nil {
		tb.Fatal(err)
	}
	p.Exe, p.Args = runner, []string{"env", exe}
	return p
}
