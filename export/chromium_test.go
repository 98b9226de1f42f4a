package export_test

import (
	"bufio"
	"encoding/base64"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"clrsnap/internal/testenv/layer"
)

var pictures = flag.String("pictures", "",
	"a `directory` for the pages and pictures that the tests look at (an absolute path)")

// chromium is a headless Chromium. It speaks the DevTools protocol over two pipes: JSON objects, each
// with a zero byte at the end.
type chromium struct {
	in      *os.File
	mu      sync.Mutex
	waiting map[int]chan reply
	next    int
	pages   map[string]*browser // by session
	gone    chan struct{}
	end     func()
}

// browser is a page of the tests' Chromium, isolated from the other pages.
type browser struct {
	*chromium
	tb      testing.TB
	session string

	problems []string // errors on the console, exceptions, requests to anywhere
}

type reply struct {
	ID        int             `json:"id"`
	Method    string          `json:"method"`
	SessionID string          `json:"sessionId"`
	Params    json.RawMessage `json:"params"`
	Result    json.RawMessage `json:"result"`
	Error     *struct{ Message string }
}

// replyLimit is how long Chromium may take for a reply.
const replyLimit = 2 * time.Minute

// theChromium is the Chromium of all tests.
var theChromium *chromium

func TestMain(m *testing.M) {
	status := m.Run()
	if theChromium != nil {
		theChromium.end()
	}
	os.Exit(status)
}

// startBrowser opens a page, in the Chromium started by the first test.
func startBrowser(tb testing.TB) *browser {
	tb.Helper()
	if theChromium == nil {
		file, err := exec.LookPath("chromium")
		if err != nil {
			layer.Lacking(tb, "the flame graph is not tested: "+err.Error()+": install Debian's chromium")
		}
		if theChromium, err = startChromium(file); err != nil {
			tb.Fatal(err)
		}
	}
	b := &browser{chromium: theChromium, tb: tb}
	b.open()
	return b
}

func startChromium(file string) (*chromium, error) {
	theirIn, in, err1 := os.Pipe()
	out, theirOut, err2 := os.Pipe()
	home, err3 := os.MkdirTemp("", "clrsnap-chromium-")
	if err := errors.Join(err1, err2, err3); err != nil {
		return nil, err
	}
	cmd := exec.Command(file, "--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage",
		"--no-first-run",
		"--disable-background-networking", "--hide-scrollbars", "--remote-debugging-pipe",
		"--user-data-dir="+home, "about:blank")
	cmd.ExtraFiles = []*os.File{theirIn, theirOut} // 3 and 4
	cmd.Env = append(os.Environ(), "HOME="+home)
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	theirIn.Close()
	theirOut.Close()
	c := &chromium{in: in, waiting: map[int]chan reply{}, pages: map[string]*browser{}, gone: make(chan struct{})}
	go c.read(out)
	c.end = func() {
		in.Close() // Chromium ends with its pipe
		late := time.AfterFunc(10*time.Second, func() { cmd.Process.Kill() })
		cmd.Wait()
		late.Stop()
		out.Close()
		os.RemoveAll(home)
	}
	return c, nil
}

func (b *browser) open() {
	b.tb.Helper()
	var context struct{ BrowserContextID string }
	b.call("Target.createBrowserContext", nil, &context)
	var target struct{ TargetID string }
	b.call("Target.createTarget",
		map[string]any{"url": "about:blank", "browserContextId": context.BrowserContextID}, &target)
	var attached struct{ SessionID string }
	b.call("Target.attachToTarget", map[string]any{"targetId": target.TargetID, "flatten": true}, &attached)
	b.mu.Lock()
	b.session = attached.SessionID
	b.pages[b.session] = b
	b.mu.Unlock()
	for _, domain := range []string{"Page", "Runtime", "Network", "Log"} {
		b.call(domain+".enable", nil, nil)
	}
	b.call("Browser.setDownloadBehavior",
		map[string]any{"behavior": "deny", "browserContextId": context.BrowserContextID}, nil)
	b.tb.Cleanup(func() {
		b.mu.Lock()
		delete(b.pages, b.session)
		b.session = ""
		b.mu.Unlock()
		b.call("Target.disposeBrowserContext", map[string]any{"browserContextId": context.BrowserContextID}, nil)
	})
}

