package web

import (
	"net"
	"net/netip"
	"net/url"
	"slices"
	"strconv"

	"clrsnap/internal/arch"
	"clrsnap/internal/clr/object"
)

// PoolState is the state of an HttpConnectionPool: connections to one server, for one HttpClient handler.
type PoolState struct {
	Object    arch.Addr
	Authority string // host and port
	Secure    bool   // TLS
	Proxied   bool   // connections to a proxy
	HTTP1     Connections
	HTTP2     Connections
	Queue     []Queued // of all versions
}

// Connections are numbers of connections of one version of HTTP.
type Connections struct {
	All     int // in use, idle and pending
	Pending int // of All, connections that are being made
	Maximum int // 0: unlimited, or not known
}

// Queued is a call that waits for a connection.
type Queued struct{ Message, Waiter arch.Addr }

// The values of HttpConnectionKind that mean TLS to the server, and a proxy.
var (
	secureKinds  = map[uint32]bool{1: true, 4: true, 7: true}
	proxiedKinds = map[uint32]bool{2: true, 3: true, 4: true, 5: true, 6: true, 7: true}
)

// Pool reads a pool; nil: it has been disposed.
func (r *Reader) Pool(obj arch.Addr) (*PoolState, error) {
	c, err := r.objects.Class(obj)
	if err != nil {
		return nil, err
	}
	if KindOf(c) != Pool {
		return nil, errOther
	}
	if disposed, _, err := r.flag(obj, c, "_disposed"); err != nil || disposed != 0 {
		return nil, err
	}
	out := &PoolState{Object: obj}
	if kind, ok, err := r.number(obj, c, "_kind"); err != nil {
		return nil, err
	} else if ok {
		out.Secure, out.Proxied = secureKinds[kind], proxiedKinds[kind]
	}
	if out.Authority, err = r.authority(obj, c); err != nil {
		return nil, err
	}
	if err := r.connections(out, c); err != nil {
		return nil, err
	}
	for _, name := range []string{"_http11RequestQueue", "_http2RequestQueue", "_http3RequestQueue"} {
		if err := r.queue(out, c, name); err != nil {
			return nil, err
		}
	}
	return out, nil
}

// authority reads the server of a pool: "10.1.2.9:6352".
func (r *Reader) authority(obj arch.Addr, c *object.Class) (string, error) {
	at, class, err := r.reference(obj, c, "_originAuthority")
	if err != nil || at == 0 {
		return "", err
	}
	host, err := r.text(at, class, "<IdnHost>k__BackingField")
	if err != nil {
		return "", err
	}
	port, ok, err := r.number(at, class, "<Port>k__BackingField")
	if err != nil || !ok {
		return host, err
	}
	return net.JoinHostPort(host, strconv.Itoa(int(port))), nil
}

const unlimited = 1<<31 - 1 // int.MaxValue

func (r *Reader) connections(out *PoolState, c *object.Class) error {
	for _, f := range []struct {
		name string
		to   *int
	}{
		{"_associatedHttp11ConnectionCount", &out.HTTP1.All}, {"_pendingHttp11ConnectionCount", &out.HTTP1.Pending},
		{"_maxHttp11Connections", &out.HTTP1.Maximum}, {"_associatedHttp2ConnectionCount", &out.HTTP2.All},
	} {
		n, ok, err := r.number(out.Object, c, f.name)
		if err != nil {
			return err
		}
		if ok && n < unlimited {
			*f.to = int(n)
		}
	}
	pending, _, err := r.flag(out.Object, c, "_pendingHttp2Connection")
	out.HTTP2.Pending = int(pending & 1)
	return err
}

const (
	maxQueue   = 1 << 16 // places in a queue
	queueWords = 3       // of a RequestQueue: the array is among the first words
)

