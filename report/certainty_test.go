package report

import (
	"bytes"
	"io"
	"regexp"
	"testing"
	"time"

	"clrsnap/profile"
	"clrsnap/snapshot"
)

// A claim is a statement about a program that can be certain or not.
type claim struct {
	name  string
	base  func(*snapshot.Snapshot) // prepares the snapshot; nil: nothing
	unsay func(*snapshot.Snapshot) // takes the claim away
	doubt func(*snapshot.Snapshot) // makes the claim uncertain
	mark  *regexp.Regexp           // the words, signs and members for what is not certain
}

// claimed is a snapshot whose claims are all certain: a thread in a handler holds a monitor, for which another thread
// waits.
func claimed() *snapshot.Snapshot {
	owner := &snapshot.ThreadRef{OSThreadID: 11, ManagedThreadID: 1, Name: "holder"}
	frame := func(method string) snapshot.Frame {
		return snapshot.Frame{
			Kind: snapshot.Managed, Method: method, Display: method, Short: method, Signature: "()", Module: "Shop",
			Line: &snapshot.SourceLine{File: "/src/Shop/Orders.cs", Line: 41},
		}
	}
	return &snapshot.Snapshot{
		Process:    snapshot.Process{PID: 7, Command: "dotnet Shop.dll", Runtime: snapshot.Runtime{Version: "10.0.14"}},
		CapturedAt: time.Date(2026, 11, 23, 7, 0, 0, 0, time.UTC),
		Threads: []snapshot.Thread{
			{
				OSThreadID: 11, ManagedThreadID: 1, ThreadID: 0x5000, Name: "holder", Complete: true, Still: true,
				State: "sleeping", Frames: []snapshot.Frame{frame("Shop.Orders.Book")},
				Holds: []snapshot.Wait{{
					Kind: snapshot.MonitorEnter, Type: "Shop.Order", Object: 0x7f10, Recursion: 1, Waiters: 1,
					Certain: true,
				}},
				Exception: &snapshot.ExceptionInfo{Type: "Shop.Refused", Message: "no stock"},
			},
			{
				OSThreadID: 12, ManagedThreadID: 2, ThreadID: 0x6000, Name: "waiter", Complete: true, Still: true,
				State: "waiting (futex)", Frames: []snapshot.Frame{frame("Shop.Stock.Take")},
				Wait: &snapshot.Wait{
					Kind: snapshot.MonitorEnter, Type: "Shop.Order", Object: 0x7f10, Owner: owner, Recursion: 1,
					Waiters: 1, Timeout: snapshot.Forever, Certain: true,
				},
			},
		},
	}
}

// unsure matches the mark of a wait, a hold or an exception.
var unsure = regexp.MustCompile(`uncertain|"certain": ?false|suspected`)

// claims are all claims of a snapshot with a certainty.
var claims = []claim{
	{
		"hold", nil, func(s *snapshot.Snapshot) { s.Threads[0].Holds = nil },
		func(s *snapshot.Snapshot) { s.Threads[0].Holds[0].Certain = false }, unsure,
	},
	{
		"wait", nil, func(s *snapshot.Snapshot) { s.Threads[1].Wait = nil },
		func(s *snapshot.Snapshot) { s.Threads[1].Wait.Certain = false }, unsure,
	},
	{
		"exception", nil, func(s *snapshot.Snapshot) { s.Threads[0].Exception = nil },
		func(s *snapshot.Snapshot) { s.Threads[0].Exception.Uncertain = "the thread ran meanwhile" }, unsure,
	},
	{
		"line", nil, func(s *snapshot.Snapshot) { s.Threads[0].Frames[0].Line = nil },
		func(s *snapshot.Snapshot) { s.Threads[0].Frames[0].Line.Approximate = true },
		regexp.MustCompile(`:~41|"approximate(Line)?": ?true`),
	},
	{
		"name", nil, func(s *snapshot.Snapshot) { s.Threads[0].Frames = nil },
		func(s *snapshot.Snapshot) {
			f := &s.Threads[0].Frames[0] // the producer of a frame marks the name
			f.Display, f.Short, f.Unproved = f.Display+" (?)", f.Short+" (?)", true
		},
		regexp.MustCompile(`\(\?\)|"unproved": ?true`),
	},
	{
		"deadlock", entangle, func(s *snapshot.Snapshot) { s.Threads[1].Holds, s.Threads[0].Wait = nil, nil },
		func(s *snapshot.Snapshot) { s.Threads[0].Wait.Certain = false }, unsure,
	},
	{
		"owner that has ended", func(s *snapshot.Snapshot) {
			s.Threads[0].Holds, s.Threads[1].Wait.Owner = nil, &snapshot.ThreadRef{}
		},
		func(s *snapshot.Snapshot) { s.Threads[1].Wait.Owner = nil },
		func(s *snapshot.Snapshot) { s.Threads[1].Wait.Certain = false }, unsure,
	},
}

