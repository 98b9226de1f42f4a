package report

import (
	"io"
	"time"

	"clrsnap/internal/jsonwriter"
	"clrsnap/snapshot"
)

// RequestsJSON writes the requests that a process serves, and its pending calls, as one JSON document and a newline.
// The schema is stable and described in docs/json.md. Of the options only Rows and Query have an effect.
func RequestsJSON(w io.Writer, r *snapshot.Requests, o RequestsOptions) error {
	c := jsonwriter.New(w)
	c.Open(jsonRequests{
		Process: jsonProcess{
			PID: r.Process.PID, Command: r.Process.Command,
			Runtime: jsonRuntimeOf(&r.Process.Runtime), Core: jsonCoreOf(r.Process.Core),
		},
		CapturedAt: r.CapturedAt.UTC().Format(time.RFC3339Nano), Milliseconds: float64(r.Duration.Microseconds()) / 1e3,
		Unproven: r.Unproven, CallsUnread: r.CallsUnread, ConsistentShare: r.ConsistentShare, Partial: r.Partial,
		Stop: jsonHeapStopOf(r.Stop),
	})
	requests := firstOf(r.Requests, o.Rows)
	c.Text(",\n\"requests\":")
	c.List(len(requests), func(i int) {
		c.Text("\n")
		c.Value(jsonRequestGroupOf(&requests[i], r.CapturedAt, o.Query))
	})
	calls := firstOf(r.Calls, o.Rows)
	c.Text(",\n\"calls\":")
	c.List(len(calls), func(i int) { c.Text("\n"); c.Value(jsonCallGroupOf(&calls[i], r.CapturedAt, o.Query)) })
	c.Text(",\n\"pools\":")
	c.List(len(r.Pools), func(i int) { c.Text("\n"); c.Value(jsonPoolOfCalls(&r.Pools[i])) })
	c.Text("}\n")
	return c.Flush()
}

type jsonRequests struct {
	Process         jsonProcess   `json:"process"`
	CapturedAt      string        `json:"capturedAt"`
	Milliseconds    float64       `json:"durationMilliseconds"`
	Unproven        int           `json:"unproven,omitempty"`
	CallsUnread     bool          `json:"callsUnread,omitempty"`
	ConsistentShare float64       `json:"consistentShare"`
	Partial         bool          `json:"partial,omitempty"`
	Stop            *jsonHeapStop `json:"stop,omitempty"`
}

// jsonDoing is the work of requests or calls.
type jsonDoing struct {
	State    snapshot.TaskState `json:"state,omitempty"`
	WaitsFor *jsonAwaited       `json:"waitsFor,omitempty"`
	Wait     *jsonWait          `json:"wait,omitempty"`
	Branches int                `json:"branches,omitempty"`
	Call     *jsonCallTo        `json:"call,omitempty"`
	Frames   []*jsonFrame       `json:"frames"`
}

type jsonCallTo struct {
	Authority string             `json:"authority"`
	Phase     snapshot.CallPhase `json:"phase"`
}

type jsonRequestGroup struct {
	Count  int    `json:"count"`
	Method string `json:"method"`
	Path   string `json:"path"`
	jsonDoing
	Requests []jsonRequest `json:"requests"`
}

type jsonRequest struct {
	ID       string     `json:"id"`
	Method   string     `json:"method"`
	Path     string     `json:"path"`
	Query    string     `json:"query,omitempty"`
	Protocol string     `json:"protocol,omitempty"`
	Remote   string     `json:"remote,omitempty"`
	Since    string     `json:"since,omitempty"`
	Age      *int64     `json:"ageMilliseconds,omitempty"`
	Thread   *jsonOwner `json:"thread,omitempty"`
	Aborted  bool       `json:"aborted,omitempty"`

	Answering bool `json:"answering,omitempty"`
}

type jsonCallGroup struct {
	Count     int                `json:"count"`
	Method    string             `json:"method"`
	Authority string             `json:"authority"`
	Path      string             `json:"path"`
	Phase     snapshot.CallPhase `json:"phase"`
	jsonDoing
	Calls []jsonClientCall `json:"calls"`
}

