package events

import "testing"

// TestOwnName: names of the runtime and of metadata end alike, whatever encloses a class, and whatever
// its parts are.
func TestOwnName(t *testing.T) {
	for name, want := range map[string]string{
		"Shop.Order": "Order", "Shop.Order+Line": "Line", "Shop.Box`1": "Box", "Shop.Box<System.Int32>": "Box",
		"Shop.Order[]": "Order", "Order": "Order",
	} {
		if got := ownName(name); got != want {
			t.Errorf("%s: %q, want %q", name, got, want)
		}
	}
}
