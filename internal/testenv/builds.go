package testenv

import (
	"cmp"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"clrsnap/internal/testenv/layer"
)

// A RuntimeBuild is a servicing build of .NET that the kit can have.
type RuntimeBuild struct {
	Runtime string // as in Options.Runtime
	Version string // such as "8.0.4"
	Always  bool   // part of its major version, not only of "get-dotnet.sh builds"
}

// RuntimeBuilds lists the builds of the kit's frameworks, of scripts/dotnet/builds.txt, and of the installations beside
// the kit (InstalledRuntimes).
func RuntimeBuilds(tb testing.TB) []RuntimeBuild {
	tb.Helper()
	all := []RuntimeBuild{
		{"net8", "8.0.30", true}, {"net9", "9.0.5", true},
		{"net10:dotnet-10.0.8", "10.0.8", true}, {"net10", "10.0.12", true},
	}
	if version := copied(); version != "" {
		all = append(all, RuntimeBuild{NewestRuntime, version, true})
	}
	apps, err := appsDir()
	if err != nil {
		tb.Fatal(err)
	}
	text, err := os.ReadFile(filepath.Join(apps, "..", "..", "scripts", "dotnet", "builds.txt"))
	if err != nil {
		tb.Fatal(err)
	}
	for line := range strings.Lines(string(text)) {
		if strings.HasPrefix(line, "#") {
			continue
		}
		b, err := parseBuild(strings.Fields(line))
		if err != nil {
			tb.Fatalf("builds.txt: %q: %v", line, err)
		}
		all = append(all, b)
	}
	return append(all, InstalledRuntimes()...)
}

// AspNetRuntimes lists the builds with ASP.NET Core, for the programs of aspNetApps: the kit's builds, and 10.0.14. A
// log line says if 10.0.14 is not installed.
func AspNetRuntimes(tb testing.TB) []RuntimeBuild {
	tb.Helper()
	all := []RuntimeBuild{{"net9", "9.0.5", true}, {"net10", "10.0.12", true}}
	if version := copied(); version != "" {
		all = append(all, RuntimeBuild{NewestRuntime, version, true})
	} else {
		tb.Logf("NOTHING WAS TESTED ON %s: the kit lacks it", NewestRuntime)
	}
	const version = "10.0.14"
	runtime, err := Installed(version)
	if err != nil {
		tb.Logf("NOTHING WAS TESTED ON %s: %v", version, err)
		return all
	}
	return append(all, RuntimeBuild{runtime, version, false})
}

// EachAspNet runs a test on the runtimes of AspNetRuntimes that this layer is for.
func EachAspNet(t *testing.T, test func(t *testing.T, runtime string)) {
	t.Helper()
	layer.Each(t)
	for _, b := range AspNetRuntimes(t) {
		if InLayer(b.Runtime) {
			t.Run(b.Version, func(t *testing.T) { test(t, b.Runtime) })
		}
	}
}

// copied is the version of the newest runtime in the kit, a copy of an installed runtime; empty: the kit lacks the
// newest runtime.
func copied() (version string) {
	for _, version = range versionsIn(InKit(filepath.Join(NewestRuntime, frameworkFolder))) {
	}
	return version
}

// Installed is the runtime of a .NET installation beside the kit, for Options.Runtime, by its version: "10.0.14".
// CLRSNAP_DOTNET_ROOTS names a folder in which each installation has a folder named after its version.
func Installed(version string) (runtime string, err error) {
	roots := os.Getenv(rootsVariable)
	if roots == "" {
		return "", fmt.Errorf("%s does not say where .NET %s is", rootsVariable, version)
	}
	host, err := filepath.Abs(filepath.Join(roots, version, "dotnet"))
	if err != nil {
		return "", err
	}
	if _, err := os.Stat(host); err != nil {
		return "", err
	}
	return runtimeAt(host, version), nil
}

// rootsVariable is documented in CONTRIBUTING.md.
const rootsVariable = "CLRSNAP_DOTNET_ROOTS"

// runtimeAt is Options.Runtime for a `dotnet` outside the kit.
func runtimeAt(host, version string) string {
	major, _, _ := strings.Cut(version, ".")
	return "net" + major + ":" + host
}

