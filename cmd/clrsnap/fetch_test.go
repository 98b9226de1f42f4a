package main

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"clrsnap/internal/livetest"
	"clrsnap/internal/testenv"
)

// symbolServer serves files by the last part of their paths, and notes the requests.
type symbolServer struct {
	*httptest.Server
	files map[string]string
	hang  bool

	mu    sync.Mutex
	asked []string
	gates map[string]*gate // by path; nil: see gathers
	most  int
}

// gate is where clients wait for one another.
type gate struct {
	clients int
	opened  chan struct{}
}

// gathers makes so many clients wait for one another, in the middle of each file.
func (s *symbolServer) gathers(clients int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.gates, s.most = map[string]*gate{}, clients
}

// gateOf is the gate of one more client; nil: no client waits.
func (s *symbolServer) gateOf(path string) *gate {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.gates == nil {
		return nil
	}
	g := s.gates[path]
	if g == nil {
		g = &gate{opened: make(chan struct{})}
		s.gates[path] = g
	}
	if g.clients++; g.clients == s.most {
		close(g.opened)
	}
	return g
}

func newSymbolServer(t *testing.T, files map[string]string) *symbolServer {
	t.Helper()
	s := &symbolServer{files: files}
	s.Server = httptest.NewServer(s)
	t.Cleanup(s.Close)
	t.Cleanup(s.CloseClientConnections)
	return s
}

// ServeHTTP implements http.Handler.
func (s *symbolServer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	s.asked = append(s.asked, r.URL.Path)
	s.mu.Unlock()
	if s.hang {
		<-r.Context().Done()
		return
	}
	for name, file := range s.files {
		if strings.HasSuffix(r.URL.Path, "/"+name) || strings.Contains(r.URL.Path, "/"+name+"/") {
			g := s.gateOf(r.URL.Path)
			if g == nil {
				http.ServeFile(w, r, file)
				return
			}
			content, err := os.ReadFile(file)
			if err != nil {
				http.Error(w, err.Error(), http.StatusInternalServerError)
				return
			}
			_, _ = w.Write(content[:len(content)/2])
			w.(http.Flusher).Flush()
			select {
			case <-g.opened:
			case <-r.Context().Done():
			}
			_, _ = w.Write(content[len(content)/2:])
			return
		}
	}
	http.NotFound(w, r)
}

// take returns the requests since the last call.
func (s *symbolServer) take() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	asked := s.asked
	s.asked = nil
	return asked
}

// unsymbolled is a program with a native library. The library's symbols are on a server, but not on this machine.
type unsymbolled struct {
	*testenv.App
	server *symbolServer
	cache  string
}

func startUnsymbolled(t *testing.T) *unsymbolled {
	t.Helper()
	dir := t.TempDir()
	dll := testenv.Build(t, "inmemory")
	lib := livetest.Compile(t, dir, "-Wl,--build-id")
	debug := livetest.Strip(t, lib)
	away := filepath.Join(t.TempDir(), "shop.debug")
	if err := os.Rename(debug, away); err != nil {
		t.Fatal(err)
	}
	// An assembly loaded from memory, without its PDB, has no PDB beside it.
	app := testenv.Start(t, "inmemory", testenv.Options{Args: []string{"--image", dll, "--library", lib}})
	return &unsymbolled{app, newSymbolServer(t, map[string]string{
		"inmemory.pdb": strings.TrimSuffix(dll, ".dll") + ".pdb", "_.debug": away,
	}), t.TempDir()}
}

// command is the command with the program's cache.
func (u *unsymbolled) command(args ...string) *exec.Cmd {
	c := exec.Command("clrsnap", append([]string{"stack"}, args...)...)
	c.Env = append(os.Environ(), "XDG_CACHE_HOME="+u.cache, "NO_COLOR=1")
	return c
}

// hasSymbols reports whether the output of stack --json has lines and names that only a server has.
func (u *unsymbolled) hasSymbols(t *testing.T, r result) bool {
	t.Helper()
	if r.status != 0 {
		t.Fatalf("status %d: %s", r.status, r.stderr)
	}
	var s struct {
		Threads []struct {
			Frames []struct {
				Method, File string
				Line         int
			}
		}
	}
	if err := json.Unmarshal([]byte(r.stdout), &s); err != nil {
		t.Fatal(err)
	}
	found := map[string]string{}
	for _, th := range s.Threads {
		for _, f := range th.Frames {
			if f.Line > 0 && (f.Method == "InMemory.Program.Wait" || f.Method == "shop_shelf") {
				found[f.Method] = fmt.Sprintf("%s %d", f.File, f.Line)
			}
		}
	}
	if len(found) == 0 {
		return false
	}
	native := fmt.Sprintf("/testdata/apps/inmemory/shop.c %d", livetest.NativeLines(t)["shop_shelf"])
	if line := u.Ask("line")[0]; found["InMemory.Program.Wait"] != line || found["shop_shelf"] != native {
		t.Errorf("%v, want lines %s and %s", found, line, native)
	}
	return true
}

