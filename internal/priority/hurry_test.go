package priority

import (
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"clrsnap/internal/testenv"
	"clrsnap/internal/testenv/role"

	"golang.org/x/sys/unix"
)

func TestMain(m *testing.M) { role.Main(m) }

// hurrying hurries, prints how the thread and a child process are scheduled, and waits for the end
// of the real-time priority.
var hurrying = role.New("hurrying", func(role.Args) error {
	HurryAll(false, false)
	fmt.Println("at first", scheduled())
	out, err := exec.Command("/bin/sh", "-c", "cut -d ' ' -f 19,41 /proc/self/stat").Output()
	if err != nil {
		return err
	}
	fmt.Printf("its child %s", out)
	for begin := time.Now(); strings.HasPrefix(scheduled(), "policy 2") && time.Since(begin) < testenv.Hang; {
		time.Sleep(time.Millisecond)
	}
	fmt.Println("at last", scheduled())
	Relax()
	fmt.Println("relaxed", scheduled())
	return nil
})

// hurryingBriefly hurries, and waits until all is ordinary.
var hurryingBriefly = role.New("hurrying briefly", func(role.Args) error {
	HurryAll(false, true)
	fmt.Println("at first", scheduled())
	for begin := time.Now(); scheduled() != "policy 0 nice 0" && time.Since(begin) < testenv.Hang; {
		time.Sleep(time.Millisecond)
	}
	fmt.Println("at last", scheduled())
	return nil
})

// scheduled describes the calling OS thread.
func scheduled() string {
	a, err := unix.SchedGetAttr(0, 0)
	if err != nil {
		return err.Error()
	}
	return fmt.Sprintf("policy %d nice %d", a.Policy, a.Nice)
}

// TestHurryAll: one thread comes before others for a while; a child process does not. Relax ends
// that. A chosen priority stays.
func TestHurryAll(t *testing.T) {
	if chosen() {
		t.Skip("SKIPPED, NOTHING WAS TESTED: somebody has chosen a priority for the tests")
	}
	cmd := hurrying.Command()
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	if strings.HasPrefix(string(out), "at first policy 0") {
		t.Skip("SKIPPED, NOTHING WAS TESTED: no right to have a real-time priority")
	}
	if !strings.HasPrefix(string(out), "at first policy 2 ") || !strings.Contains(string(out), "its child 0 0\n") ||
		!strings.HasSuffix(string(out), "at last policy 0 nice -20\nrelaxed policy 0 nice 0\n") {
		t.Errorf("%s", out)
	}
	brief, err := hurryingBriefly.Command().CombinedOutput()
	if err != nil || !strings.HasPrefix(string(brief), "at first policy 2 ") ||
		!strings.HasSuffix(string(brief), "at last policy 0 nice 0\n") {
		t.Errorf("%v: %s", err, brief)
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	chosen := exec.Command("nice", "-n", "5", self)
	chosen.Env = cmd.Env
	if out, err = chosen.CombinedOutput(); err != nil || !strings.HasPrefix(string(out), "at first policy 0 nice 5\n") {
		t.Errorf("%v: %s", err, out)
	}
}
