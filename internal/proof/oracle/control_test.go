package oracle

import (
	"slices"
	"testing"

	"clrsnap"
	"clrsnap/internal/agent"
	"clrsnap/internal/livetest"
	"clrsnap/internal/testenv"
	"clrsnap/internal/testenv/layer"
)

// TestOracleCompare: the comparison sees every possible difference of two walks.
func TestOracleCompare(t *testing.T) {
	equal := func() *Difference {
		ctx := clrsnap.Context{IP: 0x20}
		ctx.Set(RSP, 0x30)
		for _, r := range NonVolatile {
			ctx.Set(r.Reg, 0x100+uint64(r.Reg))
		}
		below := ctx
		f := agent.Frame{
			Function: 0x10, IP: 0x20, ContextIP: 0x20, SP: 0x30, RBP: 0x105, RBX: 0x103,
			R12: 0x10c, R13: 0x10d, R14: 0x10e, R15: 0x10f,
		}
		run := f
		run.Function = 0
		return &Difference{
			CLR:  &agent.Thread{Frames: []agent.Frame{f, run}},
			Ours: []livetest.Call{{ID: 0x10, IP: 0x20, Context: &ctx}, {ID: 0, IP: 0x20, Context: &below}},
		}
	}
	compare := func(change func(d *Difference)) string {
		d := equal()
		change(d)
		newOracle(&testenv.App{}, nil, nil).Compare(d)
		return d.What
	}
	same := map[string]func(*Difference){
		"equal":              func(*Difference) {},
		"register not known": func(d *Difference) { d.Ours[0].Context.Valid &^= 1 << 12; d.CLR.Frames[0].R12 = 0 },
		"no managed frames": func(d *Difference) {
			d.Ours, d.CLR.Frames, d.CLR.Result = nil, nil, uint32(clrsnap.E_FAIL)
		},
		"the same error": func(d *Difference) {
			d.Err, d.CLR.Result = &clrsnap.Error{HRESULT: clrsnap.E_FAIL}, uint32(clrsnap.E_FAIL)
		},
		"neither has a frame": func(d *Difference) { d.Ours, d.CLR.Frames = nil, nil },
	}
	for name, change := range same {
		if what := compare(change); what != "" {
			t.Errorf("%s: %s", name, what)
		}
	}
	other := map[string]func(*Difference){
		"function":      func(d *Difference) { d.CLR.Frames[0].Function++ },
		"a run":         func(d *Difference) { d.CLR.Frames[1].Function++ },
		"ip":            func(d *Difference) { d.Ours[0].IP++ },
		"ip in context": func(d *Difference) { d.CLR.Frames[1].ContextIP++ },
		"our context":   func(d *Difference) { d.Ours[0].Context.IP++ },
		"sp":            func(d *Difference) { d.CLR.Frames[1].SP += 8 },
		"sp not known":  func(d *Difference) { d.Ours[0].Context.Valid &^= 1 << RSP },
		"order":         func(d *Difference) { slices.Reverse(d.Ours) },
		"one less":      func(d *Difference) { d.Ours = d.Ours[:1] },
		"one more":      func(d *Difference) { d.CLR.Frames = d.CLR.Frames[:1] },
		"result":        func(d *Difference) { d.CLR.Result = uint32(clrsnap.E_FAIL) },
		"our result":    func(d *Difference) { d.Err = clrsnap.ErrStale },
		"S_FALSE":       func(d *Difference) { d.Err = &clrsnap.Error{HRESULT: clrsnap.S_FALSE} },
		"E_FAIL with a callback": func(d *Difference) {
			d.Ours, d.CLR.Result = nil, uint32(clrsnap.E_FAIL)
		},
	}
	for _, r := range NonVolatile {
		other[r.Name] = func(d *Difference) { d.Ours[1].Context.Regs[r.Reg]++ }
	}
	for name, change := range other {
		if compare(change) == "" {
			t.Errorf("%s: not seen", name)
		}
	}
}

// TestOracleControl: on real threads, too, the comparison sees an existing
// difference. As documented, the walk reports the runs through which a filter was
// called and gives the true return address of a P/Invoke; the CLR does neither.
func TestOracleControl(t *testing.T) {
	layer.Proof(t)
	lib := buildAgent(t)
	a, conn := attachAgent(t, lib, testenv.Options{Args: []string{"--only", "eh-filter,block"}})
	for mode, differ := range map[clrsnap.Mode]bool{clrsnap.AsCoreCLR: false, clrsnap.AsDocumented: true} {
		o := newOracle(a, conn, livetest.Open(t, a, clrsnap.Options{Mode: mode}))
		if err := o.round(); err != nil {
			t.Fatal(err)
		}
		for name := range a.Stacks {
			seen := slices.ContainsFunc(o.Unknown, func(d *Difference) bool { return d.Name == name })
			if seen != differ {
				t.Errorf("%s in mode %d: difference seen: %v, there is one: %v", name, mode, seen, differ)
			}
		}
	}
	if err := conn.Detach(); err != nil {
		t.Error(err)
	}
	livetest.EndsWell(t, a)
}