// outputs are all outputs of a snapshot.
var outputs = map[string]func(io.Writer, *snapshot.Snapshot) error{
	"text": func(w io.Writer, s *snapshot.Snapshot) error { return Text(w, s, TextOptions{}) },
	"short text": func(w io.Writer, s *snapshot.Snapshot) error {
		return Text(w, s, TextOptions{Short: true, ByLine: true})
	},
	"full text": func(w io.Writer, s *snapshot.Snapshot) error { return Text(w, s, TextOptions{Full: true}) },
	"groups":    func(w io.Writer, s *snapshot.Snapshot) error { return Text(w, s, TextOptions{Group: GroupAlways}) },
	"narrow text": func(w io.Writer, s *snapshot.Snapshot) error {
		return Text(w, s, TextOptions{Terminal: Terminal{Width: 200}, Managed: true, ByLine: true})
	},
	"JSON": JSON,
	"locks": func(w io.Writer, s *snapshot.Snapshot) error {
		return WaitGraph(w, s, s.WaitGraph(), WaitGraphOptions{All: true})
	},
	"locks, few": func(w io.Writer, s *snapshot.Snapshot) error {
		return WaitGraph(w, s, s.WaitGraph(), WaitGraphOptions{})
	},
	"locks, JSON": func(w io.Writer, s *snapshot.Snapshot) error { return WaitGraphJSON(w, s, s.WaitGraph()) },
	"locks, DOT":  func(w io.Writer, s *snapshot.Snapshot) error { return WaitGraphDOT(w, s, s.WaitGraph()) },
	"locks, SVG":  func(w io.Writer, s *snapshot.Snapshot) error { return WaitGraphSVG(w, s, s.WaitGraph()) },
	"locks, HTML": func(w io.Writer, s *snapshot.Snapshot) error { return WaitGraphHTML(w, s, s.WaitGraph()) },
}

// TestEveryCertainty: an output that shows a claim shows that a claim is uncertain. An output that does not change when
// the claim is taken away does not show the claim.
func TestEveryCertainty(t *testing.T) {
	told := map[string]int{}
	for _, c := range claims {
		for name, write := range outputs {
			render := func(change func(*snapshot.Snapshot)) string {
				s := claimed()
				if c.base != nil {
					c.base(s)
				}
				change(s)
				var b bytes.Buffer
				if err := write(&b, s); err != nil {
					t.Fatal(err)
				}
				return b.String()
			}
			certain, without, doubted := render(func(*snapshot.Snapshot) {}), render(c.unsay), render(c.doubt)
			if certain == without {
				continue
			}
			told[c.name]++
			plain, marked := len(c.mark.FindAllString(certain, -1)), len(c.mark.FindAllString(doubted, -1))
			if marked <= plain {
				t.Errorf("%s: an uncertain %s has no mark:\n%s", name, c.name, doubted)
			}
		}
	}
	for _, c := range claims {
		if told[c.name] < 3 {
			t.Errorf("%d outputs show a %s", told[c.name], c.name)
		}
	}
}

// entangle makes the two threads of claimed wait for each other.
func entangle(s *snapshot.Snapshot) {
	other := s.Threads[1]
	s.Threads[0].Wait = &snapshot.Wait{
		Kind: snapshot.LockEnter, Type: "System.Threading.Lock", Object: 0x7f20, Recursion: 1, Waiters: 1,
		Owner:   &snapshot.ThreadRef{OSThreadID: 12, ManagedThreadID: 2, Name: other.Name},
		Timeout: snapshot.Forever, Certain: true,
	}
}

// TestEveryVerdict: both outputs of a verdict say how certain the verdict is.
func TestEveryVerdict(t *testing.T) {
	for name, write := range map[string]func(io.Writer, *profile.Findings) error{
		"text": func(w io.Writer, d *profile.Findings) error { return Why(w, d, WhyOptions{}) }, "JSON": WhyJSON,
	} {
		for _, certainty := range []profile.Certainty{profile.Certain, profile.Likely, profile.Possible} {
			d := &profile.Findings{Verdicts: []profile.Verdict{{
				Cause: profile.CauseDeadlock, Certainty: certainty, Text: "Two threads wait for each other.",
			}}}
			var b bytes.Buffer
			if err := write(&b, d); err != nil {
				t.Fatal(err)
			}
			if !regexp.MustCompile(`\b` + string(certainty) + `\b`).Match(b.Bytes()) {
				t.Errorf("%s does not say that the verdict is %s:\n%s", name, certainty, &b)
			}
		}
	}
}
