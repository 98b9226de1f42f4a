package requests

import "testing"

func TestCommonPath(t *testing.T) {
	for _, test := range [][3]string{
		{"/items/1", "/items/1", "/items/1"}, {"/items/1", "/items/12", "/items/…"},
		{"/items/…", "/items/7", "/items/…"}, {"/items/1", "/prices", "/…"}, {"", "/items", "…"},
		{"/a/é", "/a/è", "/a/…"},
	} {
		if got := commonPath(test[0], test[1]); got != test[2] {
			t.Errorf("%q and %q: %q", test[0], test[1], got)
		}
	}
}
