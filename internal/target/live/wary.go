package live

import "clrsnap/internal/mounts"

// MayBlock returns an error that is mounts.ErrMayBlock if process pid can keep whoever looks
// at it waiting for ever. It looks at the lists of its mappings and mounts, and at nothing
// that could block by itself. Of a process that cannot be opened it knows nothing.
func MayBlock(pid int) error {
	p := &Process{pid: pid, dir: -1, pidfd: -1, memFD: -1}
	defer p.Close()
	p.lead.Store(int32(pid))
	if p.identify() != nil {
		return nil
	}
	maps, err := p.readMem("maps", nil)
	if err != nil {
		return nil
	}
	return new(mounts.Checker).Check(p.dir, maps)
}
