package why_test

import (
	"strings"
	"testing"
	"time"

	"clrsnap/internal/testenv"
	"clrsnap/profile"
	"clrsnap/why"
)

// TestOfNote: known ways of using too much CPU time are told with the program's method, each of its program only.
func TestOfNote(t *testing.T) {
	testenv.EachOf(t, testenv.Supported(), func(t *testing.T, runtime string) {
		for _, tt := range []struct{ of, says, own string }{
			{"struct-keys", "comparing and hashing structs by reflection", "Shop.Wasteful.CountStock"},
			{"equal-hashes", "looking up keys in a collection", "Shop.Wasteful.CountLabels"},
			{"boxes", "are boxed values such as int", "Shop.Wasteful.Fill"},
			{"joins", "Perhaps a text grows in a loop", "Shop.Wasteful.Write"},
			{"regex", "regular expressions", "Shop.Busy.IsTag"},
			{"compiled-regex", "regular expressions", "Shop.Busy.IsTagToo"},
			{"loop", "", ""},
		} {
			if runtime != testenv.NewestRuntime && tt.of != "struct-keys" {
				continue // the same frames and samples
			}
			t.Run(tt.of, func(t *testing.T) {
				a := testenv.Start(t, "ailing", testenv.Options{Runtime: runtime, Args: []string{"--of", tt.of}})
				took := time.Second // longer each time: on a busy machine there are few samples in a second
				testenv.UntilSeen(t, func() string {
					took = min(2*took, 16*time.Second)
					r := look(t, a, why.Options{For: took})
					if r.Activity.CPU == nil || r.Activity.CPU.Path == nil {
						return "samples"
					}
					found := tt.says == ""
					for _, e := range r.Activity.CPU.OfNote {
						text := shows(&profile.Verdict{Text: e.Text, Evidence: []profile.Evidence{e}})
						switch {
						case tt.of == "struct-keys" && strings.Contains(text, "boxed values"): // by the reflection
						case tt.of == "struct-keys" && strings.Contains(text, "many keys with equal hash codes"):
							// the runtime hashes the first field, which has 20 values
						case strings.HasPrefix(text, "too little CPU time"), // a busy machine
							strings.Contains(text, "With so little CPU time it cannot be told"):
						case tt.says == "" || !strings.Contains(text, tt.says):
							t.Errorf("not of %s: %s", tt.of, text)
						case !strings.Contains(e.Text, tt.own):
							t.Errorf("%s is not named by %s", tt.own, text)
						default:
							found = true
						}
					}
					if !found {
						return "what is of note"
					}
					return ""
				})
			})
		}
	})
}
