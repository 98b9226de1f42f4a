package live

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"clrsnap/internal/procfs"
	"clrsnap/internal/testenv"
	"clrsnap/internal/testenv/role"

	"golang.org/x/sys/unix"
)

// mapper maps a file with a long name many times, each mapping apart.
var mapper = role.New("mapper", func(role.Args) error {
	name := strings.Repeat("x", 250)
	for range 15 {
		if err := errors.Join(unix.Mkdir(name, 0o700), unix.Chdir(name)); err != nil {
			return err
		}
	}
	f, err := os.Create("file")
	for i := 0; i < 20_000 && err == nil; i++ {
		_, err = unix.MmapPtr(int(f.Fd()), int64(i%2)<<20, nil, 4096, unix.PROT_READ, unix.MAP_SHARED)
	}
	if err != nil {
		return err
	}
	fmt.Println("ready")
	time.Sleep(time.Hour)
	return nil
})

// TestLongMaps: a process with a 75 MB list of mappings is refused, and the list is not kept.
func TestLongMaps(t *testing.T) {
	cmd := mapper.Command()
	cmd.Dir = t.TempDir()
	if said := testenv.StartSaying(t, cmd); said != "ready" {
		t.Fatal(said)
	}
	_, err := Open(cmd.Process.Pid)
	if !errors.Is(err, procfs.ErrTooLong) {
		t.Errorf("%v", err)
	} else {
		t.Log(err)
	}
}
