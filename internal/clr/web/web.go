package web

import (
	"errors"
	"net/netip"
	"strings"
	"time"

	"clrsnap/internal/arch"
	"clrsnap/internal/clr/object"
)

// Kind is the reason for reading objects of a class.
type Kind uint8

// The kinds.
const (
	None       Kind = iota
	Server          // Kestrel's object for a connection or a stream
	Pool            // of outgoing connections
	Connection      // an outgoing connection of HTTP/1
	Stream          // of an outgoing connection of HTTP/2
)

// Assemblies.
const (
	kestrel = "Microsoft.AspNetCore.Server.Kestrel.Core"
	http    = "System.Net.Http"
	coreLib = "System.Private.CoreLib"

	diagnostics = "System.Diagnostics.DiagnosticSource"
)

// kinds are the classes, by their assemblies and names.
var kinds = []struct {
	assembly, name string
	kind           Kind
}{
	{kestrel, kestrel + ".Internal.Http.HttpProtocol", Server},
	{http, "System.Net.Http.HttpConnectionPool", Pool},
	{http, "System.Net.Http.HttpConnection", Connection},
	{http, "System.Net.Http.Http2Connection+Http2Stream", Stream},
}

// KindOf returns the Kind of a class. Derived classes have the Kind of their base.
func KindOf(c *object.Class) Kind {
	for b := range c.Bases {
		for i := range kinds {
			if b.Assembly == kinds[i].assembly && b.Plain() == kinds[i].name {
				return kinds[i].kind
			}
		}
	}
	return None
}

// Role is the task of an async method for a request or a call.
type Role uint8

// The roles.
const (
	NoRole     Role = iota
	Serving         // serves the requests of a connection, or the request of a stream: "this" is Kestrel's object
	Sending         // sends a call with a connection of a pool: "this" is the pool, "request" the message
	Exchanging      // of a connection, for a call on the connection: "this" is the connection
	Reading         // of a connection or a stream, or of the body read from it: "this" leads to the call
	Calling         // HttpClient's method: "cts" ends the method at a timeout
	Tracing         // of DiagnosticsHandler: "activity" began with the call
)

// roles are the methods with a role, by their assemblies, types and names. "": any method of the type; anyNested:
// also any method of a nested type.
var roles = []struct {
	assembly, typ, method string
	role                  Role
}{
	{kestrel, kestrel + ".Internal.Http.HttpProtocol", "ProcessRequests", Serving},
	{http, "System.Net.Http.HttpConnectionPool", "SendWithVersionDetectionAndRetryAsync", Sending},
	{http, "System.Net.Http.HttpConnection", "SendAsync", Exchanging},
	{http, "System.Net.Http.Http2Connection", "SendAsync", Exchanging},
	{http, "System.Net.Http.HttpConnection", anyNested, Reading},
	{http, "System.Net.Http.Http2Connection+Http2Stream", anyNested, Reading},
	{http, "System.Net.Http.HttpClient", "", Calling},
	{http, "System.Net.Http.DiagnosticsHandler", "", Tracing},
}

// RoleOf returns the role of an async method, by its metadata name, or by the name of the type of its state machine:
// Type.Method, or Type+<Method>d__3.
func RoleOf(assembly, name string) Role {
	for i := range roles {
		r := &roles[i]
		if r.assembly != assembly {
			continue
		}
		rest, ok := strings.CutPrefix(name, r.typ)
		if !ok {
			continue
		}
		if r.method == anyNested && rest != "" && (rest[0] == '.' || rest[0] == '+') {
			return r.role
		}
		if rest, ok = cutOne(rest, "+<", "."); !ok {
			continue
		}
		if r.method == "" {
			return r.role
		}
		rest, ok = strings.CutPrefix(rest, r.method)
		if ok && (rest == "" || strings.ContainsRune(endsName, rune(rest[0]))) {
			return r.role
		}
	}
	return NoRole
}

const anyNested = "*"

// endsName has the characters that may follow the name of a method: of a state machine, or of type arguments.
const endsName = "><["

func cutOne(s string, prefixes ...string) (rest string, ok bool) {
	for _, p := range prefixes {
		if rest, ok = strings.CutPrefix(s, p); ok {
			return rest, true
		}
	}
	return s, false
}

// Local is a variable of a method with a role.
type Local uint8