func (c *chromium) read(out *os.File) {
	defer close(c.gone)
	for rd := bufio.NewReaderSize(out, 1<<20); ; {
		text, err := rd.ReadBytes(0)
		if err != nil {
			return
		}
		var r reply
		if json.Unmarshal(text[:len(text)-1], &r) != nil {
			continue
		}
		c.mu.Lock()
		if answer := c.waiting[r.ID]; answer != nil {
			delete(c.waiting, r.ID)
			answer <- r
		} else if b := c.pages[r.SessionID]; b != nil {
			b.event(&r)
		}
		c.mu.Unlock()
	}
}

// event records forbidden events.
func (b *browser) event(r *reply) {
	var p struct {
		Request          struct{ URL string }
		Type             string
		Entry            struct{ Level, Text string }
		ExceptionDetails struct{ Text, Exception any }
	}
	json.Unmarshal(r.Params, &p)
	switch {
	case r.Method == "Network.requestWillBeSent" && !strings.HasPrefix(p.Request.URL, "file:") &&
		!strings.HasPrefix(p.Request.URL, "data:") && p.Request.URL != "about:blank":
		b.problems = append(b.problems, "request: "+p.Request.URL)
	case r.Method == "Runtime.exceptionThrown":
		b.problems = append(b.problems, fmt.Sprintf("exception: %v %v",
			p.ExceptionDetails.Text, p.ExceptionDetails.Exception))
	case r.Method == "Runtime.consoleAPICalled" &&
		(p.Type == "error" || p.Type == "warning"), r.Method == "Log.entryAdded" &&
		(p.Entry.Level == "error" || p.Entry.Level == "warning"):
		b.problems = append(b.problems, "console: "+string(r.Params))
	}
}

func (b *browser) call(method string, params, result any) {
	b.tb.Helper()
	b.mu.Lock()
	b.next++
	id, c := b.next, make(chan reply, 1)
	b.waiting[id] = c
	b.mu.Unlock()
	message := map[string]any{"id": id, "method": method}
	if params != nil {
		message["params"] = params
	}
	if b.session != "" && !strings.HasPrefix(method, "Browser.") {
		message["sessionId"] = b.session
	}
	text, err := json.Marshal(message)
	if err != nil {
		b.tb.Fatal(err)
	}
	if _, err := b.in.Write(append(text, 0)); err != nil {
		b.tb.Fatal(err)
	}
	select {
	case r := <-c:
		if r.Error != nil {
			b.tb.Fatalf("%s: %s", method, r.Error.Message)
		}
		if result != nil {
			if err := json.Unmarshal(r.Result, result); err != nil {
				b.tb.Fatalf("%s: %v", method, err)
			}
		}
	case <-b.gone:
		b.tb.Fatal("Chromium has ended")
	case <-time.After(replyLimit):
		b.tb.Fatalf("%s: no reply within %v", method, replyLimit)
	}
}

// eval runs JavaScript, waits for its promise, and stores its value in result.
func (b *browser) eval(script string, result any) {
	b.tb.Helper()
	var r struct {
		Result           struct{ Value json.RawMessage }
		ExceptionDetails *struct {
			Exception struct{ Description string }
		}
	}
	b.call("Runtime.evaluate", map[string]any{"expression": script, "awaitPromise": true, "returnByValue": true}, &r)
	if r.ExceptionDetails != nil {
		b.tb.Fatalf("%s: %s", script, r.ExceptionDetails.Exception.Description)
	}
	if result != nil {
		if err := json.Unmarshal(r.Result.Value, result); err != nil {
			b.tb.Fatalf("%s: %v: %s", script, err, r.Result.Value)
		}
	}
}

