package livetest

import (
	"context"
	"math"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	"clrsnap"
	"clrsnap/internal/testenv"
	"clrsnap/profile"
	"clrsnap/record"
)

// Kept is the allocation of a site of the program "survivors", and the part of the allocation still
// alive, in bytes.
type Kept struct {
	Method, Class   string
	Allocated, Kept int64
}

// AskKept asks the program "survivors" for the living objects.
func AskKept(tb testing.TB, a *testenv.App) (out []Kept) {
	tb.Helper()
	for _, line := range a.Ask("truth") {
		f := strings.Split(line, "\t")
		if len(f) != 4 {
			tb.Fatalf("a truth of %q", line)
		}
		allocated, err := strconv.ParseInt(f[2], 10, 64)
		kept, err2 := strconv.ParseInt(f[3], 10, 64)
		if err != nil || err2 != nil {
			tb.Fatalf("a truth of %q", line)
		}
		class := f[1]
		if class == "System.Byte[]" {
			class = "byte[]"
		}
		out = append(out, Kept{f[0], class, allocated, kept})
	}
	return out
}

// Since returns the allocated and kept bytes since before.
func Since(now, before []Kept) []Kept {
	out := make([]Kept, len(now))
	for i, k := range now {
		k.Allocated -= before[i].Allocated
		k.Kept -= before[i].Kept
		out[i] = k
	}
	return out
}

// RecordWhile records while the program does something.
func RecordWhile(tb testing.TB, p *clrsnap.Process, o record.Options, do func()) *profile.Recording {
	tb.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	var once sync.Once
	done := make(chan struct{})
	o.Progress = func(record.Progress) {
		once.Do(func() {
			go func() {
				defer close(done)
				defer cancel()
				do()
			}()
		})
	}
	r, err := record.Record(ctx, p, o)
	if err != nil {
		tb.Fatal(err)
	}
	<-done
	return r
}

// liveOf sums up the samples of profile.Live with a class whose stacks have a method. variance is the
// variance of the sum.
func liveOf(r *profile.Recording, k *Kept) (bytes int64, variance float64, samples int) {
	for i := range r.Samples {
		s := &r.Samples[i]
		if s.Mode != profile.Live || !ofClass(r.Function(s.Node).Display, k.Class) {
			continue
		}
		for l := range r.Stack(s.Node) {
			if r.Functions[l.Function].Method == k.Method {
				bytes += s.Weight
				variance += float64(s.Weight) * float64(s.Weight)
				samples++
				break
			}
		}
	}
	return bytes, variance, samples
}

// ofClass reports whether a leaf is of a class, whether a collection has looked at the object or not.
func ofClass(leaf, class string) bool {
	leaf, _, _ = strings.Cut(leaf, " (")
	return leaf == class
}

// CheckLive requires that exactly the objects kept by the program are alive in a recording, by site:
// within 5 standard errors of the sampling. Sites without kept objects have no samples.
func CheckLive(tb testing.TB, r *profile.Recording, kept []Kept) {
	tb.Helper()
	const errors = 5
	if !slices.ContainsFunc(kept, func(k Kept) bool { return k.Kept > 0 }) {
		tb.Error("the program keeps nothing: this tests nothing")
	}
	every := float64(0)
	if m, ok := r.Mode(profile.Live); ok {
		every = float64(m.Every)
	}
	for i := range kept {
		k := &kept[i]
		got, variance, samples := liveOf(r, k)
		site := strings.TrimPrefix(k.Method, "Survivors.Site.")
		if k.Kept == 0 {
			if got != 0 {
				tb.Errorf("%s keeps nothing, and has %d bytes in %d samples that are alive", site, got, samples)
			}
			continue
		}
		// With few samples, the expected number of samples says more of the error than their number.
		sigma := math.Sqrt(max(variance, float64(k.Kept)*every))
		off := float64(got-k.Kept) / sigma
		tb.Logf("%-10s %9d of %9d bytes are alive, found %9d in %4d samples: %+.1f %%, %+.1f standard errors", site,
			k.Kept, k.Allocated, got, samples, 100*float64(got-k.Kept)/float64(k.Kept), off)
		if math.Abs(off) > errors {
			tb.Errorf("%s keeps %d bytes of %s, found %d", site, k.Kept, k.Class, got)
		}
	}
}
