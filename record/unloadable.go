package record

import (
	"hash/maphash"
	"strings"
	"time"

	"clrsnap/internal/arch"
	"clrsnap/internal/naming"
	"clrsnap/internal/session"
	"clrsnap/internal/target"
	"clrsnap/internal/target/live"
	"clrsnap/internal/walk"
	"clrsnap/profile"
	"clrsnap/snapshot"
)

// Code that can be unloaded (DynamicMethod, Expression.Compile, collectible assemblies) gets its name
// later than its sample, and other code may have taken its place in between. A name is given only with
// a proof that nothing has taken the place:
//
//   - the same code was there before the moment of the stack: a walk or a survey has met it;
//   - or nothing has been unloaded since the moment of the stack;
//   - or that moment is so short ago that there was no time for an unload (trustFor).
//
// In any case the code must still be there after its name was read.

// looseName is the name found for a frame in code that can be unloaded.
type looseName struct {
	location      int32
	start, method arch.Addr // of the method's code, and its MethodDesc; of a stub: the page of the stub, and 0
	name          nameSum   // 0: the name could not be read
	read          time.Duration
	proved        bool
	from          time.Duration // since when the name is proved
}

// claim is a frame without a proof of its name yet.
type claim struct {
	frame int // in frameTable.stack
	key   frameKey
}

// sight is code that was the same at each look from one time to another.
type sight struct {
	method   arch.Addr
	name     nameSum
	from, to time.Duration
}

// nameSum stands for a name, and tells methods with the same name apart.
type nameSum uint64

var nameSeed = maphash.MakeSeed()

// sum is the nameSum of a frame in code that can be unloaded; 0 for other code.
func (f *frameTable) sum(fr *walk.Frame, n *naming.NamedFrame) nameSum {
	if !fr.Code.Collectible {
		return 0
	}
	return sumOf(&n.Frame, f.places.id(fr, n))
}

// sumOf is the nameSum of a frame in an assembly whose PDB has an id.
func sumOf(n *snapshot.Frame, id [20]byte) nameSum {
	var h maphash.Hash
	h.SetSeed(nameSeed)
	h.Write(id[:])
	for _, s := range []string{n.Method, strings.TrimSuffix(n.Display, " [filter]"), n.Signature, n.Module} {
		h.WriteString(s)
		h.WriteByte(0)
	}
	return max(stubSum+1, nameSum(h.Sum64()))
}

// stubSum stands for a stub. A stub has no name: the proof is that there was a stub.
const stubSum nameSum = 1

// startOf is looseName.start of a method's code, or of code without a method met at ip: a page has
// stubs only.
func startOf(method, start, ip arch.Addr) arch.Addr {
	const page = 4096
	if method == 0 {
		return ip &^ (page - 1)
	}
	return start
}

// trustFor is how long code cannot be replaced after a thread was seen in the code. Before other code
// takes the place, the thread must return, the garbage must be collected (twice for a dynamic method),
// finalizers must run, and another method must be made and compiled. In a program with a small heap
// that does nothing else, a replacement within 5 ms was seen.
const trustFor = time.Millisecond

// maxSights bounds the entries of frameTable.seen.
const maxSights = 1 << 15

// claimed returns the location of a frame in code that can be unloaded. If the location is not proved
// for this moment, prove will prove it, or put another location in its place. For a stack from after
// the reading of the name, the name is read again.
func (f *frameTable) claimed(fr *walk.Frame, key frameKey) int32 {
	n, ok := f.loose[key]
	start := startOf(fr.Code.MethodDesc, fr.Code.MethodStart, key.ip)
	if !ok || n.start != start || n.method != fr.Code.MethodDesc || f.taken > n.read {
		l, sum, err := f.resolve(fr)
		switch {
		case err != nil:
			sum = 0
		case fr.Kind == walk.Stub:
			sum = stubSum
		}
		n = looseName{
			location: l, start: start, method: fr.Code.MethodDesc, name: sum, read: live.Monotonic(),
		}
		f.loose[key] = n
	}
	if !n.proved || f.taken < n.from {
		f.unproven = append(f.unproven, claim{len(f.stack), key})
	}
	return n.location
}

// prove replaces the names of code that may not be right for the moment of the stack. The stack is as
// complete as before: only a name is missing.
func (f *frameTable) prove() {
	if len(f.unproven) == 0 {
		return
	}
	f.p.Engine.Cache.Invalidate()
	f.p.Runtime.Begin()
	now := live.Monotonic()
	unknown := false
	for _, c := range f.unproven {
		n := f.loose[c.key]
		code, err := f.p.Engine.Code(c.key.ip, n.method)
		switch {
		case err == nil &&
			(startOf(code.MethodDesc, code.MethodStart, c.key.ip) != n.start || code.MethodDesc != n.method):
			f.stack[c.frame] = f.unnamed(profile.UnloadedCode)
			delete(f.loose, c.key)
		case err == nil && n.name != 0 && f.proved(&n, now):
			f.loose[c.key] = n
		default:
			f.stack[c.frame] = f.unnamed(profile.UnknownCode)
			unknown = true
		}
	}
	if unknown {
		f.unknown++
	}
}

// proved reports whether a name was right at the moment of the stack, and remembers the code. The name
// was read before now, and its code is still there.
func (f *frameTable) proved(n *looseName, now time.Duration) bool {
	is := sight{n.method, n.name, now, now}
	was, known := f.seen[n.start]
	if known = known && was.method == is.method && was.name == is.name; known {
		is.from = was.from
	} else {
		f.news = now
	}
	proved := is.from <= f.taken
	if !proved && (now-f.taken <= trustFor || f.unloads.noneSince(f.taken)) {
		proved, is.from = true, f.taken
	}
	if len(f.seen) < maxSights || known {
		f.seen[n.start] = is
	}
	if proved {
		n.proved, n.from = true, is.from
	}
	return proved
}

