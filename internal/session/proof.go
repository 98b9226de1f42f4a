package session

import (
	"time"

	"clrsnap/internal/arch"
	"clrsnap/internal/target"
	"clrsnap/internal/target/live"
)

// images implements name.Images for a process: it recognises the files that the runtime has loaded.
type images struct{ p *Process }

// Proved implements name.Images.
func (i images) Proved(image arch.Addr) bool {
	m := i.p.Engine.Maps.Find(image)
	if m == nil { // the image has been loaded since
		if now := i.p.Remapped(); now != nil {
			m = now.Find(image)
		}
	}
	return m == nil || !m.IsFile() || i.p.from.proved(image, m)
}

// Refused implements name.Images.
func (i images) Refused(image arch.Addr, why error) { i.p.from.refused(image, why) }

// proved implements origin. A mapped file shows later writes. The runtime loads nothing before it has a thread of its
// own, and no file before the file exists and is complete: a file that the program itself compiles or copies is
// written once.
func (r running) proved(_ arch.Addr, m *target.Mapping) bool {
	const writing = 2 * time.Second // how long it takes to write a file
	made, changed, known := r.Written(m)
	loading := r.loading()
	return !known || !changed.After(loading) || made.After(loading) && changed.Sub(made) < writing
}

// loading is about when the runtime began to load assemblies: when the first thread beside the main thread was started.
func loading(p *live.Process) time.Time {
	const slack = 20 * time.Millisecond // the kernel counts in ticks
	age := live.Age(p.StartTime())
	if tids, err := p.Threads(); err == nil {
		oldest := time.Duration(0)
		for _, tid := range tids {
			if i, err := p.Thread(tid); err == nil && tid != p.PID() {
				oldest = max(oldest, live.Age(i.StartTime))
			}
		}
		if oldest > 0 {
			age = min(age, oldest)
		}
	}
	return time.Now().Add(slack - age)
}

// proved implements origin.
func (d *dump) proved(image arch.Addr, _ *target.Mapping) bool { return d.Proved(image) }

// refused implements origin.
func (d *dump) refused(image arch.Addr, why error) { d.Refuse(image, why) }
