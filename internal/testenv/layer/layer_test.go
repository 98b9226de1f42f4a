package layer

import "testing"

// said calls a function in a test of its own and reports whether the test went on.
func said(t *testing.T, name string, say ...func(testing.TB)) (wentOn bool) {
	t.Helper()
	testing.RunTests(func(string, string) (bool, error) { return true, nil }, []testing.InternalTest{{
		Name: name,
		F: func(t *testing.T) {
			for _, s := range say {
				s(t)
			}
			wentOn = true
		},
	}})
	return wentOn
}

func TestLayers(t *testing.T) {
	for _, tt := range []struct {
		name   string
		say    []func(testing.TB)
		layers map[string]bool
	}{
		{"nothing", nil, map[string]bool{"check": true, "live": true, "matrix": true, "proof": true}},
		{"check", []func(testing.TB){Check}, map[string]bool{"check": true, "live": true}},
		{"smoke", []func(testing.TB){Check, Kit}, map[string]bool{"check": true, "live": true}},
		{"kit", []func(testing.TB){Kit}, map[string]bool{"live": true}},
		{"each", []func(testing.TB){Each, Kit}, map[string]bool{"live": true, "matrix": true}},
		{"proof", []func(testing.TB){Proof, Each, Kit}, map[string]bool{"proof": true}},
	} {
		if got := said(t, "Test"+tt.name, tt.say...); got != tt.layers[Now()] {
			t.Errorf("%s: a test that says this runs in %s: %v", tt.name, Now(), got)
		}
	}
}
