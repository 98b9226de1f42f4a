package main

import "testing"

// TestFaults: each fault of the list fits the code of today.
func TestFaults(t *testing.T) {
	t.Chdir("../..")
	faults, err := readFaults()
	if err != nil {
		t.Fatal(err)
	}
	const few = 40
	if len(faults) < few {
		t.Errorf("%d faults, want at least %d", len(faults), few)
	}
	if err := stale(faults); err != nil {
		t.Error(err)
	}
	for _, text := range []string{"", "return", "no such " + "text"} {
		f := fault{file: "scripts/mutate/main.go", old: text}
		if f.stale() == nil {
			t.Errorf("%q is not stale", text)
		}
	}
}
