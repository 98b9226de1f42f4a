package procfs

import "testing"

func TestParseIO(t *testing.T) {
	for _, tt := range []struct {
		text string
		want Transferred
		ok   bool
	}{
		{"rchar: 12\nwchar: 34\nsyscr: 5\nsyscw: 6\nread_bytes: 7\n", Transferred{12, 34}, true},
		{"rchar: 12\n", Transferred{12, 0}, false},
		{"wchar: 34\nrchar: x\n", Transferred{0, 34}, false},
		{"rchar: 18446744073709551616\nwchar: 1\n", Transferred{0, 1}, false},
		{"", Transferred{}, false},
		{"rchar\nwchar\n\x00", Transferred{}, false},
	} {
		if got, ok := parseIO([]byte(tt.text)); got != tt.want || ok != tt.ok {
			t.Errorf("%q: %v, %v", tt.text, got, ok)
		}
	}
}
