package name

import "testing"

func TestCapturing(t *testing.T) {
	for full, want := range map[string]string{
		"Shop.Ledger":                                     "-",
		"Shop.Outer`1+Inner":                              "-",
		"Shop.Ledger+<>c__DisplayClass9_0":                "Shop.Ledger",
		"Shop.Ledger+<>c__DisplayClass9_0`1":              "Shop.Ledger",
		"Shop.Ledger+<>c":                                 "Shop.Ledger",
		"Shop.Ledger+<RunAsync>d__5":                      "Shop.Ledger",
		"Shop.Ledger+<>c+<<RunAsync>b__5_0>d":             "Shop.Ledger",
		"Shop.Outer+Ledger+<>c__DisplayClass1_0+<Go>d__2": "Shop.Outer+Ledger",
		"Shop.Ledger+_Closure$__9-0":                      "Shop.Ledger",
		"Shop.Ledger+VB$StateMachine_5_RunAsync":          "Shop.Ledger",
		"Shop+Ledger+loop@12-1":                           "Shop+Ledger",
		"<StartupCode$Shop>.clo@5":                        "",
	} {
		of, ok := capturing(full)
		if !ok {
			of = "-"
		}
		if of != want {
			t.Errorf("%s: %q, want %q", full, of, want)
		}
	}
}

func TestFieldNames(t *testing.T) {
	for field, want := range map[string][2]string{
		"_gate":                     {"_gate", "_gate"},
		"<Gate>k__BackingField":     {"Gate", ""},
		"<gate>P":                   {"gate", ""},
		"Gate@":                     {"Gate", ""},
		"gate":                      {"gate", "gate"},
		"<gate>5__2":                {"", "gate"},
		"<>4__this":                 {"", ""},
		"<>u__1":                    {"", ""},
		"<>8__1":                    {"", ""},
		"<>9__3_0":                  {"", ""},
		"CS$<>8__locals1":           {"", ""},
		"$VB$Local_gate":            {"", "gate"},
		"$VB$ResumableLocal_gate$2": {"", "gate"},
		"$VB$Me":                    {"", ""},
	} {
		if got := [2]string{property(field), variable(field)}; got != want {
			t.Errorf("%s: %q, want %q", field, got, want)
		}
	}
}
