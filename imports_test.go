package clrsnap_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"flag"
	"io"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"
)

// mayImport has the imports that each package is allowed. Data flows one way, as docs/architecture.md draws the flow:
// no arrow points back.
var mayImport = map[string]string{
	"snapshot":           "internal/dedup",
	"profile":            "snapshot",
	"export":             "profile snapshot internal/display internal/jsonwriter",
	"export/gcdump":      "snapshot internal/display",
	"report":             "profile snapshot internal/display internal/jsonwriter",
	"internal/arch":      "",
	"internal/ecma335":   "",
	"internal/target":    "internal/arch",
	"internal/elfx":      "internal/arch internal/target",
	"internal/pe":        "internal/arch internal/target",
	"internal/pdb":       "internal/ecma335 internal/pace internal/pe internal/target",
	"internal/symbol":    "internal/arch internal/elfx",
	"internal/dwarfline": "internal/arch internal/pace",
	"internal/contract":  "internal/arch internal/target",

	"internal/foreign":         "",
	"internal/memfd":           "",
	"internal/mounts":          "internal/memfd internal/procfs",
	"internal/procfs":          "internal/arch internal/target",
	"internal/sockdiag":        "",
	"internal/openfiles":       "internal/procfs",
	"internal/cgroup":          "internal/foreign internal/procfs",
	"internal/priority":        "internal/procfs",
	"internal/priority/early":  "",
	"internal/hung":            "internal/procfs",
	"internal/target/core":     "internal/arch internal/elfx internal/foreign internal/target",
	"internal/target/iter":     "",
	"internal/target/recorded": "internal/arch internal/target",
	"internal/target/live": "internal/arch internal/foreign internal/mounts internal/procfs internal/target " +
		"internal/target/iter",

	"internal/unwind":       "internal/arch internal/target",
	"internal/unwind/amd64": "internal/arch internal/target internal/unwind",
	"internal/unwind/cfi":   "internal/arch internal/target internal/unwind",
	"internal/unwind/insns": "internal/arch internal/target internal/unwind",
	"internal/module": "symbols internal/arch internal/target internal/dwarfline internal/elfx internal/symbol " +
		"internal/unwind internal/unwind/cfi",
	"internal/locate": "internal/arch internal/contract internal/elfx internal/module",

	"internal/clr/types":   "internal/arch internal/target internal/contract",
	"internal/clr/codemap": "internal/arch internal/target internal/contract",
	"internal/clr/ilmap":   "internal/arch internal/target internal/contract internal/clr/codemap",
	"internal/clr/thread":  "internal/arch internal/target internal/contract",
	"internal/clr/method":  "internal/arch internal/target internal/contract internal/clr/types internal/clr/codemap",
	"internal/clr/name": "internal/arch internal/target internal/contract internal/clr/types " +
		"internal/clr/method internal/ecma335 internal/pace internal/pe",
	"internal/clr/aot": "internal/arch internal/target internal/contract internal/clr/types internal/clr/name " +
		"internal/ecma335",
	"internal/clr/object": "internal/arch internal/target internal/contract internal/clr/types internal/clr/name",
	"internal/clr/async":  "internal/arch internal/contract internal/clr/name internal/clr/object",
	"internal/clr/web":    "internal/arch internal/clr/object",
	"internal/clr/heap":   "internal/arch internal/target internal/contract",
	"internal/clr/permits": "internal/arch internal/ecma335 internal/clr/name internal/clr/object " +
		"internal/clr/types",
	"internal/clr/threadpool": "internal/arch internal/target internal/clr/heap internal/clr/object",
	"internal/clr/lock":       "internal/arch internal/target internal/contract internal/clr/object",
	"internal/clr/pal":        "internal/arch internal/target",
	"internal/clr/gcinfo":     "internal/arch",
	"internal/clr/generics": "internal/arch internal/target internal/contract internal/clr/types " +
		"internal/clr/codemap internal/clr/method internal/clr/gcinfo",
	"internal/clr/inlining": "internal/arch internal/target internal/contract internal/clr/codemap " +
		"internal/clr/ilmap internal/clr/method internal/clr/name internal/ecma335",
	"internal/clr": "internal/arch internal/target internal/contract internal/clr/types internal/clr/codemap " +
		"internal/clr/thread internal/clr/method internal/clr/name internal/clr/heap internal/clr/ilmap " +
		"internal/clr/generics internal/clr/inlining internal/clr/object internal/clr/lock internal/clr/pal " +
		"internal/unwind",
	"internal/walk": "internal/arch internal/target internal/unwind internal/unwind/insns internal/module " +
		"internal/clr/codemap internal/clr/thread",

	"internal/waits": "snapshot internal/arch internal/target internal/clr internal/clr/heap internal/clr/lock " +
		"internal/clr/object internal/clr/pal internal/clr/thread",
	"internal/assemblies": "snapshot internal/arch internal/bundle internal/target",
	"internal/bundle":     "internal/elfx internal/pe",
	"internal/engine": "internal/arch internal/target internal/unwind internal/unwind/amd64 internal/module " +
		"internal/locate internal/contract internal/clr internal/clr/* internal/walk",
	"internal/replay": "internal/arch internal/target internal/target/live internal/target/recorded " +
		"internal/engine internal/clr/thread internal/walk",

	// Nothing imports proof.
	"internal/proof":            "",
	"internal/proof/churn":      "",
	"internal/proof/cost":       "",
	"internal/proof/damage":     "",
	"internal/proof/heap":       "",
	"internal/proof/instant":    "",
	"internal/proof/inlined":    "",
	"internal/proof/judge":      "profile snapshot internal/livetest internal/testenv",
	"internal/proof/observer":   "export profile snapshot internal/livetest internal/testenv/role",
	"internal/proof/oracle":     ". internal/agent internal/livetest internal/target/live",
	"internal/proof/perfmap":    "",
	"internal/proof/ordeal":     "",
	"internal/proof/recordsoak": "",
	"internal/proof/lines":      "",
	"internal/proof/living":     "",
	"internal/proof/why":        "",
	"internal/proof/requests":   "",
	"internal/proof/shares":     "",
	"internal/proof/singlestep": "internal/arch internal/target internal/target/live internal/clr/codemap " +
		"internal/clr/thread internal/engine internal/replay internal/walk",

	"internal/diagnostics": "internal/foreign internal/procfs",
	"internal/agent":       "internal/diagnostics internal/memfd internal/procfs",
	"internal/inject": "internal/agent internal/cgroup internal/diagnostics internal/foreign internal/procfs " +
		"internal/target/live internal/module internal/locate",

	"internal/perfevent": "internal/arch internal/procfs",

	"internal/testenv":       "internal/testenv/layer",
	"internal/testenv/layer": "",
	"internal/testenv/role":  "",
	"scripts/apps":           "internal/testenv",
	"scripts/mutate":         "",
	"scripts/words":          "",
	"internal/matrix":        "",
	"internal/livetest": ". record profile snapshot report internal/arch internal/bridge internal/clr/thread " +
		"internal/target/live internal/testenv internal/walk",

	"internal/moments": "internal/deadlock internal/heapwalk internal/livetest internal/naming internal/requests " +
		"internal/session internal/target/recorded internal/tasks internal/testenv internal/walk",

	"internal/ecma335/ecma335test": "",

	"internal/clr/clrtest": "internal/arch internal/target internal/contract internal/ecma335/ecma335test",
	"internal/confine":     "",

	"internal/display":     "profile snapshot",
	"internal/jsonwriter":  "",
	"internal/dedup":       "",
	"internal/profiletest": "profile snapshot internal/display",

	"internal/source": "symbols internal/arch internal/bundle internal/foreign internal/pace internal/pdb " +
		"internal/pe internal/target",
	"internal/lines": "profile snapshot symbols internal/arch internal/foreign internal/module internal/pe " +
		"internal/source internal/target",
	"symbols": "internal/elfx internal/foreign internal/pdb internal/pe",

	"internal/heapwalk": "snapshot internal/arch internal/awaits internal/clr internal/clr/* internal/contract " +
		"internal/moment internal/session internal/target internal/target/live internal/tasks",
	"internal/deadlock": "snapshot internal/arch internal/clr/* internal/naming internal/session internal/tasks " +
		"internal/walk",
	"internal/requests": "snapshot internal/arch internal/awaits internal/clr/* internal/moment internal/session " +
		"internal/target internal/target/live internal/tasks",
	"internal/tasks": "snapshot internal/arch internal/awaits internal/clr/* internal/moment internal/naming " +
		"internal/session internal/target internal/target/live",
	"internal/moment": "internal/clr/heap internal/target",
	"internal/naming": "snapshot symbols internal/arch internal/assemblies internal/clr internal/clr/* " +
		"internal/engine internal/foreign internal/locate internal/module internal/source internal/target " +
		"internal/walk",
	"internal/awaits": "snapshot internal/arch internal/clr internal/clr/* internal/engine internal/moment " +
		"internal/naming internal/source internal/target internal/unwind/insns internal/walk",
	"internal/exceptions": "snapshot internal/arch internal/clr internal/clr/* internal/engine internal/moment " +
		"internal/naming internal/target",
	"internal/descriptors": "internal/openfiles internal/procfs internal/sockdiag",
	"internal/origin": "internal/arch internal/contract internal/engine internal/locate internal/target " +
		"internal/target/core internal/target/live internal/target/recorded",
	"internal/session": "snapshot internal/arch internal/awaits internal/cgroup internal/clr internal/clr/* " +
		"internal/dedup internal/descriptors internal/engine internal/exceptions internal/locate internal/moment " +
		"internal/mounts internal/naming internal/origin internal/priority internal/procfs internal/target " +
		"internal/target/core internal/target/live internal/target/recorded internal/waits internal/walk",
	"internal/search": "snapshot internal/engine internal/locate internal/mounts internal/origin internal/procfs " +
		"internal/session internal/target/live internal/hung",
	"internal/diagnose": "snapshot internal/clr internal/confine internal/elfx internal/inject internal/locate " +
		"internal/origin internal/perfevent internal/session internal/target/live",
	"internal/pace": "",
	"internal/link": "internal/agent internal/arch internal/awaits internal/inject internal/pace " +
		"internal/priority internal/session internal/target/live",
	"internal/bridge": "internal/arch internal/clr/codemap",

	".": "snapshot symbols internal/arch internal/target internal/bridge internal/clr/codemap " +
		"internal/deadlock internal/diagnose internal/heapwalk internal/locate internal/mounts internal/naming " +
		"internal/origin internal/requests internal/search internal/session internal/source internal/target/live " +
		"internal/tasks internal/walk",
	"events": ". internal/agent internal/arch internal/bridge internal/link internal/session internal/target/live",
	"record": ". events profile snapshot internal/agent internal/arch internal/awaits internal/bridge " +
		"internal/clr/thread internal/display internal/engine internal/heapwalk internal/lines internal/link " +
		"internal/module internal/naming internal/pace internal/perfevent internal/priority internal/procfs " +
		"internal/session internal/source internal/target internal/target/live internal/walk",

	"internal/phrase": "profile snapshot internal/display",
	"internal/gather": ". events record profile snapshot internal/bridge internal/cgroup internal/clr/threadpool " +
		"internal/display internal/heapwalk internal/openfiles internal/phrase internal/procfs internal/requests " +
		"internal/session internal/sockdiag internal/tasks",
	"internal/activity":  "profile snapshot internal/gather internal/phrase",
	"internal/stopped":   "profile snapshot internal/gather internal/phrase",
	"internal/limits":    "profile snapshot internal/gather internal/phrase",
	"internal/cpu":       "profile snapshot internal/gather internal/phrase",
	"internal/gone":      "profile snapshot internal/gather internal/phrase",
	"internal/nativemem": "profile internal/gather internal/phrase",
	"internal/remote":    "profile snapshot internal/gather internal/phrase",
	"why": ". profile snapshot internal/activity internal/clr/threadpool internal/cpu internal/display " +
		"internal/gather internal/gone internal/heapwalk internal/limits internal/nativemem internal/phrase " +
		"internal/remote internal/stopped internal/tasks",

	"cmd/clrsnap": ". events record profile snapshot report export export/gcdump symbols why internal/confine " +
		"internal/display internal/lines internal/priority internal/priority/early internal/source internal/hung",
	"examples/allocsites": ". events",
}

