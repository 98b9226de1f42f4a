package session_test

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"testing"

	"clrsnap/internal/livetest"
	"clrsnap/internal/moments"
	"clrsnap/internal/target/recorded"
	"clrsnap/snapshot"
)

// TestRecordedWaits: what the threads of a recorded program wait for, and hold, is what the program says.
func TestRecordedWaits(t *testing.T) {
	moments.Each(t, "waits", func(t *testing.T, m *recorded.Moment) {
		s := moments.At[*snapshot.Snapshot](t, m, moments.Waits)
		got, want := map[string]string{}, map[string]string{}
		kinds := map[string]bool{}
		for _, line := range m.Truths {
			truth := truthOf(line)
			thread := truth["thread"]
			i := slices.IndexFunc(s.Threads, func(th snapshot.Thread) bool { return th.Name == thread })
			if i < 0 {
				t.Errorf("no thread %q", thread)
				continue
			}
			if th := &s.Threads[i]; strings.HasPrefix(line, "wait\t") {
				kinds[truth["kind"]] = true
				got["wait of "+thread], want["wait of "+thread] = waitFacts(th.Wait, truth)
			} else {
				want["holds of "+thread] += factsOf(truth, "kind", "type", "object", "recursion", "waiters", "detail")
			}
		}
		for i := range s.Threads {
			for _, h := range s.Threads[i].Holds {
				got["holds of "+s.Threads[i].Name] += factsOf(map[string]string{
					"kind": string(h.Kind), "type": h.Type, "object": address(h.Object), "detail": h.Detail,
					"recursion": count(h.Recursion), "waiters": strconv.Itoa(h.Waiters),
				}, "kind", "type", "object", "recursion", "waiters", "detail")
			}
		}
		if len(kinds) < 15 {
			t.Errorf("only %d kinds of waits", len(kinds))
		}
		for _, texts := range []map[string]string{got, want} {
			for name := range maps.Clone(texts) {
				texts[name] = strings.Join(slices.Sorted(strings.SplitAfterSeq(texts[name], "\n")), "")
			}
		}
		moments.Compare(t, got, want)
	})
}

// truthOf are the values in a line of the program.
func truthOf(line string) map[string]string {
	truth := map[string]string{}
	for _, w := range strings.Split(line, "\t")[1:] {
		name, value, _ := strings.Cut(w, "=")
		truth[name] = value
	}
	return truth
}

func factsOf(truth map[string]string, names ...string) string {
	var b strings.Builder
	for _, name := range names {
		fmt.Fprintf(&b, "%s=%s ", name, truth[name])
	}
	return b.String() + "\n"
}

// waitFacts are the facts of a wait that the program tells, and the program's facts.
func waitFacts(w *snapshot.Wait, truth map[string]string) (got, want string) {
	names := []string{"kind", "type", "object", "owner", "recursion", "waiters", "field", "detail", "tasks"}
	names = slices.DeleteFunc(names, func(name string) bool { _, told := truth[name]; return !told })
	if w == nil {
		return "", factsOf(truth, names...)
	}
	if w.Object == 0 &&
		snapshot.WaitKind(truth["kind"]) == snapshot.CountdownWait { // the frames do not keep the object
		names = []string{"kind"}
	}
	found := map[string]string{
		"kind": string(w.Kind), "type": w.Type, "object": address(w.Object), "recursion": strconv.Itoa(w.Recursion),
		"waiters": strconv.Itoa(w.Waiters), "field": w.Field, "detail": w.Detail,
	}
	if w.Owner != nil {
		found["owner"] = w.Owner.Name
	}
	var tasks []string
	for i := range w.Tasks {
		tasks = append(tasks, address(w.Tasks[i].Object))
	}
	found["tasks"] = strings.Join(tasks, " ")
	return factsOf(found, names...), factsOf(truth, names...)
}

func address(at uint64) string {
	if at == 0 {
		return ""
	}
	return fmt.Sprintf("%#x", at)
}

func count(n int) string {
	if n == 0 {
		return ""
	}
	return strconv.Itoa(n)
}

// TestRecordedExceptions: the exceptions that recorded threads handle are the printed exceptions: types, messages, and
// the methods of the first stack trace.
func TestRecordedExceptions(t *testing.T) {
	moments.Each(t, "failing", func(t *testing.T, m *recorded.Moment) {
		s := moments.At[*snapshot.Snapshot](t, m, moments.Stacks)
		compared := 0
		for _, part := range strings.Split(m.Truths[0], "<<< ")[1:] {
			way, text, _ := strings.Cut(part, "\n")
			i := slices.IndexFunc(s.Threads, func(th snapshot.Thread) bool { return th.Name == way })
			if i < 0 {
				t.Errorf("no thread %q", way)
				continue
			}
			e := s.Threads[i].Exception
			if e == nil || !strings.HasPrefix(text, e.Type) || !strings.Contains(text, e.Message) || e.Uncertain != "" {
				t.Errorf("%s: %+v, want %s", way, e, text)
				continue
			}
			last := 0
			for k := range e.Frames {
				f := &e.Frames[k]
				method := f.Method[strings.LastIndexAny(f.Method, ".+")+1:]
				if f.Module != "failing" || strings.ContainsAny(f.Method, "{<") {
					continue // .NET prints async methods and lambdas otherwise
				}
				at := strings.Index(text[last:], "."+method)
				if compared++; at < 0 {
					t.Errorf("%s: frame %d, %s, is not in\n%s", way, k, f.Method, text[last:])
					break
				}
				last += at + 1
			}
		}
		if compared < 60 {
			t.Errorf("only %d frames compared", compared)
		}
	})
}

