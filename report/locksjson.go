package report

import (
	"clrsnap/internal/jsonwriter"
	"clrsnap/profile"
)

// A lock, its holders and their stacks, by docs/json.md.
type (
	jsonLock struct {
		Display string       `json:"display"`
		Module  string       `json:"module,omitempty"`
		Total   jsonAmount   `json:"total"`
		Mean    float64      `json:"meanSeconds"`
		Holders []jsonHolder `json:"holders"`
	}
	jsonHolder struct {
		Display string            `json:"display"`
		Total   jsonAmount        `json:"total"`
		Stacks  []jsonHolderStack `json:"stacks"`
	}
	jsonHolderStack struct {
		Looks  int            `json:"looks"`
		Waited float64        `json:"waitedSeconds"`
		Frames []jsonFunction `json:"frames"`
	}
)

// lockList writes the locks with waiters, one after the other: the stacks can be deep.
func lockList(c *jsonwriter.Writer, r *profile.Recording, t *profile.Totals, o *TopOptions) {
	locks := r.Locks()
	if o.Rows > 0 {
		locks = locks[:min(len(locks), o.Rows)]
	}
	c.Text(`,"locks":`)
	c.List(len(locks), func(i int) { c.Value(jsonLockOf(r, t, &locks[i])) })
}

func jsonLockOf(r *profile.Recording, t *profile.Totals, l *profile.LockTotal) jsonLock {
	f := &r.Functions[l.Function]
	out := jsonLock{
		Display: f.Display, Module: f.Module, Total: jsonAmountOf(t, &profile.Part{profile.Waiting: l.Waits}),
		Mean: l.Mean().Seconds(),
	}
	for i := range l.Holders {
		h := &l.Holders[i]
		holder := jsonHolder{
			Display: r.Functions[h.Function].Display, Total: jsonAmountOf(t, &profile.Part{profile.Waiting: h.Waits}),
			Stacks: []jsonHolderStack{},
		}
		for _, s := range h.Stacks {
			stack := jsonHolderStack{Looks: s.Looks, Waited: s.Waited.Seconds(), Frames: []jsonFunction{}}
			for at := range r.Stack(s.Node) {
				stack.Frames = append(stack.Frames, jsonFunctionOf(&r.Functions[at.Function]))
			}
			holder.Stacks = append(holder.Stacks, stack)
		}
		out.Holders = append(out.Holders, holder)
	}
	return out
}
