package symbols

import (
	"bytes"
	"compress/gzip"
	"context"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"clrsnap/internal/pe"
)

// fixture is a PDB, and the key with which the PDB's assembly asks for the PDB.
func fixture(t testing.TB) (Key, []byte) {
	t.Helper()
	files, err := filepath.Glob("../internal/pdb/testdata/*.dll")
	if err != nil || len(files) == 0 {
		t.Fatal("no assembly with a PDB", err)
	}
	r, err := os.Open(files[0])
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	d, err := pe.DebugDirectory(pe.File(r), 0)
	if err != nil {
		t.Fatal(err)
	}
	b, err := d.Embedded(pe.File(r))
	if err != nil {
		t.Fatal(err)
	}
	view, _ := d.Portable()
	id := view.ID()
	k := Key{Kind: PDB, Name: "Fixture.pdb", ID: id[:]}
	for _, c := range d.Checksums {
		k.Checksums = append(k.Checksums, Checksum{c.Algorithm, c.Sum})
	}
	if len(k.Checksums) == 0 {
		t.Fatal("the assembly has no checksum")
	}
	return k, b
}

// elf is an ELF file with nothing but a build id.
func elf(id []byte) []byte {
	le := binary.LittleEndian
	note := le.AppendUint32(le.AppendUint32(le.AppendUint32(nil, 4), uint32(len(id))), 3)
	note = append(append(note, "GNU\x00"...), id...)
	at := uint64(64 + 2*56)
	b := append([]byte("\x7fELF\x02\x01\x01"), make([]byte, 9)...)
	b = le.AppendUint32(le.AppendUint16(le.AppendUint16(b, 3), 62), 1)
	b = le.AppendUint64(le.AppendUint64(le.AppendUint64(b, 0), 64), 0)
	b = le.AppendUint16(le.AppendUint16(le.AppendUint32(b, 0), 64), 56)
	b = le.AppendUint16(le.AppendUint16(le.AppendUint16(le.AppendUint16(b, 2), 64), 0), 0)
	prog := func(kind uint32, offset, size uint64) {
		b = le.AppendUint32(le.AppendUint32(b, kind), 4)
		for _, v := range []uint64{offset, offset, offset, size, size, 4} {
			b = le.AppendUint64(b, v)
		}
	}
	prog(1, 0, at+uint64(len(note)))
	prog(4, at, uint64(len(note)))
	return append(b, note...)
}

var someID = []byte("\x01\x23\x45\x67\x89\xab\xcd\xef")

var debugKey = Key{Kind: Debug, Name: "libshop.so", ID: someID}

// serve starts a server, and returns its address.
func serve(t *testing.T, h http.HandlerFunc) string {
	t.Helper()
	s := httptest.NewServer(h)
	t.Cleanup(s.Close)
	t.Cleanup(s.CloseClientConnections)
	return s.URL
}

// quick has short limits, for tests that wait for a limit.
var quick = Options{Connect: time.Second, Stall: time.Second, Whole: 3 * time.Second}

func newStore(t *testing.T, o Options, servers ...string) *Store {
	t.Helper()
	o.Servers = append(o.Servers, servers...)
	s, err := New(o)
	if err != nil {
		t.Fatal(err)
	}
	if s.Uncached() != nil {
		t.Fatal(s.Uncached())
	}
	t.Cleanup(func() { s.Close() })
	return s
}

