package live

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// mapMuch maps a file with a long name many times, each mapping apart.
func mapMuch() {
	name := strings.Repeat("x", 250)
	for range 15 {
		if err := errors.Join(unix.Mkdir(name, 0o700), unix.Chdir(name)); err != nil {
			fmt.Println(err)
			return
		}
	}
	f, err := os.Create("file")
	for i := 0; i < 20_000 && err == nil; i++ {
		_, err = unix.MmapPtr(int(f.Fd()), int64(i%2)<<20, nil, 4096, unix.PROT_READ, unix.MAP_SHARED)
	}
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println("ready")
	time.Sleep(time.Hour)
}

// TestLongMaps: a process whose list of mappings has 75 MB is refused, and the list not kept.
func TestLongMaps(t *testing.T) {
	cmd := exec.Command("/proc/self/exe")
	cmd.Dir = t.TempDir()
	cmd.Env = []string{"LIVE_TEST_ROLE=mappings"}
	out, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	defer cmd.Wait()
	defer cmd.Process.Kill()
	if said := bufio.NewScanner(out); !said.Scan() || said.Text() != "ready" {
		t.Fatal(said.Text())
	}
	_, err = Open(cmd.Process.Pid)
	if !errors.Is(err, ErrTooLong) {
		t.Errorf("%v", err)
	} else {
		t.Log(err)
	}
}
