package clrsnap_test

import (
	"slices"
	"testing"

	"clrsnap"
	"clrsnap/internal/agent"
	"clrsnap/internal/testenv"
)

// TestOracleCompare: whatever two walks can differ in, the comparison sees.
func TestOracleCompare(t *testing.T) {
	equal := func() *difference {
		ctx := clrsnap.Context{IP: 0x20}
		ctx.Set(rsp, 0x30)
		for _, r := range nonVolatile {
			ctx.Set(r.reg, 0x100+uint64(r.reg))
		}
		f := agent.Frame{Function: 0x10, IP: 0x20, ContextIP: 0x20, SP: 0x30, RBP: 0x105, RBX: 0x103, R12: 0x10c, R13: 0x10d, R14: 0x10e, R15: 0x10f}
		run := f
		run.Function = 0
		return &difference{
			clr:  &agent.Thread{Frames: []agent.Frame{f, run}},
			ours: []callback{{0x10, 0x20, ctx}, {0, 0x20, ctx}},
		}
	}
	compare := func(change func(d *difference)) string {
		d := equal()
		change(d)
		newOracle(&testenv.App{}, nil, nil).compare(d)
		return d.what
	}
	same := map[string]func(*difference){
		"equal":              func(*difference) {},
		"register not known": func(d *difference) { d.ours[0].ctx.Valid &^= 1 << 12; d.clr.Frames[0].R12 = 0 },
		"no managed frames":  func(d *difference) { d.ours, d.clr.Frames, d.clr.Result = nil, nil, uint32(clrsnap.E_FAIL) },
		"the same error": func(d *difference) {
			d.err, d.clr.Result = &clrsnap.Error{HRESULT: clrsnap.E_FAIL}, uint32(clrsnap.E_FAIL)
		},
		"neither has a frame": func(d *difference) { d.ours, d.clr.Frames = nil, nil },
	}
	for name, change := range same {
		if what := compare(change); what != "" {
			t.Errorf("%s: %s", name, what)
		}
	}
	other := map[string]func(*difference){
		"function":      func(d *difference) { d.clr.Frames[0].Function++ },
		"a run":         func(d *difference) { d.clr.Frames[1].Function++ },
		"ip":            func(d *difference) { d.ours[0].ip++ },
		"ip in context": func(d *difference) { d.clr.Frames[1].ContextIP++ },
		"our context":   func(d *difference) { d.ours[0].ctx.IP++ },
		"sp":            func(d *difference) { d.clr.Frames[1].SP += 8 },
		"sp not known":  func(d *difference) { d.ours[0].ctx.Valid &^= 1 << rsp },
		"order":         func(d *difference) { slices.Reverse(d.ours) },
		"one less":      func(d *difference) { d.ours = d.ours[:1] },
		"one more":      func(d *difference) { d.clr.Frames = d.clr.Frames[:1] },
		"result":        func(d *difference) { d.clr.Result = uint32(clrsnap.E_FAIL) },
		"our result":    func(d *difference) { d.err = clrsnap.ErrStale },
		"S_FALSE":       func(d *difference) { d.err = &clrsnap.Error{HRESULT: clrsnap.S_FALSE} },
		"E_FAIL with a callback": func(d *difference) {
			d.ours, d.clr.Result = nil, uint32(clrsnap.E_FAIL)
		},
	}
	for _, r := range nonVolatile {
		other[r.name] = func(d *difference) { d.ours[1].ctx.Regs[r.reg]++ }
	}
	for name, change := range other {
		if compare(change) == "" {
			t.Errorf("%s: not seen", name)
		}
	}
}

// TestOracleControl: on real threads, too, the comparison sees a difference where
// there is one. As documented, the walk reports the runs through which a filter was
// called and gives the true return address of a P/Invoke; the CLR does neither.
func TestOracleControl(t *testing.T) {
	lib := buildAgent(t)
	a, conn := attachAgent(t, lib, testenv.Options{Args: []string{"--only", "eh-filter,block"}})
	for mode, differ := range map[clrsnap.Mode]bool{clrsnap.AsCoreCLR: false, clrsnap.AsDocumented: true} {
		o := newOracle(a, conn, open(t, a, clrsnap.Options{Mode: mode}))
		if err := o.round(); err != nil {
			t.Fatal(err)
		}
		for name := range a.Stacks {
			seen := slices.ContainsFunc(o.unknown, func(d *difference) bool { return d.name == name })
			if seen != differ {
				t.Errorf("%s in mode %d: difference seen: %v, there is one: %v", name, mode, seen, differ)
			}
		}
	}
	if err := conn.Detach(); err != nil {
		t.Error(err)
	}
	endsWell(t, a)
}
