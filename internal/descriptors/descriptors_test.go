package descriptors

import (
	"os"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"clrsnap/internal/procfs"
)

// TestSocketWithoutConnection: the kernel lists no socket without a connection. A connection made after the first read
// of the list has its addresses all the same.
func TestSocketWithoutConnection(t *testing.T) {
	dir, err := procfs.Self()
	if err != nil {
		t.Fatal(err)
	}
	defer dir.Close()
	r := New(dir, os.Getpid())
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(fd)
	if got := r.Of(int32(fd)); got != "tcp socket without a connection" {
		t.Errorf("%q", got)
	}
	if err := unix.Bind(fd, &unix.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}}); err != nil {
		t.Fatal(err)
	}
	if err := unix.Listen(fd, 1); err != nil {
		t.Fatal(err)
	}
	if got := r.Of(int32(fd)); !strings.HasPrefix(got, "tcp 127.0.0.1:") || !strings.HasSuffix(got, " listening") {
		t.Errorf("%q", got)
	}
	for range 2 * mostReads {
		other, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
		if err != nil {
			t.Fatal(err)
		}
		defer unix.Close(other)
		r.Of(int32(other))
	}
	if r.reads != mostReads {
		t.Errorf("the list was read %d times, at most %d are allowed", r.reads, mostReads)
	}
}
