package origin

import (
	"errors"
	"slices"

	"clrsnap/internal/arch"
	"clrsnap/internal/target"
	"clrsnap/internal/target/live"
)

// Standing is a running process whose threads all stand still: as in a core dump, nothing changes. Only the kernel
// still tells the targets of descriptors.
type Standing struct {
	running
	threads map[int]*target.Capture
	infos   map[int]target.ThreadInfo // as before the stop
	tids    []int
	maps    target.Mappings // nil: not read yet
	buf     []byte          // holds the stack of the last capture
}

func (s *Standing) TryBlocked(*target.Request, *target.Capture) error { return errStands }
func (s *Standing) Threads() ([]int, error)                           { return s.tids, nil }

var errStands = errors.New("the threads stand still, and need not be stopped")

// Thread implements Origin. The kernel says of each thread that a debugger has stopped it: the state before the stop
// counts.
func (s *Standing) Thread(tid int) (target.ThreadInfo, error) {
	if info, ok := s.infos[tid]; ok {
		return info, nil
	}
	return target.ThreadInfo{}, &target.ThreadError{TID: tid, Err: target.ErrThreadExited}
}

// Capture implements Origin. The pieces of stack are valid until the next capture.
func (s *Standing) Capture(req *target.Request, out *target.Capture) error {
	t, ok := s.threads[req.TID]
	if !ok {
		return &target.ThreadError{TID: req.TID, Err: target.ErrThreadExited}
	}
	return captureStill(s, &stillThread{t.Context, t.SyscallNr, req.HeadLen, &s.buf}, req, out)
}

// Mappings implements Origin: no mapping comes or goes.
func (s *Standing) Mappings() (_ target.Mappings, err error) {
	if s.maps == nil {
		s.maps, err = s.running.Mappings()
	}
	return s.maps, err
}

// Dumped is how many of the n bytes at addr are mapped, from addr on.
func (s *Standing) Dumped(addr arch.Addr, n int) int {
	maps, err := s.Mappings()
	if err != nil {
		return 0
	}
	at, end := addr, addr+arch.Addr(n)
	for at < end {
		m := maps.Find(at)
		if m == nil {
			break
		}
		at = min(m.End, end)
	}
	return int(at - addr)
}

// Stand returns the origin of a running process while all its threads stand still. infos has the
// threads as before the stop; the threads that have started since are added.
func Stand(of Origin, all live.Standing, infos map[int]target.ThreadInfo) *Standing {
	s := &Standing{running: of.(running), threads: map[int]*target.Capture{}, infos: infos}
	for i := range all.Threads {
		tid := all.Threads[i].TID
		if _, ok := infos[tid]; !ok { // the thread has started since
			infos[tid], _ = s.running.Thread(tid)
		}
		s.threads[tid] = &all.Threads[i]
		s.tids = append(s.tids, tid)
	}
	slices.Sort(s.tids)
	return s
}
