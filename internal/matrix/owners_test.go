package matrix

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"clrsnap"
	"clrsnap/internal/livetest"
	"clrsnap/internal/testenv"
	"clrsnap/internal/testenv/layer"
	"clrsnap/profile"
	"clrsnap/record"
	"clrsnap/snapshot"
)

// through are the assemblies beside the program "owners", in the order of their calls. Two of the names look like the
// framework's.
const through = "Microsoft.Ledger,Courier,Microsoft.Parcel"

// TestOwners: the program's deps.json says whose code a frame is in, in stacks, recordings and core dumps. Without a
// deps.json, the assemblies beside the program are the program's own, unless only the framework and packages have such
// names.
func TestOwners(t *testing.T) { testenv.EachVersion(t, testOwners) }

func testOwners(t *testing.T, runtime string) {
	dir := ownersFolder(t, runtime)
	p := &testenv.Program{Dir: dir, Exe: testenv.Kit(t).Host(runtime), Args: []string{filepath.Join(dir, "owners.dll")}}
	for _, listed := range []bool{true, false} {
		want := map[string]snapshot.Origin{
			"owners": snapshot.OfUser, "Courier": snapshot.OfPackage, "Microsoft.Ledger": snapshot.OfUser,
			"Microsoft.Parcel": snapshot.OfPackage, "System.Private.CoreLib": snapshot.OfFramework,
		}
		deps := filepath.Join(dir, "owners.deps.json")
		if listed {
			write(t, deps, ownersDeps)
		} else if err := os.Remove(deps); err != nil {
			t.Fatal(err)
		} else {
			want["Courier"] = snapshot.OfUser
			want["Microsoft.Ledger"] = snapshot.OfPackage
			if recognisedAs(runtime, testenv.FrameworkDependent) == "single-file" { // the framework has no folder
				want["Microsoft.Ledger"], want["Microsoft.Parcel"] = snapshot.OfFramework, snapshot.OfFramework
			}
		}
		a := p.Start(t, testenv.Options{Args: []string{"--through", through}})
		checkOwners(t, a, want)
		if listed && testenv.DumpGCore.Runs(runtime) {
			s := livetest.SnapshotCore(t, testenv.Dump(t, a, testenv.DumpGCore), clrsnap.CoreOptions{})
			wantOrigins(t, "core dump", originsOf(s), want)
		}
		if !listed {
			hostileDeps(t, a, deps, want)
		}
		livetest.EndsWell(t, a)
	}
}

// hostileDeps puts hostile files in the place of the program's deps.json. clrsnap ignores them, and nobody waits.
func hostileDeps(t *testing.T, a *testenv.App, deps string, want map[string]snapshot.Origin) {
	t.Helper()
	sparse := func() error { return errors.Join(os.WriteFile(deps, nil, 0o644), os.Truncate(deps, 1<<40)) }
	text := func(s string) func() error { return func() error { return os.WriteFile(deps, []byte(s), 0o644) } }
	for name, plant := range map[string]func() error{
		"pipe":    func() error { return syscall.Mkfifo(deps, 0o644) },
		"folder":  func() error { return os.Mkdir(deps, 0o755) },
		"loop":    func() error { return os.Symlink(deps, deps) },
		"device":  func() error { return os.Symlink("/dev/zero", deps) },
		"sparse":  sparse,
		"nested":  text(`{"targets":` + strings.Repeat(`{"a":`, 1<<20)),
		"cut off": text(ownersDeps[:len(ownersDeps)-100]),
	} {
		if err := plant(); err != nil {
			t.Fatal(err)
		}
		p := livetest.Open(t, a, clrsnap.Options{})
		snap, err := p.SnapshotAll(context.Background(), nil)
		p.Close()
		if err != nil {
			t.Fatal(err)
		}
		wantOrigins(t, name, originsOf(snap), want)
		if err := os.Remove(deps); err != nil {
			t.Fatal(err)
		}
	}
}

// TestOwnersOfBundle: the deps.json of a single-file program is inside.
func TestOwnersOfBundle(t *testing.T) {
	layer.Each(t)
	const runtime = "net9"
	if !testenv.InLayer(runtime) {
		t.Skip("it is for make matrix")
	}
	kit := testenv.Kit(t)
	kit.Need(t, runtime)
	dir := ownersFolder(t, runtime)
	exe := filepath.Join(t.TempDir(), "owners")
	args := []string{runtime, exe, filepath.Join(dir, "owners.dll")}
	for name := range strings.SplitSeq(through, ",") {
		args = append(args, filepath.Join(dir, name+".dll"))
	}
	for _, more := range [][]string{{"--base"}, {"--base", "--compress"}} {
		run(t, filepath.Join(kit.Dir, "bin", "single"), append(args, more...)...)
		a := (&testenv.Program{Exe: exe}).Start(t, testenv.Options{Args: []string{"--through", through}})
		checkOwners(t, a, map[string]snapshot.Origin{
			"owners": snapshot.OfUser, "Courier": snapshot.OfUser, "Microsoft.Ledger": snapshot.OfUser,
			"Microsoft.Parcel": snapshot.OfUser, "System.Private.CoreLib": snapshot.OfFramework,
		})
		livetest.EndsWell(t, a)
	}
}

