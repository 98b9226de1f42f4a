package priority

import (
	"runtime"
	"sync"
	"testing"
	"time"
)

// TestReady: threads wait for a CPU if more threads compute than there are CPUs, and not while the
// threads sleep.
func TestReady(t *testing.T) {
	p := Priority{all: true}
	before := p.Ready()
	var all sync.WaitGroup
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(4 * runtime.NumCPU()))
	for range 4 * runtime.NumCPU() {
		all.Go(func() {
			for begin := time.Now(); time.Since(begin) < 300*time.Millisecond; {
			}
		})
	}
	all.Wait()
	after := p.Ready()
	if after-before < 100*time.Millisecond {
		t.Errorf("threads have been ready for %v", after-before)
	}
	// On a busy machine, threads that look for work may still wait for a CPU. If sleep counted,
	// each sleep would count in full.
	const slept = 300 * time.Millisecond
	for end := time.Now().Add(time.Minute); ; {
		before := p.Ready()
		time.Sleep(slept)
		ready := p.Ready() - before
		if ready < slept {
			break
		}
		if time.Now().After(end) {
			t.Errorf("while they slept for %v they were ready for %v", slept, ready)
			break
		}
	}
}
