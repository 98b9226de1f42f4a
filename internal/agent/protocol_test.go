package agent

import (
	"encoding/binary"
	"reflect"
	"testing"
)

func encode(t *testing.T, parts ...any) []byte {
	t.Helper()
	var b []byte
	for _, p := range parts {
		var err error
		if b, err = binary.Append(b, binary.LittleEndian, p); err != nil {
			t.Fatal(err)
		}
	}
	return b
}

func TestParseWalk(t *testing.T) {
	frames := []Frame{{Function: 1, IP: 2, SP: 3}, {IP: 4, R15: 5}, {Function: 6}}
	good := encode(t, walkReply{Threads: 3, Frames: 3, SuspendNS: 7, WalkNS: 8},
		threadRecord{Thread: 10, OSID: 11, Frames: 2, ContextSize: 12},
		threadRecord{Thread: 20, OSID: 21, Result: 0x80004005},
		threadRecord{Thread: 30, OSID: 31, Frames: 1},
		frames)
	w, err := parseWalk(good)
	if err != nil {
		t.Fatal(err)
	}
	want := &Walk{Suspending: 7, Taken: 8, Threads: []Thread{
		{ID: 10, OSID: 11, ContextSize: 12, Frames: frames[:2]},
		{ID: 20, OSID: 21, Result: 0x80004005, Frames: []Frame{}},
		{ID: 30, OSID: 31, Frames: frames[2:]},
	}}
	if !reflect.DeepEqual(w, want) {
		t.Errorf("got  %+v\nwant %+v", w, want)
	}
	one := threadRecord{Frames: 1}
	for name, bad := range map[string][]byte{
		"empty":             nil,
		"cut":               good[:len(good)-1],
		"too long":          append(good[:len(good):len(good)], 0),
		"more frames":       encode(t, walkReply{Threads: 1, Frames: 1}, threadRecord{Frames: 2}, Frame{}),
		"more threads":      encode(t, walkReply{Threads: 1 << 31}),
		"frames in threads": encode(t, walkReply{Threads: 2, Frames: 1}, one, one, Frame{}),
	} {
		if w, err := parseWalk(bad); err == nil {
			t.Errorf("%s: %+v", name, w)
		}
	}
}
