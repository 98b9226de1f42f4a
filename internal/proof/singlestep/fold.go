package singlestep

import (
	"clrsnap/internal/arch"
	"clrsnap/internal/clr/codemap"
	"clrsnap/internal/walk"
)

// How often the folded walk and DoStackSnapshot are also checked, in instructions.
const (
	foldEvery          = 64
	foldEveryException = 8
)

// folding holds the slices of a check of the folded walk.
type folding struct {
	codes []codemap.Code
	want  []int // indices of the true frames that must appear
	got   []seen
	runs  []seen
	wants []seen
}

// checkFold compares the folded walk and DoStackSnapshot with the folded true
// stack: a funclet and everything up to its method's frame are one frame, and
// frames unwound by an exception are left out.
func (r *runner) checkFold(t *truth) {
	code, err := r.eng.Runtime.Code.Lookup(arch.Addr(t.leaf.ip))
	every := foldEvery
	if r.thread.Info.Exception != 0 {
		every = foldEveryException
	}
	if r.folds++; r.folds%every != 0 && (err != nil || !code.Funclet) {
		return
	}
	if !r.fold(t) {
		r.rep.Unfolded++
		return
	}
	r.compareFolded(t)
}

// compareFolded reports whether the walks give the frames that fold has found.
func (r *runner) compareFolded(t *truth) bool {
	got, res := r.visitFolded()
	folded := r.judgeFold(t, "folded walk", got, res, r.wantFolded(t))
	got, res = r.visitRuns()
	runs := r.judgeFold(t, "DoStackSnapshot", got, res, r.wantRuns(t))
	return folded == equal && runs == equal
}

// fold finds the true frames that exist from the program's point of view. It
// reports false where fold does not know them: for a funclet or a method whose
// call was not seen to execute.
func (r *runner) fold(t *truth) bool {
	f := &r.folding
	f.codes, f.want = f.codes[:0], f.want[:0]
	var parent *codemap.Code // of a funclet: the method whose frame is wanted
	var fp uint64            // the wanted frame's frame pointer
	for i := range t.len() {
		code, err := r.eng.Runtime.Code.Lookup(arch.Addr(t.at(i).ip))
		if err != nil {
			return false
		}
		f.codes = append(f.codes, code)
		if arch.Addr(t.at(i).sp).In(r.thread.UnwoundLow, r.thread.UnwoundHigh) {
			continue
		}
		if parent != nil {
			if code.Funclet || code.MethodStart != parent.MethodStart || !code.Kind.Managed() {
				continue
			}
			if !t.at(i).savedKnown {
				return false
			}
			if t.at(i).saved[savedFP] != fp {
				continue
			}
			parent = nil
		}
		if !code.Funclet {
			f.want = append(f.want, i)
			continue
		}
		filter, err := r.eng.Runtime.Code.IsFilter(&code)
		switch {
		case err != nil || i+1 == t.len() || !t.at(i+1).savedKnown:
			return false
		case filter:
			f.want = append(f.want, i)
		default:
			// The caller of a funclet has passed the method's frame pointer.
			parent, fp = &code, t.at(i + 1).saved[savedFP]
		}
	}
	return parent == nil
}

// savedFP is the frame pointer's index in preserved.
const savedFP = 1

func (r *runner) wantFolded(t *truth) []seen {
	f := &r.folding
	f.wants = f.wants[:0]
	for _, i := range f.want {
		f.wants = append(f.wants, seen{ip: t.at(i).ip, sp: t.at(i).sp})
	}
	return f.wants
}

// wantRuns is DoStackSnapshot's expected report of the true stack: managed frames
// with metadata, and the newest frame of each run of native frames below the
// leaf's own run.
func (r *runner) wantRuns(t *truth) []seen {
	f := &r.folding
	f.wants = f.wants[:0]
	inRun := true
	for _, i := range f.want {
		fr, code := t.at(i), &f.codes[i]
		if code.Kind.Managed() {
			inRun = false
			if hidden, _, err := r.eng.Runtime.Names.Hidden(code.MethodDesc); err == nil && !hidden {
				f.wants = append(f.wants, seen{ip: fr.ip, sp: fr.sp})
			}
			continue
		}
		stub := code.Kind == codemap.Stub || r.eng.Modules.Find(arch.Addr(fr.ip)) == nil
		if !inRun && !stub {
			inRun = true
			f.wants = append(f.wants, seen{ip: fr.ip, sp: fr.sp})
		}
	}
	return f.wants
}

func (r *runner) visitFolded() ([]seen, walk.Result) {
	f := &r.folding
	f.got = f.got[:0]
	ctx := r.thread.Context
	res := r.eng.Walker.Walk(&r.thread, &ctx, walk.ByUnwindInfo, func(fr *walk.Frame) bool {
		f.got = append(f.got, see(fr, r.eng.Arch.SP))
		return true
	})
	return f.got, res
}

func (r *runner) visitRuns() ([]seen, walk.Result) {
	f := &r.folding
	f.runs = f.runs[:0]
	ctx := r.thread.Context
	res := r.eng.Walker.DoStackSnapshot(&r.thread, &ctx, walk.AsDocumented, func(run walk.Run) bool {
		f.runs = append(f.runs, see(run.Frame, r.eng.Arch.SP))
		return true
	})
	return f.runs, res
}

// judgeFold compares frame by frame.
func (r *runner) judgeFold(t *truth, what string, got []seen, res walk.Result, want []seen) Verdict {
	v := equal
	if !res.Complete {
		v = incomplete
	}
	if len(got) != len(want) && res.Complete {
		v = wrong
	}
	for i := 0; i < min(len(got), len(want)) && v != wrong; i++ {
		if got[i].ip != want[i].ip || got[i].sp != want[i].sp {
			v = wrong
		}
	}
	r.rep.Folded[v]++
	if v == equal {
		return v
	}
	flat := truth{leaf: frame{ip: t.leaf.ip, sp: t.leaf.sp}}
	for i := len(want) - 1; i >= 0; i-- {
		flat.below = append(flat.below, frame{ip: want[i].ip, sp: want[i].sp})
	}
	m := &Miss{verdict: v, truth: &flat, got: append([]seen{{ip: t.leaf.ip, sp: t.leaf.sp}}, got...), res: res, r: r,
		what: what}
	r.missed(m, what+": "+r.rep.describeMiss(m))
	return v
}