// queue reads the waiters of a RequestQueue. The queue's array is a ring of pairs of a message and a waiter; unused
// places are empty. An abandoned waiter stays in the queue until the waiter is at the front.
func (r *Reader) queue(out *PoolState, c *object.Class, field string) error {
	words, err := r.words(out.Object, c, field, queueWords)
	if err != nil {
		return err
	}
	for _, w := range words {
		at, count, size, err := r.objects.Elements(w)
		if err != nil || size != 16 {
			continue
		}
		for i := range min(count, maxQueue) {
			q, ok, err := r.queued(at + arch.Addr(16*i))
			if err != nil {
				return err
			}
			if ok {
				out.Queue = append(out.Queue, q)
			}
		}
		return nil
	}
	return nil
}

func (r *Reader) queued(at arch.Addr) (q Queued, ok bool, err error) {
	if q.Message, err = r.objects.Word(at); err != nil || q.Message == 0 {
		return q, false, err
	}
	if q.Waiter, err = r.objects.Word(at + 8); err != nil || q.Waiter == 0 {
		return q, false, err
	}
	c, err := r.objects.Class(q.Message)
	if err != nil || !c.Is(http, messageClass) {
		return q, false, err
	}
	waits, err := r.waits(q.Waiter)
	return q, waits, err
}

// taskDone are the bits of Task.m_stateFlags of a task that has ended (Task.cs, TaskStateFlags).
const taskDone = 0x0160_0000

// waits reports whether the task of a TaskCompletionSource has not ended.
func (r *Reader) waits(waiter arch.Addr) (bool, error) {
	c, err := r.objects.Class(waiter)
	if err != nil {
		return false, err
	}
	task, class, err := r.reference(waiter, c, "_task")
	if err != nil || task == 0 {
		return false, err
	}
	flags, ok, err := r.number(task, class, "m_stateFlags")
	return ok && flags&taskDone == 0, err
}

// Message is the content of an HttpRequestMessage.
type Message struct {
	Method    string
	Authority string // host and port, without the user's name and password
	Path      string
	Query     string // from "?" on
	WebSocket bool   // the message asks for a WebSocket
}

// Message reads an HttpRequestMessage.
func (r *Reader) Message(obj arch.Addr) (m Message, err error) {
	c, err := r.objects.Class(obj)
	if err != nil {
		return m, err
	}
	if !c.Is(http, messageClass) {
		return m, errOther
	}
	method, class, err := r.reference(obj, c, "_method")
	if err != nil {
		return m, err
	}
	if method != 0 {
		if m.Method, err = r.text(method, class, "_method"); err != nil {
			return m, err
		}
	}
	uri, class, err := r.reference(obj, c, "_requestUri")
	if err != nil || uri == 0 {
		return m, err
	}
	text, err := r.text(uri, class, "_string")
	m.split(text)
	return m, err
}

// defaultPorts are the ports that a URI need not name.
var defaultPorts = map[string]string{"http": "80", "https": "443", "ws": "80", "wss": "443"}

// split takes a URI apart. A URI that makes no sense is left out, because there may be a password in it.
func (m *Message) split(uri string) {
	u, err := url.Parse(uri)
	if err != nil {
		return
	}
	m.Path = u.EscapedPath()
	if m.Path == "" {
		m.Path = "/"
	}
	if u.RawQuery != "" {
		m.Query = "?" + u.RawQuery
	}
	m.WebSocket = u.Scheme == "ws" || u.Scheme == "wss"
	port := u.Port()
	if port == "" {
		port = defaultPorts[u.Scheme]
	}
	if m.Authority = u.Hostname(); port != "" && m.Authority != "" {
		m.Authority = net.JoinHostPort(m.Authority, port)
	}
}

// Use is a connection, or a stream of a connection, with its request.
type Use struct {
	Object  arch.Addr // the connection
	Pool    arch.Addr
	Message arch.Addr      // 0: the connection is idle
	Socket  int32          // descriptor of the socket; -1: not known
	Remote  netip.AddrPort // invalid: not known
	HTTP2   bool
	Stream  uint32 // of HTTP/2: the stream's number; 0: not known
	// Detached: the user uses the connection for another protocol, and the connection no longer belongs to the pool.
	Detached bool
}

