package why

import (
	"fmt"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"clrsnap/internal/testenv"
	"clrsnap/internal/testenv/layer"
)

// A program is a healthy program.
type program struct {
	app     string // "workloads", "oddities" or "shop"
	kind    string
	threads int // of "shop": visitors
	runtime string
	env     []string
	pause   time.Duration // between a visitor's requests
	load    bool          // of "shop": kind is no path but a name with a load of its own; of "oddities": always
}

func (p *program) name() string {
	name := fmt.Sprintf("%s/%s-%d", p.app, strings.ReplaceAll(strings.Trim(p.kind, "/{n}"), "/", "-"), p.threads)
	if p.runtime != "" {
		name += "-" + testenv.Name(p.runtime)
	}
	for _, e := range p.env {
		name += "-" + e
	}
	return name
}

// kinds are the workloads of the program "workloads", with the numbers of threads to try.
var kinds = []struct {
	name    string
	threads []int
}{
	{"idle", []int{1}},
	{"batch", []int{1, 2, 8}},
	{"parallel", []int{2, 4}},
	{"simulation", []int{1}},
	{"spells", []int{1, 3}},
	{"json", []int{1, 4}},
	{"text", []int{1, 4}},
	{"cache", []int{1}},
	{"pooled", []int{1, 4}},
	{"finalizers", []int{1, 2}},
	{"exceptions-at-start", []int{2}},
	{"jit", []int{1, 2}},
	{"lock", []int{2, 8}},
	{"readers", []int{2, 8}},
	{"semaphore", []int{6, 60}},
	{"monitor", []int{2, 20}},
	{"barrier", []int{2, 12}},
	{"queue", []int{2, 40}},
	{"queue-full", []int{2, 12}},
	{"channels", []int{2, 20}},
	{"one-instance", []int{1}},
	{"timers", []int{2, 40}},
	{"delays", []int{1, 40}},
	{"pool-batch", []int{2, 40}},
	{"bursts", []int{2, 40}},
	{"polling", []int{1, 60}},
	{"host", []int{1, 60}},
	{"child", []int{1, 4}},
	{"connections", []int{2, 40}},
	{"echo", []int{1, 20}},
	{"receivers", []int{2, 40}},
	{"files", []int{1, 6}},
}

// settings are runtime settings that change a program's look from outside.
var settings = [][]string{
	{"DOTNET_gcServer=1"}, {"DOTNET_gcConcurrent=0"}, {"DOTNET_TieredCompilation=0"}, {"DOTNET_ReadyToRun=0"},
	{"DOTNET_ThreadPool_MinThreads=20"}, {"DOTNET_GCHeapHardLimit=0x20000000"},
}

// healthy lists the programs: more than a hundred.
func healthy() []program {
	var all []program
	for _, k := range kinds {
		for _, n := range k.threads {
			all = append(all, program{app: "workloads", kind: k.name, threads: n})
		}
	}
	for i, env := range settings {
		for _, kind := range []string{"json", "bursts", "channels", "cache"} {
			all = append(all, program{app: "workloads", kind: kind, threads: 1 + i, env: env})
		}
	}
	for _, runtime := range []string{"net8", "net9", testenv.NewestRuntime} {
		for _, kind := range []string{"batch", "json", "lock", "queue", "delays", "host", "echo", "files"} {
			all = append(all, program{app: "workloads", kind: kind, threads: 3, runtime: runtime})
		}
	}
	for _, kind := range []string{"tide", "lockstep", "backpressure", "listening", "frames"} {
		all = append(all, program{app: "oddities", kind: kind, threads: 1, load: true})
	}
	// As many visitors of a web service, without a pause up to 8 of them.
	for _, visitors := range []int{1, 2, 8, 50, 200} {
		p := program{app: "shop", kind: "/products/{n}", threads: visitors}
		if visitors > 8 {
			p.pause = time.Duration(visitors) * 5 * time.Millisecond
		}
		all = append(all, p)
		for _, p.runtime = range []string{"net9", testenv.NewestRuntime} {
			all = append(all, p)
		}
	}
	// Requests that wait for news, or for their turn, and a dictionary that is slow.
	for _, kind := range []string{"news", "limited", "hashing"} {
		all = append(all, program{app: "shop", kind: kind, threads: 1, load: true})
	}
	// Diseases in small doses: a lock, exceptions, large arrays, calls to another service.
	return append(all,
		program{app: "shop", kind: "/orders/{n}/place", threads: 1},
		program{app: "shop", kind: "/orders/{n}/place", threads: 3, pause: 100 * time.Millisecond},
		program{app: "shop", kind: "/imports/{n}", threads: 1, pause: 500 * time.Millisecond},
		program{app: "shop", kind: "/images/{n}", threads: 1, pause: 50 * time.Millisecond},
		program{app: "shop", kind: "/suppliers/{n}/price", threads: 2},
		program{app: "shop", kind: "/suppliers/{n}/price-later", threads: 8, pause: 20 * time.Millisecond},
	)
}

