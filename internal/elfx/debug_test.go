package elfx

import (
	"bytes"
	"debug/elf"
	"errors"
	"hash/crc32"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

const debugged = "int f(int x){return x*3;} int main(void){return f(1);}"

// TestDebugSection: Go's reader unpacks the same contents, with every kind of compression.
func TestDebugSection(t *testing.T) {
	for _, how := range []string{"-gz=none", "-gz=zlib", "-gz=zlib-gnu"} {
		exe := build(t, debugged, "-g", how, "-Wl,--build-id")
		w, err := elf.Open(exe)
		if err != nil {
			t.Fatal(err)
		}
		defer w.Close()
		f, err := os.Open(exe)
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		m, err := New(f)
		if err != nil {
			t.Fatal(err)
		}
		for _, name := range []string{".debug_line", ".debug_info", ".debug_str", ".debug_abbrev"} {
			section := w.Section(name)
			if section == nil {
				section = w.Section(".z" + name[1:])
			}
			want, err := section.Data()
			if err != nil {
				t.Fatal(err)
			}
			r, size, err := m.DebugSection(name, int64(len(want)))
			if err != nil || size != int64(len(want)) {
				t.Fatalf("%s, %s: %d bytes, %v, want %d", how, name, size, err, len(want))
			}
			got, err := io.ReadAll(io.NewSectionReader(r, 0, size))
			if err != nil || !bytes.Equal(got, want) {
				t.Errorf("%s, %s: other bytes, %v", how, name, err)
			}
			if n, err := r.ReadAt(make([]byte, 2), size-1); n != 1 || err != io.EOF {
				t.Errorf("%s, %s: %d bytes at the end, %v", how, name, n, err)
			}
			if _, _, err := m.DebugSection(name, int64(len(want))-1); err == nil || errors.Is(err, ErrNotFound) {
				t.Errorf("%s, %s is read although it is too large: %v", how, name, err)
			}
		}
		if _, _, err := m.DebugSection(".debug_none", 1<<20); !errors.Is(err, ErrNotFound) {
			t.Error(err)
		}
	}
}

// TestDebugLink: a stripped file names the file with the stripped sections. Both have the same build id.
func TestDebugLink(t *testing.T) {
	objcopy, err := exec.LookPath("objcopy")
	if err != nil {
		t.Skip("SKIPPED, NOTHING WAS TESTED: there is no objcopy")
	}
	exe := build(t, debugged, "-g", "-Wl,--build-id")
	debug := filepath.Join(t.TempDir(), "program.debug")
	for _, args := range [][]string{
		{"--only-keep-debug", exe, debug}, {"--strip-all", "--add-gnu-debuglink=" + debug, exe},
	} {
		if out, err := exec.Command(objcopy, args...).CombinedOutput(); err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
	}
	content, err := os.ReadFile(debug)
	if err != nil {
		t.Fatal(err)
	}
	stripped, err := os.ReadFile(exe)
	if err != nil {
		t.Fatal(err)
	}
	m, err := New(bytes.NewReader(stripped))
	if err != nil {
		t.Fatal(err)
	}
	d, err := New(bytes.NewReader(content))
	if err != nil {
		t.Fatal(err)
	}
	if name, crc, ok := m.DebugLink(); !ok || name != "program.debug" || crc != crc32.ChecksumIEEE(content) {
		t.Errorf("%q, %#x, %v", name, crc, ok)
	}
	if _, _, ok := d.DebugLink(); ok {
		t.Error("the debug file has a link")
	}
	sum, err := Checksum(bytes.NewReader(content), int64(len(content)))
	if err != nil || sum != crc32.ChecksumIEEE(content) {
		t.Errorf("%#x, %v", sum, err)
	}
	if _, err := Checksum(bytes.NewReader(content), int64(len(content))-1); err == nil {
		t.Error("more was read than is allowed")
	}
	want, err := m.BuildID()
	if err != nil {
		t.Fatal(err)
	}
	if got, err := d.BuildID(); err != nil || !bytes.Equal(got, want) || !bytes.Equal(d.sectionBuildID(), want) {
		t.Errorf("%x, %v, want %x", got, err, want)
	}
}
