package contract

import (
	"encoding/binary"
	"fmt"
	"strings"
	"testing"
)

// TestTable reads tables of builds with an entry more or less than the build that the descriptor was made for.
func TestTable(t *testing.T) {
	const text = `{"version": 0, "entries": 6, "tail": 3, "types": {}, "contracts": {},
		"globals": {"Front": [2], "Tail": [3], "Last": [5]}}`
	for _, tt := range []struct {
		size              uint64 // of the symbol; 0: unknown
		entries           int    // that are there
		front, tail, last uint64
	}{
		{6 * 8, 6, 102, 103, 105},
		{7 * 8, 7, 102, 104, 106},
		{5 * 8, 5, 102, 102, 104},
		{0, 6, 102, 103, 105},
	} {
		t.Run(fmt.Sprint(tt.size), func(t *testing.T) {
			e, err := parseEmbedded("test", []byte(text))
			if err != nil {
				t.Fatal(err)
			}
			d, err := e.Layout(tableOf(tt.entries), at, tt.size)
			if err != nil {
				t.Fatal(err)
			}
			for name, want := range map[string]uint64{"Front": tt.front, "Tail": tt.tail, "Last": tt.last} {
				if got := d.Globals[name].Value; got != want {
					t.Errorf("%s is %d, want %d", name, got, want)
				}
			}
		})
	}
}

// tableOf lays out a table of entries that hold 100 and their index.
func tableOf(entries int) image {
	var b []byte
	for i := range entries {
		b = binary.LittleEndian.AppendUint64(b, uint64(100+i))
	}
	return image{{Base: at, Data: b}}
}

func TestTableBad(t *testing.T) {
	for _, text := range []string{
		`{"entries": 5000}`, `{"entries": -1}`, `{"entries": 5, "tail": 6}`, `{"entries": 5, "tail": -1}`,
	} {
		if _, err := parseEmbedded("test", []byte(text)); err == nil {
			t.Errorf("%s: no error", text)
		}
	}
	e, err := parseEmbedded("test", []byte(`{"version": 0, "entries": 6, "tail": 3}`))
	if err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		size uint64
		want string
	}{
		{2 * 8, "has only 2 entries"}, // not even the front
		{9 * 8, "the table"},          // more than can be read
	} {
		if _, err := e.Layout(tableOf(6), at, tt.size); err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%d bytes: error %v, want %q", tt.size, err, tt.want)
		}
	}
}
