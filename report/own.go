package report

import (
	"slices"

	"clrsnap/profile"
	"clrsnap/snapshot"
)

// own prints the functions of the program's own code, because the author can change own code: the
// functions with the largest totals, and with the most in themselves. own prints nothing if there is no
// own code, or no other code.
func (p *printer) own(r *profile.Recording, t *profile.Totals, o *TopOptions) {
	own, others := ownFunctions(r, t)
	if len(own) == 0 || !others {
		return
	}
	rows, left := ownRows(own, o.Rows)
	c := newAmounts(r, t, o.wide(rateWide), false, "flat %", "cum %")
	p.numbersHead(c.numbers, "function of your own code")
	lines := linesOf(r, t.Mode, o)
	for i := range rows {
		p.numbersRow(c.numbers, c.rows(estimatesOf(&rows[i])...)...)
		p.function(&r.Functions[rows[i].Function], c.used)
		p.sourceLines(r, c, lines[rows[i].Function], o)
	}
	if left > 0 {
		p.more(left, [2]string{"function", "functions"}, "--top 0 shows all")
	}
	p.end()
}

// ownFunctions returns the functions of the program's own code. others: other code has samples, too.
func ownFunctions(r *profile.Recording, t *profile.Totals) (own []profile.FunctionTotal, others bool) {
	all := t.Functions
	if t.Mode.OfEvents() {
		all = methods(r, all)
	}
	for i := range all {
		switch r.Functions[all[i].Function].Origin() {
		case snapshot.OfUser:
			own = append(own, all[i])
		default:
			others = true
		}
	}
	return own, others
}

// ownRows returns half as many functions as a table has rows (0: all), and the number of others. ownRows
// takes from the largest totals and from the largest Self in turn.
func ownRows(own []profile.FunctionTotal, rows int) (shown []profile.FunctionTotal, left int) {
	byTotal, _ := hottest(own, &TopOptions{Sort: Cum})
	bySelf, _ := hottest(own, &TopOptions{Sort: Flat})
	most := (rows + 1) / 2
	if rows == 0 || most >= len(own) {
		return byTotal, 0
	}
	chosen := map[int32]bool{}
	for i := 0; len(chosen) < most; i++ {
		chosen[byTotal[i].Function] = true
		if s := &bySelf[i]; len(chosen) < most && s.Self.All().Weight > 0 {
			chosen[s.Function] = true
		}
	}
	shown = slices.DeleteFunc(byTotal, func(f profile.FunctionTotal) bool { return !chosen[f.Function] })
	return shown, len(own) - len(shown)
}
