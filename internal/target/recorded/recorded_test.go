package recorded_test

import (
	"bytes"
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"clrsnap/internal/arch"
	"clrsnap/internal/target"
	"clrsnap/internal/target/recorded"
)

// still is a target with pages of text, from an address on, and files.
type still struct {
	at    arch.Addr
	data  []byte
	files map[string]string
}

func (s *still) ReadMemory(p []byte, addr arch.Addr) error {
	if addr < s.at || uint64(addr-s.at)+uint64(len(p)) > uint64(len(s.data)) {
		return &target.ReadError{Addr: addr, Len: len(p)}
	}
	copy(p, s.data[addr-s.at:])
	return nil
}

func (s *still) Mappings() (target.Mappings, error) {
	end := s.at + arch.Addr(len(s.data))
	return target.Mappings{{Start: s.at, End: end, Path: "/machine-of-a-person/app", Perm: target.PermRead}}, nil
}

func (s *still) OpenMapping(m *target.Mapping) (target.File, error) { return s.OpenFile(m.Path) }

type textFile struct{ *strings.Reader }

func (textFile) Close() error { return nil }

func (s *still) OpenFile(path string) (target.File, error) {
	text, ok := s.files[path]
	if !ok {
		return nil, os.ErrNotExist
	}
	return textFile{strings.NewReader(text)}, nil
}

const text = "/machine-of-a-person/app.dll "

// record records reads of a page and a half, and of two files.
func record(t *testing.T) (*still, *recorded.Moment) {
	t.Helper()
	s := &still{0x10000, bytes.Repeat([]byte(text), 3*recorded.PageSize/len(text)+1), map[string]string{
		"/machine-of-a-person/app": strings.Repeat("0123456789", 1000),
	}}
	s.data = s.data[:2*recorded.PageSize+100]
	m := &recorded.Moment{
		Machine: arch.AMD64.Machine, Note: "a note", Truths: []string{text}, PID: 7,
		Program: "/machine-of-a-person/app",
		Threads: []recorded.Thread{{TID: 8, OwnID: 1, Name: "main"}},
	}
	r := recorded.NewRecorder(s, m)
	var b [50]byte
	for _, at := range []arch.Addr{0x10010, 0x12010} {
		if err := r.ReadMemory(b[:], at); err != nil {
			t.Fatal(err)
		}
	}
	if r.ReadMemory(b[:], 0x20000) == nil {
		t.Fatal("there is no memory")
	}
	maps, err := r.Mappings()
	if err != nil {
		t.Fatal(err)
	}
	f, err := r.OpenMapping(&maps[0])
	if err != nil {
		t.Fatal(err)
	}
	if n, err := f.ReadAt(make([]byte, 5000), 8000); n != 2000 || err != io.EOF {
		t.Fatal(n, err)
	}
	if _, err := r.OpenFile("/none"); err == nil {
		t.Fatal("there is no such file")
	}
	return s, m
}

// TestRecorder: what was read can be read again, from a file too, and nothing else.
func TestRecorder(t *testing.T) {
	s, m := record(t)
	checkRecorded(t, s, m)
	shared := &recorded.Shared{Name: "shared.pages", Pages: [][]byte{m.Memory.Data[0x10], []byte("no page of it")}}
	dir := t.TempDir()
	for name, with := range map[string]*recorded.Shared{"alone": nil, "shared": shared} {
		file := filepath.Join(dir, name)
		if err := errors.Join(shared.WriteFile(dir), m.WriteFile(file, with)); err != nil {
			t.Fatal(err)
		}
		again, err := recorded.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		checkRecorded(t, s, again)
	}
	shared.Pages[1] = []byte("another")
	if err := shared.WriteFile(dir); err != nil {
		t.Fatal(err)
	}
	if _, err := recorded.ReadFile(filepath.Join(dir, "shared")); !errors.Is(err, recorded.ErrFormat) {
		t.Errorf("other shared pages: %v", err)
	}
	if _, err := recorded.ReadFile(filepath.Join(dir, "none")); !errors.Is(err, os.ErrNotExist) {
		t.Error(err)
	}
}

func checkRecorded(t *testing.T, s *still, m *recorded.Moment) {
	t.Helper()
	for _, tt := range []struct {
		at  arch.Addr
		n   int
		has bool
	}{
		{0x10000, recorded.PageSize, true}, {0x10fff, 1, true}, {0x10ff0, 17, false}, {0x11000, 1, false},
		{0x12010, 50, true}, {0x12041, 1, true}, {0x1200f, 1, false}, {0x12010, 51, false}, {0xffff, 1, false},
	} {
		p, want := make([]byte, tt.n), make([]byte, tt.n)
		err := m.ReadMemory(p, tt.at)
		_ = s.ReadMemory(want, tt.at)
		var unread *target.ReadError
		switch {
		case tt.has && (err != nil || !bytes.Equal(p, want)):
			t.Errorf("%d bytes at %v: %v", tt.n, tt.at, err)
		case !tt.has && (!errors.As(err, &unread) || !strings.Contains(err.Error(), tt.at.String())):
			t.Errorf("%d bytes at %v were not recorded: %v", tt.n, tt.at, err)
		}
	}
	if m.Misses() == 0 || m.Dumped(0x10f00, 0x2000) != 0x100 || m.Dumped(0x13000, 5) != 0 {
		t.Errorf("%d misses, %d and %d bytes", m.Misses(), m.Dumped(0x10f00, 0x2000), m.Dumped(0x13000, 5))
	}
	f, err := m.OpenMapping(&m.Mapped[0])
	if err != nil {
		t.Fatal(err)
	}
	b := make([]byte, 10)
	if n, err := f.ReadAt(b, 9000); n != 10 || err != nil || string(b) != "0123456789" {
		t.Errorf("%q, %v", b[:n], err)
	}
	if n, err := f.ReadAt(b, 9995); n != 5 || err != io.EOF {
		t.Errorf("at the end: %d, %v", n, err)
	}
	if _, err := f.ReadAt(b, 10); err == nil || err == io.EOF {
		t.Errorf("a page that was not recorded: %v", err)
	}
	for _, path := range []string{"/none", "/never asked"} {
		if _, err := m.OpenFile(path); err == nil {
			t.Errorf("%s was opened", path)
		}
	}
	if th, ok := m.Thread(8); !ok || th.Name != "main" {
		t.Errorf("%+v", th)
	}
}

