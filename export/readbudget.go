package export

import (
	"fmt"

	"clrsnap/profile"
)

// budget is what may still be kept of a file, in bytes. Whoever reads takes from it before
// the next object is kept, so that no file has more memory than its budget.
type budget struct{ left int64 }

// recordingBudget is that of a recording, 671 MB. What is kept of one is a third of that or
// less; the rest is for showing it, for which it is copied and indexed. As large as ours
// become by profile.Limits, with long names, they take three quarters of it.
const recordingBudget = 640 << 20

// What one object takes at the worst moment: where it is copied for a selection of two
// recordings that are compared, where functions are summed up, where a tree is drawn.
const (
	sampleCost   = 120
	nodeCost     = 180
	locationCost = 160
	functionCost = 950
	threadCost   = 400
	processCost  = 400
	noteCost     = 64
	entryCost    = 80 // of a list of strings
	textCost     = 3  // for each byte of a name
)

// maxName is how many bytes one name may have: each is handled whole.
const maxName = 4 << 20

// take takes so much for some of what is named.
func (b *budget) take(cost int, what string) error {
	if b.left -= int64(cost); b.left < 0 {
		return tooLarge("has too many " + what + " for the gigabyte of memory that may be used")
	}
	return nil
}

// takeText takes what a text will need when it has been made fit to be shown.
func (b *budget) takeText(s, what string) error {
	if len(s) > maxName {
		return tooLargeError(fmt.Sprintf("the file has a text of %d MB where a name should be", len(s)>>20))
	}
	return b.take(textCost*len(Clean(s)), what)
}

// takeNames takes for the names of a function, which many functions can share.
func (b *budget) takeNames(f *profile.Function) (err error) {
	last := ""
	for _, s := range [...]string{f.Method, f.Display, f.Short, f.Signature, f.Module} {
		if err == nil && s != last { // else it is the same text
			err = b.takeText(s, "or too long names of functions")
		}
		last = s
	}
	return err
}

func (b *budget) takeThread(t *profile.RecordedThread) error {
	return b.takeAll(threadCost, "threads", t.Name, t.Role)
}

func (b *budget) takeProcess(p *profile.Process) error {
	return b.takeAll(processCost, "processes", p.Command, p.Runtime.Version, p.Runtime.Path, p.Runtime.Shape)
}

// takeAll takes for an object with its texts.
func (b *budget) takeAll(cost int, what string, texts ...string) error {
	err := b.take(cost, what)
	for _, s := range texts {
		if err == nil {
			err = b.takeText(s, what)
		}
	}
	return err
}

// tooLargeError says what of a file is too large.
type tooLargeError string

func (e tooLargeError) Error() string { return string(e) }

// tooLarge also says what to do.
func tooLarge(what string) error {
	return tooLargeError("the file " + what + ": make one of a shorter time, or of fewer threads or modes")
}