func content(t *testing.T, f File) []byte {
	t.Helper()
	defer f.Close()
	b, err := io.ReadAll(io.NewSectionReader(f, 0, 1<<30))
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func TestFetch(t *testing.T) {
	pdbKey, pdb := fixture(t)
	guid := hex.EncodeToString([]byte{
		pdbKey.ID[3], pdbKey.ID[2], pdbKey.ID[1], pdbKey.ID[0], pdbKey.ID[5], pdbKey.ID[4], pdbKey.ID[7], pdbKey.ID[6],
	}) + hex.EncodeToString(pdbKey.ID[8:16])
	const padded = "0123456789abcdef000000000000000000000000"
	image := elf(someID)
	for _, c := range []struct {
		name   string
		key    Key
		server string
		path   string
		text   []byte
	}{
		{"PDB", pdbKey, "", "/s/fixture.pdb/" + guid + "FFFFFFFF/fixture.pdb", pdb},
		{"debug file", debugKey, "", "/s/_.debug/elf-buildid-sym-" + padded + "/_.debug", image},
		{"executable", Key{Executable, "Lib Shop#1.so", someID, nil}, "",
			"/s/lib%20shop%231.so/elf-buildid-" + padded + "/lib%20shop%231.so", image},
		{"debuginfod's debug file", debugKey, Debuginfod, "/s/buildid/0123456789abcdef/debuginfo", image},
		{"debuginfod's executable", Key{Executable, "libshop.so", someID, nil}, Debuginfod,
			"/s/buildid/0123456789abcdef/executable", image},
	} {
		var asked atomic.Int32
		address := serve(t, func(w http.ResponseWriter, r *http.Request) {
			if asked.Add(1); r.URL.EscapedPath() != c.path {
				t.Errorf("%s: asked for %s, want %s", c.name, r.URL.EscapedPath(), c.path)
			}
			want := ""
			if c.key.Kind == PDB {
				want = "SHA256:" + hex.EncodeToString(c.key.Checksums[0].Sum)
			}
			if got := r.Header.Get("SymbolChecksum"); got != want {
				t.Errorf("%s: SymbolChecksum %q, want %q", c.name, got, want)
			}
			_, _ = w.Write(c.text)
		})
		dir := filepath.Join(t.TempDir(), "a", "b")
		for i, o := range []Options{{}, {Cache: dir}, {Cache: dir}} {
			f, err := newStore(t, o, c.server+address+"/s").Open(t.Context(), c.key)
			if err != nil {
				t.Errorf("%s: %v", c.name, err)
				continue
			}
			if got := content(t, f); !bytes.Equal(got, c.text) {
				t.Errorf("%s: %d bytes, want %d", c.name, len(got), len(c.text))
			}
			if n, want := asked.Load(), int32(min(i+1, 2)); n != want {
				t.Errorf("%s: the server was asked %d times, want %d", c.name, n, want)
			}
		}
		for _, f := range entries(t, dir) {
			if f.Mode().Perm() != 0o600 || strings.HasPrefix(f.Name(), tempName) {
				t.Errorf("%s: %s has mode %v", c.name, f.Name(), f.Mode())
			}
		}
	}
	if _, err := newStore(t, quick, Debuginfod+"http://127.0.0.1:1").Open(t.Context(), pdbKey); !errors.Is(err,
		fs.ErrNotExist) {
		t.Errorf("a debuginfod server was asked for a PDB: %v", err)
	}
}

func entries(t *testing.T, dir string) (out []fs.FileInfo) {
	t.Helper()
	list, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range list {
		st, err := e.Info()
		if err != nil {
			t.Fatal(err)
		}
		out = append(out, st)
	}
	return out
}

// TestBadServers: whatever a server does, there is an error within the limits, no more is kept than is
// allowed, and nothing is left behind.
func TestBadServers(t *testing.T) {
	key, pdb := fixture(t)
	changed := bytes.Clone(pdb)
	changed[len(changed)-1] ^= 1
	zeros := make([]byte, 1<<20)
	hang := func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }
	other := serve(t, func(w http.ResponseWriter, r *http.Request) {
		for _, h := range []string{"Authorization", "Referer", "Cookie"} {
			if r.Header.Get(h) != "" {
				t.Errorf("the header %s went to another host: %q", h, r.Header.Get(h))
			}
		}
		w.WriteHeader(http.StatusNotFound)
	})
	for name, c := range map[string]struct {
		answer http.HandlerFunc
		says   string // "": nobody has the file
		again  int    // how often the server is asked, if a test wants four files
	}{
		"not there": {func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(404) }, "", 4},
		"forbidden": {func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(403) }, "", 4},
		"asks who":  {func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(401) }, "wants a login", 1},
		"broken":    {func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(500) }, "status 500", 3},
		"wrong": {func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("<html>")) },
			"not the requested file", 4},
		"empty":   {func(http.ResponseWriter, *http.Request) {}, "not the requested file", 4},
		"changed": {func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write(changed) }, "checksum", 4},
		"says that it is huge": {func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Length", "1000000000000")
			_, _ = w.Write(pdb)
			panic(http.ErrAbortHandler)
		}, "EOF", 3},
		"is huge": {func(w http.ResponseWriter, _ *http.Request) {
			for range key.most()>>20 + 1 {
				_, _ = w.Write(zeros)
			}
		}, "more than", 4},
		"is a bomb": {func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Encoding", "gzip")
			z, _ := gzip.NewWriterLevel(w, gzip.BestSpeed)
			for range key.most()>>20 + 1 {
				_, _ = z.Write(zeros)
			}
			z.Close()
		}, "more than", 4},
		"dies": {func(w http.ResponseWriter, _ *http.Request) {
			_, _ = w.Write(pdb[:100])
			w.(http.Flusher).Flush()
			panic(http.ErrAbortHandler)
		}, "EOF", 3},
		"never answers": {hang, "", 1},
		"stops": {func(w http.ResponseWriter, r *http.Request) {
			_, _ = w.Write(pdb[:100])
			w.(http.Flusher).Flush()
			hang(w, r)
		}, "nothing has come for 1s", 3},
		"drips": {func(w http.ResponseWriter, r *http.Request) {
			for i := 0; r.Context().Err() == nil; i++ {
				_, _ = w.Write(pdb[i : i+1])
				w.(http.Flusher).Flush()
				time.Sleep(250 * time.Millisecond)
			}
		}, "longer than 3s", 3},
		"large header": {func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("X", strings.Repeat("x", 2*maxHeader))
		}, "header", 1},
		"redirects for ever": {func(w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, r.URL.Path+"x", http.StatusFound)
		}, "redirects more than", 1},
		"redirects to a file": {func(w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, "file:///etc/passwd", http.StatusFound)
		}, `of type "file"`, 1},
		"redirects to another": {func(w http.ResponseWriter, r *http.Request) {
			if _, password, _ := r.BasicAuth(); password != "secret" {
				t.Error("the server did not get its password")
			}
			http.Redirect(w, r, other, http.StatusFound)
		}, "", 4},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var asked sync.Map
			var n atomic.Int32
			address := serve(t, func(w http.ResponseWriter, r *http.Request) {
				if _, again := asked.LoadOrStore(strings.TrimRight(r.URL.Path, "x"), true); !again {
					n.Add(1)
				}
				c.answer(w, r)
			})
			o := quick
			o.Cache = filepath.Join(t.TempDir(), "cache")
			s := newStore(t, o, strings.Replace(address, "http://", "http://me:secret@", 1)+"/s?token=secret")
			keys := []Key{key, key, key, key, key}
			for i := range keys {
				keys[i].Name = fmt.Sprintf("f%d.pdb", i)
				keys[i].ID = bytes.Clone(key.ID)
			}
			f, err := s.Open(t.Context(), keys[0])
			if err == nil {
				f.Close()
				t.Fatal("there is a file")
			}
			if c.says == "" && name != "never answers" && !errors.Is(err, fs.ErrNotExist) ||
				!strings.Contains(err.Error(), c.says) {
				t.Errorf("%v, want %q", err, c.says)
			}
			if strings.Contains(err.Error(), "secret") {
				t.Errorf("a password is shown: %v", err)
			}
			if again, second := s.Open(t.Context(), keys[0]); again != nil || second == nil ||
				second.Error() != err.Error() {
				t.Errorf("asked again: %v, want %v", second, err)
			}
			if n.Load() != 1 {
				t.Errorf("the server was asked %d times for one file", n.Load())
			}
			for i, k := range keys[1:4] {
				k.ID[0] ^= byte(i + 1)
				if f, err := s.Open(t.Context(), k); err == nil {
					f.Close()
					t.Error("there is a file")
				}
			}
			if int(n.Load()) != c.again {
				t.Errorf("the server was asked for %d of four files, want %d", n.Load(), c.again)
			}
			if failed := len(s.Failures()) > 0; failed != (c.again < 4) {
				t.Errorf("failures: %v", s.Failures())
			}
			if left := entries(t, o.Cache); len(left) > 0 {
				t.Errorf("%d files are left in the cache, such as %s", len(left), left[0].Name())
			}
		})
	}
}

