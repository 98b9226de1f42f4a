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
		{"net8", "8.0.30", true}, {"net9", "9.0.5", true}, {"net10:dotnet-10.0.8", "10.0.8", true}, {"net10", "10.0.12", true},
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

// Missing reports whether the kit lacks a build that it need not have. It ends the
// test if it lacks one that it must have.
func (k DotNet) Missing(tb testing.TB, b RuntimeBuild) bool {
	tb.Helper()
	if b.Always {
		k.Need(tb, b.Runtime)
	}
	return k.check(b.Runtime) != nil
}
