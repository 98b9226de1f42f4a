package export

import (
	"bytes"
	"io"
	"strings"
	"testing"

	"clrsnap/profile"
	"clrsnap/snapshot"
)

// deep is a recording with one stack of n frames.
func deep(frames int) *profile.Recording {
	b := profile.NewBuilder(profile.Limits{Nodes: frames + 1})
	at := b.Location(profile.Location{
		Function: b.Function(profile.Function{Kind: snapshot.Managed, Display: "f", Short: "f"}),
	})
	node := int32(0)
	for range frames {
		node = b.Child(node, at)
	}
	b.Add(profile.Sample{Weight: 1000, Node: node, Thread: b.Thread(profile.RecordedThread{})})
	r := b.Recording()
	r.Processes = []snapshot.Process{{PID: 1}}
	r.Modes = []profile.ModeStats{{Mode: profile.CPU, Rate: 99, Samples: 1}}
	return r
}

// TestDepth: a stack of profile.MaxDepth frames is written and read in every format, and a
// deeper one is refused by every reader, because showing a recording recurses down its tree.
func TestDepth(t *testing.T) {
	whole, tooDeep := deep(profile.MaxDepth), deep(profile.MaxDepth+1)
	for _, f := range Formats() {
		t.Run(string(f), func(t *testing.T) {
			if err := Encode(io.Discard, whole, f, Options{}); err != nil {
				t.Errorf("%d frames: %v", profile.MaxDepth, err)
			}
			if f == FormatSVG || f == FormatTrace {
				return // nobody reads these formats back
			}
			var file bytes.Buffer
			err := Encode(&file, tooDeep, f, Options{})
			if err == nil { // our own formats are not even written
				_, err = ReadRecording(&file)
			}
			if err == nil || !strings.Contains(err.Error(), "a stack has more than 262144 frames") {
				t.Errorf("%d frames: %v", profile.MaxDepth+1, err)
			}
		})
	}
}
