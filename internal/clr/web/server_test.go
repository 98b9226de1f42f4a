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

// TestIDOfHTTP3: a request of HTTP/3 keeps its id when the collector moves Kestrel's object. The program is
// constructed.
func TestIDOfHTTP3(t *testing.T) {
	p := clrtest.NewProgram(t, clrtest.Net10)
	ref := func(name string, at uint32) clrtest.Field {
		return clrtest.Field{Name: name, Offset: at, Type: clrtest.Reference}
	}
	base := &clrtest.Class{Name: "System.Object", Size: 8}
	p.Assembly(coreLib, base)
	class := func(name string, base *clrtest.Class, size uint32, fields ...clrtest.Field) *clrtest.Class {
		return &clrtest.Class{Name: name, Base: base, Size: size, Fields: fields}
	}
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
