package report

import (
	"bytes"
	"errors"
	"io"
	"testing"

	"clrsnap/snapshot"
)

// TestPacked: packed stacks look like unpacked stacks.
func TestPacked(t *testing.T) {
	for name, of := range map[string]func() *snapshot.Snapshot{"process": synthetic, "dump": dumped} {
		for _, o := range []TextOptions{
			{}, {Managed: true, Group: GroupAlways}, {Native: true, Group: GroupNever},
			{Full: true, Group: GroupAlways}, {IP: true}, {ByLine: true, Tier: true, Plumbing: true},
		} {
			plain, packed := of(), of()
			var table snapshot.FrameTable
			for i := range packed.Threads {
				th := &packed.Threads[i]
				th.Packed, th.Frames = table.Pack(th.Frames), nil
			}
			var want, got bytes.Buffer
			err := errors.Join(Text(&want, plain, o), JSON(&want, plain), Text(&got, packed, o), JSON(&got, packed))
			if err != nil {
				t.Fatal(err)
			}
			if !bytes.Equal(got.Bytes(), want.Bytes()) {
				t.Errorf("%s, %+v:\n%s\nwant\n%s", name, o, got.Bytes(), want.Bytes())
			}
			if plain.Missing() != packed.Missing() {
				t.Errorf("%s: %d stacks are missing, want %d", name, packed.Missing(), plain.Missing())
			}
		}
	}
}

// TestPackedWaitGraph: the graph of threads with packed stacks looks like the graph with
// unpacked stacks.
func TestPackedWaitGraph(t *testing.T) {
	plain, packed := orders(), orders()
	var table snapshot.FrameTable
	for i := range packed.Threads {
		for k := range packed.Threads[i].Frames {
			sp := uint64(0x1000*i + 0x10*k)
			plain.Threads[i].Frames[k].SP, packed.Threads[i].Frames[k].SP = sp, sp
		}
		th := &packed.Threads[i]
		th.Packed, th.Frames = table.Pack(th.Frames), nil
	}
	for name, write := range map[string]func(io.Writer, *snapshot.Snapshot) error{
		"text": func(w io.Writer, s *snapshot.Snapshot) error {
			return WaitGraph(w, s, s.WaitGraph(), WaitGraphOptions{})
		},
		"JSON": func(w io.Writer, s *snapshot.Snapshot) error { return WaitGraphJSON(w, s, s.WaitGraph()) },
		"DOT":  func(w io.Writer, s *snapshot.Snapshot) error { return WaitGraphDOT(w, s, s.WaitGraph()) },
		"HTML": func(w io.Writer, s *snapshot.Snapshot) error { return WaitGraphHTML(w, s, s.WaitGraph()) },
	} {
		var want, got bytes.Buffer
		if err := errors.Join(write(&want, plain), write(&got, packed)); err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(got.Bytes(), want.Bytes()) {
			t.Errorf("%s:\n%s\nwant\n%s", name, got.Bytes(), want.Bytes())
		}
	}
}