// TestSeveral: the next server may have a file that a server lacks or has wrong.
func TestSeveral(t *testing.T) {
	image := elf(someID)
	lacks := serve(t, http.NotFound)
	wrong := serve(t, func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write(elf([]byte("another"))) })
	has := serve(t, func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write(image) })
	f, err := newStore(t, quick, lacks, wrong, "http://127.0.0.1:1", has).Open(t.Context(), debugKey)
	if err != nil {
		t.Fatal(err)
	}
	if got := content(t, f); !bytes.Equal(got, image) {
		t.Errorf("%d bytes", len(got))
	}
	_, err = newStore(t, quick, lacks, wrong).Open(t.Context(), debugKey)
	if err == nil || errors.Is(err, fs.ErrNotExist) || !strings.Contains(err.Error(), "build id") {
		t.Errorf("%v, want why what one server has is wrong", err)
	}
}

// TestBudget: without a cache all files of a Store share one budget of memory. A refused file takes nothing of the
// budget, and earlier files stay whole.
func TestBudget(t *testing.T) {
	const size = 200 << 10
	large := func(id string) []byte { return append(elf([]byte(id)), make([]byte, size)...) }
	address := serve(t, func(w http.ResponseWriter, r *http.Request) {
		id, _ := hex.DecodeString(strings.Split(r.URL.Path, "/")[2])
		if b := large(string(id)); id[0] != 's' {
			_, _ = w.Write(b)
		} else {
			_, _ = w.Write(elf(id))
		}
	})
	s := newStore(t, quick, Debuginfod+address)
	s.room = 2*size + size/2
	open := func(id string) (File, error) { return s.Open(t.Context(), Key{Debug, "libshop.so", []byte(id), nil}) }
	for _, id := range []string{"large--1", "large--2"} {
		f, err := open(id)
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(content(t, f), large(id)) {
			t.Errorf("%s has other bytes", id)
		}
	}
	if _, err := open("large--3"); err == nil || !strings.Contains(err.Error(), "without a cache there is memory for") {
		t.Errorf("beyond the budget: %v", err)
	}
	f, err := open("small--1")
	if err != nil {
		t.Fatalf("what still fits: %v", err)
	}
	content(t, f)
}

