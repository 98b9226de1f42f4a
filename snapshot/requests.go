package snapshot

import "time"

// Requests is what a process's web server is serving, and the process's pending calls of HttpClient.
type Requests struct {
	Process    Process
	CapturedAt time.Time     // when the reading of the heap began
	Duration   time.Duration // of all

	Requests []RequestGroup // the groups with the most requests first
	Calls    []CallGroup    // likewise
	Pools    []CallPool     // connections to other servers; the pools with the most waiting calls first

	// Unproven is how many objects of requests and calls, and chains of async methods, changed or moved at each
	// reading. These are left out: requests and calls may be missing, unless Unproven is 0.
	Unproven int
	// CallsUnread: the process has HttpClient, and the calls cannot be read. Calls and Pools are empty.
	CallsUnread     bool
	ConsistentShare float64   // as in Heap: requests and calls in the rest may be missing
	Partial         bool      // the walk ended early
	Stop            *HeapStop // as in Tasks
}

// RequestGroup is requests for one path that wait in one place.
type RequestGroup struct {
	Method string
	Path   string // the endpoint's pattern, "/orders/{id:int}"; if not known, the path, or the common start of paths
	Doing  Doing

	Requests []Request // the earliest first
}

// Doing is what requests or calls do: their async methods with the awaited object, or the stack of the thread that
// runs the request.
type Doing struct {
	State    TaskState // empty: not known
	WaitsFor *Awaited  // what the async methods wait for
	// Wait is the wait of the threads that run requests, without what differs between the requests of a group. nil:
	// no thread runs the requests, the thread does not wait, or the wait is not known.
	Wait     *Wait
	Frames   []Frame // of the async methods, as in TaskChain; of a request on a thread the thread's stack, if known
	Branches int     // number of other chains of async methods of each request, for example by Task.WhenAll
	Call     *CallTo // of requests: the call that the requests wait for; nil: none, or not known
}

// CallTo is a call that a request waits for.
type CallTo struct {
	Authority string // host and port
	Phase     CallPhase
}

// Request is a request in progress.
type Request struct {
	ID       string // ASP.NET Core's TraceIdentifier, unless the application has set another ID
	Method   string
	Path     string
	Query    string     // from "?" on
	Protocol string     // "HTTP/1.1"
	Remote   string     // address of the connection's other end
	Since    time.Time  // zero: not known
	Thread   *ThreadRef // the thread that runs the request; nil: none
	// Aborted: the client has gone, or the server has aborted the request: HttpContext.RequestAborted is cancelled.
	// false may also mean: not known.
	Aborted bool

	Answering bool // the head of the answer is sent, or is about to be sent
}

// CallGroup is calls of HttpClient to one server that wait in one place.
type CallGroup struct {
	Method    string
	Authority string // host and port
	Path      string // of all calls; "/prices/…": all paths begin with /prices/
	Phase     CallPhase
	Doing     Doing

	Calls []ClientCall // the earliest first
}

// CallPhase is the progress of a call.
type CallPhase string

// The phases.
const (
	CallConnection CallPhase = "connection" // the call waits for a free connection, or for a new connection
	// the call has a connection: the request is being sent, or the head of the answer has not come
	CallAnswer CallPhase = "answer"
	CallBody   CallPhase = "body" // the head of the answer has come: the body has not been read
	CallOpen   CallPhase = "open" // the call has a connection: whether the head of the answer has come is not known

	CallWebSocket CallPhase = "websocket" // accepted: the connection is a WebSocket, until the WebSocket is closed
	CallUpgraded  CallPhase = "upgraded"  // accepted: the connection serves something else
)

// ClientCall is a pending call of HttpClient.
type ClientCall struct {
	Path     string
	Query    string    // from "?" on
	Protocol string    // "HTTP/1.1" or "HTTP/2"; empty: no connection yet
	Remote   string    // address of the connection's other end; empty: not known
	Since    time.Time // zero: not known
	Request  string    // Request.ID of the request behind the call; empty: none, or not known
}

// CallPool is the connections of an HttpClient's handler to one server.
type CallPool struct {
	Authority string // host and port
	Secure    bool   // TLS
	Proxied   bool   // the connections lead to a proxy
	HTTP1     PoolConnections
	HTTP2     PoolConnections
	Queued    int // calls that wait for a connection
	Active    int // calls that have a connection
}

// PoolConnections are numbers of connections of one version of HTTP.
type PoolConnections struct {
	All     int // in use, idle and pending
	Pending int // connections that are being made, also in All
	Maximum int // 0: unlimited, or not known
}

// Age is how long before a moment something began; false: not known.
func Age(since, at time.Time) (time.Duration, bool) {
	if since.IsZero() {
		return 0, false
	}
	return max(0, at.Sub(since)), true
}
