package why_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"clrsnap"
	"clrsnap/internal/livetest"
	"clrsnap/internal/testenv"
	"clrsnap/profile"
	"clrsnap/snapshot"
	"clrsnap/why"
)

// An ailment is a trouble of the program "ailing", and the required verdict.
type ailment struct {
	of        string
	cause     profile.Cause
	certainty profile.Certainty // at least
	own       string            // the method with the trouble
	agent     bool              // seen only with the agent
}

// ailments are the ailments that do not hide one another.
var ailments = []ailment{
	{"deadlock", profile.CauseDeadlock, profile.Certain, "Shop.Stuck.Reserve", false},
	{"finalizer", profile.CauseFinalizer, profile.Certain, "Shop.Attachment.Finalize", false},
	{"lost", profile.CauseLockContention, profile.Likely, "Shop.Stuck+Books.Book", false},
	{"descriptors", profile.CauseDescriptors, profile.Likely, "", false},
	{"regex", profile.CauseCPU, profile.Likely, "Shop.Busy.IsTag", false},
	{"throws", profile.CauseExceptions, profile.Likely, "Shop.Busy.Parse", true},
}

// look looks at a program, again if there was no time to find out what keeps objects.
func look(t *testing.T, a *testenv.App, o why.Options) (r *why.Report) {
	t.Helper()
	o.Process.Lines = true
	o.Process.PackStacks = true // why ignores this option
	testenv.UntilSeen(t, func() (lacks string) {
		var err error
		if r, err = why.Look(context.Background(), a.PID, o); err != nil {
			t.Fatal(err)
		}
		for _, m := range r.Missing {
			t.Log(m)
			if strings.Contains(m, "was not found out") {
				lacks = m
			}
		}
		return lacks
	})
	return r
}

// checkVerdict requires the right cause and certainty of a verdict, and texts in the verdict.
func checkVerdict(t *testing.T, v *profile.Verdict, right bool, says []string) {
	t.Helper()
	if !right {
		t.Errorf("%s, %s: %s", v.Cause, v.Certainty, shows(v))
	}
	for _, s := range says {
		if !strings.Contains(shows(v), s) {
			t.Errorf("%q is not in %s", s, shows(v))
		}
	}
}

// shows is the whole text of a verdict.
func shows(v *profile.Verdict) string {
	var b strings.Builder
	b.WriteString(v.Text)
	for _, e := range v.Evidence {
		b.WriteString("\n" + e.Text)
		for i := range e.Frames {
			b.WriteString("\n" + e.Frames[i].Display)
		}
	}
	return b.String()
}

func ailmentNames() string {
	names := make([]string, len(ailments))
	for i, a := range ailments {
		names[i] = a.of
	}
	return strings.Join(names, ",")
}

// TestLook: all ailments of a program are told, and nothing else.
func TestLook(t *testing.T) {
	testenv.EachVersion(t, func(t *testing.T, runtime string) {
		a := testenv.Start(t, "ailing", testenv.Options{Runtime: runtime, Args: []string{"--of", ailmentNames()}})
		if runtime == "net9" {
			check(t, a, why.Options{For: 2 * time.Second, NoAgent: true})
		}
		check(t, a, why.Options{For: 2 * time.Second})
		if runtime == testenv.DefaultRuntime {
			interrupted(t, a)
		}
	})
}

// check looks at a program until all is told, twice as long each time: on a busy machine a thread that always runs may
// get too little CPU time for a verdict.
func check(t *testing.T, a *testenv.App, o why.Options) {
	t.Helper()
	missing := slices.Clone(ailments)
	testenv.UntilSeen(t, func() string {
		r := look(t, a, o)
		o.For = min(2*o.For, 16*time.Second)
		missing = slices.DeleteFunc(missing, func(a ailment) bool { return a.agent && o.NoAgent || a.told(t, r) })
		for _, v := range r.Verdicts {
			if !slices.ContainsFunc(ailments, func(a ailment) bool { return a.cause == v.Cause }) {
				t.Errorf("false: %s, %s: %s", v.Cause, v.Certainty, shows(&v))
			}
		}
		if len(missing) > 0 {
			return fmt.Sprintf("without an agent %v, a word of %s", o.NoAgent, missing[0].of)
		}
		return ""
	})
}