func (b *browser) window(width, height int, phone bool) {
	b.tb.Helper()
	ratio := 1
	if phone {
		ratio = 2
	}
	b.call("Emulation.setDeviceMetricsOverride", map[string]any{"width": width, "height": height,
		"deviceScaleFactor": ratio, "mobile": phone}, nil)
	b.call("Emulation.setTouchEmulationEnabled", map[string]any{"enabled": phone}, nil)
}

func (b *browser) media(features ...string) {
	b.tb.Helper()
	var list []map[string]string
	for _, f := range features {
		name, value, _ := strings.Cut(f, "=")
		list = append(list, map[string]string{"name": name, "value": value})
	}
	b.call("Emulation.setEmulatedMedia", map[string]any{"features": list}, nil)
}

// load shows a page, given as its bytes, from a file, with all framework frames: most tests compare
// the page with the recording.
func (b *browser) load(page []byte) {
	b.tb.Helper()
	b.loadFolded(page)
	b.eval("window.clrsnap?.choose({plumbing: true})", nil)
}

// loadFolded shows a page as people first see it.
func (b *browser) loadFolded(page []byte) {
	b.tb.Helper()
	file := filepath.Join(b.tb.TempDir(), "page.html")
	if err := os.WriteFile(file, page, 0o644); err != nil {
		b.tb.Fatal(err)
	}
	b.call("Page.navigate", map[string]any{"url": "file://" + file}, nil)
	b.until(`location.href.endsWith("/page.html") && document.readyState === "complete" && ` +
		`(window.clrsnap?.state().ready || !document.getElementById("message")?.hidden)`)
}

// until waits for a condition.
func (b *browser) until(condition string) {
	b.tb.Helper()
	for end := time.Now().Add(replyLimit); ; time.Sleep(20 * time.Millisecond) {
		var ok bool
		if b.eval("!!("+condition+")", &ok); ok {
			return
		}
		if time.Now().After(end) {
			b.tb.Fatalf("%s: not so after %v", condition, replyLimit)
		}
	}
}

// press sends a key as a keyboard does.
func (b *browser) press(key string) {
	b.tb.Helper()
	params := map[string]any{"type": "keyDown", "key": key}
	if len(key) == 1 {
		params["text"] = key
	}
	if key == "Enter" {
		params["text"], params["windowsVirtualKeyCode"] = "\r", 13
	}
	b.call("Input.dispatchKeyEvent", params, nil)
	b.call("Input.dispatchKeyEvent", map[string]any{"type": "keyUp", "key": key}, nil)
}

func (b *browser) mouse(kind string, x, y float64) {
	b.tb.Helper()
	params := map[string]any{"type": kind, "x": x, "y": y}
	if kind != "mouseMoved" {
		params["button"], params["clickCount"] = "left", 1
	} else {
		params["buttons"] = 0
	}
	b.call("Input.dispatchMouseEvent", params, nil)
}

func (b *browser) click(x, y float64) {
	b.tb.Helper()
	b.mouse("mouseMoved", x, y)
	b.mouse("mousePressed", x, y)
	b.mouse("mouseReleased", x, y)
}

// picture takes a picture of the visible part, for -pictures.
func (b *browser) picture(name string) {
	b.tb.Helper()
	if *pictures == "" {
		return
	}
	b.eval("new Promise((done) => setTimeout(() => requestAnimationFrame(() => "+
		"requestAnimationFrame(done)), 250)).then(() => true)", nil)
	var shot struct{ Data string }
	b.call("Page.captureScreenshot", map[string]any{"format": "png"}, &shot)
	data, err := base64.StdEncoding.DecodeString(shot.Data)
	if err == nil {
		err = os.WriteFile(filepath.Join(*pictures, name+".png"), data, 0o644)
	}
	if err != nil {
		b.tb.Fatal(err)
	}
}

// check reports forbidden events.
func (b *browser) check(t testing.TB) {
	t.Helper()
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, p := range b.problems {
		t.Error(p)
	}
	b.problems = nil
}
