package display

import (
	"testing"

	"clrsnap/profile"
)

func TestWeight(t *testing.T) {
	for _, c := range []struct {
		unit profile.Unit
		w    int64
		want string
	}{
		{profile.Nanoseconds, 0, "0 s"}, {profile.Nanoseconds, 7, "7 ns"}, {profile.Nanoseconds, 1500, "1.50 µs"},
		{profile.Nanoseconds, 45_600_000, "45.6 ms"},
		{profile.Nanoseconds, 999_999_999, "1.00 s"}, {profile.Nanoseconds, 3_600e9, "3600 s"},
		{profile.Bytes, 0, "0 B"}, {profile.Bytes, 1023, "1,023 B"}, {profile.Bytes, 1024, "1.00 KiB"},
		{profile.Bytes, 3 << 29, "1.50 GiB"}, {profile.Bytes, 1<<20 - 1, "1.00 MiB"},
		{profile.Bytes, 1 << 60, "1048576 TiB"},
		{profile.Count, 0, "0"}, {profile.Count, 1234567, "1,234,567"},
	} {
		if got := Weight(c.unit, c.w); got != c.want {
			t.Errorf("%d %s: %q, want %q", c.w, c.unit, got, c.want)
		}
	}
}
