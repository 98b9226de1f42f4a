package session

import (
	"bufio"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"unsafe"

	"clrsnap/internal/testenv"
	"clrsnap/snapshot"
)

// deepProgram has 40 threads wait at the end of 50,000 calls each.
const deepProgram = `
#include <pthread.h>
#include <stdio.h>
#include <unistd.h>
static pthread_barrier_t there;
__attribute__((noinline)) static int call(int n) {
	if (n == 0) {
		pthread_barrier_wait(&there);
		pause();
		return 0;
	}
	return call(n - 1) + n;
}
static void *begin(void *x) { call(50000); return x; }
int main(void) {
	pthread_barrier_init(&there, NULL, 41);
	for (int i = 0; i < 40; i++) {
		pthread_t t;
		pthread_create(&t, NULL, begin, NULL);
	}
	pthread_barrier_wait(&there);
	puts("ready");
	fflush(stdout);
	pause();
	return 0;
}
`

// TestDeepStacks: of two million frames as many are kept as there is room for. Each thread with a cut or missing
// stack says why.
func TestDeepStacks(t *testing.T) {
	dir := t.TempDir()
	source, exe := filepath.Join(dir, "deep.c"), filepath.Join(dir, "deep")
	if err := os.WriteFile(source, []byte(deepProgram), 0o600); err != nil {
		t.Fatal(err)
	}
	compile := exec.Command(testenv.CC(t),
		"-O1", "-fno-optimize-sibling-calls", "-fno-inline", "-pthread", "-o", exe, source)
	if out, err := compile.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	cmd := exec.Command(exe)
	said, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	defer cmd.Wait()
	defer cmd.Process.Kill()
	if lines := bufio.NewScanner(said); !lines.Scan() {
		t.Fatal("the program has ended")
	}
	p, err := Open(t.Context(), cmd.Process.Pid, Options{NativeOnly: true})
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	for what, o := range map[string]SnapshotOptions{"one by one": {}, "at once": {AtOnce: true}} {
		s, err := p.Snapshot(t.Context(), o)
		if err != nil {
			t.Fatal(err)
		}
		frames, whole, cut := 0, 0, 0
		for i := range s.Threads {
			th := &s.Threads[i]
			if frames += len(th.Frames); th.Complete {
				whole++
			} else if th.Error == errRoom.Error() {
				cut++
			} else {
				t.Errorf("%s: thread %d: %s", what, th.OSThreadID, th.Error)
			}
		}
		most := maxStacks / int(unsafe.Sizeof(snapshot.Frame{}))
		if len(s.Threads) != 41 || frames > most || frames < most*9/10 || whole < 2 || cut < 10 {
			t.Errorf("%s: %d threads with %d frames, of which %d are kept: %d are complete, %d cut",
				what, len(s.Threads), frames, most, whole, cut)
		}
		t.Logf("%s: %d threads with %d frames: %d are complete, %d cut", what, len(s.Threads), frames, whole, cut)
	}
}
