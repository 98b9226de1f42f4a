package locate

import (
	"bytes"
	"debug/elf"
	"encoding/binary"
	"errors"
	"io"
	"os"
	"strconv"
	"testing"

	"clrsnap/internal/arch"
	"clrsnap/internal/elfx"
	"clrsnap/internal/module"
	"clrsnap/internal/target"
	"clrsnap/internal/target/live"
	"clrsnap/internal/testenv"
)

func TestParseVersion(t *testing.T) {
	for _, tt := range []struct {
		stamp, want string
		ok          bool
	}{
		{"10.0.1226.56789 @Commit: 0123", "10.0.12", true},
		{"10.0.926.27113", "10.0.9", true},
		{"9.0.525.21509 @Commit", "9.0.5", true},
		{"8.0.0.0", "8.0.0", true},
		{"10.0", "", false},
		{"10.0.x.1", "", false},
		{"10.0.-1.1", "", false},
		{"", "", false},
	} {
		if got, ok := parseVersion(tt.stamp); got != tt.want || ok != tt.ok {
			t.Errorf("%q: %q, %v", tt.stamp, got, ok)
		}
	}
}

// counted is a sparse file that counts the bytes of all reads.
type counted struct {
	head []byte
	read int64
}

func (c *counted) ReadAt(p []byte, off int64) (int, error) {
	c.read += int64(len(p))
	clear(p)
	if off < int64(len(c.head)) {
		copy(p, c.head[off:])
	}
	return len(p), nil
}

// TestStampedBounded: an image with thousands of large segments, all of the same part of a sparse file, is not
// searched without end.
func TestStampedBounded(t *testing.T) {
	const segments, size = 4096, 64 << 20
	var b bytes.Buffer
	h := elf.Header64{
		Ident: [elf.EI_NIDENT]byte{0x7f, 'E', 'L', 'F', byte(elf.ELFCLASS64), byte(elf.ELFDATA2LSB),
			byte(elf.EV_CURRENT)},
		Type: uint16(elf.ET_DYN), Machine: uint16(elf.EM_X86_64), Version: uint32(elf.EV_CURRENT),
		Phoff: 64, Ehsize: 64, Phentsize: 56, Phnum: segments,
	}
	if err := binary.Write(&b, binary.LittleEndian, &h); err != nil {
		t.Fatal(err)
	}
	for i := range uint64(segments) {
		p := elf.Prog64{
			Type: uint32(elf.PT_LOAD), Flags: uint32(elf.PF_R),
			Off: 1 << 20, Vaddr: (i + 1) * size, Filesz: size, Memsz: size, Align: 4096,
		}
		if err := binary.Write(&b, binary.LittleEndian, &p); err != nil {
			t.Fatal(err)
		}
	}
	file := &counted{head: b.Bytes()}
	img, err := elfx.New(file)
	if err != nil {
		t.Fatal(err)
	}
	if v, ok := stamped(img); ok {
		t.Errorf("it has version %q", v)
	}
	if file.read < maxScan/2 || file.read > maxScan+4<<20 {
		t.Errorf("%d MB were read", file.read>>20)
	}
}

// find opens a process and looks for its runtime.
func find(t *testing.T, pid int, exe string) (*Runtime, error) {
	t.Helper()
	p, err := live.Open(pid)
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	maps, err := p.Mappings()
	if err != nil {
		t.Fatal(err)
	}
	mods := module.NewSet(p.Arch(), p, p.OpenMapping)
	defer mods.Close()
	mods.Update(maps)
	return Find(mods, exe)
}

func TestFind(t *testing.T) {
	kit := testenv.Kit(t)
	for _, tt := range []struct {
		runtime, version string
		descriptor       bool
	}{
		{"net10", "", true},
		{testenv.NewestRuntime, "", true},
		{"net10:dotnet-10.0.8", "10.0.8", false},
	} {
		t.Run(tt.runtime, func(t *testing.T) {
			kit.Need(t, tt.runtime)
			a := testenv.Start(t, "idle", testenv.Options{Runtime: tt.runtime})
			exe, err := os.Readlink("/proc/" + strconv.Itoa(a.PID) + "/exe")
			if err != nil {
				t.Fatal(err)
			}
			r, err := find(t, a.PID, exe)
			if err != nil {
				t.Fatal(err)
			}
			t.Logf("%+v", r)
			if r.Version == "" || tt.version != "" && r.Version != tt.version || (r.Descriptor != 0) != tt.descriptor {
				t.Errorf("version %q, descriptor at %v", r.Version, r.Descriptor)
			}
		})
	}
}

func TestFindNothing(t *testing.T) {
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	if r, err := find(t, os.Getpid(), exe); !errors.Is(err, ErrNotDotNet) {
		t.Errorf("in this test: %+v, %v", r, err)
	}
	if r, err := Find(module.NewSet(arch.AMD64, nil, nil), "/x"); !errors.Is(err, ErrNotDotNet) {
		t.Errorf("in nothing: %+v, %v", r, err)
	}
}

// An executable that cannot be read is not reported as a program without .NET.
func TestFindUnreadable(t *testing.T) {
	unreadable := errors.New("no permission")
	mods := module.NewSet(arch.AMD64, noMemory{}, func(*target.Mapping) (target.File, error) { return nil, unreadable })
	mods.Update(target.Mappings{
		{Start: 0x1000, End: 0x2000, Perm: target.PermRead | target.PermExec, Path: "/app/x", Inode: 1},
	})
	if _, err := Find(mods, "/app/x"); !errors.Is(err, unreadable) {
		t.Errorf("%v", err)
	}
}

type noMemory struct{}

func (noMemory) ReadMemory(p []byte, addr arch.Addr) error {
	return &target.ReadError{Addr: addr, Len: len(p), Err: io.ErrUnexpectedEOF}
}

// TestAheadOfTime looks at the file of a native AOT library, as the program itself and as a library of a program.
func TestAheadOfTime(t *testing.T) {
	library := testenv.AheadOfTime(t)
	open := func(m *target.Mapping) (target.File, error) {
		if m.Path != library {
			return nil, errors.New("nothing to see here")
		}
		return os.Open(m.Path)
	}
	for _, exe := range []string{library, "/bin/other"} {
		mods := module.NewSet(arch.AMD64, noMemory{}, open)
		mods.Update(target.Mappings{
			code("/bin/other", 0x1000, 0x2000, 0),
			code(library, 0x7f0000006000, 0x7f0000120000, 0x6000),
		})
		r, err := Find(mods, exe)
		if err != nil {
			t.Errorf("%s: %v", exe, err)
			continue
		}
		if r.Shape != NativeAOT || r.Version != testenv.AheadOfTimeVersion || r.Module.Path != library ||
			r.Descriptor != 0 {
			t.Errorf("%s: %+v", exe, r)
		}
		mods.Close()
	}
}

// code is an executable mapping.
func code(path string, start, end arch.Addr, offset uint64) target.Mapping {
	return target.Mapping{
		Start: start, End: end, Perm: target.PermRead | target.PermExec, Path: path, Inode: 1, Offset: offset,
	}
}