// The variables.
const (
	ProtocolVar Local = iota // "this" of a method that serves
	PoolVar                  // likewise, that sends: the pool
	ChannelVar               // likewise, that exchanges: the connection
	CarrierVar               // likewise, that reads: the argument of Carrier
	MessageVar               // the message of a call
	RemoteVar                // the connection that a sending method has got
	TimeoutVar               // the source that ends a call at a timeout
	SharedVar                // the source that ends all calls of a client
	SpanVar                  // the activity of a call
)

// locals are the variables' names in the source, also the names of state machines' fields, and their classes. Among
// the saved objects of a method that the runtime itself suspends, a variable is known by its class.
var locals = [...]struct {
	name string
	is   func(*object.Class) bool
}{
	ProtocolVar: {"this", func(c *object.Class) bool { return KindOf(c) == Server }},
	PoolVar:     {"this", func(c *object.Class) bool { return KindOf(c) == Pool }},
	ChannelVar:  {"this", isConnection},
	CarrierVar:  {"this", isCarrier},
	MessageVar:  {"request", func(c *object.Class) bool { return c.Is(http, messageClass) }},
	RemoteVar:   {"connection", isConnection},
	TimeoutVar:  {"cts", isSource},
	SharedVar:   {"pendingRequestsCts", isSource},
	SpanVar:     {"activity", func(c *object.Class) bool { return c.Is(diagnostics, activityClass) }},
}

// Name is the name of a variable in the source.
func (l Local) Name() string { return locals[l].name }

// Is reports whether a variable may lead to an object of a class.
func (l Local) Is(c *object.Class) bool { return locals[l].is(c) }

func isConnection(c *object.Class) bool { return KindOf(c) == Connection || c.Is(http, http2Class) }

func isCarrier(c *object.Class) bool {
	k := KindOf(c)
	return k == Connection || k == Stream || c.Is(http, contentClass)
}

func isSource(c *object.Class) bool { return c.Is(coreLib, sourceClass) }

// Classes.
const (
	messageClass  = "System.Net.Http.HttpRequestMessage"
	contentClass  = "System.Net.Http.HttpContentStream"
	http2Class    = "System.Net.Http.Http2Connection"
	sourceClass   = "System.Threading.CancellationTokenSource"
	activityClass = "System.Diagnostics.Activity"
)

// Reader reads these objects, as memory has them at some moment, like object.Reader. A Reader is not safe for
// concurrent use.
type Reader struct{ objects *object.Reader }

// New returns a Reader that reads by objects.
func New(objects *object.Reader) *Reader { return &Reader{objects} }

// errOther: an object does not have the expected class.
var errOther = errors.New("an object of another class")

// Start is when something began.
type Start struct {
	Ticks int64     // of Stopwatch: ns since the machine's start (CLOCK_MONOTONIC); 0: not known
	UTC   time.Time // by the wall clock; zero: not known
}

// maxText bounds the strings that are read, in UTF-16 code units: Kestrel's default limit of a request line is 8 KB.
const maxText = 16 << 10

// text reads the string in a field; "": the field is null, or missing.
func (r *Reader) text(obj arch.Addr, c *object.Class, field string) (string, error) {
	if _, err := r.objects.Offset(c, field); err != nil {
		return "", nil
	}
	at, err := r.objects.Pointer(obj, c, field)
	if err != nil || at == 0 {
		return "", err
	}
	s, cut, err := r.objects.Text(at, maxText)
	if cut {
		s += "…"
	}
	return s, err
}

// reference reads the reference in a field, and the class of the referenced object. 0: the field is null, or missing.
func (r *Reader) reference(obj arch.Addr, c *object.Class, field string) (arch.Addr, *object.Class, error) {
	if _, err := r.objects.Offset(c, field); err != nil {
		return 0, nil, nil
	}
	at, err := r.objects.Pointer(obj, c, field)
	if err != nil || at == 0 {
		return 0, nil, err
	}
	class, err := r.objects.Class(at)
	return at, class, err
}

// follow follows references from field to field. 0: a field is null, or missing.
func (r *Reader) follow(obj arch.Addr, c *object.Class, fields ...string) (arch.Addr, *object.Class, error) {
	for _, f := range fields {
		var err error
		if obj, c, err = r.reference(obj, c, f); err != nil || obj == 0 {
			return 0, nil, err
		}
	}
	return obj, c, nil
}

// flag reads a field of one byte. false: the field is missing.
func (r *Reader) flag(obj arch.Addr, c *object.Class, field string) (v byte, ok bool, err error) {
	if _, err := r.objects.Offset(c, field); err != nil {
		return 0, false, nil
	}
	w, err := r.objects.Uint32(obj, c, field)
	return byte(w), err == nil, err
}