// TestRecordedGenerics: the type arguments of frames in shared code are those that the program prints.
func TestRecordedGenerics(t *testing.T) {
	moments.Each(t, "generics", func(t *testing.T, m *recorded.Moment) {
		s := moments.At[*snapshot.Snapshot](t, m, moments.Stacks)
		exact, shared := 0, 0
		for _, line := range m.Truths { // place, thread, the outermost method, the other generic frames
			parts := strings.Split(line, "|")
			tid, _ := strconv.Atoi(parts[1])
			i := slices.IndexFunc(s.Threads, func(th snapshot.Thread) bool { return th.OSThreadID == tid })
			if i < 0 {
				t.Errorf("%s: no thread %s", parts[0], parts[1])
				continue
			}
			want := parts[3:]
			for k := range s.Threads[i].Frames {
				f := &s.Threads[i].Frames[k]
				name, _, _ := strings.Cut(f.Display, "{")
				if len(want) == 0 || f.Kind != snapshot.Managed || livetest.Unbound(name) != livetest.Unbound(want[0]) {
					continue
				}
				switch {
				case f.Generics == snapshot.SharedGenerics:
					shared++
				case name != want[0]:
					t.Errorf("%s: %s, want %s", parts[0], name, want[0])
				default:
					exact++
				}
				want = want[1:]
			}
			if len(want) > 0 {
				t.Errorf("%s: no frame of %v", parts[0], want)
			}
		}
		if exact < 100 || shared*50 > exact {
			t.Errorf("%d frames are exact, %d shared", exact, shared)
		}
	})
}

// TestRecordedAhead: the waits, the suspended methods and the objects of a recorded native AOT program.
func TestRecordedAhead(t *testing.T) {
	want := map[string]string{
		"holder": "WaitHandle.WaitOne  1 manual-reset event ", "wanter": "Monitor.Enter object 1  holder",
		"waiter": "Monitor.Wait object 1  ", "sleeper": "Thread.Sleep  0  ",
		"semaphore": "SemaphoreSlim.Wait System.Threading.SemaphoreSlim 0 count 0 ",
	}
	moments.Each(t, "ahead", func(t *testing.T, m *recorded.Moment) {
		s, got := moments.At[*snapshot.Snapshot](t, m, moments.Waits), map[string]string{}
		for i := range s.Threads {
			if w := s.Threads[i].Wait; w != nil && want[s.Threads[i].Name] != "" {
				owner := ""
				if w.Owner != nil {
					owner = w.Owner.Name
				}
				got[s.Threads[i].Name] = fmt.Sprintf("%s %s %d %s %s", w.Kind, w.Type, w.Waiters, w.Detail, owner)
			}
		}
		moments.Compare(t, got, want)
		threads := 0
		for _, line := range m.Truths { // "thread NAME ID wait METHOD < METHOD"
			words := strings.Fields(line)
			if len(words) < 5 || words[0] != "thread" {
				continue
			}
			threads++
			tid, _ := strconv.Atoi(words[2])
			i := slices.IndexFunc(s.Threads, func(th snapshot.Thread) bool { return th.OSThreadID == tid })
			if i < 0 || !s.Threads[i].Complete {
				t.Errorf("%s: %+v", line, s.Threads[max(i, 0)])
			}
		}
		if threads < 5 {
			t.Errorf("the program says where %d threads are", threads)
		}
		tasks := moments.At[*snapshot.Tasks](t, m, moments.Tasks)
		if len(tasks.Chains) != 1 || tasks.Methods != 2 || tasks.Chains[0].WaitsFor.Kind != snapshot.AwaitsSemaphore {
			t.Errorf("%+v", tasks)
		}
		const nodes = 1000
		h := moments.At[*snapshot.Heap](t, m, moments.Nodes)
		if h.Matching != (snapshot.HeapAmount{Count: nodes, Bytes: 40 * nodes}) || h.ConsistentShare != 1 {
			t.Errorf("%+v", h.Matching)
		}
	})
}

// TestRecordedThreads: a suspended thread has the frames of its snapshot.
func TestRecordedThreads(t *testing.T) {
	moments.Each(t, "waits", func(t *testing.T, m *recorded.Moment) {
		facts := moments.At[[]any](t, m, moments.Threads)
		compared := 0
		for i, f := range facts {
			st, ok := f.(*snapshot.Thread)
			if !ok {
				continue
			}
			named := facts[i+1].(snapshot.Thread)
			if st.Complete != named.Complete || len(named.Frames) == 0 {
				t.Errorf("%s: complete %v and %v, %d frames", st.Name, st.Complete, named.Complete, len(named.Frames))
			}
			seen := slices.DeleteFunc(slices.Clone(st.Frames), func(f snapshot.Frame) bool {
				return f.Inlined || f.Kind == snapshot.Async
			})
			for k := range named.Frames {
				f := &named.Frames[k]
				if compared++; k >= len(seen) || seen[k].Method != f.Method || seen[k].IP != f.IP {
					t.Errorf("%s: frame %d is %s, in the snapshot %+v", st.Name, k, f.Method, seen[min(k, len(seen)-1)])
					break
				}
			}
		}
		if compared < 300 {
			t.Errorf("only %d frames compared", compared)
		}
	})
}
