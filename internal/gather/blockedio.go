package gather

import (
	"fmt"
	"slices"
	"strings"

	"clrsnap/internal/phrase"
	"clrsnap/profile"
)

// Circular reports whether the process at the other end is blocked in turn, in a call to a process before: neither
// goes on.
func (c *BlockedCall) Circular(first int) bool {
	seen := map[int]bool{first: true, c.Pid: true}
	for at := c; at != nil; {
		i := slices.IndexFunc(at.Ends, func(o FarEnd) bool { return o.Next != nil })
		if i < 0 {
			return at != c && slices.ContainsFunc(at.Ends, func(o FarEnd) bool { return seen[o.Pid] })
		}
		at = at.Ends[i].Next
		if seen[at.Pid] {
			return true
		}
		seen[at.Pid] = true
		if slices.ContainsFunc(at.Ends, func(o FarEnd) bool { return seen[o.Pid] }) {
			return true
		}
	}
	return false
}

// Caller names the thread or the process of a call.
func (c *BlockedCall) Caller() string {
	if c.Own {
		return phrase.ThreadName(c.Thread)
	}
	return fmt.Sprintf("%s (%d)", c.Command, c.Pid)
}

// Verb says what the call does to the file.
func (c *BlockedCall) Verb() string { return c.either("writes to", "reads from") }

// either chooses a word by what the call does.
func (c *BlockedCall) either(writes, reads string) string {
	if c.Writes {
		return writes
	}
	return reads
}

// FarProcesses are the other .NET processes at the ends.
func (c *BlockedCall) FarProcesses() (out []int) {
	for i := range c.Ends {
		o := &c.Ends[i]
		if o.stack != nil && !o.Own {
			out = append(out, o.Pid)
		}
		if o.Next != nil {
			out = append(out, o.Next.FarProcesses()...)
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// EndText says in sentences who has the other end, and does what. Each begins with a blank.
func (c *BlockedCall) EndText() string {
	if len(c.Ends) == 0 {
		switch {
		case c.IsTerminal():
			return " The terminal takes nothing: somebody has stopped the output (Ctrl-S), or no program reads the " +
				"output."
		case c.IsSocket() && c.hidden:
			return " The other end was not found on this machine, and " + c.either("takes nothing.", "sends nothing.")
		}
		return c.either(" Nobody reads what it writes", " Nobody writes what it reads") +
			", as far as can be seen from here."
	}
	var text strings.Builder
	for i := range c.Ends[:min(len(c.Ends), maxEnds)] {
		o := &c.Ends[i]
		who := fmt.Sprintf("%s (%d), at the other end,", o.Command, o.Pid)
		switch {
		case o.Own && o.stack != nil:
			fmt.Fprintf(&text, " %s has the other end and writes there as well, in %s: each waits for the other to "+
				"read.", phrase.ThreadName(Ref(o.stack)), Place(o.stack.Frames))
		case o.Own:
			fmt.Fprintf(&text, " This process has the other end, and no thread of the process %s there.",
				c.either("reads", "writes"))
		case o.Next != nil:
			fmt.Fprintf(&text, " %s is blocked as well: that process %s %s.", who, o.Next.Verb(), o.Next.What)
			text.WriteString(o.Next.EndText())
		default:
			fmt.Fprintf(&text, " %s %s: it %s.", who, c.either("does not read", "writes nothing"), o.Does)
		}
	}
	if left := len(c.Ends) - maxEnds; left > 0 {
		fmt.Fprintf(&text, " %s the other end as well.", phrase.Counted(left, "more process has",
			"more processes have"))
	}
	return text.String()
}

// maxEnds bounds the processes that are named at one end.
const maxEnds = 2

// EndEvidence are the stacks at the other ends.
func (c *BlockedCall) EndEvidence() (out []profile.Evidence) {
	for i := range c.Ends[:min(len(c.Ends), maxEnds)] {
		o := &c.Ends[i]
		if o.stack != nil {
			out = append(out, profile.Evidence{
				Text: fmt.Sprintf("%s of %s (%d)%s:", phrase.ThreadName(Ref(o.stack)), o.Command, o.Pid,
					phrase.WaitPhrase(o.stack)),
				Frames: o.stack.Frames,
			})
		}
		if o.Next != nil {
			out = append(out, o.Next.EndEvidence()...)
		}
	}
	return out
}