// number reads a field of four bytes. false: the field is missing.
func (r *Reader) number(obj arch.Addr, c *object.Class, field string) (v uint32, ok bool, err error) {
	if _, err := r.objects.Offset(c, field); err != nil {
		return 0, false, nil
	}
	v, err = r.objects.Uint32(obj, c, field)
	return v, err == nil, err
}

// words returns the words of a struct in an object's field: up to the next field, but no more than most.
func (r *Reader) words(obj arch.Addr, c *object.Class, field string, most int) ([]arch.Addr, error) {
	fields, err := r.objects.FieldsOf(c)
	if err != nil {
		return nil, err
	}
	start, err := r.objects.Offset(c, field)
	if err != nil {
		return nil, nil
	}
	end := start + uint32(8*most)
	for i := range fields {
		if o := fields[i].Offset; o > start {
			end = min(end, o)
		}
	}
	var out []arch.Addr
	for at := start; at+8 <= end; at += 8 {
		w, err := r.objects.Word(obj + arch.Addr(at))
		if err != nil {
			return nil, err
		}
		out = append(out, w)
	}
	return out, nil
}

// endPoint reads an IPEndPoint. The result is invalid if the object is no IPEndPoint, or has no address.
func (r *Reader) endPoint(obj arch.Addr, c *object.Class) (netip.AddrPort, error) {
	if obj == 0 || c.Display != "System.Net.IPEndPoint" {
		return netip.AddrPort{}, nil
	}
	port, ok, err := r.number(obj, c, "_port")
	if err != nil || !ok || port > 0xffff {
		return netip.AddrPort{}, err
	}
	address, class, err := r.reference(obj, c, "_address")
	if err != nil || address == 0 {
		return netip.AddrPort{}, err
	}
	ip, err := r.address(address, class)
	return netip.AddrPortFrom(ip, uint16(port)), err
}

// address reads an IPAddress: the four bytes of an IPv4 address in network order, or eight numbers in the machine's
// order (System.Net.Primitives, IPAddress.cs).
func (r *Reader) address(obj arch.Addr, c *object.Class) (netip.Addr, error) {
	numbers, _, err := r.reference(obj, c, "_numbers")
	if err != nil {
		return netip.Addr{}, err
	}
	if numbers == 0 {
		v, ok, err := r.number(obj, c, "_addressOrScopeId")
		if err != nil || !ok {
			return netip.Addr{}, err
		}
		return netip.AddrFrom4([4]byte{byte(v), byte(v >> 8), byte(v >> 16), byte(v >> 24)}), nil
	}
	at, count, size, err := r.objects.Elements(numbers)
	if err != nil || count != 8 || size != 2 {
		return netip.Addr{}, err
	}
	var b [16]byte
	for i := range 2 {
		w, err := r.objects.Word(at + arch.Addr(8*i))
		if err != nil {
			return netip.Addr{}, err
		}
		for k := range 4 {
			b[8*i+2*k], b[8*i+2*k+1] = byte(w>>(16*k+8)), byte(w>>(16*k))
		}
	}
	return netip.AddrFrom16(b).Unmap(), nil
}

// Activity reads when an Activity began (System.Diagnostics.DiagnosticSource).
func (r *Reader) Activity(obj arch.Addr) (time.Time, error) {
	c, err := r.objects.Class(obj)
	if err != nil {
		return time.Time{}, err
	}
	if !c.Is(diagnostics, activityClass) {
		return time.Time{}, errOther
	}
	if _, err := r.objects.Offset(c, "<StartTimeUtc>k__BackingField"); err != nil {
		return time.Time{}, nil
	}
	v, err := r.objects.Pointer(obj, c, "<StartTimeUtc>k__BackingField")
	return dateTime(uint64(v)), err
}

// A DateTime is a number of 100 ns since the year 1, with its kind in the two highest bits (DateTime.cs).
const (
	dateTicks = 1<<62 - 1
	unixEpoch = 621_355_968_000_000_000
	maxTicks  = 3_155_378_975_999_999_999
)

func dateTime(data uint64) time.Time {
	ticks := int64(data & dateTicks)
	if ticks <= unixEpoch || ticks > maxTicks {
		return time.Time{}
	}
	since := ticks - unixEpoch
	return time.Unix(since/1e7, since%1e7*100).UTC()
}
