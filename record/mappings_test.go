package record

import (
	"os"
	"testing"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"clrsnap/internal/arch"
	"clrsnap/internal/session"
)

// TestNewCode: memory with code of no module, as the runtime makes for its stubs, is known when a walk fails there. The
// mappings are read a few times at once, and then no more often than mapEvery.
func TestNewCode(t *testing.T) {
	r := newRecorder(Options{})
	p, err := session.Open(t.Context(), os.Getpid(), session.Options{NativeOnly: true})
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	rp := r.add(p)
	r.now = rp.since + time.Hour
	for range mapsSaved {
		code, err := unix.Mmap(-1, 0, os.Getpagesize(), unix.PROT_READ|unix.PROT_EXEC, unix.MAP_PRIVATE|unix.MAP_ANON)
		if err != nil {
			t.Fatal(err)
		}
		defer unix.Munmap(code)
		at := arch.Addr(uintptr(unsafe.Pointer(unsafe.SliceData(code))))
		if p.Engine.Modules.Executable(at) {
			t.Fatal("the new mapping is known before anybody has looked")
		}
		if !rp.newMappings() || !p.Engine.Modules.Executable(at) {
			t.Error("the new mapping is not known")
		}
	}
	if rp.newMappings() {
		t.Error("the mappings are read once more at the same time")
	}
	if r.now += mapEvery; !rp.newMappings() || rp.newMappings() {
		t.Errorf("after %v the mappings are not read exactly once", mapEvery)
	}
}
