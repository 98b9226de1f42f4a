package testenv

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// A RuntimeBuild is a servicing build of .NET that the kit can have.
type RuntimeBuild struct {
	Runtime string // as Options.Runtime names it
	Version string // such as "8.0.4"
	Always  bool   // it comes with its major version, not only with "get-dotnet.sh builds"
}

// RuntimeBuilds lists the builds of the kit: those of its frameworks, then those of
// scripts/dotnet/builds.txt.
func RuntimeBuilds(tb testing.TB) []RuntimeBuild {
	tb.Helper()
	all := []RuntimeBuild{
		{"net8", "8.0.30", true}, {"net9", "9.0.5", true},
		{"net10:dotnet-10.0.8", "10.0.8", true}, {"net10", "10.0.12", true},
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
	return all
}

// AspNetRuntimes lists the builds that the program "web" runs on, as they have
// ASP.NET Core: those of the kit, and 10.0.14. If that is not installed, it says so.
func AspNetRuntimes(tb testing.TB) []RuntimeBuild {
	tb.Helper()
	all := []RuntimeBuild{{"net9", "9.0.5", true}, {"net10", "10.0.12", true}}
	const version = "10.0.14"
	runtime, err := Installed(version)
	if err != nil {
		tb.Logf("NOTHING WAS TESTED ON %s: %v", version, err)
		return all
	}
	return append(all, RuntimeBuild{runtime, version, false})
}

// Installed is the runtime of a .NET installation beside the kit, for
// Options.Runtime, by its version: "10.0.14". CLRSNAP_DOTNET_ROOTS names the folder
// in which each installation has a folder called like its version.
func Installed(version string) (runtime string, err error) {
	roots := os.Getenv("CLRSNAP_DOTNET_ROOTS")
	if roots == "" {
		return "", fmt.Errorf("CLRSNAP_DOTNET_ROOTS does not say where .NET %s is", version)
	}
	host, err := filepath.Abs(filepath.Join(roots, version, "dotnet"))
	if err != nil {
		return "", err
	}
	if _, err := os.Stat(host); err != nil {
		return "", err
	}
	major, _, _ := strings.Cut(version, ".")
	return "net" + major + ":" + host, nil
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

// Missing reports whether the kit lacks a build that is optional. It ends the test if the
// build is required.
func (k DotNet) Missing(tb testing.TB, b RuntimeBuild) bool {
	tb.Helper()
	if b.Always {
		k.Need(tb, b.Runtime)
	}
	return k.check(b.Runtime) != nil
}