// shortHealthy are the programs of the short form: they leave the processors to others.
var shortHealthy = []program{
	{app: "shop", kind: "/products/{n}", threads: 2, pause: 20 * time.Millisecond},
	{app: "workloads", kind: "queue", threads: 40},
	{app: "workloads", kind: "host", threads: 10},
}

// tryCompiler looks at a program not written for this test, in its first seconds: the C# compiler, with much to
// compile.
func tryCompiler(t *testing.T, c command) {
	sources, err := filepath.Glob("../../../testdata/apps/waits/*.cs")
	if err != nil || len(sources) == 0 {
		t.Fatal("no sources", err)
	}
	common, err := filepath.Glob("../../../testdata/apps/common/*.cs")
	if err != nil {
		t.Fatal(err)
	}
	out, args := t.TempDir(), []string{"net10"}
	for i := range 120 {
		args = append(args, "-o+", "-define:NET9_0_OR_GREATER", fmt.Sprintf("-out:%s/%d.dll", out, i))
		args = append(append(append(args, sources...), common...), "--")
	}
	cmd := exec.Command(testenv.Kit(t).Compiler(), args[:len(args)-1]...)
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	time.Sleep(time.Second)
	for _, w := range []way{plain, noAgent} {
		for _, v := range c.why(t, cmd.Process.Pid, w, false) {
			t.Errorf("a false alarm (%s): %v\n%s", w.name, &v, v.raw)
		}
	}
	if err := cmd.Process.Kill(); err != nil { // else nothing was looked at
		t.Error(err)
	}
	_ = cmd.Wait() // killed
}

// try looks at the program. No verdict may appear, neither possible nor certain.
func (p *program) try(t *testing.T, c command) {
	a := p.start(t)
	time.Sleep(time.Second)
	before := p.units(t, a)
	for _, w := range layer.Size([]way{plain}, []way{plain, noAgent}) {
		for _, v := range c.why(t, a.PID, w, false) {
			t.Errorf("%s (%s): a false alarm: %v\n%s", p.name(), w.name, &v, v.raw)
		}
	}
	if status := c.locks(t, a.PID); status != 0 {
		t.Errorf("%s: the exit status of locks is %d", p.name(), status)
	}
	if p.kind != "idle" && p.kind != "connections" && !p.load && p.units(t, a) == before {
		t.Errorf("%s: it has done nothing", p.name())
	}
	if result, code := a.Stop(); result != "OK" || code != 0 {
		t.Errorf("%s: it ended with %q and %d: %s", p.name(), result, code, a.Stderr())
	}
}

func (p *program) start(t *testing.T) *testenv.App {
	t.Helper()
	o := testenv.Options{Runtime: p.runtime, Env: p.env}
	if p.app == "shop" {
		o.Args = []string{"--supplier", quickServer(t)}
		if p.load {
			o.Args = append(o.Args, "--sick", p.kind)
			a := testenv.Start(t, p.app, o)
			startLoad(t, a)
			return a
		}
		a := testenv.Start(t, p.app, o)
		load{{name: "visitors", count: p.threads, pause: p.pause, path: p.kind}}.start(t, a)
		return a
	}
	o.Args = []string{"--kind", p.kind, "--threads", strconv.Itoa(p.threads)}
	return testenv.Start(t, p.app, o)
}

// units is the program's work so far.
func (p *program) units(t *testing.T, a *testenv.App) string {
	t.Helper()
	return fmt.Sprint(a.Ask("counts"))
}