// TestChecksums: PDBs with the same id and different checksums are different files. A missing PDB says nothing of the
// other PDB, and the cache has room for both.
func TestChecksums(t *testing.T) {
	key, pdb := fixture(t)
	other := key
	other.Checksums = []Checksum{{"SHA256", bytes.Repeat([]byte{7}, 32)}}
	bare := key
	bare.Checksums = nil
	address := serve(t, func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write(pdb) })
	dir := filepath.Join(t.TempDir(), "cache")
	s := newStore(t, Options{Cache: dir}, address)
	if _, err := s.Open(t.Context(), other); err == nil {
		t.Error("a PDB with another checksum is taken")
	}
	for _, k := range []Key{key, bare} {
		f, err := s.Open(t.Context(), k)
		if err != nil {
			t.Fatal(err)
		}
		if got := content(t, f); !bytes.Equal(got, pdb) {
			t.Errorf("%d bytes", len(got))
		}
	}
	if _, err := s.Open(t.Context(), other); err == nil {
		t.Error("a PDB with another checksum is taken from the cache")
	}
	if n := len(entries(t, dir)); n != 2 {
		t.Errorf("%d files are in the cache, want 2", n)
	}
}

func TestCancel(t *testing.T) {
	started := make(chan bool, 1)
	address := serve(t, func(w http.ResponseWriter, r *http.Request) {
		w.(http.Flusher).Flush()
		started <- true
		<-r.Context().Done()
	})
	s := newStore(t, Options{}, address)
	why := errors.New("the user has had enough")
	ctx, cancel := context.WithCancelCause(t.Context())
	go func() { <-started; cancel(why) }()
	if _, err := s.Open(ctx, debugKey); !errors.Is(err, why) {
		t.Error(err)
	}
	if len(s.Failures()) > 0 || len(s.nowhere) > 0 {
		t.Errorf("it is remembered: %v, %v", s.Failures(), s.nowhere)
	}
}

