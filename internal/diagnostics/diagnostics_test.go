package diagnostics

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"clrsnap/internal/procfs"
	"clrsnap/internal/testenv"
	"clrsnap/internal/testenv/layer"

	"golang.org/x/sys/unix"
)

func message(t *testing.T, h header, payload ...byte) []byte {
	t.Helper()
	b, err := binary.Append(nil, binary.LittleEndian, h)
	if err != nil {
		t.Fatal(err)
	}
	return append(b, payload...)
}

func TestAnswer(t *testing.T) {
	ok := header{Magic: magic, Size: headerSize + 4, Set: setServer}
	refusal, alien, short, foreign := ok, ok, ok, ok
	refusal.Command = serverError
	alien.Magic[0] = 'X'
	short.Size = headerSize - 1
	foreign.Set = setProfiler
	if p, err := answer(bytes.NewReader(message(t, ok, 0, 0, 0, 0))); err != nil || len(p) != 4 {
		t.Errorf("success: %v, %v", p, err)
	}
	for name, m := range map[string][]byte{
		"refusal":            message(t, refusal, 0x6a, 0x13, 0x13, 0x80),
		"failure that is OK": message(t, ok, 0x6a, 0x13, 0x13, 0x80),
	} {
		var refused *ServerError
		_, err := answer(bytes.NewReader(m))
		if !errors.As(err, &refused) || refused.HRESULT != 0x8013136a ||
			!strings.Contains(err.Error(), "another profiler") {
			t.Errorf("%s: %v", name, err)
		}
	}
	for name, m := range map[string][]byte{
		"nothing": nil, "cut header": message(t, ok)[:10], "cut payload": message(t, ok, 0, 0),
		"not .NET":        message(t, alien, 0, 0, 0, 0),
		"impossible size": message(t, short), "a command": message(t, foreign, 0, 0, 0, 0),
	} {
		if p, err := answer(bytes.NewReader(m)); err == nil {
			t.Errorf("%s: %v", name, p)
		}
	}
}

func dirOf(t *testing.T, pid int) procfs.Dir {
	t.Helper()
	dir, err := procfs.Open(pid)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(dir.Close)
	return dir
}

func TestGUID(t *testing.T) {
	g := GUID{0x5d0c6a1e, 0x94b7, 0x4c0e, [8]byte{0x8b, 0x62, 0x7a, 0x53, 0xf1, 0xc9, 0xe2, 0xd4}}
	if s := g.String(); s != "{5D0C6A1E-94B7-4C0E-8B62-7A53F1C9E2D4}" {
		t.Error(s)
	}
}

// TestAttachRefused: both a process without .NET and a .NET process refuse to attach, with a
// reason.
func TestAttachRefused(t *testing.T) {
	err := attachWithin(dirOf(t, os.Getpid()), "/nowhere.so", time.Second)
	if err == nil || !strings.Contains(err.Error(), "no diagnostics socket") {
		t.Errorf("a process without a runtime: %v", err)
	}
	a := testenv.Start(t, "idle", testenv.Options{})
	var refused *ServerError
	err = attachWithin(dirOf(t, a.PID), "/nowhere.so", 10*time.Second)
	if !errors.As(err, &refused) || !strings.Contains(err.Error(), "cannot be loaded") {
		t.Errorf("a library that is not there: %v", err)
	}
	err = attachWithin(dirOf(t, a.PID), strings.Repeat("x", 1<<16), time.Second)
	if err == nil || errors.As(err, &refused) {
		t.Errorf("a request that is too long: %v", err)
	}
	if result, code := a.Stop(); result != "OK" || code != 0 {
		t.Errorf("the target ended with result %q and exit code %d\n%s", result, code, a.Stderr())
	}
}

// TestRequest: the request has the time limit, in milliseconds, and the library.
func TestRequest(t *testing.T) {
	self := dirOf(t, os.Getpid())
	prefix, err := SocketPrefix(self)
	if err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("unix", prefix+"1-socket")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	asked := make(chan []byte, 1)
	go func() {
		b := make([]byte, 1<<10)
		n := 0
		if c, err := l.Accept(); err == nil {
			n, _ = c.Read(b)
			c.Close()
		}
		asked <- b[:n]
	}()
	const patience = time.Hour
	p := Profiler{CLSID: GUID{A: 0x04030201, D: [8]byte{7: 9}}, Library: "/agent.so", Data: []byte("data")}
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	if err := Attach(ctx, self, p); err == nil {
		t.Error("no answer is a success")
	}
	b := <-asked
	const least = headerSize + 4 + 16 + 4 + 2*len("/agent.so.") + 4 + len("data")
	if len(b) != least {
		t.Fatalf("the request has %d bytes, want %d", len(b), least)
	}
	b = b[headerSize:]
	took := time.Duration(binary.LittleEndian.Uint32(b)) * time.Millisecond
	if took > attachTimeout || took < time.Second {
		t.Errorf("the runtime is given %v of %v", took, attachTimeout)
	}
	if id, length := binary.LittleEndian.Uint32(b[4:]), binary.LittleEndian.Uint32(b[20:]); id != p.CLSID.A ||
		b[19] != p.CLSID.D[7] || length != 10 || b[24] != '/' || b[26] != 'a' ||
		!bytes.HasSuffix(b, []byte("\x04\x00\x00\x00data")) {
		t.Errorf("% x", b)
	}
}