// told reports whether an ailment is among the verdicts. The verdict must then name the ailment's method.
func (a *ailment) told(t *testing.T, r *why.Report) bool {
	t.Helper()
	i := slices.IndexFunc(r.Verdicts, func(v profile.Verdict) bool { return v.Cause == a.cause })
	if i < 0 {
		return false
	}
	v := &r.Verdicts[i]
	if text := shows(v); !strings.Contains(text, a.own) {
		t.Errorf("%s is not in: %s", a.own, text)
	}
	if v.Certainty != profile.Certain && v.Certainty != a.certainty {
		t.Errorf("%s is only %s", a.of, v.Certainty)
	}
	return true
}

// interrupted: an interrupted look returns the findings so far.
func interrupted(t *testing.T, a *testenv.App) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	r, err := why.Look(ctx, a.PID, why.Options{For: time.Minute})
	if !errors.Is(err, context.DeadlineExceeded) || r == nil {
		t.Fatalf("%v, %v", r, err)
	}
	if !r.Incomplete || len(r.Missing) == 0 || len(r.Looked) == 0 {
		t.Errorf("incomplete: %v, missing %q, looked at %q", r.Incomplete, r.Missing, r.Looked)
	}
	if !slices.ContainsFunc(r.Verdicts, func(v profile.Verdict) bool { return v.Cause == profile.CauseDeadlock }) {
		t.Errorf("the deadlock is not among %v", r.Verdicts)
	}
}

// TestWell: ordinary programs are accused of nothing.
func TestWell(t *testing.T) {
	testenv.EachOf(t, testenv.Supported(), testWell)
}

// TestLookRuntimeAsync: TestLook of a program whose methods the runtime itself suspends.
func TestLookRuntimeAsync(t *testing.T) {
	testenv.EachOf(t, []string{testenv.NewestRuntime}, func(t *testing.T, runtime string) {
		check(t, testenv.Start(t, "ailing", testenv.Options{
			Runtime: runtime, Args: []string{"--of", ailmentNames()}, Compile: livetest.RuntimeAsync,
		}), why.Options{For: 2 * time.Second})
	})
}

// TestShortestLook: also the shortest look takes enough samples to tell a loop in many threads.
func TestShortestLook(t *testing.T) {
	testenv.EachOf(t, testenv.Supported(), func(t *testing.T, runtime string) {
		a := testenv.Start(t, "ailing", testenv.Options{Runtime: runtime, Args: []string{"--of", "crowd"}})
		testenv.UntilSeen(t, func() string {
			r := look(t, a, why.Options{For: why.MinFor, NoAgent: true})
			if len(r.Verdicts) != 1 || !strings.Contains(r.Verdicts[0].Text, "Shop.Busy.Match") {
				return fmt.Sprintf("the loop, but %v", r.Verdicts)
			}
			return ""
		})
	})
}

// TestLookAtCrowd: a loop in many threads, so that each thread has a CPU for a short time only.
func TestLookAtCrowd(t *testing.T) {
	testenv.EachOf(t, testenv.Supported(), func(t *testing.T, runtime string) {
		t.Parallel()
		a := testenv.Start(t, "ailing", testenv.Options{Runtime: runtime, Args: []string{"--of", "crowd"}})
		testenv.UntilSeen(t, func() string {
			r := look(t, a, why.Options{For: 2 * time.Second, NoAgent: true})
			for _, v := range r.Verdicts {
				if v.Cause != profile.CauseCPU || !strings.Contains(v.Text, "Shop.Busy.Match") {
					t.Errorf("%s: %s", v.Cause, v.Text)
				}
			}
			// Beside others, some threads are in no sample, or have had no CPU since the program began.
			if len(r.Verdicts) != 1 || !strings.HasPrefix(r.Verdicts[0].Text, "24 threads ") {
				return fmt.Sprintf("24 threads in one verdict, but %v", r.Verdicts)
			}
			checkActivity(t, r)
			c := r.Activity.CPU
			managed := livetest.OfKind(c.Path, snapshot.Managed) // a timer may have interrupted the method
			if c.ByKind[profile.CPUOwn] < 0.5 || c.PathShare < 0.5 || len(managed) == 0 ||
				!strings.HasPrefix(managed[0].Display, "Shop.Busy.Match") {
				t.Errorf("%+v", c)
			}
			return ""
		})
	})
}

// TestLookAtHoarder: three threads that never get a lock are told, although twenty others make progress.
func TestLookAtHoarder(t *testing.T) {
	testenv.EachOf(t, testenv.Supported(), func(t *testing.T, runtime string) {
		t.Parallel()
		a := testenv.Start(t, "ailing", testenv.Options{Runtime: runtime, Args: []string{"--of", "hoard"}})
		stuck := ailment{"hoard", profile.CauseLockContention, profile.Likely, "Shop.Busy.Keep", false}
		testenv.UntilSeen(t, func() string { // a visitor spins before a wait
			r := look(t, a, why.Options{For: 2 * time.Second, NoAgent: true})
			if len(r.Verdicts) == 0 {
				return "a verdict"
			}
			if v := &r.Verdicts[0]; len(r.Verdicts) > 1 || !stuck.told(t, r) ||
				!strings.HasPrefix(v.Text, "3 threads have waited for ") ||
				!strings.Contains(v.Text, "Shop.Busy.Visit") {
				t.Errorf("%v", r.Verdicts)
			}
			return ""
		})
	})
}

