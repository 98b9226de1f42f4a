package singlestep

import (
	"errors"
	"fmt"
	"runtime"
	"strings"
	"time"

	"clrsnap/internal/engine"
	"clrsnap/internal/target/live"
)

// Session steps the threads of one process.
type Session struct {
	PID     int
	Threads []string // prefixes of their names; none: every thread
	Steps   int      // instructions, of all threads together
	// Birth: wait until a thread of Threads makes a thread, and follow the new
	// thread from its first instruction to its end.
	Birth bool
	Limit time.Duration // give up then; the steps so far count
	// OnMiss is called for the first miss of a kind at an address, while the
	// thread stands still.
	OnMiss func(*Miss)
	Corpus *Corpus // collects moments; nil: no collection
}

// Run steps the session's threads, one after the other, and adds to rep. Run
// lets every thread go again, whatever happens.
func (s *Session) Run(rep *Report) error {
	// A tracee belongs to the OS thread that has seized it. The kernel lets a
	// tracee go that Run leaves on an unexpected path when the seizing thread
	// ends.
	done := make(chan error, 1)
	go func() {
		runtime.LockOSThread() // for good: the thread ends with the goroutine
		done <- s.run(rep)
	}()
	return <-done
}

func (s *Session) run(rep *Report) error {
	p, err := live.Open(s.PID)
	if err != nil {
		return err
	}
	defer p.Close()
	e, err := engine.Open(p)
	if err != nil {
		return err
	}
	defer e.Close()
	defer rep.coverage.forget()
	deadline := time.Now().Add(s.Limit)
	left, none := s.Steps, 0
	for left > 0 && time.Now().Before(deadline) {
		tids, err := s.choose(p)
		if err != nil {
			return err
		}
		before := left
		for _, tid := range tids {
			n, err := s.thread(p, e, tid, max(s.Steps/len(tids), 1000), left, deadline, rep)
			if err != nil {
				return err
			}
			left -= n
		}
		if left == before {
			if none++; none > 100 {
				return fmt.Errorf("process %d: none of the threads %q can be stepped", s.PID, s.Threads)
			}
			time.Sleep(10 * time.Millisecond)
		}
	}
	return nil
}

// choose lists the threads to be stepped.
func (s *Session) choose(p *live.Process) ([]int, error) {
	all, err := p.Threads()
	if err != nil {
		return nil, err
	}
	var tids []int
	for _, tid := range all {
		info, err := p.Thread(tid)
		if err != nil {
			continue // the thread has ended
		}
		for _, name := range s.Threads {
			const shown = 15 // characters of a name that the kernel keeps
			if strings.HasPrefix(info.Name, name[:min(len(name), shown)]) {
				tids = append(tids, tid)
				break
			}
		}
		if len(s.Threads) == 0 {
			tids = append(tids, tid)
		}
	}
	return tids, nil
}

// thread steps one thread, for at most n of left instructions.
func (s *Session) thread(p *live.Process, e *engine.Engine, tid, n, left int, deadline time.Time, rep *Report) (
	int, error,
) {
	var options uintptr
	if s.Birth {
		options = optionClone
	}
	tr, err := seize(tid, options)
	if err != nil {
		if _, gone := p.Thread(tid); gone != nil {
			return 0, nil
		}
		return 0, err
	}
	if s.Birth {
		const wait = 5 * time.Second
		if tr, err = tr.followClone(wait); errors.Is(err, errEnded) {
			return 0, nil // a new thread has its maker's name at first
		} else if err != nil {
			return 0, err
		}
	}
	info, _ := p.Thread(tr.tid) // a name for the report only
	r := newRunner(p, e, tr, rep, info.Name)
	r.miss, r.deadline, r.corpus = s.OnMiss, deadline, s.Corpus
	if err := r.begin(s.Birth); err != nil {
		rep.Unbegun++
		return 0, r.finish()
	}
	rep.Threads++
	done, err := r.run(min(n, left))
	if ferr := r.finish(); err == nil {
		err = ferr
	}
	return done, err
}
