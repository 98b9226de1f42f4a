package web

import (
	"fmt"
	"net/netip"
	"strings"

	"clrsnap/internal/arch"
	"clrsnap/internal/clr/object"
)

// Request is a request that Kestrel is serving.
type Request struct {
	Object   arch.Addr // Kestrel's, at that moment
	ID       string    // like Kestrel's TraceIdentifier: the connection's id, and a number of the request; unique
	Method   string
	Path     string // with the path base of the application; "*" and the like as received
	Query    string // from "?" on
	Route    string // the pattern of the endpoint, such as "/orders/{id:int}"; "": not known
	Protocol string // "HTTP/1.1"
	Remote   netip.AddrPort
	Start    Start
	Aborted  bool // the client has gone, or the server has aborted the request; false may also mean: not known

	Answering bool // the head of the answer has been sent, or is complete and will be sent
}

// Fields of Kestrel.
const (
	hostContext = "<Microsoft.AspNetCore.Hosting.Server.Abstractions.IHostContextContainer<TContext>.HostContext>" +
		"k__BackingField"
	ownField = "<HttpResponseControl>k__BackingField" // refers to the object itself
)

// headCommitted is RequestProcessingStatus.HeadersCommitted (Internal/Http/RequestProcessingStatus.cs). Later statuses
// are higher.
const headCommitted = 4

// Moved returns the current address of a Server object, if the collector has moved the object and its old copy is at
// obj. Otherwise Moved returns obj.
func (r *Reader) Moved(obj arch.Addr) (arch.Addr, error) {
	c, err := r.server(obj)
	if err != nil {
		return 0, err
	}
	self, class, err := r.reference(obj, c, ownField)
	if err != nil || self == 0 || class.Table != c.Table {
		return obj, nil
	}
	return self, nil
}

// IsServer reports whether an object is a Server.
func (r *Reader) IsServer(obj arch.Addr) bool {
	_, err := r.server(obj)
	return err == nil
}

func (r *Reader) server(obj arch.Addr) (*object.Class, error) {
	c, err := r.objects.Class(obj)
	if err != nil {
		return nil, err
	}
	if KindOf(c) != Server {
		return nil, errOther
	}
	return c, nil
}

// ID returns the Request.ID of the request that an object of Kestrel serves, or has served last.
func (r *Reader) ID(obj arch.Addr) (string, error) {
	c, err := r.server(obj)
	if err != nil {
		return "", err
	}
	return r.id(obj, c)
}

func (r *Reader) id(obj arch.Addr, c *object.Class) (string, error) {
	s, err := r.sequence(obj, c)
	switch {
	case err != nil:
		return "", err
	case s.step == 0:
		return fmt.Sprintf("%s:%v", s.connection, obj), nil
	}
	return fmt.Sprintf("%s:%08X", s.connection, s.number), nil
}

// sequence is the number of a request in a connection. Numbers of HTTP/1.1 grow by one, numbers of HTTP/2 streams by
// two (RFC 9113, 5.1.1), numbers of HTTP/3 streams by four (RFC 9000, 2.1).
type sequence struct {
	connection string
	number     uint32
	step       int // 0: the number is not known
}

func (r *Reader) sequence(obj arch.Addr, c *object.Class) (s sequence, err error) {
	context, class, err := r.reference(obj, c, "_context")
	if err != nil || context == 0 {
		return s, errOther
	}
	if s.connection, err = r.text(context, class, "<ConnectionId>k__BackingField"); err != nil {
		return s, err
	}
	var ok bool
	if s.number, ok, err = r.number(obj, c, "_requestCount"); err != nil || ok {
		s.step = 1
		return s, err
	}
	if s.number, ok, err = r.number(context, class, "<StreamId>k__BackingField"); err != nil || ok {
		s.step = 2
		return s, err
	}
	// HTTP/3: the transport has the number (Transport.Quic, QuicStreamContext.FeatureCollection.cs)
	stream, class, err := r.reference(context, class, "<StreamContext>k__BackingField")
	if err != nil || stream == 0 {
		return s, err
	}
	if s.number, ok, err = r.number(stream, class, "<StreamId>k__BackingField"); ok {
		s.step = 4
	}
	return s, err
}

// Begun returns a connection's id, and how many requests the connection has begun up to the latest request of a Server
// object. 0: not known. serving: the object serves a request. Without a request, an object of HTTP/1.1 already has the
// number of the next request (Http1Connection.cs, BeginRequestProcessing).
func (r *Reader) Begun(obj arch.Addr, serving bool) (connection string, begun int, err error) {
	c, err := r.server(obj)
	if err != nil {
		return "", 0, err
	}
	s, err := r.sequence(obj, c)
	if err != nil || s.step == 0 {
		return "", 0, err
	}
	switch begun = int(s.number); {
	case s.step == 1 && !serving:
		begun = max(begun-1, 0)
	case s.step == 2:
		begun = (begun + 1) / 2
	case s.step == 4:
		begun = begun/4 + 1
	}
	return s.connection, begun, nil
}

