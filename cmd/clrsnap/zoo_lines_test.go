package main

import (
	"bytes"
	"compress/flate"
	"debug/pe"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"clrsnap/internal/pdb"
	"clrsnap/internal/testenv"
	"clrsnap/internal/testenv/layer"
)

// TestHostilePDBs shows the stacks of a program with PDBs beside it that are wrong in every way. No hostile PDB may
// give a frame a line, take long, or need much memory.
func TestHostilePDBs(t *testing.T) {
	layer.Live(t)
	t.Parallel()
	p := testenv.Publish(t, "idle", testenv.DefaultRuntime, testenv.FrameworkDependent, "")
	dll := filepath.Join(p.Dir, "app", "idle.dll")
	good := contentOf(t, withSuffix(dll, ".pdb"))
	app := p.Start(t, testenv.Options{Args: []string{"--threads", "4"}})
	z := &pdbZoo{t: t, pid: strconv.Itoa(app.PID), pdb: withSuffix(dll, ".pdb")}
	z.want("the right one", 4)
	if otherLines(good) == nil {
		t.Fatal("no byte of the PDB changes a line and nothing else")
	}
	for _, l := range lies(good) {
		z.put(l.content)
		z.want(l.name, 0)
	}
	z.places()
	z.put(good)
	z.want("the right one again", 4)
	z.swap(good)
}

// TestHostilePDBsUnchecked is TestHostilePDBs for an assembly without a checksum of its PDB: a PDB with the right id
// may give frames wrong lines, but takes no more time and memory.
func TestHostilePDBsUnchecked(t *testing.T) {
	layer.Live(t)
	t.Parallel()
	p := testenv.Publish(t, "idle", testenv.DefaultRuntime, testenv.FrameworkDependent, "")
	dll := filepath.Join(p.Dir, "app", "idle.dll")
	good := contentOf(t, withSuffix(dll, ".pdb"))
	change(t, dll, func(b []byte) {
		const checksum, unknown = 19, 30
		debugEntry(t, b, checksum)[12] = unknown
	})
	z := &pdbZoo{
		t: t, pid: strconv.Itoa(p.Start(t, testenv.Options{Args: []string{"--threads", "4"}}).PID),
		pdb: withSuffix(dll, ".pdb"), unchecked: true,
	}
	z.want("the right one", 4)
	for _, l := range lies(good) {
		z.put(l.content)
		z.lines(l.name)
	}
}

// TestHostileEmbeddedPDBs has false PDBs inside the assembly.
func TestHostileEmbeddedPDBs(t *testing.T) {
	layer.Live(t)
	dll := testenv.BuildWith(t, "idle", testenv.DefaultRuntime, "-debug:embedded")
	for _, l := range []struct {
		name   string
		change func(packed []byte) // "MPDB", the size of the contents, and the contents
		least  int                 // frames with a line
	}{
		{"the right one", func([]byte) {}, 4},
		{"a gigabyte", func(b []byte) { binary.LittleEndian.PutUint32(b[4:], 1<<30) }, 0},
		{"four gigabytes", func(b []byte) { binary.LittleEndian.PutUint32(b[4:], 1<<32-1) }, 0},
		{"as much as is kept", func(b []byte) { binary.LittleEndian.PutUint32(b[4:], 64<<20) }, 0},
		{"nothing", func(b []byte) { binary.LittleEndian.PutUint32(b[4:], 0) }, 0},
		{"less than it is", func(b []byte) { b[4]-- }, 0},
		{"more than it is", func(b []byte) { b[4]++ }, 0},
		{"no stream", func(b []byte) { copy(b[8:], bytes.Repeat([]byte{0xff}, 64)) }, 0},
		{"another stream", func(b []byte) { copy(b[8:], bombOf(len(b)-8)) }, 0},
	} {
		t.Run(l.name, func(t *testing.T) {
			dir := t.TempDir()
			if out, err := exec.Command("cp", "-r", filepath.Dir(dll)+"/.", dir).CombinedOutput(); err != nil {
				t.Fatalf("%v\n%s", err, out)
			}
			own := filepath.Join(dir, filepath.Base(dll))
			change(t, own, func(b []byte) {
				const embedded = 17
				e := debugEntry(t, b, embedded)
				at, size := binary.LittleEndian.Uint32(e[24:]), binary.LittleEndian.Uint32(e[16:])
				l.change(b[at:][:size])
			})
			p := &testenv.Program{Dir: dir, Exe: testenv.Kit(t).Host(testenv.DefaultRuntime), Args: []string{own}}
			a := p.Start(t, testenv.Options{Args: []string{"--threads", "4"}})
			z := &pdbZoo{t: t, pid: strconv.Itoa(a.PID)}
			z.want(l.name, l.least)
		})
	}
}

// bombOf packs as many zeros as fit into so many bytes.
func bombOf(size int) []byte {
	var b bytes.Buffer
	w, _ := flate.NewWriter(&b, flate.BestCompression)
	zeros := make([]byte, 1<<20)
	for b.Len() < size {
		_, _ = w.Write(zeros)
		_ = w.Flush()
	}
	return b.Bytes()[:size]
}

