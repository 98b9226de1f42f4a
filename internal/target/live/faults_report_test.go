package live

import (
	"errors"
	"fmt"
	"strings"
	"testing"
)

// faultReport counts pairs of steps and faults.
type faultReport struct {
	list  []*fault
	skip  uint32
	tries map[[2]string]int
	hits  map[[2]string]int
	said  map[string]map[string]int
}

func newFaultReport(list []*fault) *faultReport {
	return &faultReport{list: list, tries: map[[2]string]int{}, hits: map[[2]string]int{},
		said: map[string]map[string]int{}}
}

// next goes through all pairs.
func (r *faultReport) next(i int) (*fault, uint32) {
	var pairs [][2]int
	for fi, f := range r.list {
		for step := uint32(1); step < steps; step++ {
			if (f.steps == 0 || f.steps&(1<<step) != 0) && r.skip&(1<<step) == 0 &&
				!(f.foreign && (step == stepSignal || step == stepContinue)) {
				pairs = append(pairs, [2]int{fi, int(step)})
			}
		}
	}
	pair := pairs[i%len(pairs)]
	return r.list[pair[0]], uint32(pair[1])
}

func (r *faultReport) count(t *testing.T, x *injection, res result) {
	t.Helper()
	pair := [2]string{x.f.name, stepNames[x.step]}
	r.tries[pair]++
	if res.reached {
		r.hits[pair]++
	}
	if res.err != nil {
		t.Errorf("%s, %s (reached: %v): %v", pair[0], pair[1], res.reached, res.err)
		return
	}
	if r.said[x.f.name] == nil {
		r.said[x.f.name] = map[string]int{}
	}
	what := "captured"
	if res.capture != nil {
		what = "another error"
		for _, e := range x.f.may {
			if errors.Is(res.capture, e) {
				what = e.Error()
			}
		}
	}
	r.said[x.f.name][what]++
}

func (r *faultReport) log(t *testing.T) {
	var b strings.Builder
	total, hits := 0, 0
	for _, f := range r.list {
		fmt.Fprintf(&b, "%-26s", f.name)
		for step := 1; step < steps; step++ {
			pair := [2]string{f.name, stepNames[step]}
			fmt.Fprintf(&b, " %4d/%-4d", r.hits[pair], r.tries[pair])
			total, hits = total+r.tries[pair], hits+r.hits[pair]
		}
		fmt.Fprintf(&b, " %v\n", r.said[f.name])
	}
	t.Logf("%d captures disturbed at their step of %d, in columns: %s\n%s", hits, total,
		strings.Join(stepNames[1:], ", "), b.String())
}