// TestLostToken: a lost permit, with methods that wait until a token ends the wait.
func TestLostToken(t *testing.T) {
	ways := map[string]testenv.Options{
		"": {}, "runtime async": {Compile: livetest.RuntimeAsync},
		"compiled before": {Compile: livetest.RuntimeAsync, ReadyToRun: true},
	}
	for name, o := range ways {
		t.Run(name, func(t *testing.T) {
			runtimes := testenv.Supported()
			if name != "" {
				runtimes = []string{testenv.NewestRuntime}
			}
			testenv.EachOf(t, runtimes, func(t *testing.T, runtime string) {
				t.Parallel()
				o := o
				o.Runtime, o.Args = runtime, []string{"--of", "lost-token"}
				a := testenv.Start(t, "ailing", o)
				lost := ailment{"lost-token", profile.CauseLockContention, profile.Likely, "Shop.Stuck+Shelf.Book",
					false}
				for try := 1; ; try++ { // the collector may move the semaphore between two looks
					r := look(t, a, why.Options{For: 2 * time.Second, NoAgent: true})
					if len(r.Verdicts) > 1 {
						t.Errorf("%d verdicts", len(r.Verdicts))
					}
					if lost.told(t, r) {
						break
					}
					if try == 5 {
						t.Fatal("nothing is said of it")
					}
				}
			})
		})
	}
}

// TestNativeGrowth: memory outside the managed heap is told if the memory only grows, with the amount.
func TestNativeGrowth(t *testing.T) {
	why.SetLeastAge(t, time.Second)
	testenv.EachOf(t, testenv.Supported(), func(t *testing.T, runtime string) {
		leaks := testenv.Start(t, "ailing", testenv.Options{Runtime: runtime, Args: []string{"--of", "native"}})
		gives := testenv.Start(t, "ailing", testenv.Options{Runtime: runtime, Args: []string{"--of", "buffers"}})
		testenv.UntilSeen(t, func() string { // the program takes too little while other processes have the CPUs
			before := answered(t, leaks, "TAKEN")
			r := look(t, leaks, why.Options{For: 2 * time.Second})
			after := answered(t, leaks, "TAKEN")
			if m := r.Activity.Memory; m == nil || m.Native < before || m.Native > after+64<<20 || m.Managed > 64<<20 ||
				m.RSS != m.Managed+m.Native+m.Stacks+m.Code+m.Files+m.Shared {
				t.Errorf("%+v, and %d to %d were taken", m, before, after)
			}
			if len(r.Verdicts) == 0 {
				return "a verdict"
			}
			if v := &r.Verdicts[0]; len(r.Verdicts) > 1 || v.Cause != profile.CauseNativeGrowth {
				t.Errorf("%v", r.Verdicts)
			}
			return ""
		})
		testenv.UntilSeen(t, func() string { // while others have the CPUs, the program takes ever more
			before := answered(t, gives, "RETURNED")
			r := look(t, gives, why.Options{For: 2 * time.Second})
			if answered(t, gives, "RETURNED")-before < 2*3 { // the judge looks at thirds of the time
				return "memory that is given back often enough"
			}
			for _, v := range r.Verdicts {
				t.Errorf("false: %s, %s: %s", v.Cause, v.Certainty, shows(&v))
			}
			return ""
		})
	})
}