// outside are the third-party modules that each package may import.
var outside = map[string]string{
	"internal/target/iter": "golang.org/x/sys github.com/cilium/ebpf",
	"internal/target/live": "golang.org/x/sys",
	"internal/session":     "golang.org/x/sys",
	"internal/target/core": "golang.org/x/sys",
	"internal/perfevent":   "golang.org/x/sys github.com/cilium/ebpf",
	"internal/agent":       "golang.org/x/sys",
	"internal/sockdiag":    "golang.org/x/sys",
	"internal/procfs":      "golang.org/x/sys github.com/moby/sys/mountinfo",
	"internal/priority":    "golang.org/x/sys",
	"internal/hung":        "golang.org/x/sys",
	"internal/foreign":     "golang.org/x/sys",
	"internal/memfd":       "golang.org/x/sys",
	"internal/mounts":      "golang.org/x/sys",
	"internal/diagnostics": "golang.org/x/sys",
	"internal/inject":      "golang.org/x/sys",
	"internal/confine": "golang.org/x/sys github.com/landlock-lsm/go-landlock " +
		"kernel.org/pub/linux/libs/security/libcap",
	"internal/testenv":  "golang.org/x/sys",
	"symbols":           "golang.org/x/sys",
	"internal/livetest": "golang.org/x/sys",
	"internal/symbol":   "github.com/ianlancetaylor/demangle",
	"cmd/clrsnap":       "golang.org/x github.com/spf13",
	"export":            "google.golang.org/protobuf",

	"internal/proof/inlined":    "",
	"internal/proof/judge":      "golang.org/x/sys",
	"internal/proof/singlestep": "golang.org/x/sys",
}