// TestNeutral: a name is nowhere in a recording, in no encoding, also across pages.
func TestNeutral(t *testing.T) {
	_, m := record(t)
	wide := []byte("x")
	for _, c := range []byte("machine-of-a-person") {
		wide = append(wide, c, 0)
	}
	m.Memory.Data[0x99] = wide
	m.Neutral("machine-of-a-person", "-------------------")
	var file bytes.Buffer
	if err := m.Write(&file, nil); err != nil {
		t.Fatal(err)
	}
	m, err := recorded.Read(&file, nil)
	if err != nil {
		t.Fatal(err)
	}
	all := slices.Concat(m.Truths[0:1], []string{m.Program, m.Mapped[0].Path, string(m.Memory.Data[0x10]),
		string(m.Fragments[0].Data), string(m.Memory.Data[0x99])})
	for _, s := range all {
		for _, part := range []string{"machine", "person", "m\x00a\x00c\x00h"} {
			if strings.Contains(s, part) {
				t.Errorf("%q is left in %q", part, s)
			}
		}
	}
	if len(m.Memory.Data[0x10]) != recorded.PageSize {
		t.Error("the page has another length")
	}
}

// TestOverwriteCut: pieces of a name at the ends of a page are replaced.
func TestOverwriteCut(t *testing.T) {
	for before, after := range map[string]string{
		"person/x": "------/x", "x/machi": "x/-----", "x/mach": "x/mach", "-person": "-------",
		"machine-of-a-person": "-------------------",
	} {
		b := []byte(before)
		if recorded.Overwrite(b, "machine-of-a-person", "-------------------"); string(b) != after {
			t.Errorf("%q is %q, want %q", before, b, after)
		}
	}
}

// TestReduce: pages that no result needs are blank, and other pages are untouched.
func TestReduce(t *testing.T) {
	_, m := record(t)
	p := recorded.NewPages()
	var pages []recorded.Page
	for n := range uint64(100) {
		p.Data[n] = []byte{byte(n)}
		pages = append(pages, recorded.Page{Of: &p, Number: n})
	}
	needed := map[uint64]bool{3: true, 40: true, 41: true}
	tries := 0
	recorded.Reduce(pages, 1, func() bool {
		tries++
		for n := range needed {
			if p.Data[n] == nil {
				return false
			}
		}
		return true
	})
	for n := range uint64(100) {
		if (p.Data[n] != nil) != needed[n] || p.Blank[n] == needed[n] {
			t.Errorf("page %d: %v, blank %v", n, p.Data[n], p.Blank[n])
		}
	}
	if tries > 40 {
		t.Errorf("%d tries", tries)
	}
	if of := m.OfFiles(); len(of) != 3 || of[0].Number != 0x10 || of[2].Number != 2 {
		t.Errorf("%+v", of)
	}
}

// TestShare: pages of two moments are shared, pages of one moment are not.
func TestShare(t *testing.T) {
	_, a := record(t)
	_, b := record(t)
	b.Memory.Data[0x10] = []byte("another page")
	s := recorded.Share("x", []*recorded.Moment{a, b})
	if len(s.Pages) != 2 || string(s.Pages[0][:3]) != "678" { // the file's two pages, from 4096 on
		t.Errorf("%d pages", len(s.Pages))
	}
}

// FuzzRead reads damaged recordings: the result is an error or another recording, and no panic.
func FuzzRead(f *testing.F) {
	m := &recorded.Moment{Machine: arch.AMD64.Machine, Memory: recorded.NewPages()}
	m.Memory.Data[1] = []byte("a page")
	m.Memory.Blank[2] = true
	var file bytes.Buffer
	if err := m.Write(&file, nil); err != nil {
		f.Fatal(err)
	}
	f.Add(file.Bytes())
	for n := range file.Len() {
		f.Add(file.Bytes()[:n])
		changed := bytes.Clone(file.Bytes())
		changed[n] ^= 0x55
		f.Add(changed)
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		none := func(string) (*recorded.Shared, error) { return nil, os.ErrNotExist }
		m, err := recorded.Read(bytes.NewReader(data), none)
		if err != nil {
			return
		}
		var b [8]byte
		_ = m.ReadMemory(b[:], 0x1000)
	})
}
