package report

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"

	"clrsnap/internal/profiletest"
)

// TestLocks: the table of locks, in text and JSON.
func TestLocks(t *testing.T) {
	for name, o := range map[string]TopOptions{
		"plain": {}, "80": {Terminal: Terminal{Width: 80}, Rows: 2},
		"full": {Terminal: Terminal{Width: 80}, Full: true},
	} {
		var b bytes.Buffer
		if err := Top(&b, profiletest.LockShop(), o); err != nil {
			t.Fatal(err)
		}
		if strings.Contains(b.String(), "\x1b") {
			t.Errorf("%s: control characters", name)
		}
		profiletest.Golden(t, "locks-"+name+".txt", b.Bytes())
	}
	var b, indented bytes.Buffer
	if err := TopJSON(&b, profiletest.LockShop(), TopOptions{}); err != nil {
		t.Fatal(err)
	}
	if err := json.Indent(&indented, b.Bytes(), "", "  "); err != nil {
		t.Fatal(err)
	}
	profiletest.Golden(t, "locks.json", indented.Bytes())
}
