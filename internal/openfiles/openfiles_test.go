package openfiles

import (
	"fmt"
	"os"
	"os/exec"
	"testing"
)

// TestLook: both ends of a pipe are found, here and in a child that has inherited an end.
func TestLook(t *testing.T) {
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	child := exec.Command("sleep", "60")
	child.Stdout = w
	if err := child.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() {
		_ = child.Process.Kill()
		_ = child.Wait()
	}()
	link, err := os.Readlink(fmt.Sprintf("/proc/self/fd/%d", r.Fd()))
	if err != nil {
		t.Fatal(err)
	}
	x := Look(os.Getpid())
	want := map[Holder]bool{
		{PID: os.Getpid(), FD: int(r.Fd()), Reads: true}:  true,
		{PID: os.Getpid(), FD: int(w.Fd()), Writes: true}: true,
		{PID: child.Process.Pid, FD: 1, Writes: true}:     true,
	}
	for _, h := range x.Of(link) {
		if h.Command == "" {
			t.Errorf("%+v has no name", h)
		}
		h.Command = ""
		if !want[h] {
			t.Errorf("%+v is none of them", h)
		}
		delete(want, h)
	}
	for h := range want {
		if h.PID == os.Getpid() || !x.Partial { // this process is looked at first
			t.Errorf("not found: %+v", h)
		}
	}
	w.Close()
	for _, h := range x.Of(link) {
		if h.PID == os.Getpid() && h.Writes {
			t.Errorf("%+v is closed", h)
		}
	}
}

func TestAccess(t *testing.T) {
	for info, want := range map[string][2]bool{
		"pos:\t0\nflags:\t0100002\nmnt_id:\t9\n": {true, true},
		"pos:\t0\nflags:\t01\n":                  {false, true},
		"flags:\t02000000\n":                     {true, false},
		"flags:\t8\n":                            {false, false},
		"flags:":                                 {false, false},
		"":                                       {false, false},
	} {
		if reads, writes := access(info); [2]bool{reads, writes} != want {
			t.Errorf("%q: reads %v, writes %v", info, reads, writes)
		}
	}
}

// BenchmarkLook: the cost of a look through the descriptors of all processes of this machine.
func BenchmarkLook(b *testing.B) {
	for b.Loop() {
		Look(os.Getpid())
	}
}