// TestStalledRequests: requests that stand still are told although other requests end. The ended requests are counted.
// Requests whose answer has begun are not told: the server may send news.
func TestStalledRequests(t *testing.T) {
	testenv.EachOf(t, testenv.Supported(), func(t *testing.T, runtime string) {
		for _, tt := range []struct {
			way    string
			two    bool // HTTP/2
			stands bool
		}{{"source", true, true}, {"semaphore", false, true}, {"answering", false, false}} {
			t.Run(tt.way, func(t *testing.T) {
				a := testenv.Start(t, "requests", testenv.Options{Runtime: runtime})
				urls, way := a.Ask("urls"), &http.Transport{MaxIdleConnsPerHost: 1}
				url, client := urls[0], &http.Client{Transport: way}
				if tt.two {
					url, way.Protocols = urls[1], new(http.Protocols)
					way.Protocols.SetUnencryptedHTTP2(true)
				}
				get := func(path string) {
					if r, err := client.Get(url + path); err == nil { // the program may have ended
						io.Copy(io.Discard, r.Body)
						r.Body.Close()
					}
				}
				const hang = 20
				for i := range hang {
					go get(fmt.Sprintf("/%s/%d", tt.way, i))
				}
				livetest.Await(t, "requests have begun", func() bool { return len(a.Ask("begun")) == hang })
				var ended atomic.Int64
				stop, done := make(chan struct{}), make(chan struct{})
				go func() {
					defer close(done)
					pace := time.NewTicker(10 * time.Millisecond)
					defer pace.Stop()
					for {
						select {
						case <-stop:
							return
						case <-pace.C:
							get("/quick/1")
							ended.Add(1)
						}
					}
				}()
				testenv.UntilSeen(t, func() string { // young requests are not judged
					before := ended.Load()
					r := look(t, a, why.Options{For: time.Second, NoAgent: true})
					after := ended.Load()
					if r.Activity.RequestsEnded < 0 {
						return "two looks at requests" // on a busy machine a walk of the heap may take too long
					}
					if int64(r.Activity.RequestsEnded) > after-before+1 ||
						r.Activity.RequestsInFlight < hang || r.Activity.RequestsInFlight > hang+1 {
						t.Errorf("%d requests ended, of %d to %d; %d in flight, of %d", r.Activity.RequestsEnded,
							before, after, r.Activity.RequestsInFlight, hang)
					}
					for i := range r.Verdicts {
						v := &r.Verdicts[i]
						says := fmt.Sprintf("%d requests for GET /%s/{id} stand still", hang, tt.way)
						if !tt.stands || v.Cause != profile.CauseStalled || !strings.Contains(v.Text, says) {
							t.Errorf("%s, %s: %s", v.Cause, v.Certainty, shows(v))
						}
						if v.Certainty == profile.Likely && r.Activity.RequestsEnded > 0 {
							return ""
						}
					}
					if !tt.stands && r.Activity.RequestsEnded > 0 {
						return ""
					}
					return "a verdict, and requests that end"
				})
				close(stop)
				<-done
			})
		}
	})
}

// TestStalledMethods: async methods that wait to write to a full channel, and become more, are told.
func TestStalledMethods(t *testing.T) {
	testenv.EachOf(t, testenv.Supported(), func(t *testing.T, runtime string) {
		a := testenv.Start(t, "ailing", testenv.Options{Runtime: runtime, Args: []string{"--of", "queue"}})
		testenv.UntilSeen(t, func() string { // until there are enough of them
			r := look(t, a, why.Options{For: time.Second, NoAgent: true})
			for i := range r.Verdicts {
				v := &r.Verdicts[i]
				if v.Cause == profile.CauseStalled && strings.Contains(v.Text, "room in a full channel") &&
					strings.Contains(v.Text, "Shop.Stuck.Post") && v.Certainty == profile.Likely {
					return ""
				}
				t.Errorf("%s, %s: %s", v.Cause, v.Certainty, shows(v))
			}
			return "a verdict"
		})
	})
}

// TestStandstill: waits that nobody is seen to end, and tries that fail each time, are told. Waits for a gate, for a
// slow participant or reader, and for messages are not.
func TestStandstill(t *testing.T) {
	testenv.EachOf(t, testenv.Supported(), func(t *testing.T, runtime string) {
		for _, tt := range []struct {
			of        string
			certainty profile.Certainty // "": nothing is wrong
			says      []string
		}{
			{"reader", profile.Likely, []string{"5 async methods wait for room in a full channel, in " +
				"Shop.Stuck.Send", "Nobody is seen who takes items from a channel. Shop.Stuck.Carry{async}, which " +
				"did, has ended with System.FormatException: no such street."}},
			{"phases", profile.Possible, []string{"3 threads wait, such as phase-", "waits at Barrier",
				"in Shop.Stuck.Meet", "No other code of Shop.Stuck runs or is suspended."}},
			{"licence", profile.Possible, []string{"12 threads wait, such as job-", "Shop.Stuck.Check",
				"kept by static field Shop.Stuck.licence"}},
			// On a busy machine, one of the three threads may be seen between its sleeps.
			{"failing", profile.Possible, []string{" threads try something again and again, and fail each time: all " +
				"were in Shop.Busy.Save", "System.InvalidOperationException", "Shop.Busy.Lock"}},
			{"messages,gate,steps,slow-reader", "", nil},
		} {
			t.Run(tt.of, func(t *testing.T) {
				t.Parallel()
				a := testenv.Start(t, "ailing", testenv.Options{Runtime: runtime, Args: []string{"--of", tt.of}})
				took := time.Second // longer each time: on a busy machine a look takes long
				testenv.UntilSeen(t, func() string {
					r := look(t, a, why.Options{For: took})
					took = min(2*took, 16*time.Second)
					for i := range r.Verdicts {
						v := &r.Verdicts[i]
						checkVerdict(t, v, v.Cause == profile.CauseStalled && v.Certainty == tt.certainty, tt.says)
					}
					if n := len(r.Verdicts); tt.certainty != "" && n == 0 || n > 1 {
						return "one verdict"
					}
					return ""
				})
			})
		}
	})
}