// Connection reads a connection of HTTP/1, or of HTTP/2 by a stream of the connection; nil: the connection has ended.
func (r *Reader) Connection(obj arch.Addr) (*Use, error) {
	c, err := r.objects.Class(obj)
	if err != nil {
		return nil, err
	}
	switch KindOf(c) {
	case Connection:
		disposed, _, err := r.flag(obj, c, "_disposed")
		if err != nil || disposed != 0 {
			return nil, err
		}
		message, _, err := r.reference(obj, c, "_currentRequest")
		if err != nil {
			return nil, err
		}
		return r.use(obj, c, message)
	case Stream:
		return r.stream(obj, c)
	}
	return nil, errOther
}

// use describes a connection.
func (r *Reader) use(obj arch.Addr, c *object.Class, message arch.Addr) (u *Use, err error) {
	u = &Use{Object: obj, Message: message}
	if u.Pool, _, err = r.reference(obj, c, "_pool"); err != nil {
		return nil, err
	}
	detached, _, err := r.flag(obj, c, "_detachedFromPool")
	if err != nil {
		return nil, err
	}
	u.Detached = detached != 0
	u.Socket, u.Remote, err = r.socket(obj, c)
	return u, err
}

// Connected describes the connection that an async method sends with: of HTTP/1, or of HTTP/2 with a stream. 0: the
// stream is not known.
func (r *Reader) Connected(obj, stream arch.Addr) (*Use, error) {
	c, err := r.objects.Class(obj)
	if err != nil {
		return nil, err
	}
	if !isConnection(c) {
		return nil, errOther
	}
	u, err := r.use(obj, c, 0)
	if err != nil {
		return nil, err
	}
	if u.HTTP2 = KindOf(c) != Connection; !u.HTTP2 || stream == 0 {
		return u, nil
	}
	if c, err = r.objects.Class(stream); err == nil && KindOf(c) == Stream {
		u.Stream, _, err = r.number(stream, c, "<StreamId>k__BackingField")
	}
	return u, err
}

// stream reads a stream of HTTP/2; nil: the stream's answer is complete, or its connection has forgotten the stream.
func (r *Reader) stream(obj arch.Addr, c *object.Class) (*Use, error) {
	state, ok, err := r.flag(obj, c, "_responseCompletionState")
	if err != nil || !ok || state != 0 { // StreamCompletionState.InProgress
		return nil, err
	}
	connection, class, err := r.reference(obj, c, "_connection")
	if err != nil || connection == 0 {
		return nil, err
	}
	has, err := r.has(connection, class, obj)
	if err != nil || !has {
		return nil, err
	}
	message, _, err := r.reference(obj, c, "_request")
	if err != nil {
		return nil, err
	}
	u, err := r.use(connection, class, message)
	if err != nil {
		return nil, err
	}
	u.HTTP2 = true
	u.Stream, _, err = r.number(obj, c, "<StreamId>k__BackingField")
	return u, err
}

// Carrier reads the source of a reading async method: a connection or a stream, or the body of an answer; nil: the
// source has ended.
func (r *Reader) Carrier(obj arch.Addr) (*Use, error) {
	c, err := r.objects.Class(obj)
	if err != nil {
		return nil, err
	}
	if c.Is(http, contentClass) {
		if obj, _, err = r.reference(obj, c, "_connection"); err != nil || obj == 0 {
			return nil, err
		}
	}
	return r.Connection(obj)
}

// maxEntries bounds the words that are read of a dictionary's entries.
const maxEntries = 1 << 16

// has reports whether a connection has a stream, in an entry of its dictionary. An entry has numbers and a reference.
func (r *Reader) has(connection arch.Addr, c *object.Class, stream arch.Addr) (bool, error) {
	entries, _, err := r.follow(connection, c, "_httpStreams", "_entries")
	if err != nil || entries == 0 {
		return false, err
	}
	at, count, size, err := r.objects.Elements(entries)
	if err != nil || size%8 != 0 {
		return false, err
	}
	for i := range min(count*int(size/8), maxEntries) {
		w, err := r.objects.Word(at + arch.Addr(8*i))
		if err != nil || w == stream {
			return err == nil, err
		}
	}
	return false, nil
}

