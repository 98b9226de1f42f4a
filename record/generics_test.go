package record_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"clrsnap"
	"clrsnap/internal/livetest"
	"clrsnap/internal/testenv"
	"clrsnap/profile"
	"clrsnap/record"
)

// TestGenerics records a program in which the instantiation of each generic method follows from its
// caller. At a few instructions, as in an epilog, a frame may not tell its instantiation. It never
// tells a wrong instantiation.
func TestGenerics(t *testing.T) {
	a := testenv.Start(t, "generics", testenv.Options{Args: []string{"--storm", "3"}})
	p := livetest.Open(t, a, clrsnap.Options{ExactGenerics: true})
	types := map[string]string{
		"Generics.Storm.AsOrder": "Generics.Order",
		"Generics.Storm.AsBill":  "Generics.Bill",
		"Generics.Storm.AsText":  "string",
		"Generics.Storm.AsList":  "System.Collections.Generic.List<Generics.Order>",
	}
	told, untold, objects := 0, 0, 0
	testenv.UntilSeen(t, func() string {
		r := livetest.Recorded(t, p, record.Options{
			Modes: []profile.Mode{profile.CPU, profile.Wall}, Rate: 500, Duration: 2 * time.Second,
		})
		function := func(node int32) *profile.Function {
			return &r.Functions[r.Locations[r.Nodes[node].Location].Function]
		}
		for i := 1; i < len(r.Nodes); i++ {
			f := function(int32(i))
			if f.Method == "Generics.Deep`1.Go" && strings.Contains(f.Display, "__Canon") {
				objects++
			}
			if f.Method != "Generics.Storm.Method" || r.Nodes[i].Parent <= 0 {
				continue
			}
			caller := function(r.Nodes[i].Parent)
			switch f.Display {
			case "Generics.Storm.Method<" + types[caller.Display] + ">":
				told++
			case "Generics.Storm.Method<System.__Canon>":
				untold++
			default:
				t.Errorf("%s called by %s", f.Display, caller.Display)
			}
		}
		if told < 100 || objects < 100 {
			return fmt.Sprintf("100 nodes that are told, but %d; 100 that depend on objects, but %d", told, objects)
		}
		return ""
	})
	t.Logf("%d nodes are told, %d are not; %d depend on objects", told, untold, objects)
	if untold > told/50 {
		t.Errorf("%d nodes are not told, %d are", untold, told)
	}
	livetest.EndsWell(t, a)
}
