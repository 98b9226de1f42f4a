package profile

import "time"

// Requests is what a process's web server is serving, and which calls of HttpClient it has under way.
type Requests struct {
	Process    Process
	CapturedAt time.Time     // when the heap was begun to be read
	Duration   time.Duration // of all

	Requests []RequestGroup // those with the most requests first
	Calls    []CallGroup    // likewise
	Pools    []CallPool     // of connections to other servers; those that the most calls wait for first

	// Unproven is how many objects of requests and calls, and chains of async methods, changed or were moved each time
	// that they were read. They are left out: requests and calls may be missing, unless it is 0.
	Unproven        int
	ConsistentShare float64 // as in Heap: requests and calls in the rest may be missing
	Partial         bool    // the walk was ended early
}

// RequestGroup is requests for one path that wait in the same place.
type RequestGroup struct {
	Method string
	Path   string // the pattern of the endpoint, "/orders/{id:int}"; where it is not known, the path of all of them
	Doing  Doing

	Requests []Request // those that began first come first
}

// Doing is what requests or calls do: their async methods and what these wait for, or the stack of the thread that runs
// them.
type Doing struct {
	State    TaskState // empty: it is not known
	WaitsFor *Awaited  // what their async methods wait for
	// Wait is what the threads wait for that run requests. What differs between the requests of a group is left out.
	// nil: no thread runs them, it does not wait, or that is not known.
	Wait     *Wait
	Frames   []Frame // of the async methods, as in TaskChain; of requests that a thread runs its stack, if it is known
	Branches int     // how many other chains of async methods each has, such as those of Task.WhenAll
	Call     *CallTo // of requests: the call that they wait for; nil: none, or it is not known
}

// CallTo is a call that a request waits for.
type CallTo struct {
	Authority string // host and port
	Phase     CallPhase
}

// Request is a request that is being served.
type Request struct {
	ID       string // ASP.NET Core's TraceIdentifier, unless the application has set another
	Method   string
	Path     string
	Query    string     // from "?" on
	Protocol string     // "HTTP/1.1"
	Remote   string     // address of the connection's other end
	Since    time.Time  // zero: not known
	Thread   *ThreadRef // that runs it; nil: none does
	Aborted  bool       // the client has gone

	Answering bool // the head of the answer has been sent, or is about to be
}

// CallGroup is calls of HttpClient to one server that wait in the same place.
type CallGroup struct {
	Method    string
	Authority string // host and port
	Path      string // of all of them; "/prices/…": they begin so
	Phase     CallPhase
	Doing     Doing

	Calls []ClientCall // those that began first come first
}

// CallPhase is how far a call has come.
type CallPhase string

// The phases.
const (
	CallConnection CallPhase = "connection" // it waits for a connection: one that is free, or that is being made
	// it has one: the request is being sent, or the head of the answer has not come
	CallAnswer CallPhase = "answer"
	CallBody   CallPhase = "body" // the head of the answer has come: its body has not been read
	CallOpen   CallPhase = "open" // it has a connection: whether the head of the answer has come is not known

	CallWebSocket CallPhase = "websocket" // it has been accepted: the connection is a WebSocket, until it is closed
	CallUpgraded  CallPhase = "upgraded"  // likewise, the connection is used for something else
)

// ClientCall is a call of HttpClient that is under way.
type ClientCall struct {
	Path     string
	Query    string    // from "?" on
	Protocol string    // "HTTP/1.1" or "HTTP/2"; empty: it has no connection yet
	Remote   string    // address of the connection's other end; empty: not known
	Since    time.Time // zero: not known
	Request  string    // Request.ID of the request that it is made for; empty: none, or not known
}

// CallPool is the connections that an HttpClient's handler has to one server.
type CallPool struct {
	Authority string // host and port
	Secure    bool   // TLS
	Proxied   bool   // the connections are those to a proxy
	HTTP1     PoolConnections
	HTTP2     PoolConnections
	Queued    int // calls that wait for a connection
	Active    int // calls that have one
}

// PoolConnections are numbers of connections of one version of HTTP.
type PoolConnections struct {
	All     int // in use, idle and pending
	Pending int // of these, those that are being made
	Maximum int // 0: unlimited, or not known
}

// Age is how long before a moment something began; false: that is not known.
func Age(since, at time.Time) (time.Duration, bool) {
	if since.IsZero() {
		return 0, false
	}
	return max(0, at.Sub(since)), true
}
