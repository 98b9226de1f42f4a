package session

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"path"
	"strings"

	"clrsnap/internal/arch"
	"clrsnap/internal/procfs"
	"clrsnap/internal/target"
	"clrsnap/internal/waits"
	"clrsnap/snapshot"
)

// A named Mutex is a pthread mutex in a file that all its users map (src/coreclr/pal/src/include/pal/mutex.hpp,
// NamedMutexSharedData; sharedmemory.h). A waiter is in the system call futex. The address of the futex is in the
// mutex: at its begin in glibc, behind four bytes in musl. The word there has the owner's thread id. Behind the mutex
// are the owner's process id and, once more, the thread id, as in the owner's PID namespace. From .NET 11 on the
// second thread id is the managed thread id (System.Private.CoreLib: NamedMutex.Unix.cs), and only the owner's own
// process confirms a managed thread id.
const (
	sharedFolder  = "/.dotnet/shm/"
	muslWord      = 4
	namedPID      = 40
	namedThreadID = 48
	namedLen      = 56
	futexTIDs     = 1<<30 - 1 // the bits of a futex that are a thread id: FUTEX_TID_MASK
)

// namedMutex completes a wait for a named Mutex with the name and the owner.
func (s *Suspension) namedMutex(st *snapshot.Thread) {
	c, w := s.Capture, st.Wait
	if w == nil && s.Process.Managed.Locks != nil && s.Process.Managed.Locks.Managed() && !wakes(c) {
		// Where all waiting methods have been inlined, the system call shows the wait.
		w = &snapshot.Wait{Kind: snapshot.HandleOne, Type: "System.Threading.Mutex", Certain: true}
	}
	if w == nil || w.Kind != snapshot.HandleOne || w.Lock != 0 || c.SyscallNr != futexCall || c.SyscallArgs[0] == 0 {
		return
	}
	word := arch.Addr(c.SyscallArgs[0])
	name := s.sharedName(word)
	if name == "" {
		return
	}
	st.Wait, w.Lock = w, uint64(word)
	for _, at := range []arch.Addr{word, word - muslWord} {
		if s.ownedNamed(w, word, at, name) {
			w.Lock = uint64(at)
			return
		}
	}
	w.Detail = "named " + name
}

// nameHeld adds the names of named mutexes to the locks that a thread holds.
func (s *Suspension) nameHeld(holds []snapshot.Wait) {
	for i := range holds {
		if h := &holds[i]; h.Detail == waits.Named {
			h.Detail = strings.TrimSpace(waits.Named + " " + s.sharedName(arch.Addr(h.Lock)))
		}
	}
}

// sharedName is the name of the shared object that contains an address; "": there is none.
func (s *Suspension) sharedName(at arch.Addr) string {
	maps, err := s.Process.from.Mappings()
	if err != nil {
		return ""
	}
	for i := range maps {
		if m := &maps[i]; at >= m.Start && at < m.End && strings.Contains(m.Path, sharedFolder) {
			return path.Base(m.Path)
		}
	}
	return ""
}

// ownedNamed says who owns the named Mutex at an address. It returns false if the sources do not all confirm the
// owner.
func (s *Suspension) ownedNamed(w *snapshot.Wait, word, mutex arch.Addr, name string) bool {
	p, tid := s.Process, s.Thread.OSThreadID
	mem := target.NewReader(p.from)
	b, err := mem.Bytes(mutex, namedLen)
	if err != nil {
		return false
	}
	owner := binary.LittleEndian.Uint32(b[word-mutex:]) & futexTIDs
	pid, said := binary.LittleEndian.Uint32(b[namedPID:]), binary.LittleEndian.Uint64(b[namedThreadID:])
	if owner == 0 || pid == 0 || pid>>30 != 0 || !p.saysOwner(int(pid), int(owner), said) {
		return false
	}
	ref, holder := s.namedOwner(int(pid), int(owner))
	now, err := mem.Bytes(mutex, namedLen)
	if err != nil || !bytes.Equal(now, b) || !p.moments.Rests(tid, s.Capture.Proof) {
		w.Certain = false
		return false
	}
	w.Detail, w.Owner = "named "+name+holder, ref
	s.restsOn = []target.Region{{Base: mutex, Data: b}}
	return true
}

// saysOwner reports whether the id behind the mutex and the id in its word are of the same owner.
func (p *Process) saysOwner(pid, tid int, said uint64) bool {
	if !p.Managed.Locks.Managed() {
		return said == uint64(tid)
	}
	if own, err := p.from.NSTid(p.from.PID()); err != nil || own != pid {
		return said != 0 && said>>31 == 0
	}
	t := (people{p}).OS(tid)
	return t != nil && uint64(t.ManagedID) == said
}

// namedOwner names the owner of a Mutex: a thread of this process, or in words a thread of another process.
func (s *Suspension) namedOwner(pid, tid int) (ref *snapshot.ThreadRef, other string) {
	p := s.Process
	if own, err := p.from.NSTid(p.from.PID()); err == nil && own == pid {
		if t := (people{p}).OS(tid); t != nil {
			return (people{p}).Ref(t), ""
		}
		return (people{p}).Other(tid), ""
	}
	other = fmt.Sprintf(", held by thread %d of process %d", tid, pid)
	if p.Live == nil || !(people{p}).oneNamespace() {
		return nil, other
	}
	if d, err := procfs.Open(pid); err == nil {
		defer d.Close()
		if name, err := d.Comm(); err == nil {
			other += " (" + name + ")"
		}
	}
	return nil, other
}
