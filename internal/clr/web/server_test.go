package web

import (
	"testing"

	"clrsnap/internal/arch"
	"clrsnap/internal/clr/clrtest"
	"clrsnap/internal/clr/method"
	"clrsnap/internal/clr/name"
	"clrsnap/internal/clr/object"
	"clrsnap/internal/clr/types"
)

func ref(name string, at uint32) clrtest.Field {
	return clrtest.Field{Name: name, Offset: at, Type: clrtest.Reference}
}

func class(name string, base *clrtest.Class, size uint32, fields ...clrtest.Field) *clrtest.Class {
	return &clrtest.Class{Name: name, Base: base, Size: size, Fields: fields}
}

// TestIDOfHTTP3: a request of HTTP/3 keeps its id when the collector moves Kestrel's object. The program is
// constructed.
func TestIDOfHTTP3(t *testing.T) {
	p := clrtest.NewProgram(t, clrtest.Net10)
	base := &clrtest.Class{Name: "System.Object", Size: 8}
	p.Assembly(coreLib, base)
	protocol := class(kestrel+".Internal.Http.HttpProtocol", base, 16, ref("_context", 8))
	stream := class(kestrel+".Internal.Http3.Http3Stream", protocol, 16)
	context := class(kestrel+".Internal.Http3.Http3StreamContext", base, 24,
		ref("<ConnectionId>k__BackingField", 8), ref("<StreamContext>k__BackingField", 16))
	p.Assembly(kestrel, protocol, stream, context)
	const quic = "Microsoft.AspNetCore.Server.Kestrel.Transport.Quic"
	transport := class(quic+".Internal.QuicStreamContext", base, 16,
		clrtest.Field{Name: "<StreamId>k__BackingField", Offset: 8, Type: 0x0a}) // ELEMENT_TYPE_I8
	p.Assembly(quic, transport)

	number, of, server := p.Object(transport), p.Object(context), p.Object(stream)
	p.Set(number, transport, "<StreamId>k__BackingField", 20)
	p.Set(of, context, "<StreamContext>k__BackingField", uint64(number))
	p.Set(server, stream, "_context", uint64(of))
	moved := p.Object(stream)
	p.Set(moved, stream, "_context", uint64(of))
	r := New(objectsOf(t, p))
	for _, at := range []arch.Addr{server, moved} {
		if id, err := r.ID(at); err != nil || id != ":00000014" { // the constructed connection has no id
			t.Errorf("%q, %v", id, err)
		}
	}
	if _, n, err := r.Begun(server, true); err != nil || n != 6 { // streams 0, 4, … 20
		t.Errorf("%d requests were begun, want 6: %v", n, err)
	}
	p.Set(number, transport, "<StreamId>k__BackingField", 24)
	if id, err := New(objectsOf(t, p)).ID(moved); err != nil || id != ":00000018" {
		t.Errorf("the next request: %q, %v", id, err)
	}
}

// TestBegun: the numbers of HTTP/1.1 count requests, the streams of HTTP/2 have the odd numbers. The program is
// constructed.
func TestBegun(t *testing.T) {
	p := clrtest.NewProgram(t, clrtest.Net10)
	const number = 0x08 // ELEMENT_TYPE_I4
	base := &clrtest.Class{Name: "System.Object", Size: 8}
	p.Assembly(coreLib, base)
	protocol := class(kestrel+".Internal.Http.HttpProtocol", base, 16, ref("_context", 8))
	one := class(kestrel+".Internal.Http.Http1Connection", protocol, 24,
		clrtest.Field{Name: "_requestCount", Offset: 16, Type: number})
	two := class(kestrel+".Internal.Http2.Http2Stream", protocol, 16)
	context := class(kestrel+".Internal.Http2.Http2StreamContext", base, 24,
		ref("<ConnectionId>k__BackingField", 8),
		clrtest.Field{Name: "<StreamId>k__BackingField", Offset: 16, Type: number})
	p.Assembly(kestrel, protocol, one, two, context)

	of, connection, stream := p.Object(context), p.Object(one), p.Object(two)
	p.Set(of, context, "<StreamId>k__BackingField", 7)
	p.Set(connection, one, "_context", uint64(of))
	p.Set(connection, one, "_requestCount", 5)
	p.Set(stream, two, "_context", uint64(of))
	r := New(objectsOf(t, p))
	for _, tt := range []struct {
		at      arch.Addr
		serving bool
		want    int
	}{{connection, true, 5}, {connection, false, 4}, {stream, true, 4}, {stream, false, 4}} {
		if _, n, err := r.Begun(tt.at, tt.serving); err != nil || n != tt.want {
			t.Errorf("%v, serving %v: %d requests were begun, want %d: %v", tt.at, tt.serving, n, tt.want, err)
		}
	}
}

func objectsOf(t *testing.T, p *clrtest.Program) *object.Reader {
	t.Helper()
	d := clrtest.Descriptor(t, p.Descriptor())
	ts, err := types.New(p, d)
	if err != nil {
		t.Fatal(err)
	}
	ms, err := method.New(p, d, ts)
	if err != nil {
		t.Fatal(err)
	}
	ns, err := name.New(p, d, ts, ms)
	if err != nil {
		t.Fatal(err)
	}
	objects, err := object.New(p, d, ts, ns)
	if err != nil {
		t.Fatal(err)
	}
	return objects
}