// TestPlantedSockets: the socket of another process is not taken for the runtime's, whatever its
// name and age.
func TestPlantedSockets(t *testing.T) {
	tmp := t.TempDir()
	a := testenv.Start(t, "idle", testenv.Options{Env: []string{"TMPDIR=" + tmp}})
	prefix, err := SocketPrefix(dirOf(t, a.PID))
	if err != nil {
		t.Fatal(err)
	}
	var runtimes string
	if found, err := filepath.Glob(prefix + "*"); err != nil || len(found) != 1 {
		t.Fatal(found, err)
	} else {
		runtimes = found[0]
	}
	planted, err := net.Listen("unix", prefix+"99999999999-socket")
	if err != nil {
		t.Fatal(err)
	}
	defer planted.Close()
	if err := os.Symlink(runtimes, prefix+"link-socket"); err != nil {
		t.Fatal(err)
	}
	attach := func() error { return Attach(t.Context(), dirOf(t, a.PID), Profiler{Library: "/nowhere.so"}) }
	var refused *ServerError
	if err := attach(); !errors.As(err, &refused) {
		t.Errorf("beside another socket: %v", err)
	}
	if err := os.Remove(runtimes); err != nil {
		t.Fatal(err)
	}
	if err := attach(); err == nil || !strings.Contains(err.Error(), "belongs to process") {
		t.Errorf("with the other socket alone: %v", err)
	}
	planted.(*net.UnixListener).SetUnlinkOnClose(false) // as after a process is killed
	planted.Close()
	if err := Listens(dirOf(t, a.PID)); !errors.Is(err, ErrNoSocket) {
		t.Errorf("without any: %v", err)
	}
	if err := attach(); !errors.Is(err, ErrNoSocket) {
		t.Errorf("without any: %v", err)
	}
	if result, code := a.Stop(); result != "OK" || code != 0 {
		t.Errorf("the target ended with result %q and exit code %d\n%s", result, code, a.Stderr())
	}
}

// TestLinkToSocket: a link in the place of a socket is not followed.
func TestLinkToSocket(t *testing.T) {
	name := filepath.Join(t.TempDir(), "socket")
	l, err := net.Listen("unix", name)
	if err == nil {
		defer l.Close()
		err = os.Symlink(name, name+"-link")
	}
	if err != nil {
		t.Fatal(err)
	}
	dir, err := os.Open(filepath.Dir(name))
	if err != nil {
		t.Fatal(err)
	}
	defer dir.Close()
	if c, err := connect(t.Context(), dir, "socket"); err != nil {
		t.Error(err)
	} else {
		c.Close()
	}
	if c, err := connect(t.Context(), dir, "socket-link"); err == nil {
		c.Close()
		t.Error("a link was followed")
	}
}

// TestAttachCancelled: Attach returns when its context ends, at any point of waiting, and the
// error says that there was no answer.
func TestAttachCancelled(t *testing.T) {
	a := testenv.Start(t, "idle", testenv.Options{Env: []string{"TMPDIR=" + t.TempDir()}})
	if err := syscall.Kill(a.PID, syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	// The kernel tells the parent when the last thread has stopped.
	if err := unix.Waitid(unix.P_PID, a.PID, nil, unix.WSTOPPED, nil); err != nil {
		t.Fatal(err)
	}
	enough := errors.New("enough")
	ctx, cancel := context.WithCancelCause(t.Context())
	time.AfterFunc(500*time.Millisecond, func() { cancel(enough) })
	for _, when := range []string{"waiting for the answer", "before the request"} {
		if err := Attach(ctx, dirOf(t, a.PID), Profiler{Library: "/nowhere.so"}); !errors.Is(err, enough) {
			t.Errorf("%s: %v", when, err)
		}
	}
	if err := syscall.Kill(a.PID, syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	if result, code := a.Stop(); result != "OK" || code != 0 {
		t.Errorf("the target ended with result %q and exit code %d\n%s", result, code, a.Stderr())
	}
}

// TestNamesBounded: names are found among many others, and no more than the bound are kept, for
// any contents of a target's directory.
func TestNamesBounded(t *testing.T) {
	layer.Live(t)
	dir := t.TempDir()
	fill := func(prefix string, n int) {
		for i := range n {
			if err := os.WriteFile(filepath.Join(dir, fmt.Sprint(prefix, i)), nil, 0o600); err != nil {
				t.Fatal(err)
			}
		}
	}
	list := func() []string {
		d, err := os.Open(dir)
		if err != nil {
			t.Fatal(err)
		}
		defer d.Close()
		names, err := namesWith(d, "mine-")
		if err != nil {
			t.Fatal(err)
		}
		return names
	}
	fill("other-", 3000)
	fill("mine-", 5)
	if names := list(); len(names) != 5 {
		t.Errorf("%q", names)
	}
	fill("mine-", maxNames+5)
	if names := list(); len(names) != maxNames {
		t.Errorf("%d names", len(names))
	}
}

// attachWithin is Attach with a time limit.
func attachWithin(of procfs.Dir, library string, timeout time.Duration) error {
	ctx, cancel := context.WithTimeout(context.Background(), timeout)
	defer cancel()
	return Attach(ctx, of, Profiler{Library: library})
}