type jsonClientCall struct {
	Path     string `json:"path"`
	Query    string `json:"query,omitempty"`
	Protocol string `json:"protocol,omitempty"`
	Remote   string `json:"remote,omitempty"`
	Since    string `json:"since,omitempty"`
	Age      *int64 `json:"ageMilliseconds,omitempty"`
	Request  string `json:"request,omitempty"`
}

type jsonCallPool struct {
	Authority string              `json:"authority"`
	Secure    bool                `json:"secure,omitempty"`
	Proxied   bool                `json:"proxied,omitempty"`
	Active    int                 `json:"active"`
	Queued    int                 `json:"queued"`
	HTTP1     jsonPoolConnections `json:"http1"`
	HTTP2     jsonPoolConnections `json:"http2"`
}

type jsonPoolConnections struct {
	All     int `json:"all"`
	Pending int `json:"pending"`
	Maximum int `json:"maximum,omitempty"`
}

func jsonDoingOf(d *snapshot.Doing) jsonDoing {
	c := jsonChainOf(&snapshot.TaskChain{State: d.State, WaitsFor: d.WaitsFor, Frames: d.Frames})
	out := jsonDoing{
		State: d.State, WaitsFor: c.WaitsFor, Wait: jsonWaitOf(d.Wait), Branches: d.Branches, Frames: c.Frames,
	}
	if d.Call != nil {
		out.Call = &jsonCallTo{d.Call.Authority, d.Call.Phase}
	}
	return out
}

// jsonSince is when something began, and how long it has been under way; "" and nil: not known.
func jsonSince(since, at time.Time) (string, *int64) {
	d, ok := snapshot.Age(since, at)
	if !ok {
		return "", nil
	}
	return since.UTC().Format(time.RFC3339Nano), milliseconds(d, true)
}

func jsonRequestGroupOf(g *snapshot.RequestGroup, at time.Time, query bool) jsonRequestGroup {
	out := jsonRequestGroup{
		Count: len(g.Requests), Method: g.Method, Path: g.Path, jsonDoing: jsonDoingOf(&g.Doing),
		Requests: make([]jsonRequest, len(g.Requests)),
	}
	for i := range g.Requests {
		r := &g.Requests[i]
		x := jsonRequest{
			ID: r.ID, Method: r.Method, Path: r.Path, Protocol: r.Protocol, Remote: r.Remote, Aborted: r.Aborted,
			Answering: r.Answering,
		}
		if query {
			x.Query = r.Query
		}
		if r.Thread != nil {
			x.Thread = &jsonOwner{
				OSThreadID: r.Thread.OSThreadID, ManagedThreadID: r.Thread.ManagedThreadID, Name: r.Thread.Name,
			}
		}
		x.Since, x.Age = jsonSince(r.Since, at)
		out.Requests[i] = x
	}
	return out
}

func jsonCallGroupOf(g *snapshot.CallGroup, at time.Time, query bool) jsonCallGroup {
	out := jsonCallGroup{
		Count: len(g.Calls), Method: g.Method, Authority: g.Authority, Path: g.Path, Phase: g.Phase,
		jsonDoing: jsonDoingOf(&g.Doing), Calls: make([]jsonClientCall, len(g.Calls)),
	}
	for i := range g.Calls {
		c := &g.Calls[i]
		x := jsonClientCall{Path: c.Path, Protocol: c.Protocol, Remote: c.Remote, Request: c.Request}
		if query {
			x.Query = c.Query
		}
		x.Since, x.Age = jsonSince(c.Since, at)
		out.Calls[i] = x
	}
	return out
}

func jsonPoolOfCalls(p *snapshot.CallPool) jsonCallPool {
	return jsonCallPool{
		Authority: p.Authority, Secure: p.Secure, Proxied: p.Proxied, Active: p.Active, Queued: p.Queued,
		HTTP1: jsonPoolConnections(p.HTTP1), HTTP2: jsonPoolConnections(p.HTTP2),
	}
}