// maxStreams bounds the streams between a connection and its socket: the TLS stream, and streams of filters.
const maxStreams = 8

// socket finds the socket of a connection.
func (r *Reader) socket(obj arch.Addr, c *object.Class) (fd int32, remote netip.AddrPort, err error) {
	stream, class, err := r.reference(obj, c, "_stream")
	for range maxStreams {
		if err != nil || stream == 0 {
			return -1, remote, err
		}
		var socket arch.Addr
		var sc *object.Class
		if socket, sc, err = r.reference(stream, class, "_streamSocket"); err != nil {
			return -1, remote, err
		}
		if socket != 0 {
			if fd, err = r.descriptor(socket, sc); err != nil {
				return -1, remote, err
			}
			if end, ec, err := r.reference(socket, sc, "_remoteEndPoint"); err == nil && end != 0 {
				remote, _ = r.endPoint(end, ec)
			}
			return fd, remote, nil
		}
		stream, class, err = r.inner(stream, class)
	}
	return -1, remote, err
}

// descriptor returns the descriptor of a Socket; -1: not known.
func (r *Reader) descriptor(socket arch.Addr, c *object.Class) (int32, error) {
	handle, class, err := r.reference(socket, c, "_handle")
	if err != nil || handle == 0 {
		return -1, err
	}
	fd, ok, err := r.number(handle, class, "handle")
	if err != nil || !ok {
		return -1, err
	}
	return int32(fd), nil
}

// inner returns the stream inside a stream. The TLS stream, and a stream of the connection's maker, have the inner
// stream in a field. 0: there is none, or there are several.
func (r *Reader) inner(stream arch.Addr, c *object.Class) (out arch.Addr, class *object.Class, err error) {
	if out, class, err = r.reference(stream, c, "_innerStream"); err != nil || out != 0 {
		return out, class, err
	}
	fields, err := r.objects.FieldsOf(c)
	if err != nil {
		return 0, nil, err
	}
	for i := range fields {
		if !fields[i].Reference {
			continue
		}
		at, err := r.objects.Word(stream + arch.Addr(fields[i].Offset))
		if err != nil {
			return 0, nil, err
		}
		if at == 0 || at == stream || at == out {
			continue
		}
		of, err := r.objects.Class(at)
		if err != nil || !of.Is(coreLib, "System.IO.Stream") {
			continue
		}
		if out != 0 {
			return 0, nil, nil
		}
		out, class = at, of
	}
	return out, class, nil
}

// Timer returns the TimerQueueTimer that is to cancel a CancellationTokenSource; 0: there is none.
func (r *Reader) Timer(source arch.Addr) (arch.Addr, error) {
	c, err := r.objects.Class(source)
	if err != nil {
		return 0, err
	}
	if !isSource(c) {
		return 0, errOther
	}
	timer, class, err := r.reference(source, c, "_timer")
	if err != nil || timer == 0 || !class.Is(coreLib, "System.Threading.TimerQueueTimer") {
		return 0, err
	}
	return timer, nil
}

// regWords is the size of a CancellationTokenRegistration, in words.
const regWords = 2

// LinkedTo reports whether a CancellationTokenSource ends when one of the others ends (CancellationTokenSource.cs,
// Linked1CancellationTokenSource, Linked2CancellationTokenSource).
func (r *Reader) LinkedTo(source arch.Addr, others []arch.Addr) (bool, error) {
	c, err := r.objects.Class(source)
	if err != nil {
		return false, err
	}
	for _, field := range []string{"_reg1", "_reg2"} {
		words, err := r.words(source, c, field, regWords)
		if err != nil {
			return false, err
		}
		for _, node := range words {
			class, err := r.objects.Class(node)
			if err != nil || !class.Is(coreLib, sourceClass+"+CallbackNode") {
				continue
			}
			of, _, err := r.follow(node, class, "Registrations", "Source")
			if err != nil {
				return false, err
			}
			if of != 0 && of != source && slices.Contains(others, of) {
				return true, nil
			}
		}
	}
	return false, nil
}
