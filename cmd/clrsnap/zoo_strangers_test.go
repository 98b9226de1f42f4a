package main

import (
	"bufio"
	"bytes"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"unicode"

	"clrsnap/export"
	"clrsnap/internal/livetest"
	"clrsnap/internal/testenv"
	"clrsnap/internal/testenv/layer"
	"clrsnap/profile"
)

// TestHostileAgentMemory: a target that writes lies into the memory that the target shares with why and record, as fast
// as it can, changes what they say about the target, and nothing else.
func TestHostileAgentMemory(t *testing.T) {
	layer.Live(t)
	t.Parallel()
	a := testenv.Start(t, "liar", testenv.Options{Args: []string{"--of", "memory"}})
	pid, before := fmt.Sprint(a.PID), 0
	for _, args := range [][]string{
		{"why", pid, "--for", "2s"}, {"why", pid, "--for", "2s", "--json"},
		{"record", pid, "--event", "all", "-d", "2s", "-o", filepath.Join(t.TempDir(), "a.clrsnap")},
		{"why", pid, "--for", "2s"},
	} {
		c := exec.Command("clrsnap", args...)
		r := finish(t, c)
		if r.status != 0 && r.status != 1 {
			t.Errorf("%v: status %d\n%s", args, r.status, r.stderr)
		}
		if memory := c.ProcessState.SysUsage().(*syscall.Rusage).Maxrss << 10; memory > liarMemory {
			t.Errorf("%v: %d MB", args, memory>>20)
		}
		if took := worked(c); took > hostileTime {
			t.Errorf("%v: %v", args, took)
		}
		for _, text := range []string{r.stdout, r.stderr} {
			if at := strings.IndexFunc(text, forbidden); at >= 0 {
				t.Errorf("%v: %.80q", args, text[max(0, at-40):])
			}
		}
		if strings.Contains(r.stderr, "panic") || len(r.stderr) > 4<<10 {
			t.Errorf("%v: %.2000s", args, r.stderr)
		}
		var lies int
		if _, err := fmt.Sscanf(a.Ask("lies")[0], "LIES %d", &lies); err != nil || lies <= before {
			t.Errorf("%v: the target has told %d lies (%v)", args, lies-before, err)
		}
		t.Logf("%v: status %d, %d lies", args, r.status, lies-before)
		before = lies
	}
}

// liarMemory bounds the memory of why and record.
const liarMemory = 320 << 20

// forbidden are the characters that a terminal may obey, or that change the order of a text.
func forbidden(r rune) bool {
	return r != '\n' && unicode.IsControl(r) || unicode.Is(unicode.Bidi_Control, r) || r == unicode.ReplacementChar
}