// TestChannelReaders: the verdict on a full channel names who reads, and says if the reader has ended, and how.
func TestChannelReaders(t *testing.T) {
	testenv.EachOf(t, testenv.Supported(), func(t *testing.T, runtime string) {
		for _, tt := range []struct {
			of, says, shows string
			compile         []string
		}{
			{"outbox", "Nobody is seen who takes items from a channel. Depot.Methods.Carry{async}, which did, has " +
				"ended with System.InvalidOperationException: no such street.", "Depot.Methods.Carry", nil},
			{"outbox-stuck", "Depot.Methods.Sign{async}", "Depot.Methods.Queue", nil},
			{"own-channel", "takes items from a channel, perhaps this one, and waits for room in a full channel. " +
				"Nobody else is seen", "Depot.Methods.Split", nil},
			{"own-channel", "Most likely the reader writes to the channel that the reader reads", "Depot.Methods.Split",
				livetest.RuntimeAsync},
			{"outbox", "which did, has ended with System.InvalidOperationException: no such street.",
				"Depot.Methods.Carry", livetest.RuntimeAsync},
			{"outbox-stuck", "Depot.Methods.Sign", "Depot.Methods.Queue", livetest.RuntimeAsync},
		} {
			if tt.compile != nil && runtime != testenv.NewestRuntime {
				continue
			}
			t.Run(fmt.Sprint(tt.of, len(tt.compile)), func(t *testing.T) {
				a := testenv.Start(t, "stalls", testenv.Options{
					Runtime: runtime, Args: []string{"--of", tt.of}, Compile: tt.compile,
				})
				testenv.UntilSeen(t, func() string { // until enough methods wait
					r := look(t, a, why.Options{For: time.Second, NoAgent: true})
					if len(r.Verdicts) == 0 {
						return "a verdict"
					}
					v := &r.Verdicts[0]
					if v.Cause != profile.CauseStalled || !strings.Contains(v.Text, tt.says) || len(r.Verdicts) > 1 ||
						!strings.Contains(shows(v), tt.shows) {
						t.Errorf("%s, not %q: %s", v.Cause, tt.says, shows(v))
					}
					return ""
				})
			})
		}
	})
}

// TestShutdown: a process that is to end and does not is told, with its place; a working process is not.
func TestShutdown(t *testing.T) {
	testenv.EachOf(t, testenv.Supported(), func(t *testing.T, runtime string) {
		for _, tt := range []struct {
			args      []string
			certainty profile.Certainty // "": nothing is wrong
			signal    bool
			says      []string
		}{
			{[]string{"--of", "exit"}, profile.Certain, false, []string{"Shop.Stuck.Flush", "exits (",
				"Environment.Exit"}},
			{[]string{"--of", "signal"}, profile.Likely, true, []string{"the handler of a signal", "Shop.Stuck.Drain"}},
			{[]string{"--of", "signal"}, "", false, nil},
			{[]string{"--of", "foreground", "--return"}, profile.Possible, false,
				[]string{"Main has returned", "drains (", "Shop.Stuck.Drain"}},
			{[]string{"--of", "worker", "--return"}, "", false, nil},
		} {
			t.Run(strings.Join(tt.args, " "), func(t *testing.T) {
				a := testenv.Start(t, "ailing", testenv.Options{Runtime: runtime, Args: tt.args})
				if tt.signal {
					if err := unix.Kill(a.PID, unix.SIGTERM); err != nil {
						t.Fatal(err)
					}
				}
				testenv.UntilSeen(t, func() string { // the handler is called after a moment
					r := look(t, a, why.Options{For: time.Second, NoAgent: true})
					for _, v := range r.Verdicts {
						if v.Cause != profile.CauseShutdown || v.Certainty != tt.certainty {
							t.Errorf("%s, %s: %s", v.Cause, v.Certainty, shows(&v))
						}
						for _, s := range tt.says {
							if !strings.Contains(shows(&v), s) {
								t.Errorf("%q is not in %s", s, shows(&v))
							}
						}
					}
					if tt.certainty != "" && len(r.Verdicts) == 0 {
						return "a verdict"
					}
					return ""
				})
			})
		}
	})
}

