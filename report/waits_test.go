package report

import (
	"bytes"
	"errors"
	"strings"
	"testing"

	"clrsnap/internal/profiletest"
	"clrsnap/profile"
)

// TestWaits: the tables of Waits.
func TestWaits(t *testing.T) {
	for name, o := range map[string]TopOptions{
		"plain": {}, "80": {Terminal: Terminal{Width: 80}, Rows: 1},
		"full": {Terminal: Terminal{Width: 80}, Full: true, Idle: true},
	} {
		var b bytes.Buffer
		for _, r := range []*profile.Recording{
			profiletest.LockShop(), profiletest.EventShop(), profiletest.RestingShop(),
		} {
			if err := Waits(&b, r, o); err != nil {
				t.Fatal(err)
			}
		}
		if strings.Contains(b.String(), "\x1b") {
			t.Errorf("%s: control characters", name)
		}
		profiletest.Golden(t, "waits-"+name+".txt", b.Bytes())
	}
	busy := profiletest.EventShop().Select(profile.Selection{Modes: []profile.Mode{profile.CPU, profile.Alloc}})
	if err := Waits(&bytes.Buffer{}, busy, TopOptions{}); !errors.Is(err, ErrNoWaits) {
		t.Errorf("nobody waits: %v", err)
	}
}