// TestHostileEnvironment: what sudo leaves of a user's environment does not make root write into the user's folders,
// nor read symbols there. Symbols are fetched all the same.
func TestHostileEnvironment(t *testing.T) {
	layer.Live(t)
	t.Parallel()
	if os.Geteuid() != 0 {
		layer.Lacking(t, "a folder of another user can only be made as root")
	}
	u := startUnsymbolled(t)
	const other = 65534
	home := filepath.Join(t.TempDir(), "home")
	planted := filepath.Join(home, ".cache", "clrsnap", "symbols")
	if err := os.MkdirAll(planted, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := filepath.WalkDir(home, func(path string, _ os.DirEntry, _ error) error {
		return os.Chown(path, other, other)
	}); err != nil {
		t.Fatal(err)
	}
	link := filepath.Join(t.TempDir(), "link")
	if err := os.Symlink(home, link); err != nil {
		t.Fatal(err)
	}
	user := []string{
		"SUDO_USER=\x1b[31mnobody", fmt.Sprintf("SUDO_UID=%d", other), "SUDO_COMMAND=\x1b]0;x\a", "USER=nobody",
		"TMPDIR=" + home, "NO_COLOR=", "LINES=-1", "COLUMNS=99999999999999999999", "TERM=\x1b[31m",
	}
	for _, c := range []struct {
		name  string
		env   []string
		keeps bool // there is no cache, and this is said
	}{
		{"home of another user", []string{"HOME=" + home, "XDG_CACHE_HOME="}, true},
		{"link to this home", []string{"HOME=" + link, "XDG_CACHE_HOME="}, true},
		{"cache of another user", []string{"HOME=/root", "XDG_CACHE_HOME=" + filepath.Join(home, ".cache")}, true},
		{"relative cache", []string{"HOME=/root", "XDG_CACHE_HOME=cache"}, false},
		{"cache that leads out", []string{"HOME=/root", "XDG_CACHE_HOME=" + link + "/../link/.cache"}, true},
	} {
		cmd := u.command(fmt.Sprint(u.PID), "--symbol-server", u.server.URL, "--json")
		cmd.Env = append(cmd.Env, append(slices.Clone(user), c.env...)...)
		cmd.Dir = t.TempDir()
		r := finish(t, cmd)
		if !u.hasSymbols(t, r) {
			t.Errorf("%s: no symbols: %s", c.name, r.stderr)
		}
		if said := strings.Contains(r.stderr, "symbols are not kept for the next time: "); said != c.keeps {
			t.Errorf("%s: %s", c.name, r.stderr)
		}
		if at := strings.IndexFunc(r.stdout+r.stderr, forbidden); at >= 0 {
			t.Errorf("%s: control characters: %q", c.name, r.stderr)
		}
		for _, dir := range []string{home, cmd.Dir} {
			if made := filesBelow(t, dir); len(made) > 0 {
				t.Errorf("%s: root has made %q", c.name, made)
			}
		}
	}
	livetest.EndsWell(t, u.App)
}

// filesBelow lists what is below a folder and is no folder.
func filesBelow(t *testing.T, dir string) (files []string) {
	t.Helper()
	err := filepath.WalkDir(dir, func(path string, d os.DirEntry, err error) error {
		if err == nil && !d.IsDir() {
			files = append(files, path)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return files
}

// proxy is a proxy for HTTP and HTTPS. Whatever a request asks for, another server answers: to.
type proxy struct {
	*httptest.Server
	to    *httptest.Server
	spoil func(path string, answer []byte) []byte

	mu    sync.Mutex
	asked int
}

func startProxy(t *testing.T, to *httptest.Server, spoil func(string, []byte) []byte) *proxy {
	t.Helper()
	p := &proxy{to: to, spoil: spoil}
	p.Server = httptest.NewServer(p)
	t.Cleanup(p.Close)
	t.Cleanup(p.CloseClientConnections)
	return p
}

// ServeHTTP implements http.Handler.
func (p *proxy) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	p.mu.Lock()
	p.asked++
	p.mu.Unlock()
	if r.Method == http.MethodConnect {
		p.tunnel(w)
		return
	}
	answer, err := http.Get(p.to.URL + r.URL.Path)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadGateway)
		return
	}
	defer answer.Body.Close()
	b, err := io.ReadAll(answer.Body)
	if err == nil && answer.StatusCode == http.StatusOK {
		_, _ = w.Write(p.spoil(r.URL.Path, b))
		return
	}
	http.NotFound(w, r)
}

// tunnel connects a client with a server that has a certificate of nobody.
func (p *proxy) tunnel(w http.ResponseWriter) {
	conn, _, err := w.(http.Hijacker).Hijack()
	if err != nil {
		return
	}
	defer conn.Close()
	_, _ = io.WriteString(conn, "HTTP/1.1 200 OK\r\n\r\n")
	secret := tls.Server(conn, &tls.Config{Certificates: p.to.TLS.Certificates})
	if r, err := http.ReadRequest(bufio.NewReader(secret)); err == nil {
		p.to.Config.Handler.ServeHTTP(httptest.NewRecorder(), r) // the server notes that somebody has asked
	}
}

func (p *proxy) count() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.asked
}