// checkOwners looks at a stack, and at a recording.
func checkOwners(t *testing.T, a *testenv.App, want map[string]snapshot.Origin) {
	t.Helper()
	p := livetest.Open(t, a, clrsnap.Options{})
	snap, err := p.SnapshotAll(context.Background(), nil)
	if err != nil {
		t.Fatal(err)
	}
	wantOrigins(t, "stacks", originsOf(snap), want)
	r := livetest.Recorded(t, p, record.Options{Modes: []profile.Mode{profile.Wall}, Rate: 19, Duration: time.Second})
	got := map[string]snapshot.Origin{}
	for i := range r.Functions {
		if f := &r.Functions[i]; f.Kind == snapshot.Managed {
			got[f.Module] = f.Origin()
		}
	}
	wantOrigins(t, "recording", got, want)
}

func originsOf(s *snapshot.Snapshot) map[string]snapshot.Origin {
	got := map[string]snapshot.Origin{}
	for _, th := range s.Threads {
		for i := range th.Frames {
			if f := &th.Frames[i]; f.Kind == snapshot.Managed {
				got[f.Module] = f.Origin()
			}
		}
	}
	return got
}

// wantOrigins compares the origins of some assemblies; there may be others.
func wantOrigins(t *testing.T, where string, got, want map[string]snapshot.Origin) {
	t.Helper()
	maps.DeleteFunc(got, func(name string, _ snapshot.Origin) bool { return want[name] == "" })
	if !maps.Equal(got, want) {
		t.Errorf("%s: the assemblies are %v, want %v", where, got, want)
	}
}

// ownersFolder builds the program "owners" and its assemblies into one folder.
func ownersFolder(t *testing.T, runtime string) string {
	t.Helper()
	kit, dir := testenv.Kit(t), t.TempDir()
	dll := testenv.BuildFor(t, "owners", runtime)
	if err := os.CopyFS(dir, os.DirFS(filepath.Dir(dll))); err != nil {
		t.Fatal(err)
	}
	for name := range strings.SplitSeq(through, ",") {
		source := filepath.Join(dir, name+".cs")
		write(t, source, fmt.Sprintf("namespace %s { public static class Work {\n"+
			"[System.Runtime.CompilerServices.MethodImpl(8)]\n"+
			"public static void Run(System.Action next) { next(); System.GC.KeepAlive(next); } } }\n", name))
		run(t, kit.Compiler(), testenv.Framework(runtime), "-target:library", "-o+",
			"-out:"+filepath.Join(dir, name+".dll"), source)
	}
	return dir
}

func write(t *testing.T, file, text string) {
	t.Helper()
	if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}

func run(t *testing.T, command string, args ...string) {
	t.Helper()
	if out, err := exec.Command(command, args...).CombinedOutput(); err != nil {
		t.Fatalf("%s: %v\n%s", command, err, out)
	}
}

// ownersDeps is the SDK's deps.json for a project with a reference to another project and to two packages.
const ownersDeps = `{
  "runtimeTarget": { "name": ".NETCoreApp,Version=v8.0", "signature": "" },
  "compilationOptions": {},
  "targets": { ".NETCoreApp,Version=v8.0": {
    "owners/1.0.0": {
      "dependencies": { "Microsoft.Ledger": "1.0.0", "Courier": "2.1.0", "Microsoft.Parcel": "3.0.0" },
      "runtime": { "owners.dll": {} }
    },
    "Courier/2.1.0": { "runtime": { "lib/net8.0/Courier.dll": { "assemblyVersion": "2.1.0.0" } } },
    "Microsoft.Parcel/3.0.0": { "runtime": { "lib/net8.0/Microsoft.Parcel.dll": {} } },
    "Microsoft.Ledger/1.0.0": { "runtime": { "Microsoft.Ledger.dll": {} } }
  } },
  "libraries": {
    "owners/1.0.0": { "type": "project", "serviceable": false, "sha512": "" },
    "Courier/2.1.0": { "type": "package", "serviceable": true, "sha512": "sha512-" },
    "Microsoft.Parcel/3.0.0": { "type": "package", "serviceable": true, "sha512": "sha512-" },
    "Microsoft.Ledger/1.0.0": { "type": "project", "serviceable": false, "sha512": "" }
  }
}
`