// debugEntry is the entry of a type in the debug directory of an assembly.
func debugEntry(t *testing.T, b []byte, typ uint32) []byte {
	t.Helper()
	f, err := pe.NewFile(bytes.NewReader(b))
	if err != nil {
		t.Fatal(err)
	}
	var dir pe.DataDirectory
	switch h := f.OptionalHeader.(type) {
	case *pe.OptionalHeader32:
		dir = h.DataDirectory[pe.IMAGE_DIRECTORY_ENTRY_DEBUG]
	case *pe.OptionalHeader64:
		dir = h.DataDirectory[pe.IMAGE_DIRECTORY_ENTRY_DEBUG]
	}
	const entrySize = 28
	for _, s := range f.Sections {
		if dir.VirtualAddress < s.VirtualAddress || dir.VirtualAddress >= s.VirtualAddress+s.Size {
			continue
		}
		entries := b[dir.VirtualAddress-s.VirtualAddress+s.Offset:][:dir.Size]
		for ; len(entries) >= entrySize; entries = entries[entrySize:] {
			if binary.LittleEndian.Uint32(entries[12:]) == typ {
				return entries[:entrySize]
			}
		}
	}
	t.Fatalf("no debug entry of type %d", typ)
	return nil
}

// change changes a file under this name, even if the file has other names.
func change(t *testing.T, file string, how func(b []byte)) {
	t.Helper()
	b := contentOf(t, file)
	how(b)
	err := os.Remove(file)
	if err == nil {
		err = os.WriteFile(file, b, 0o755)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// A lie is a wrong PDB for the program.
type lie struct {
	name    string
	content []byte
}

// lies are wrong in one way each.
func lies(good []byte) []lie {
	changed := func(at int, to ...byte) []byte {
		b := bytes.Clone(good)
		copy(b[at:], to)
		return b
	}
	all := []lie{
		{"empty", nil},
		{"zeros", make([]byte, len(good))},
		{"another build's id", changed(pdbStreamAt(good), make([]byte, 20)...)},
		{"one byte more", append(bytes.Clone(good), 0)},
		{"rows without end", changed(tablesAt(good)+24, bytes.Repeat([]byte{0xff}, 64)...)},
		{"streams without end", changed(streamsAt(good)-2, 0xff, 0xff)},
		{"wrong lines under the right id", otherLines(good)},
	}
	for i := range 10 { // truncated
		n := len(good) * i / 10
		all = append(all, lie{fmt.Sprintf("its first %d bytes", n), good[:n]})
	}
	for n := range 3 {
		all = append(all, lie{fmt.Sprintf("all but its last %d bytes", n+1), good[:len(good)-n-1]})
	}
	for i := range 20 { // and a changed byte anywhere
		at := 20 + (len(good)-40)*i/20
		all = append(all, lie{fmt.Sprintf("byte %d changed", at), changed(at, good[at]^0x5a)})
	}
	return all
}

// otherLines is a PDB that is right in every way, except that a method has other lines; nil: there is none.
func otherLines(good []byte) []byte {
	linesOf := func(b []byte) (id [20]byte, all []uint32) {
		f, err := pdb.Parse(b)
		if err != nil {
			return id, nil
		}
		for m := uint32(1); m <= f.Methods(); m++ {
			points, err := f.Lines(m)
			if err != nil {
				return id, nil
			}
			for _, p := range points {
				all = append(all, p.Line)
			}
		}
		return f.ID(), all
	}
	id, right := linesOf(good)
	for at := stream(good, "#Blob"); at > 0 && at < len(good); at++ {
		b := bytes.Clone(good)
		b[at]++
		if got, lines := linesOf(b); got == id && len(lines) == len(right) && !slices.Equal(lines, right) {
			return b
		}
	}
	return nil
}

// Where parts of a PDB are (ECMA-335 II.24.2).
func streamsAt(b []byte) int { return 16 + int(binary.LittleEndian.Uint32(b[12:])) + 4 }

func stream(b []byte, name string) int {
	at := streamsAt(b)
	for range binary.LittleEndian.Uint16(b[at-2:]) {
		end := at + 8 + bytes.IndexByte(b[at+8:], 0)
		if string(b[at+8:end]) == name {
			return int(binary.LittleEndian.Uint32(b[at:]))
		}
		at += (end + 4 - at) &^ 3
	}
	return 0
}

func pdbStreamAt(b []byte) int { return stream(b, "#Pdb") }
func tablesAt(b []byte) int    { return stream(b, "#~") }

// pdbZoo shows the stacks of a program again and again.
type pdbZoo struct {
	t         *testing.T
	pid, pdb  string
	unchecked bool // the assembly has no checksum of its PDB
}

func (z *pdbZoo) put(content []byte) {
	z.t.Helper()
	if err := os.RemoveAll(z.pdb); err == nil {
		err = os.WriteFile(z.pdb, content, 0o644)
		if err == nil {
			return
		}
	}
	z.t.Fatalf("%s cannot be written", z.pdb)
}

// The limits for a PDB.
const (
	pdbTime   = 5 * time.Second
	pdbMemory = 224 << 20
)

// want requires that at least so many frames have lines, and only right lines. With 0 no frame may have a line.
func (z *pdbZoo) want(name string, least int) {
	z.t.Helper()
	lines := z.lines(name)
	if lines < least || least == 0 && lines > 0 {
		z.t.Errorf("%s: %d frames with a line, want %d", name, lines, least)
	}
}

// lines counts the frames with a line.
func (z *pdbZoo) lines(name string) int {
	z.t.Helper()
	c := exec.Command("clrsnap", "stack", "--json", z.pid)
	out, err := c.Output()
	took := worked(c)
	if err != nil {
		z.t.Errorf("%s: %v", name, err)
		return -1
	}
	if memory := c.ProcessState.SysUsage().(*syscall.Rusage).Maxrss << 10; memory > pdbMemory || took > pdbTime {
		z.t.Errorf("%s: %d MB, %v", name, memory>>20, took)
	}
	var snap struct {
		Threads []struct {
			Frames []struct {
				Kind, Method, File string
				Line               int
			}
		}
	}
	if err := json.Unmarshal(out, &snap); err != nil {
		z.t.Fatal(err)
	}
	n := 0
	for _, th := range snap.Threads {
		for _, f := range th.Frames {
			if f.Kind != "managed" || f.Line == 0 && f.File == "" {
				continue
			}
			n++
			right := strings.HasPrefix(f.File, "/testdata/apps/") && f.Line >= 10 && f.Line <= 130
			if !right && !z.unchecked {
				z.t.Errorf("%s: %s has line %s:%d", name, f.Method, f.File, f.Line)
			}
		}
	}
	return n
}

// places has something else than a file where the PDB should be.
func (z *pdbZoo) places() {
	z.t.Helper()
	for _, p := range []struct {
		name string
		make func() error
	}{
		{"nothing", func() error { return nil }},
		{"a pipe", func() error { return syscall.Mkfifo(z.pdb, 0o644) }},
		{"a directory", func() error { return os.Mkdir(z.pdb, 0o755) }},
		{"a link to a device", func() error { return os.Symlink("/dev/zero", z.pdb) }},
		{"a link to a terminal", func() error { return os.Symlink("/dev/tty", z.pdb) }},
		{"a link to itself", func() error { return os.Symlink(z.pdb, z.pdb) }},
		{"a link to nowhere", func() error { return os.Symlink(z.pdb+".gone", z.pdb) }},
		{"a link to the process's memory", func() error { return os.Symlink("/proc/self/mem", z.pdb) }},
		{"a device", func() error { return syscall.Mknod(z.pdb, syscall.S_IFCHR|0o644, 1<<8|5) }}, // /dev/zero
		{"a socket", func() error { return syscall.Mknod(z.pdb, syscall.S_IFSOCK|0o644, 0) }},
		{"a sparse gigabyte", func() error { return sparse(z.pdb, 1<<30, 0) }},
		{"as much as is read", func() error { return sparse(z.pdb, 64<<20, 0x424a5342) }},
	} {
		if err := os.RemoveAll(z.pdb); err != nil {
			z.t.Fatal(err)
		}
		if err := p.make(); err != nil {
			z.t.Logf("%s cannot be made here: %v", p.name, err)
			continue
		}
		z.want(p.name, 0)
	}
}

// sparse makes a file that begins with a word.
func sparse(name string, size int64, word uint32) error {
	f, err := os.Create(name)
	if err != nil {
		return err
	}
	defer f.Close()
	if err := binary.Write(f, binary.LittleEndian, word); err != nil {
		return err
	}
	return f.Truncate(size)
}

// swap changes the PDB during the read: in its place, and in the file itself.
func (z *pdbZoo) swap(good []byte) {
	z.t.Helper()
	end, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		bad := bytes.Clone(good)
		for i := range bad[100:] {
			bad[100+i] ^= byte(i)
		}
		for i := 0; ; i++ {
			select {
			case <-end:
				return
			default:
			}
			switch i % 4 {
			case 0:
				_ = os.WriteFile(z.pdb, good, 0o644) // truncates the file first
			case 1:
				_ = os.WriteFile(z.pdb, bad, 0o644)
			case 2:
				_ = os.WriteFile(z.pdb+".new", good, 0o644)
				_ = os.Rename(z.pdb+".new", z.pdb)
			case 3:
				_ = os.Truncate(z.pdb, int64(len(good)/2))
			}
			time.Sleep(50 * time.Microsecond)
		}
	}()
	with := 0
	for range 25 {
		if z.lines("a PDB that changes") > 0 {
			with++
		}
	}
	close(end)
	<-ended
	z.t.Logf("a PDB that changes: lines in %d of 25 runs", with)
}

func withSuffix(file, suffix string) string { return file[:len(file)-len(filepath.Ext(file))] + suffix }

func contentOf(t *testing.T, file string) []byte {
	t.Helper()
	b, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	return b
}
