package locate

import (
	"errors"
	"io"
	"os"
	"strconv"
	"testing"

	"clrsnap/internal/arch"
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
		{"net9", "", true},
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

// An executable that cannot be read is not said to be no .NET program.
func TestFindUnreadable(t *testing.T) {
	unreadable := errors.New("no permission")
	mods := module.NewSet(arch.AMD64, noMemory{}, func(*target.Mapping) (target.File, error) { return nil, unreadable })
	mods.Update(target.Mappings{{Start: 0x1000, End: 0x2000, Perm: target.PermRead | target.PermExec, Path: "/app/x", Inode: 1}})
	if _, err := Find(mods, "/app/x"); !errors.Is(err, unreadable) {
		t.Errorf("%v", err)
	}
}

type noMemory struct{}

func (noMemory) ReadMemory(p []byte, addr arch.Addr) error {
	return &target.ReadError{Addr: addr, Len: len(p), Err: io.ErrUnexpectedEOF}
}

// TestAheadOfTime looks at the file of a native AOT library, as the program itself and
// as one of a program's libraries.
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
		if r.Shape != NativeAOT || r.Version != testenv.AheadOfTimeVersion || r.Module.Path != library || r.Descriptor != 0 {
			t.Errorf("%s: %+v", exe, r)
		}
		mods.Close()
	}
}

// code is an executable mapping.
func code(path string, start, end arch.Addr, offset uint64) target.Mapping {
	return target.Mapping{Start: start, End: end, Perm: target.PermRead | target.PermExec, Path: path, Inode: 1, Offset: offset}
}