func TestProgress(t *testing.T) {
	image := append(elf(someID), make([]byte, 1<<20)...)
	address := serve(t, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Length", fmt.Sprint(len(image)))
		for b := image; len(b) > 0; b = b[min(len(b), 300_000):] {
			_, _ = w.Write(b[:min(len(b), 300_000)])
			time.Sleep(progressStep + 50*time.Millisecond)
		}
	})
	var all []Progress
	s := newStore(t, Options{Progress: func(p Progress) { all = append(all, p) }}, address)
	f, err := s.Open(t.Context(), debugKey)
	if err != nil {
		t.Fatal(err)
	}
	f.Close()
	last := all[len(all)-1]
	if len(all) < 4 || all[0].Bytes != 0 || all[0].Name != "libshop.so" || all[0].Host != "127.0.0.1" || !last.Done ||
		all[2].Bytes == 0 || all[2].Total != int64(len(image)) {
		t.Errorf("%+v", all)
	}
}

func TestKeys(t *testing.T) {
	id := make([]byte, pdbID)
	s := newStore(t, Options{}, "http://127.0.0.1:1")
	for _, k := range []Key{
		{PDB, "", id, nil}, {PDB, "..", id, nil}, {PDB, "a/b", id, nil}, {PDB, `a\b`, id, nil}, {PDB, "a\x1b", id, nil},
		{PDB, "a.pdb", id[1:], nil}, {PDB, "a.pdb", nil, nil}, {Debug, "", nil, nil},
		{Debug, "", make([]byte, 65), nil}, {Kind(7), "a", id, nil}, {PDB, strings.Repeat("a", 256), id, nil},
		{Executable, "", id, nil},
	} {
		if _, err := s.Open(t.Context(), k); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("%+v: %v", k, err)
		}
	}
	k := Key{PDB, "a.pdb", id, []Checksum{{"SHA256", []byte{1}}, {"SHA1\r\nX: y", []byte{2}}, {"SHA512", []byte{3}}}}
	if got := k.checksumHeader(); got != "SHA256:01;SHA512:03" {
		t.Errorf("SymbolChecksum: %q", got)
	}
	for _, bad := range []string{"", "ftp://a/", "msdl.microsoft.com", "https://", "https://a/#b", "http://%zz"} {
		if _, err := New(Options{Servers: []string{bad}}); err == nil {
			t.Errorf("%q is a server", bad)
		}
	}
	if _, err := New(Options{Servers: make([]string, maxServers+1)}); err == nil {
		t.Error("any number of servers is accepted")
	}
}

// TestBuildIDs: a build id of the usual 20 bytes is in a path unchanged, and a shorter build id is padded to 20 bytes.
func TestBuildIDs(t *testing.T) {
	id := []byte("0123456789abcdefghij")
	for n, want := range map[int]string{
		20: "303132333435363738396162636465666768696a", 16: "30313233343536373839616263646566" + "00000000",
	} {
		k := Key{Kind: Debug, Name: "libshop.so", ID: id[:n]}
		if got := k.ssqp()[1]; got != "elf-buildid-sym-"+want {
			t.Errorf("%d bytes: %s", n, got)
		}
	}
}
