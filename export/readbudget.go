package export

import (
	"fmt"

	"clrsnap/internal/display"
	"clrsnap/profile"
	"clrsnap/snapshot"
)

// budget is how many bytes of memory reading a file may still take. Readers subtract from the budget
// before they keep an object, so no file can take more than its budget.
type budget struct{ left int64 }

// recordingBudget is the budget of a recording, 671 MB. A recording in memory takes a third of the
// budget or less; the rest is for showing the recording, with its copies and indices. The largest
// recording within profile.Limits, with long names, takes three quarters of the budget.
const recordingBudget = 640 << 20

// How many bytes one object takes at most: during a copy for a selection from two compared recordings,
// during a sum over functions, or while a tree is drawn.
const (
	sampleCost   = 120
	nodeCost     = 212
	holdCost     = 240
	locationCost = 160
	functionCost = 950
	threadCost   = 400
	processCost  = 400
	noteCost     = 64
	messageCost  = 100
	assemblyCost = 200
	checksumCost = 64
	methodCost   = 64
	lineCost     = 64
	siteCost     = 64
	placedCost   = 320 // of a location with a line, for the sums by line
	sourceCost   = 240
	excerptCost  = 64
	entryCost    = 80 // of a list of strings
	textCost     = 3  // for each byte of a name
)

// maxName is how many bytes one name may have: each name is in memory as a whole.
const maxName = 4 << 20

// take takes cost bytes. what names the objects.
func (b *budget) take(cost int, what string) error {
	if b.left -= int64(cost); b.left < 0 {
		return tooLarge("has too many " + what + ": it would take more than a gigabyte of memory")
	}
	return nil
}

// takeText takes the memory for showing a text, with its escapes.
func (b *budget) takeText(s, what string) error {
	if len(s) > maxName {
		return tooLargeError(fmt.Sprintf("the file has a text of %d MB where a name should be", len(s)>>20))
	}
	return b.take(textCost*len(display.Clean(s)), what)
}

// takeNames takes the memory for the names of a function. A name equal to the name before shares its
// memory.
func (b *budget) takeNames(f *profile.Function) (err error) {
	last := ""
	for _, s := range [...]string{f.Method, f.Display, f.Short, f.Signature, f.Module, f.Fate} {
		if err == nil && s != last {
			err = b.takeText(s, "or too long names of functions")
		}
		last = s
	}
	return err
}

func (b *budget) takeThread(t *profile.RecordedThread) error {
	return b.takeAll(threadCost, "threads", t.Name, t.Role)
}

func (b *budget) takeProcess(p *snapshot.Process) error {
	return b.takeAll(processCost, "processes", p.Command, p.Runtime.Version, p.Runtime.Path, p.Runtime.Shape)
}

// takeAll takes the memory for an object and its texts.
func (b *budget) takeAll(cost int, what string, texts ...string) error {
	err := b.take(cost, what)
	for _, s := range texts {
		if err == nil {
			err = b.takeText(s, what)
		}
	}
	return err
}

// tooLargeError says which part of a file is too large.
type tooLargeError string

func (e tooLargeError) Error() string { return string(e) }

// tooLarge returns a tooLargeError with advice.
func tooLarge(what string) error {
	return tooLargeError("the file " + what + "; record a shorter time, fewer threads or fewer modes")
}