// answered is a number that the program tells on request: bytes taken, or rounds of giving back.
func answered(t *testing.T, a *testenv.App, what string) (n int64) {
	t.Helper()
	for _, line := range a.Ask("how much") {
		if _, err := fmt.Sscanf(line, what+" %d", &n); err == nil {
			return n
		}
	}
	t.Fatalf("the program does not say %s", what)
	return 0
}

// checkActivity requires a plausible activity of any process.
func checkActivity(t *testing.T, r *why.Report) {
	t.Helper()
	a := r.Activity
	if a == nil || a.CPU == nil || a.Memory == nil {
		t.Fatalf("%+v", a)
	}
	if a.CPU.Used < 0 || a.CPU.May <= 0 || a.Descriptors < 3 ||
		a.Threads.Running+a.Threads.Waiting+a.Threads.Idle < 5 ||
		a.Memory.RSS < 16<<20 || a.Memory.Managed <= 0 || a.Memory.Files <= 0 || a.Memory.Stacks <= 0 {
		t.Errorf("%+v, %+v, %+v", a, a.CPU, a.Memory)
	}
	all := 0.0
	for _, share := range a.CPU.ByKind {
		all += share
	}
	if len(a.CPU.ByKind) > 0 && (all < 0.999 || all > 1.001) {
		t.Errorf("the kinds of CPU time have %v in all: %v", all, a.CPU.ByKind)
	}
}

// TestWellRuntimeAsync: programs whose methods the runtime itself suspends are accused of nothing, either.
func TestWellRuntimeAsync(t *testing.T) {
	testenv.EachOf(t, []string{testenv.NewestRuntime}, func(t *testing.T, runtime string) {
		t.Parallel()
		checkWell(t, testenv.Options{Runtime: runtime, Compile: livetest.RuntimeAsync})
	})
}

func testWell(t *testing.T, runtime string) {
	t.Parallel()
	checkWell(t, testenv.Options{Runtime: runtime})
}

func checkWell(t *testing.T, o testenv.Options) {
	o.Args = []string{"--of", "consumers,errors,permits"}
	a := testenv.Start(t, "ailing", o)
	took := time.Second // longer each time: on a busy machine a part of a look takes too long, or the rest is too short
	testenv.UntilSeen(t, func() string {
		took = min(2*took, 16*time.Second)
		r := look(t, a, why.Options{For: took})
		for _, v := range r.Verdicts {
			t.Errorf("false: %s, %s: %s", v.Cause, v.Certainty, shows(&v))
		}
		switch checkActivity(t, r); {
		case r.Activity.GCShare < 0 || r.Activity.ExceptionsPerSecond <= 0 || r.Activity.TasksInFlight < 0 ||
			r.Activity.MemoryGrown == nil:
			return fmt.Sprintf("shares and rates, but %+v", r.Activity)
		case len(r.Looked) < 4 || len(r.Missing) > 0:
			return fmt.Sprintf("all, but %q, not %q", r.Looked, r.Missing)
		}
		return ""
	})
}

// TestTimesOut: waits whose time limits pass again and again are told.
func TestTimesOut(t *testing.T) {
	testenv.EachOf(t, testenv.Supported(), func(t *testing.T, runtime string) {
		a := testenv.Start(t, "stalls", testenv.Options{Runtime: runtime, Args: []string{"--of", "rent-out"}})
		testenv.UntilSeen(t, func() string {
			r := look(t, a, why.Options{For: 2 * time.Second})
			if len(r.Verdicts) != 1 || r.Verdicts[0].Cause != profile.CauseStalled {
				return fmt.Sprintf("one verdict, but %v", r.Verdicts)
			}
			text := shows(&r.Verdicts[0])
			for _, s := range []string{"3 threads wait in Depot.Rents.Rent", "the time limits pass",
				"of System.TimeoutException", "caught in Depot.Rents.Guide"} {
				if !strings.Contains(text, s) {
					return fmt.Sprintf("%q in %s", s, text)
				}
			}
			const most = "System.TimeoutException, thrown in Depot."
			if r.Activity == nil || !strings.HasPrefix(r.Activity.MostExceptions, most) {
				t.Errorf("%+v", r.Activity)
			}
			return ""
		})
	})
}