// TestHostileProxies: a proxy of the environment is asked. A proxy that lies has no effect, reads nothing that is
// encrypted, and no error shows the proxy's password.
func TestHostileProxies(t *testing.T) {
	layer.Live(t)
	t.Parallel()
	u := startUnsymbolled(t)
	secure := httptest.NewTLSServer(u.server)
	t.Cleanup(secure.Close)
	honest := startProxy(t, u.server.Server, func(_ string, b []byte) []byte { return b })
	lying := startProxy(t, u.server.Server, func(path string, b []byte) []byte {
		b = bytes.Clone(b)
		for i := 200; i < len(b); i += 97 {
			b[i] ^= 0x5a
		}
		return b
	})
	between := startProxy(t, secure, nil)
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	dead := listener.Addr().String()
	listener.Close()
	const away, awaySecure = "http://symbols.invalid/x", "https://symbols.invalid/x"
	for _, c := range []struct {
		name, proxy, server string
		asked               *proxy
		has                 bool
		says                string
	}{
		{"honest", honest.URL, away, honest, true, `^$`},
		{"lies", lying.URL, away, lying, false, ``},
		{"between", between.URL, awaySecure, between, false, `certificate`},
		{"dead", "http://user:s3cret@" + dead, away, nil, false,
			`cannot be asked: http://symbols\.invalid/x: proxyconnect`},
		{"wrong", "http://user:s3%zzcret@" + dead, away, nil, false,
			`^clrsnap: the variable HTTP_PROXY is not the address of a proxy`},
		{"no proxy", "user:s3cret@" + dead + "99999", awaySecure, nil, false, `symbols\.invalid`},
	} {
		cmd := u.command(fmt.Sprint(u.PID), "--symbol-server", c.server, "--json")
		cmd.Env = append(cmd.Env, "XDG_CACHE_HOME="+t.TempDir(), "HTTP_PROXY="+c.proxy, "HTTPS_PROXY="+c.proxy,
			"NO_PROXY=", "http_proxy=", "https_proxy=", "no_proxy=")
		u.server.take()
		r := finish(t, cmd)
		if c.name == "wrong" {
			if r.status == 0 || strings.Count(r.stderr, "\n") != 1 {
				t.Errorf("%s: status %d: %s", c.name, r.status, r.stderr)
			}
		} else if has := u.hasSymbols(t, r); has != c.has {
			t.Errorf("%s: symbols: %v, want %v: %s", c.name, has, c.has, r.stderr)
		}
		if c.asked != nil && c.asked.count() == 0 {
			t.Errorf("%s: nobody has asked the proxy", c.name)
		}
		if asked := u.server.take(); c.asked == between && len(asked) > 0 {
			t.Errorf("%s: the proxy has read %q", c.name, asked)
		}
		if strings.Contains(r.stderr, "cret") || !regexp.MustCompile(c.says).MatchString(r.stderr) {
			t.Errorf("%s: %s", c.name, r.stderr)
		}
	}
	livetest.EndsWell(t, u.App)
}

// TestCacheFilledAtOnce: several processes that fill one cache at once all have symbols, and leave whole files and
// nothing else; also if one of the processes is killed.
func TestCacheFilledAtOnce(t *testing.T) {
	layer.Live(t)
	t.Parallel()
	u := startUnsymbolled(t)
	core := testenv.Dump(t, u.App, testenv.DumpGCore) // of which no thread is ever missing
	args := []string{"--core", core, "--symbol-server", u.server.URL, "--json"}
	cache := filepath.Join(u.cache, "clrsnap", "symbols")
	alone := t.TempDir()
	first := u.command(args...)
	first.Env = append(first.Env, "XDG_CACHE_HOME="+alone)
	if !u.hasSymbols(t, finish(t, first)) {
		t.Fatal("no symbols")
	}
	want := contentsBelow(t, filepath.Join(alone, "clrsnap", "symbols"))
	if len(want) == 0 {
		t.Fatal("the cache of one process is empty")
	}
	const together = 6
	for round := range 3 {
		if err := os.RemoveAll(u.cache); err != nil {
			t.Fatal(err)
		}
		if err := os.Mkdir(u.cache, 0o700); err != nil {
			t.Fatal(err)
		}
		// The processes have the files open at the same time.
		u.server.gathers(together - round/2)
		var all []*running
		for range together {
			all = append(all, launch(t, u.command(args...)))
		}
		for i, r := range all {
			if round == 2 && i == 0 {
				_ = r.Process.Kill()
			}
			end := r.end(t)
			if (round != 2 || i > 0) && (!u.hasSymbols(t, end) || end.stderr != "") {
				t.Errorf("round %d, process %d: %s", round, i, end.stderr)
			}
		}
		for name, content := range contentsBelow(t, cache) {
			if strings.HasPrefix(name, ".clrsnap-") && round == 2 {
				continue // of the killed process: removed by whoever makes room, an hour later
			}
			if string(want[name]) != string(content) {
				t.Errorf("round %d: %s has %d bytes, want %d", round, name, len(content), len(want[name]))
			}
		}
		u.server.take()
		if r := finish(t, u.command(args...)); !u.hasSymbols(t, r) || r.stderr != "" {
			t.Errorf("round %d: from the cache: %s", round, r.stderr)
		}
		for _, path := range u.server.take() {
			if strings.Contains(path, "inmemory.pdb") {
				t.Errorf("round %d: the server was asked again: %s", round, path)
			}
		}
	}
	livetest.EndsWell(t, u.App)
}

