package record

import (
	"testing"
	"time"

	"clrsnap/internal/arch"
	"clrsnap/snapshot"
)

// TestProved: which names of code that can be unloaded are proved, and the remembered sights.
func TestProved(t *testing.T) {
	const ms = time.Millisecond
	seen := sight{method: 1, name: 2, from: 100 * ms, to: 150 * ms}
	for name, tt := range map[string]struct {
		seen       sight // nothing: never
		taken, now time.Duration
		proved     bool
		from       time.Duration // of the remembered sight
		news       bool
	}{
		"never seen, read late": {taken: 200 * ms, now: 202 * ms, from: 202 * ms, news: true},
		"never seen, read soon": {taken: 200 * ms, now: 201 * ms, proved: true, from: 200 * ms, news: true},
		"seen before":           {seen: seen, taken: 200 * ms, now: 300 * ms, proved: true, from: 100 * ms},
		"seen before and since": {seen: seen, taken: 120 * ms, now: 300 * ms, proved: true, from: 100 * ms},
		"seen since only":       {seen: seen, taken: 90 * ms, now: 300 * ms, from: 100 * ms},
		"another method seen before": {
			seen: sight{3, 2, 0, 0}, taken: 200 * ms, now: 300 * ms, from: 300 * ms, news: true,
		},
		"another name seen before": {
			seen: sight{1, 3, 0, 0}, taken: 200 * ms, now: 300 * ms, from: 300 * ms, news: true,
		},
		"another name before, read soon": {
			seen: sight{1, 3, 0, 0}, taken: 200 * ms, now: 201 * ms, proved: true, from: 200 * ms, news: true,
		},
		"seen since, and read soon enough": {
			seen: sight{1, 2, 100 * ms, 100 * ms}, taken: 99 * ms, now: 100 * ms, proved: true, from: 99 * ms,
		},
	} {
		f := frameTable{seen: map[arch.Addr]sight{}, taken: tt.taken}
		if tt.seen != (sight{}) {
			f.seen[16] = tt.seen
		}
		n := looseName{start: 16, method: 1, name: 2}
		if got := f.proved(&n, tt.now); got != tt.proved || n.proved != tt.proved || tt.proved && n.from > tt.taken {
			t.Errorf("%s: %v, %+v", name, got, n)
		}
		if is := f.seen[16]; is != (sight{1, 2, tt.from, tt.now}) || f.news > 0 != tt.news {
			t.Errorf("%s: %+v is remembered, news %v", name, is, f.news)
		}
	}
}

// TestForget: code that was not met lately makes room, unless the survey does not know.
func TestForget(t *testing.T) {
	f := frameTable{seen: map[arch.Addr]sight{1: {to: 5}, 2: {to: 15}}}
	f.survey.began = 10
	if f.forget(); len(f.seen) != 2 {
		t.Errorf("%v are left after a survey that lacks some", f.seen)
	}
	f.survey.whole = true
	if f.forget(); len(f.seen) != 1 || f.seen[2].to != 15 {
		t.Errorf("%v are left", f.seen)
	}
	for a := range arch.Addr(maxSights) {
		f.seen[a] = sight{to: 5}
	}
	f.survey.whole = false
	if f.forget(); len(f.seen) > 1 {
		t.Errorf("%d are left although there is no room", len(f.seen))
	}
}

// TestNameSum: parts of a name do not run into one another, a filter is part of its method, and methods of two
// builds of an assembly differ.
func TestNameSum(t *testing.T) {
	id := [20]byte{1}
	a := sumOf(&snapshot.Frame{Method: "ab", Display: "c"}, id)
	other := &snapshot.Frame{Method: "a", Display: "bc"}
	if sumOf(other, id) == a || sumOf(&snapshot.Frame{Method: "ab", Display: "d"}, id) == a {
		t.Error("two names have one sum")
	}
	if sumOf(&snapshot.Frame{Method: "ab", Display: "c"}, [20]byte{2}) == a {
		t.Error("two builds have one sum")
	}
	if sumOf(&snapshot.Frame{Method: "ab", Display: "c [filter]"}, id) != a {
		t.Error("a filter is another method")
	}
}