// TestSymbolServer: symbols are fetched if, and only if, the user says from where; and then kept.
func TestSymbolServer(t *testing.T) {
	t.Parallel()
	u := startUnsymbolled(t)
	pid := fmt.Sprint(u.PID)
	core := testenv.Dump(t, u.App, testenv.DumpGCore)
	for _, c := range []struct {
		name string
		env  []string
		args []string
		has  bool
		asks bool
	}{
		{"nothing", []string{debuginfodVariable + "=" + u.server.URL}, []string{pid}, false, false},
		{"none", []string{serversVariable + "=" + u.server.URL}, []string{pid, "--symbol-server", "none"},
			false, false},
		{"lines are not wanted", nil, []string{pid, "--lines", "never", "--symbol-server", u.server.URL}, false, false},
		{"flag", nil, []string{pid, "--symbol-server", "http://127.0.0.1:1/", "--symbol-server", u.server.URL},
			true, true},
		{"again, from the cache", nil, []string{pid, "--symbol-server", u.server.URL}, true, false},
		{"core dump, from the cache", nil, []string{"--core", core, "--symbol-server", u.server.URL}, true, false},
		{"core dump", []string{"XDG_CACHE_HOME=" + t.TempDir()},
			[]string{"--core", core, "--symbol-server", u.server.URL}, true, true},
		{"variable",
			[]string{"XDG_CACHE_HOME=" + t.TempDir(), serversVariable + "=http://127.0.0.1:1/ " + u.server.URL},
			[]string{pid, "--stop-all"}, true, true},
		{"no cache", []string{"XDG_CACHE_HOME=", "HOME="}, []string{pid, "--symbol-server", u.server.URL}, true, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			u.server.take()
			cmd := u.command(append(c.args, "--json")...)
			cmd.Env = append(cmd.Env, c.env...)
			r := finish(t, cmd)
			if has := u.hasSymbols(t, r); has != c.has {
				t.Errorf("symbols: %v, want %v", has, c.has)
			}
			asked := 0
			for _, path := range u.server.take() {
				if strings.Contains(path, "inmemory.pdb") {
					asked++
				}
			}
			if asked > 1 || (asked > 0) != c.asks {
				t.Errorf("the server was asked %d times", asked)
			}
			dead := strings.Contains(strings.Join(append(c.args, c.env...), " "), "127.0.0.1:1/")
			if dead != strings.Contains(r.stderr, "http://127.0.0.1:1/") || strings.Count(r.stderr, "\n") > 1 {
				t.Errorf("warnings: %s", r.stderr)
			}
		})
	}
	livetest.EndsWell(t, u.App)
}

// TestSlowSymbolServer: clrsnap names a file that takes long, and Ctrl-C shows the stacks without the file.
func TestSlowSymbolServer(t *testing.T) {
	u := startUnsymbolled(t)
	u.server.hang = true
	r := launch(t, u.command(fmt.Sprint(u.PID), "--symbol-server", u.server.URL))
	r.await(t, regexp.MustCompile(`clrsnap: fetching \S+ from 127\.0\.0\.1.* …\n`))
	r.signal(t, syscall.SIGINT)
	end := r.end(t)
	end.says(t, 130, `^clrsnap: interrupted by SIGINT: the stacks collected until then are above \(threads: \d+\)$`)
	end.want(t, `^    InMemory\.Program\.Wait\(`)
	livetest.EndsWell(t, u.App)
}

// TestFetcherRights: the fetcher has no capability, cannot trace, and can write nothing but the cache.
func TestFetcherRights(t *testing.T) {
	u := startUnsymbolled(t)
	u.server.hang = true
	r := launch(t, u.command(fmt.Sprint(u.PID), "--symbol-server", u.server.URL))
	for begin := time.Now(); len(u.server.take()) == 0; time.Sleep(10 * time.Millisecond) {
		if time.Since(begin) > hang {
			t.Fatal("nothing is fetched")
		}
	}
	var children []string
	lists, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", r.Process.Pid))
	for _, list := range lists {
		b, _ := os.ReadFile(list) // a thread may have ended
		children = append(children, strings.Fields(string(b))...)
	}
	found := false
	for _, child := range children {
		status, err := os.ReadFile("/proc/" + child + "/status")
		if err != nil || !strings.Contains(string(status), "Seccomp:\t2") {
			continue
		}
		found = true
		for _, want := range []string{"CapPrm:\t0000000000000000", "CapEff:\t0000000000000000", "NoNewPrivs:\t1"} {
			if !strings.Contains(string(status), want) {
				t.Errorf("the fetcher's status lacks %q:\n%s", want, status)
			}
		}
	}
	if !found {
		t.Errorf("no child of the command is confined: %s", children)
	}
	r.signal(t, syscall.SIGKILL)
	r.end(t)
	for begin := time.Now(); ; time.Sleep(10 * time.Millisecond) {
		left := 0
		for _, child := range children {
			if b, err := os.ReadFile("/proc/" + child + "/comm"); err == nil &&
				strings.HasPrefix(string(b), "clrsnap") {
				left++
			}
		}
		if left == 0 {
			break
		}
		if time.Since(begin) > hang {
			t.Fatal("the fetcher outlives the command")
		}
	}
	livetest.EndsWell(t, u.App)
}
