package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"clrsnap"
	"clrsnap/internal/display"
	"clrsnap/profile"

	"golang.org/x/sys/unix"
)

// openWalked opens the target of a verb that walks the heap: a core dump, or the process of args. folders are more
// folders that the reader of a core dump may read.
func (a *app) openWalked(
	f *coreFlags, args []string, out *pendingFile, o clrsnap.Options, folders ...string,
) (p *clrsnap.Process, err error) {
	if f.dump != "" {
		if err := out.confine(f.coreReads(folders...), unix.CAP_DAC_READ_SEARCH); err != nil {
			return nil, err
		}
		f.core.Options = o
		p, err = clrsnap.OpenCore(context.Background(), f.dump, f.core)
	} else {
		var pid int
		if pid, err = parsePID(args[0]); err != nil {
			return nil, err
		}
		a.pid.Store(int64(pid))
		o.NonBlocking = a.worker == nil
		p, err = clrsnap.Open(context.Background(), pid, o)
	}
	switch {
	case errors.Is(err, clrsnap.ErrNotDotNet):
		return nil, fmt.Errorf("%w: clrsnap ps lists .NET processes", err)
	case err == nil:
		a.warnOfUnknown(p)
	}
	return p, err
}

// mayBlockWalked is mayBlock for a verb that walks the heap: reading a core dump may block this process itself.
func (a *app) mayBlockWalked(f *coreFlags) error {
	if f.dump == "" {
		return nil
	}
	return a.mayBlock(os.Getpid())
}

// interruptedWalk is the error of a walk that was ended early.
func interruptedWalk(ctx context.Context, partial bool) error {
	if cause := context.Cause(ctx); cause != nil && partial {
		return fmt.Errorf("%w: the part read until then is above", cause)
	}
	return nil
}

// walkProgress shows how much of a heap has been walked, if the walk takes long.
type walkProgress struct {
	to           io.Writer // standard error
	begin, shown time.Time
}

func (p *walkProgress) show(done, all uint64) {
	p.say("%s of %s …", display.Weight(profile.Bytes, int64(done)), display.Weight(profile.Bytes, int64(all)))
}

// doing shows the progress of the work after the walk.
func (p *walkProgress) doing(what string, done float64) { p.say("%s: %.0f %% …", what, 100*done) }

func (p *walkProgress) say(format string, args ...any) {
	if time.Since(p.begin) < quietFor || time.Since(p.shown) < tick {
		return
	}
	p.shown = time.Now()
	fmt.Fprintf(p.to, "\r\x1b[Kclrsnap: "+format, args...)
}

func (p *walkProgress) end() {
	if !p.shown.IsZero() {
		fmt.Fprint(p.to, "\r\x1b[K")
	}
}