// TestRethrown: an exception that a Lazy keeps is told.
func TestRethrown(t *testing.T) {
	testenv.EachOf(t, testenv.Supported(), func(t *testing.T, runtime string) {
		a := testenv.Start(t, "ailing", testenv.Options{Runtime: runtime, Args: []string{"--of", "failed"}})
		testenv.UntilSeen(t, func() string {
			r := look(t, a, why.Options{For: 2 * time.Second})
			if len(r.Verdicts) != 1 {
				return fmt.Sprintf("one verdict, but %v", r.Verdicts)
			}
			text := shows(&r.Verdicts[0])
			for _, s := range []string{"System.FormatException", "Shop.Busy.Region", "A Lazy keeps"} {
				if !strings.Contains(text, s) {
					t.Errorf("%q is not in %s", s, text)
				}
			}
			return ""
		})
	})
}

// TestStarvation: the pool's own numbers show the starvation, and agree with the pool's threads.
func TestStarvation(t *testing.T) {
	testenv.EachOf(t, testenv.Supported(), testStarvation)
}

func testStarvation(t *testing.T, runtime string) {
	t.Parallel()
	a := testenv.Start(t, "ailing", testenv.Options{Runtime: runtime,
		Args: []string{"--of", "pool", "--settle", "1500"}})
	testenv.UntilSeen(t, func() string { return checkStarvation(t, look(t, a, why.Options{For: 2 * time.Second})) })
}

func checkStarvation(t *testing.T, r *why.Report) (missing string) {
	t.Helper()
	if len(r.Verdicts) != 1 || r.Verdicts[0].Cause != profile.CausePoolStarvation {
		t.Fatalf("%v", r.Verdicts)
	}
	v := &r.Verdicts[0]
	if text := shows(v); !strings.Contains(text, "The pool says: ") || !strings.Contains(text, " queued (") {
		return "the pool's own numbers" // the collector moved the pool, or its queue, during one of the looks
	}
	for _, s := range []string{"Shop.Busy.Handle", "sync over async"} {
		if !strings.Contains(shows(v), s) {
			t.Errorf("%q is not in %s", s, shows(v))
		}
	}
	var blocked, all, workers, working int
	if _, err := fmt.Sscanf(v.Text, "The thread pool is starved: %d of its %d workers", &blocked, &all); err != nil {
		t.Fatal(err)
	}
	for _, e := range v.Evidence {
		_, _ = fmt.Sscanf(e.Text, "The pool says: %d workers, %d with a work item", &workers, &working)
	}
	// A worker is counted before its start.
	if blocked > all || workers < all || workers > all+1 || working < all {
		t.Errorf("%d of %d workers are blocked, the pool has %d, %d at work", blocked, all, workers, working)
	}
	if blocked < all { // a worker has just started
		return fmt.Sprintf("%d workers that are blocked, but %d", all, blocked)
	}
	return ""
}

// TestPoolWaits: workers that wait for tasks are told before anything is queued, and sleeping workers are named.
func TestPoolWaits(t *testing.T) {
	testenv.EachVersion(t, func(t *testing.T, runtime string) {
		waits := testenv.Start(t, "ailing", testenv.Options{Runtime: runtime, Args: []string{"--of", "syncover"}})
		sleeps := testenv.Start(t, "ailing", testenv.Options{Runtime: runtime, Args: []string{"--of", "retries"}})
		const none = "0 work items are queued now" // zero sooner or later: the runtime's own work is queued at times
		testenv.UntilSeen(t, func() string {
			r := look(t, waits, why.Options{For: time.Second, NoAgent: true})
			for i := range r.Verdicts {
				v := &r.Verdicts[i]
				if strings.Contains(shows(v), none) {
					checkVerdict(t, v, v.Cause == profile.CausePoolStarvation && v.Certainty == profile.Likely,
						[]string{"Shop.Busy.Ask", "sync over async", "The pool says: "})
					return ""
				}
			}
			return fmt.Sprintf("an empty queue in %v, looked at %q", r.Verdicts, r.Looked)
		})
		testenv.UntilSeen(t, func() string {
			r := look(t, sleeps, why.Options{For: time.Second, NoAgent: true})
			for i := range r.Verdicts {
				t.Errorf("false: %s", shows(&r.Verdicts[i]))
			}
			if !slices.ContainsFunc(r.Waits, func(e profile.Evidence) bool {
				return strings.HasPrefix(e.Text, "2 workers of the thread pool sleep in Shop.Busy.Retry")
			}) {
				return fmt.Sprintf("sleeping workers in %v", r.Waits)
			}
			return ""
		})
	})
}