// Request reads the request that an object of Kestrel serves; nil: the object serves none.
func (r *Reader) Request(obj arch.Addr) (*Request, error) {
	c, err := r.server(obj)
	if err != nil {
		return nil, err
	}
	host, class, err := r.reference(obj, c, hostContext)
	if err != nil || host == 0 {
		return nil, err
	}
	if serves, err := r.serves(host, class, obj); err != nil || !serves {
		return nil, err
	}
	out := &Request{Object: obj}
	if out.ID, err = r.id(obj, c); err != nil {
		return nil, err
	}
	if err := r.line(out, c); err != nil {
		return nil, err
	}
	if out.Start, err = r.start(host, class); err != nil {
		return nil, err
	}
	if end, class, err := r.follow(obj, c, "_context", "<RemoteEndPoint>k__BackingField"); err == nil && end != 0 {
		out.Remote, _ = r.endPoint(end, class)
	}
	if pattern, class, err := r.follow(obj, c, "_endpoint", "<RoutePattern>k__BackingField"); err == nil &&
		pattern != 0 {
		out.Route, _ = r.text(pattern, class, "<RawText>k__BackingField")
	}
	status, _, err := r.number(obj, c, "_requestProcessingStatus")
	if err != nil {
		return nil, err
	}
	out.Answering = status >= headCommitted
	out.Aborted, err = r.aborted(obj, c)
	return out, err
}

// aborted reports whether HttpContext.RequestAborted says that nobody waits for the answer. Kestrel sets
// _connectionAborted at the end or reset of an HTTP/1 connection, at the reset of a stream, at the end of a stream's
// connection, and if the server itself aborts. The flag of a stream is cleared for the next request. A stream's
// _completionState does not tell: the server sets its Aborted flag also where nobody has gone. Kestrel sets
// _preventRequestAbortedCancellation before the end of an answer is written, unless the connection was aborted before:
// such a client has the answer (Internal/Http/HttpProtocol.cs, CancelRequestAbortedToken and
// PreventRequestAbortedCancellation; Internal/Http2/Http2Stream.cs).
func (r *Reader) aborted(obj arch.Addr, c *object.Class) (bool, error) {
	aborted, _, err := r.flag(obj, c, "_connectionAborted")
	if err != nil || aborted != 1 {
		return false, err
	}
	answered, _, err := r.flag(obj, c, "_preventRequestAbortedCancellation")
	return err == nil && answered == 0, err
}

// serves reports whether the HttpContext in a HostingApplication.Context is active, and belongs to an object of
// Kestrel. The server activates the HttpContext before the application's first code runs, and ends it after the last.
func (r *Reader) serves(host arch.Addr, c *object.Class, server arch.Addr) (bool, error) {
	context, class, err := r.reference(host, c, "<HttpContext>k__BackingField")
	if err != nil || context == 0 {
		return false, err
	}
	active, ok, err := r.flag(context, class, "_active")
	if err != nil || !ok || active != 1 {
		return false, err
	}
	words, err := r.words(context, class, "_features", 2)
	if err != nil {
		return false, err
	}
	for _, w := range words {
		if w == server {
			return true, nil
		}
	}
	return false, nil
}

// line reads the first line of the request.
func (r *Reader) line(out *Request, c *object.Class) error {
	obj := out.Object
	var err error
	if out.Method, err = r.text(obj, c, "_methodText"); err != nil {
		return err
	}
	if out.Method == "" {
		m, ok, err := r.flag(obj, c, "<Method>k__BackingField")
		if err != nil {
			return err
		}
		if ok && int(m) < len(methods) {
			out.Method = methods[m]
		}
	}
	version, ok, err := r.flag(obj, c, "_httpVersion")
	if err != nil {
		return err
	}
	if ok && int(version) < len(protocols) {
		out.Protocol = protocols[version]
	}
	return r.target(out, c)
}

// methods are the names of Kestrel's HttpMethod, by number (Internal/Http/HttpMethod.cs). Kestrel has the text of any
// other method, and the text of these methods once the program has asked for the text.
var methods = []string{"GET", "PUT", "DELETE", "POST", "HEAD", "TRACE", "PATCH", "CONNECT", "OPTIONS"}

// protocols are the names of Kestrel's HttpVersion, by number (Internal/Http/HttpVersion.cs).
var protocols = []string{"HTTP/1.0", "HTTP/1.1", "HTTP/2", "HTTP/3"}

// target reads the path and the query. The application may have changed both for the following code: UsePathBase
// moves the beginning of the path to the path base.
func (r *Reader) target(out *Request, c *object.Class) error {
	base, err := r.text(out.Object, c, "<PathBase>k__BackingField")
	if err != nil {
		return err
	}
	if out.Path, err = r.text(out.Object, c, "<Path>k__BackingField"); err != nil {
		return err
	}
	if out.Query, err = r.text(out.Object, c, "<QueryString>k__BackingField"); err != nil {
		return err
	}
	if out.Path = base + out.Path; out.Path != "" {
		return nil
	}
	raw, err := r.text(out.Object, c, "<RawTarget>k__BackingField")
	out.Path, _, _ = strings.Cut(raw, "?")
	return err
}

// start reads when a request began: by the clock of the listeners to metrics, events or logs, or else by the
// request's activity. There is an activity if anything is logged at all.
func (r *Reader) start(host arch.Addr, c *object.Class) (s Start, err error) {
	if _, err := r.objects.Offset(c, "<StartTimestamp>k__BackingField"); err == nil {
		ticks, err := r.objects.Pointer(host, c, "<StartTimestamp>k__BackingField")
		if err != nil {
			return s, err
		}
		s.Ticks = int64(ticks)
	}
	at, _, err := r.follow(host, c, "HttpActivityFeature", "<Activity>k__BackingField")
	if err != nil || at == 0 {
		return s, err
	}
	s.UTC, err = r.Activity(at)
	return s, err
}