const module = "clrsnap"

// goPackage is a package of the module, as go list describes it.
type goPackage struct {
	ImportPath string
	Imports    []string
}

func packages(t *testing.T) (out []goPackage) {
	t.Helper()
	list, err := exec.Command("go", "list", "-e", "-json=ImportPath,Imports", "./...").Output()
	if err != nil {
		t.Fatal(err)
	}
	for dec := json.NewDecoder(bytes.NewReader(list)); ; {
		var p goPackage
		if err := dec.Decode(&p); errors.Is(err, io.EOF) {
			return out
		} else if err != nil {
			t.Fatal(err)
		}
		out = append(out, p)
	}
}

var update = flag.Bool("update", false, "write what tests compare with anew")

// TestDrawing: the drawing in docs/architecture.md shows the present imports. go test -run TestDrawing . -update draws
// anew.
func TestDrawing(t *testing.T) {
	const file, begin, end = "docs/architecture.md", "```mermaid\nflowchart TD\n", "```\n"
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	before, rest, ok := strings.Cut(string(text), begin)
	drawn, after, closed := strings.Cut(rest, end)
	if !ok || !closed {
		t.Fatalf("%s has no drawing", file)
	}
	want := arrows(packages(t))
	if drawn == want {
		return
	}
	if !*update {
		t.Fatalf("%s does not have the imports that there are: go test -run TestDrawing . -update\n%s", file, want)
	}
	if err := os.WriteFile(file, []byte(before+begin+want+end+after), 0o644); err != nil {
		t.Fatal(err)
	}
}