// TestLeaks: a leak is told, with the path that keeps it; a full cache, or a filled cache, is not.
func TestLeaks(t *testing.T) {
	why.SetLeastAge(t, 3*time.Second)
	testenv.EachOf(t, testenv.Supported(), testLeaks)
}

func testLeaks(t *testing.T, runtime string) {
	t.Parallel()
	leaks := map[string]string{
		"event":      "kept by static field Shop.Leaks.Raised",
		"dictionary": "kept by static field Shop.Leaks.all",
		"timer":      "most of them for Shop.Reminder",
		"token":      "most of them of Shop.Listener",
		"cache":      "kept by static field Shop.Leaks.cache",
		"handles":    "handles, such as GCHandles, keep an object each",
		"assemblies": "Assemblies pile up: ",
		"bounded":    "",
	}
	apps := map[string]*testenv.App{}
	for kind := range leaks {
		apps[kind] = testenv.Start(t, "keepers", testenv.Options{Runtime: runtime, Args: []string{"--leak", kind}})
	}
	time.Sleep(4 * time.Second) // the last program is old enough, too
	for kind, want := range leaks {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			testenv.UntilSeen(t, func() string {
				return checkLeak(t, look(t, apps[kind], why.Options{For: 2 * time.Second, NoAgent: true}), want)
			})
		})
	}
}

// checkLeak requires a leak in the report, with its path; want "": no leak.
func checkLeak(t *testing.T, r *why.Report, want string) (missing string) {
	t.Helper()
	for i := range r.Verdicts {
		v := &r.Verdicts[i]
		if v.Cause != profile.CauseHeapGrowth || want == "" || !strings.Contains(v.Text, want) {
			t.Errorf("%s, %s: %s", v.Cause, v.Certainty, shows(v))
		}
	}
	if want != "" && len(r.Verdicts) == 0 {
		return fmt.Sprintf("a leak, but looked at %q", r.Looked)
	}
	return ""
}

// TestLookCore: a core dump tells of a deadlock.
func TestLookCore(t *testing.T) {
	testenv.EachVersion(t, func(t *testing.T, runtime string) {
		if testenv.Framework(runtime) == "net8" {
			t.Skip("the others will do")
		}
		o := testenv.DumpOptions(t, testenv.DumpKernel,
			testenv.Options{Runtime: runtime, Args: []string{"--of", "deadlock"}})
		path := testenv.Dump(t, testenv.Start(t, "ailing", o), testenv.DumpKernel)
		r, err := why.LookCore(context.Background(), path, clrsnap.CoreOptions{})
		if err != nil {
			t.Fatal(err)
		}
		if len(r.Verdicts) != 1 || r.Verdicts[0].Cause != profile.CauseDeadlock ||
			r.Verdicts[0].Certainty != profile.Certain {
			t.Errorf("%v", r.Verdicts)
		}
		if !slices.ContainsFunc(r.Missing, func(m string) bool { return strings.Contains(m, "stack --core "+path) }) {
			t.Errorf("nothing says where the cause of death is shown: %q", r.Missing)
		}
	})
}

// TestLookCoreWithoutHeap: the result of a core dump without the managed heap is incomplete. With the heap the same
// program is deadlocked.
func TestLookCoreWithoutHeap(t *testing.T) {
	runtime := testenv.OrdinaryRuntime(t)
	a := testenv.Start(t, "ailing", testenv.Options{Runtime: runtime, Args: []string{"--of", "permit"}})
	for _, kind := range []testenv.DumpKind{testenv.DumpNormal, testenv.DumpTriage, testenv.DumpWithHeap} {
		r, err := why.LookCore(context.Background(), testenv.Dump(t, a, kind), clrsnap.CoreOptions{})
		if err != nil {
			t.Fatal(err)
		}
		whole := kind == testenv.DumpWithHeap
		said := slices.ContainsFunc(r.Missing, func(m string) bool { return strings.Contains(m, "managed heap") })
		if (len(r.Verdicts) > 0) != whole || r.Incomplete == whole || said == whole {
			t.Errorf("%s: %d verdicts, incomplete: %v, missing: %q", kind, len(r.Verdicts), r.Incomplete, r.Missing)
		}
	}
}

// TestOptions: bad options are refused before any look.
func TestOptions(t *testing.T) {
	for _, d := range []time.Duration{time.Millisecond, time.Hour, -1} {
		if _, err := why.Look(context.Background(), 1, why.Options{For: d}); err == nil ||
			!strings.Contains(err.Error(), "1s") {
			t.Errorf("%v: %v", d, err)
		}
	}
}