// InstalledRuntimes lists the runtimes beside the kit, oldest first: the runtimes in the folder of
// CLRSNAP_DOTNET_ROOTS, and the runtimes of an SDK on PATH. Installed runtimes add to the kit, and replace nothing in
// the kit. The runtime that the kit has copied is left out.
func InstalledRuntimes() []RuntimeBuild {
	all := rootRuntimes()
	for _, b := range pathRuntimes() {
		if !slices.ContainsFunc(all, func(has RuntimeBuild) bool { return has.Version == b.Version }) {
			all = append(all, b)
		}
	}
	kit := copied()
	all = slices.DeleteFunc(all, func(b RuntimeBuild) bool { return b.Version == kit })
	slices.SortFunc(all, func(a, b RuntimeBuild) int { return CompareVersions(a.Version, b.Version) })
	return all
}

// rootRuntimes lists the runtimes in the folder of CLRSNAP_DOTNET_ROOTS.
func rootRuntimes() (all []RuntimeBuild) {
	for _, version := range versionsIn(os.Getenv(rootsVariable)) {
		if runtime, err := Installed(version); err == nil {
			all = append(all, RuntimeBuild{Runtime: runtime, Version: version})
		}
	}
	return all
}

// pathRuntimes lists the runtimes of the `dotnet` on PATH. A program runs on the newest runtime of its major version.
func pathRuntimes() (all []RuntimeBuild) {
	host, err := exec.LookPath("dotnet")
	if err != nil {
		return nil
	}
	if host, err = filepath.EvalSymlinks(host); err != nil {
		return nil
	}
	if host, err = filepath.Abs(host); err != nil {
		return nil
	}
	newest := map[string]RuntimeBuild{}
	for _, version := range versionsIn(filepath.Join(filepath.Dir(host), frameworkFolder)) {
		runtime := runtimeAt(host, version)
		newest[runtime] = RuntimeBuild{Runtime: runtime, Version: version}
	}
	return slices.Collect(maps.Values(newest))
}

// frameworkFolder is the folder of an installation of .NET with a folder for each runtime.
const frameworkFolder = "shared/Microsoft.NETCore.App"

// released is a version for which programs can be compiled.
var released = regexp.MustCompile(`^(8|9|10|11)\.0\.\d+$`)

// versionsIn lists the folders of a folder that are named after a version, oldest first.
func versionsIn(dir string) (versions []string) {
	if dir == "" {
		return nil
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil
	}
	for _, e := range entries {
		if released.MatchString(e.Name()) {
			versions = append(versions, e.Name())
		}
	}
	slices.SortFunc(versions, CompareVersions)
	return versions
}

// CompareVersions orders versions such as "8.0.9" and "8.0.10".
func CompareVersions(a, b string) int {
	return slices.CompareFunc(strings.Split(a, "."), strings.Split(b, "."), func(x, y string) int {
		return cmp.Or(cmp.Compare(len(x), len(y)), cmp.Compare(x, y))
	})
}

// installed returns the build of a runtime outside the kit.
func installed(runtime string) (RuntimeBuild, bool) {
	for _, b := range InstalledRuntimes() {
		if b.Runtime == runtime {
			return b, true
		}
	}
	return RuntimeBuild{}, false
}

// InstalledVersion is the version of a runtime outside the kit.
func InstalledVersion(runtime string) (version string, ok bool) {
	b, ok := installed(runtime)
	return b.Version, ok
}

// Name is the tests' name for a runtime: "net10:10.0.14" for a runtime outside the kit.
func Name(runtime string) string {
	if version, ok := InstalledVersion(runtime); ok {
		return Framework(runtime) + ":" + version
	}
	return runtime
}

// parseBuild takes version, when, kind, path and package.
func parseBuild(words []string) (RuntimeBuild, error) {
	if len(words) != 5 {
		return RuntimeBuild{}, fmt.Errorf("%d words, want 5", len(words))
	}
	version, when, kind := words[0], words[1], words[2]
	major, _, _ := strings.Cut(version, ".")
	host := map[string]string{"host": "dotnet-" + version, "root": version + "/dotnet"}[kind]
	if host == "" || when != "always" && when != "on-demand" {
		return RuntimeBuild{}, fmt.Errorf("when %q, kind %q", when, kind)
	}
	return RuntimeBuild{Runtime: "net" + major + ":" + host, Version: version, Always: when == "always"}, nil
}

// Missing reports whether the kit lacks an optional build. Missing ends the test if the kit lacks a required build.
func (k DotNet) Missing(tb testing.TB, b RuntimeBuild) bool {
	tb.Helper()
	if b.Always {
		k.Need(tb, b.Runtime)
	}
	return k.check(b.Runtime) != nil
}