// arrows are the imports between packages, one a line. An import is left out if a chain of other imports leads to the
// same package.
func arrows(all []goPackage) string {
	imports := map[string][]string{}
	for _, p := range all {
		for _, imp := range p.Imports {
			if imp == module || strings.HasPrefix(imp, module+"/") {
				imports[p.ImportPath] = append(imports[p.ImportPath], imp)
			}
		}
	}
	var leads func(from, to string) bool
	leads = func(from, to string) bool {
		return from == to || slices.ContainsFunc(imports[from], func(next string) bool { return leads(next, to) })
	}
	short := func(path string) string { return strings.TrimPrefix(strings.TrimPrefix(path, module+"/"), "internal/") }
	var lines []string
	for from, direct := range imports {
		for _, to := range direct {
			around := func(other string) bool { return other != to && leads(other, to) }
			if !slices.ContainsFunc(direct, around) {
				lines = append(lines, "    "+short(from)+" --> "+short(to)+"\n")
			}
		}
	}
	slices.Sort(lines)
	return strings.Join(lines, "")
}

// TestImports: packages import only what mayImport and outside allow.
func TestImports(t *testing.T) {
	for _, p := range packages(t) {
		name := relative(p.ImportPath, module)
		allowed, known := mayImport[name]
		if !known {
			t.Errorf("package %s is not in the drawing: say in mayImport what it may import", name)
			continue
		}
		for _, imp := range p.Imports {
			switch {
			case imp == module || strings.HasPrefix(imp, module+"/"):
				if !allows(allowed, relative(imp, module)) {
					t.Errorf("%s imports %s: an arrow that points back", name, imp)
				}
			case strings.Contains(strings.SplitN(imp, "/", 2)[0], "."):
				ofModule := func(m string) bool { return strings.HasPrefix(imp, m+"/") || imp == m }
				if !slices.ContainsFunc(strings.Fields(outside[name]), ofModule) {
					t.Errorf("%s imports %s: not one of its modules", name, imp)
				}
			}
		}
	}
}

// relative is the path of a package inside its module.
func relative(path, module string) string {
	if path == module {
		return "."
	}
	return strings.TrimPrefix(path, module+"/")
}

// allows reports whether a list has a package, by its name or by its folder: "clr/*".
func allows(list, name string) bool {
	for _, a := range strings.Fields(list) {
		folder, all := strings.CutSuffix(a, "*")
		if a == name || all && strings.HasPrefix(name, folder) && name != "internal/testenv" {
			return true
		}
	}
	return false
}
