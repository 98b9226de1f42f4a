package snapshot

import (
	"slices"
	"strings"
	"testing"
	"unicode/utf8"
)

// TestProgramOf: hostfxr's reading of command lines.
func TestProgramOf(t *testing.T) {
	for line, want := range map[string]string{
		"":                               "",
		"dotnet":                         "dotnet",
		"/usr/bin/dotnet /srv/Shop.dll":  "Shop.dll",
		"dotnet Shop.dll --port 80":      "Shop.dll --port 80",
		"DotNet bin/Shop.EXE x.dll":      "Shop.EXE x.dll",
		"dotnet exec Shop.dll":           "Shop.dll",
		"dotnet EXEC Shop.dll exec":      "Shop.dll exec",
		"dotnet exec":                    "dotnet exec",
		"dotnet run --project x.dll":     "dotnet run --project x.dll",
		"dotnet test bin/Shop.Tests.dll": "dotnet test bin/Shop.Tests.dll",
		"dotnet build exec Shop.dll":     "dotnet build exec Shop.dll",
		"dotnet exec --runtimeconfig a.dll --depsfile b.dll --DepsFile c.dll /sdk/csc.dll @x.rsp": "csc.dll @x.rsp",
		"dotnet --additionalprobingpath a.dll --fx-version 9.0.5 --roll-forward Major " +
			"--additional-deps b.dll --roll-forward-on-no-candidate-fx 2 Shop.dll -x": "Shop.dll -x",
		// Only after exec: else the SDK gets the line.
		"dotnet --runtimeconfig a.json Shop.dll": "dotnet --runtimeconfig a.json Shop.dll",
		"dotnet exec --roll-forward":             "dotnet exec --roll-forward",
		"dotnet exec --roll-forward Shop.dll":    "dotnet exec --roll-forward Shop.dll",
		"dotnet .dll":                            ".dll",
		"dotnet dll":                             "dotnet dll",
		// Other programs may have similar names: the dotnet command cannot be renamed.
		"dotnet-symbol Shop.dll":              "dotnet-symbol Shop.dll",
		"/opt/shop/Shop --roll-forward Major": "Shop --roll-forward Major",
		"./Shop exec x.dll":                   "Shop exec x.dll",
	} {
		name, rest := ProgramOf(strings.Fields(line))
		if got := strings.Join(append([]string{name}, rest...), " "); got != want {
			t.Errorf("%q: %q, want %q", line, got, want)
		}
	}
	spaces := []string{"/my tools/dotnet", "exec", "--depsfile", "/my app/x y.json", "/my app/My Shop.dll", "a b"}
	if name, rest := ProgramOf(spaces); name != "My Shop.dll" || !slices.Equal(rest, []string{"a b"}) {
		t.Errorf("%q %q", name, rest)
	}
}

// TestProgramOfHostile: for any command line, the name is a file name, and short.
func TestProgramOfHostile(t *testing.T) {
	huge := strings.Repeat("x", 8<<20)
	for _, args := range [][]string{
		{""}, {"", ""}, {"/"}, {"dotnet", ""}, {"dotnet", "exec", ""}, {"dotnet", huge}, {huge}, {huge + ".dll"},
		{"dotnet", huge + ".dll"}, {"dotnet", "\x1b[2J\r\n.dll"}, {"dotnet", "/" + strings.Repeat("é", 300) + ".dll"},
		{"dotnet", "exec", strings.Repeat("\xff", 300) + ".dll"}, slices.Repeat([]string{"--roll-forward"}, 1<<20),
		append([]string{"dotnet"}, slices.Repeat([]string{"--roll-forward"}, 1<<20)...),
	} {
		name, rest := ProgramOf(args)
		if len(name) > maxFileName+2 || !utf8.ValidString(name) || strings.Contains(name, "/") ||
			len(rest) >= len(args) {
			t.Errorf("%d arguments, %.20q …: %q, %d more", len(args), args, name, len(rest))
		}
	}
}

func TestProgram(t *testing.T) {
	for command, want := range map[string]string{
		"": "", "dotnet Shop.dll --port 80": "Shop.dll", "/opt/shop/Shop x.dll": "Shop", "[shop]": "[shop]",
		"dotnet /srv/my app/Shop.dll 80": "Shop.dll", "dotnet run": "dotnet",
		"dotnet exec --depsfile x.json a/S.dll": "S.dll",
	} {
		if got := (&Process{Command: command}).Program(); got != want {
			t.Errorf("%q: %q, want %q", command, got, want)
		}
	}
}
