package session

import (
	"clrsnap/internal/arch"
	"clrsnap/internal/clr/thread"
	"clrsnap/internal/moment"
)

// threadName is the name of a thread. A Thread object is used again for another thread later, with another id.
type threadName struct {
	id   int
	name string // "": no name
}

// nameTries bounds how often the names of threads are read while their objects are moved.
const nameTries = 3

// nameAgain reads the managed names of threads once more, if objects have been moved since a GC epoch from before the
// first read: any object could be at the old address of a name. If objects are moved all the time, earlier names
// count.
func (p *Process) nameAgain(threads []Thread, before moment.Epoch) {
	if !p.moments.Known() {
		return
	}
	for try := 1; !p.moments.Unmoved(before); try++ {
		if try == nameTries {
			p.nameAsBefore(threads)
			return
		}
		before = p.moments.Epoch()
		p.Engine.Cache.Invalidate()
		p.eachManaged(threads, func(t *Thread, k *thread.Thread) {
			if name, _ := p.Managed.Threads.Name(k); name != "" {
				t.Name = name
			}
		})
	}
	names := make(map[arch.Addr]threadName, len(p.names))
	p.eachManaged(threads, func(t *Thread, k *thread.Thread) {
		names[k.Address] = threadName{k.ManagedID, t.Name}
	})
	p.names = names
}

// nameAsBefore gives threads their earlier names.
func (p *Process) nameAsBefore(threads []Thread) {
	p.eachManaged(threads, func(t *Thread, k *thread.Thread) {
		if last, ok := p.names[k.Address]; ok && last.id == k.ManagedID {
			t.Name = last.name
		}
	})
}

// eachManaged calls a function with each thread that the runtime knows.
func (p *Process) eachManaged(threads []Thread, do func(*Thread, *thread.Thread)) {
	for i := range threads {
		if k, ok := p.known[threads[i].NSThreadID]; ok {
			do(&threads[i], &k)
		}
	}
}
