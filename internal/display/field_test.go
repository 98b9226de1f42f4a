package display

import "testing"

func TestField(t *testing.T) {
	for name, want := range map[string]string{
		"":                                  "",
		"Ledger._gate":                      "Ledger._gate",
		"Shop.Storage.Ledger._gate":         "Ledger._gate",
		"Shop.Outer.Inner.Gate":             "Inner.Gate",
		"Shop.Cache<System.String, a.B>._g": "Cache<String, B>._g",
		"variable gate of Shop.Ledger":      "variable gate of Ledger",
		"variable gate of Ledger":           "variable gate of Ledger",
	} {
		if got := Field(name); got != want {
			t.Errorf("%s: %q, want %q", name, got, want)
		}
	}
}