// contentsBelow returns the files of a folder.
func contentsBelow(t *testing.T, dir string) map[string][]byte {
	t.Helper()
	files := map[string][]byte{}
	for _, path := range filesBelow(t, dir) {
		files[strings.TrimPrefix(path, dir+"/")] = contentOf(t, path)
	}
	return files
}

// TestHostileSource: source is in a recording as text, and is no markup in the page. TestPageSource shows such a page.
// The source is a file below --source-root, or the text that the PDB contains.
func TestHostileSource(t *testing.T) {
	layer.Live(t)
	t.Parallel()
	for name, c := range map[string]struct{ compile, args []string }{
		"file":           {nil, []string{"--source-root", "../.."}},
		"in the PDB":     {[]string{"-embed"}, nil},
		"in the program": {[]string{"-embed", "-debug:embedded"}, nil},
	} {
		t.Run(name, func(t *testing.T) { testHostileSource(t, c.compile, c.args) })
	}
}

func testHostileSource(t *testing.T, compile, args []string) {
	a := testenv.Start(t, "liar", testenv.Options{Args: []string{"--of", "source"}, Compile: compile})
	dir := t.TempDir()
	pages, plain := map[string]string{}, "plain"
	for _, name := range []string{"source", plain} {
		path := filepath.Join(dir, name)
		args := append([]string{"record", fmt.Sprint(a.PID), "--mode", "cpu", "-d", "1s", "-o", path + ".clrsnap"},
			args...)
		if name == plain {
			args = append(args, "--no-source")
		}
		finish(t, exec.Command("clrsnap", args...)).says(t, 0)
		finish(t, exec.Command("clrsnap", "view", path+".clrsnap", "-o", path+".html")).says(t, 0)
		pages[name] = string(contentOf(t, path+".html"))
		r, err := export.ReadRecording(bytes.NewReader(contentOf(t, path+".clrsnap")))
		if err != nil {
			t.Fatal(err)
		}
		for _, text := range []string{"</script><script>", "\x1b]0;forged"} {
			if has := strings.Contains(textOf(r), text); has == (name == plain) {
				t.Errorf("%s: the recording has the source: %v", name, has)
			}
		}
	}
	for _, tag := range []string{
		"<script", "</script", "<img", "<!--", "</style", "\u202e", "\x1b", "\x07", "\u009b",
	} {
		if n, none := strings.Count(pages["source"], tag), strings.Count(pages[plain], tag); n != none {
			t.Errorf("a page with hostile source has %q %d times, a page without source %d times", tag, n, none)
		}
	}
	var r result
	for again := true; again; again = strings.Contains(r.stderr, "another attempt may get them") {
		r = finish(t, exec.Command("clrsnap", "stack", fmt.Sprint(a.PID), "--thread", "computes"))
	}
	r.says(t, 0)
	r.want(t, `Compute.*Program\.cs:\d`)
	if strings.ContainsFunc(r.stdout, forbidden) {
		t.Errorf("%q", r.stdout)
	}
}

// textOf is all source text in a recording.
func textOf(r *profile.Recording) string {
	var all strings.Builder
	for i := range r.Files {
		for _, x := range r.Files[i].Text {
			all.WriteString(strings.Join(x.Lines, "\n"))
		}
	}
	return all.String()
}
