package requests

import (
	"context"
	"net/netip"
	"time"

	"clrsnap/internal/arch"
	"clrsnap/internal/clr/web"
	"clrsnap/internal/moment"
	"clrsnap/internal/session"
	"clrsnap/internal/target/live"
	"clrsnap/internal/tasks"
	"clrsnap/snapshot"
)

// The classes of objects that are read besides the objects of async methods.
const (
	serverClass = tasks.OtherClasses + iota
	clientPoolClass
	connectionClass
)

// webClasses are the classes of package web's objects.
var webClasses = map[web.Kind]tasks.Class{
	web.Server: serverClass, web.Pool: clientPoolClass, web.Connection: connectionClass, web.Stream: connectionClass,
}

// walk is one walk of Find.
type walk struct {
	*tasks.Walk
	p       *session.Process
	ctx     context.Context
	web     *web.Reader
	threads servingThreads
	roles   map[arch.Addr]web.Role // of async methods, by roleKey

	requests map[string]*served      // by their id
	waiting  map[uint64]WaitingChain // as InFlight.Waiting; nil: not asked for
	counts   map[string]int          // as InFlight.Begun; nil: not asked for
	known    map[string]*served      // likewise, of earlier walks
	servers  map[arch.Addr]bool      // Kestrel's objects of requests, at their current addresses
	found    map[arch.Addr]*sent     // calls by HttpRequestMessage: pools and connections lead to the message
	made     []*sent                 // calls of chains; a call may have been read several times
	pools    map[arch.Addr]*pooled
	room     int                           // bytes left for requests and calls
	rests    int                           // how often reading has waited for the collector
	makes    map[*snapshot.TaskChain]*sent // the call of a chain
	of       chainOf                       // of the latest chain
	listed   []*sent                       // calls, also calls of earlier walks that this walk may have missed
	own      int                           // how many calls of listed this walk has read
	fresh    int                           // calls missed by earlier walks, though begun before
	ageless  int                           // likewise, calls with an unknown begin
	boot     time.Time                     // when the machine began, by the wall clock: the same for all walks

	callsUnread bool // there is HttpClient, and its objects are not read

	lost  int  // Kestrel's objects that could not be read
	gone  int  // other objects that were moved before the read, and cannot be found any more
	still bool // nothing was moved from before the walk until after reading
	whole bool // the walk has certainly met all existing objects
}

// chainOf is the purpose of a chain.
type chainOf struct {
	server arch.Addr
	id     string // of the request
	frame  int    // of the serving method
	call   *sent  // nil: the chain makes no call
}

// served is a request and the chains of its async methods.
type served struct {
	web.Request
	chains []*snapshot.TaskChain
}

// maxRequestBytes bounds the kept requests, calls and queues, in bytes: 500,000 requests have room.
const maxRequestBytes = 256 << 20

// keep takes the room for some texts and further bytes. false: there is not enough room.
func (w *walk) keep(bytes int, texts ...string) bool {
	for _, s := range texts {
		bytes += len(s)
	}
	w.room -= bytes
	w.Full = w.Full || w.room < 0
	return !w.Full
}

// Reading is tried patience times, and waits for the end of a collection: a collection of the youngest objects takes
// some ms. In one walk there are mostRests waits at most, 5 s in all.
const (
	patience  = 10
	restFor   = 2 * time.Millisecond
	mostRests = 2500
	longest   = 50 // waits for one collection; the collector may have to wait for a processor
)

// patiently is moment.Reader.Read, with further tries after a collection in progress.
func (w *walk) patiently(read func() error) bool {
	for try := range patience {
		w.settle()
		if w.p.Moments().Read(read, nil) {
			return true
		}
		if !w.p.Moments().Changes() || w.Stopped() || w.p.Moments().Settled() && try > 0 {
			break // the collector is not the reason
		}
	}
	return false
}

// settle waits for the end of a collection that moves objects.
func (w *walk) settle() {
	w.p.Moments().Calm(longest, func() bool {
		if w.rests >= mostRests || w.Stopped() {
			return false
		}
		w.rests++
		session.Sleep(w.ctx, restFor)
		return true
	})
}

// since is when something began. Zero: the time is not known, or makes no sense.
func (w *walk) since(s web.Start) time.Time {
	at := s.UTC
	if s.Ticks > 0 && w.p.RunningProcess() != nil {
		at = time.Now().Add(time.Duration(s.Ticks) - live.Monotonic())
	}
	return w.believed(at)
}

// maxAhead is how far a clock of the target may seem to be ahead of ours.
const maxAhead = time.Second

// believed leaves out impossible times, after the moment of the look or of the dump.
func (w *walk) believed(at time.Time) time.Time {
	if at.After(w.p.CapturedAt(time.Now()).Add(maxAhead)) {
		return time.Time{}
	}
	return at
}

// sent is a call of HttpClient.
type sent struct {
	web.Message
	pool    arch.Addr
	phase   snapshot.CallPhase
	use     *web.Use // nil: no connection, or unknown
	chains  []*snapshot.TaskChain
	request string
	object  arch.Addr    // the HttpRequestMessage, at its address when the call was read
	sending bool         // known by the sending method: the answer has not begun
	epoch   moment.Epoch // at which the call was read; 0: unknown
	missed  int          // number of walks that have missed the call since the last reading
	since   time.Time    // when the call began; zero: unknown
	seen    time.Time    // when the call was read
	server  string       // destination of the call, as of the walk that has read the call
}

// pooled is a pool, with the number of calls that have a connection of the pool.
type pooled struct {
	web.PoolState
	active int
}

// servingThreads are the threads that run requests.
type servingThreads struct {
	by       map[string]*snapshot.Thread // by the id of the request
	blocking bool                        // a thread is in a call of HttpClient that returns only with the answer
}

const httpAssembly = "System.Net.Http"

func addressText(a netip.AddrPort) string {
	if !a.IsValid() {
		return ""
	}
	return netip.AddrPortFrom(a.Addr().Unmap(), a.Port()).String()
}