// unnamed stands for code whose name is lost, and says why.
func (f *frameTable) unnamed(why string) int32 {
	fn := profile.Function{Kind: snapshot.Managed, Display: why, Short: why}
	return f.b.Location(profile.Location{Function: f.b.Function(fn)})
}

// unloads knows since when no code has been unloaded that a thread was in.
//
// The garbage collector keeps code that is on a thread's stack (GcStackCrawlCallBack in
// src/coreclr/vm/gcenv.ee.common.cpp). A finalizer removes all other code that was in use: the
// finalizer of DynamicResolver.DestroyScout removes dynamic methods, the finalizer of
// LoaderAllocatorScout removes the code of assemblies. So the code of a thread at some moment is still
// there if the finalizer thread has not run since. The kernel tells whether a thread has run.
type unloads struct {
	p     *session.Process
	tid   int           // the finalizer thread's; 0: not known yet
	tried time.Duration // when the finalizer thread was last looked for
	count target.Proof  // the finalizer thread's count at the last look; "": nothing is known
	since time.Duration // when count first had its value
}

// findEvery is how often to look for the finalizer thread: a program that starts has no finalizer
// thread yet.
const findEvery = 100 * time.Millisecond

// look notes how often the finalizer thread has run so far.
func (u *unloads) look() {
	if u.tid == 0 && !u.find() {
		return
	}
	if count := u.p.Live.RunCount(u.tid); count != u.count {
		u.count, u.since = count, live.Monotonic()
	}
}

func (u *unloads) find() bool {
	now := live.Monotonic()
	if u.tried > 0 && now < u.tried+findEvery {
		return false
	}
	u.tried = now
	if u.p.Runtime == nil {
		return false
	}
	u.p.Engine.Cache.Invalidate()
	threads := u.p.Runtime.Threads
	at, err := threads.Finalizer()
	if err != nil || at == 0 {
		return false
	}
	t, err := threads.Read(at)
	if err != nil || t.OSID == 0 {
		return false
	}
	tid, ok := u.p.HostTID(t.OSID)
	if ok {
		u.tid = tid
	}
	return ok
}

// noneSince reports whether certainly no code has been unloaded since a moment when a thread was in
// the code.
func (u *unloads) noneSince(moment time.Duration) bool {
	return u.count != "" && u.since <= moment && u.p.Live.NotRunSince(u.tid, u.count)
}

// survey lists the code that can be unloaded, so that live code is known before its samples. That
// matters only while finalizers run: otherwise unloads has the better proof.
type survey struct {
	next  time.Duration // when to begin the next survey
	rest  time.Duration // from this survey to the next
	began time.Duration // when this survey began
	took  time.Duration // so far
	left  []arch.Addr   // starts of methods
	whole bool          // the survey has all methods
	fresh bool          // the survey has met new code
}

// How much surveys may take.
const (
	surveyEvery = time.Second            // as long as the survey before has met new code
	surveyMost  = 8 * time.Second        // twice as long after each survey without new code
	surveyShare = 100                    // surveys take 1/surveyShare of the time
	surveySlice = 2 * time.Millisecond   // at once
	surveyFirst = 250 * time.Millisecond // before the recording begins
)

// know goes on with the survey for a while, or begins a survey if the time has come.
func (f *frameTable) know(slice time.Duration) {
	v := &f.survey
	begin := live.Monotonic()
	if f.p.Runtime == nil || len(v.left) == 0 && begin < v.next {
		return
	}
	f.p.Engine.Begin()
	f.places.begin()
	if len(v.left) == 0 {
		v.began, v.took, v.fresh = begin, 0, false
		v.left, v.whole = f.p.Runtime.Code.Collectible(maxSights)
	}
	now := begin
	for len(v.left) > 0 && now < begin+slice {
		f.meet(v.left[0])
		v.left, now = v.left[1:], live.Monotonic()
	}
	v.took += now - begin
	if len(v.left) == 0 {
		if v.rest = min(2*v.rest, surveyMost); v.fresh || v.rest == 0 {
			v.rest = surveyEvery
		}
		v.next = now + max(v.rest, surveyShare*v.took)
		f.forget()
	}
}

// meet remembers the method that starts at an address.
func (f *frameTable) meet(start arch.Addr) {
	code, err := f.p.Runtime.Code.Lookup(start)
	if err != nil || !code.Kind.Managed() || code.MethodStart != start || !code.Collectible {
		return
	}
	ctx := arch.Context{Machine: f.p.Arch.Machine, IP: start}
	fr := walk.Frame{Kind: walk.Managed, Context: &ctx, Code: &code, Exact: true}
	n, err := f.p.Frame(&fr, "")
	if err != nil {
		return
	}
	sum := f.sum(&fr, &n)
	now := live.Monotonic()
	is := sight{code.MethodDesc, sum, now, now}
	was, known := f.seen[start]
	if known && was.method == is.method && was.name == is.name {
		is.from = was.from
	} else {
		f.survey.fresh = true
	}
	if known || len(f.seen) < maxSights {
		f.seen[start] = is
	}
}

// forget drops the code that neither the survey nor a walk has met since the survey began. If the
// survey may lack code, forget waits until there is no more room.
func (f *frameTable) forget() {
	if !f.survey.whole && len(f.seen) < maxSights {
		return
	}
	for start, s := range f.seen {
		if s.to < f.survey.began {
			delete(f.seen, start)
		}
	}
}
