package report

import (
	"bytes"
	"errors"
	"testing"

	"clrsnap/profile"
)

// TestPacked: stacks that are packed look like others.
func TestPacked(t *testing.T) {
	for name, of := range map[string]func() *profile.Snapshot{"process": synthetic, "dump": dumped} {
		for _, o := range []TextOptions{
			{}, {Managed: true, Group: GroupAlways}, {Native: true, Group: GroupNever}, {Full: true, Group: GroupAlways},
			{IP: true}, {ByLine: true, Tier: true, Plumbing: true},
		} {
			plain, packed := of(), of()
			var table profile.FrameTable
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
