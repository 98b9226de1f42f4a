package live

import (
	"errors"
	"os"
	"runtime"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// TestAlone: a process is alone until every caller of Alone has called end.
func TestAlone(t *testing.T) {
	first, second := Alone(), Alone()
	first()
	first()
	if !isAlone() {
		t.Error("one has ended it twice, and the other one's does not count any more")
	}
	if second(); isAlone() {
		t.Error("both have ended it")
	}
}

// TestTimesOfOthers: a thread's running time is known even to a reader without access to its
// other files.
func TestTimesOfOthers(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only root can become somebody else")
	}
	pr := start(t, nil, "spin")
	p := open(t, pr)
	type times struct {
		running time.Duration
		ok      bool
		denied  error
	}
	result := make(chan times)
	go func() {
		runtime.LockOSThread() // never unlocked: the thread ends with its rights
		var r times
		if r.denied = unix.Setfsuid(65534); r.denied == nil {
			_, r.denied = openBlocked(p, pr.pid)
			counted, ok := p.Times(pr.pid)
			r.running, r.ok = counted.Running, ok
		}
		result <- r
	}()
	if r := <-result; !errors.Is(r.denied, unix.EACCES) || !r.ok || r.running == 0 {
		t.Errorf("it has run for %v; known: %v; the other file: %v", r.running, r.ok, r.denied)
	}
}
