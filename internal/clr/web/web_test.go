package web

import (
	"strings"
	"testing"
	"time"
)

func TestSplit(t *testing.T) {
	for uri, want := range map[string]Message{
		"http://10.1.2.9:6352/prices/17?key=secret": {Authority: "10.1.2.9:6352", Path: "/prices/17",
			Query: "?key=secret"},
		"https://user:word@shop.example#top": {Authority: "shop.example:443", Path: "/"},
		"HTTP://shop.example/a%2Fb?":         {Authority: "shop.example:80", Path: "/a%2Fb"},
		"http://[::1]:81/":                   {Authority: "[::1]:81", Path: "/"},
		"prices/17?a=b":                      {Path: "prices/17", Query: "?a=b"}, // relative
		"http://user:word@%zz/":              {},
		"":                                   {Path: "/"},
	} {
		var m Message
		if m.split(uri); m != want {
			t.Errorf("%q: %+v, want %+v", uri, m, want)
		}
	}
}

// FuzzSplit: neither a password nor a query gets into texts that are always shown.
func FuzzSplit(f *testing.F) {
	f.Add("user", "word", "shop.example", "/prices", "key=secret")
	f.Add("a@b", "c:d", "[::1]:81", "", "?")
	f.Fuzz(func(t *testing.T, user, word, host, path, query string) {
		const mark = "Xsecret"
		var m Message
		m.split("http://" + user + mark + ":" + word + mark + "@" + host + path + "?" + query + mark)
		clean := !strings.ContainsAny(user+word+host+path, "/?#@\\") // the ends of the part that may be secret
		if clean && strings.Contains(m.Authority+m.Path, mark) {
			t.Errorf("%+v", m)
		}
	})
}

func TestDateTime(t *testing.T) {
	want := time.Date(2026, 3, 4, 5, 6, 7, 123_456_700, time.UTC)
	ticks := uint64(want.Unix())*1e7 + uint64(want.Nanosecond()/100) + unixEpoch
	const utc = 1 << 62
	if got := dateTime(ticks | utc); !got.Equal(want) {
		t.Errorf("%v, want %v", got, want)
	}
	for _, v := range []uint64{0, unixEpoch, dateTicks, 1<<64 - 1} {
		if got := dateTime(v); !got.IsZero() {
			t.Errorf("%#x: %v", v, got)
		}
	}
}

func TestRoleOf(t *testing.T) {
	for _, test := range []struct {
		assembly, machine string
		want              Role
	}{
		{kestrel, kestrel + ".Internal.Http.HttpProtocol+<ProcessRequests>d__236`1", Serving},
		{kestrel, kestrel + ".Internal.Http.HttpProtocol+<ProcessRequestsAsync>d__235`1", NoRole},
		{"Shop", kestrel + ".Internal.Http.HttpProtocol+<ProcessRequests>d__236`1", NoRole},
		{http, "System.Net.Http.HttpConnectionPool+<SendWithVersionDetectionAndRetryAsync>d__52", Sending},
		{http, "System.Net.Http.HttpClient+<<SendAsync>g__Core|83_0>d", Calling},
		{http, "System.Net.Http.HttpClient+<GetStringAsyncCore>d__41", Calling},
		{http, "System.Net.Http.DiagnosticsHandler+<SendAsyncCore>d__10", Tracing},
		{http, "System.Net.Http.HttpConnection+<SendAsync>d__57", Exchanging},
		{http, "System.Net.Http.HttpConnection+<FillAsync>d__57", Reading},
		{http, "System.Net.Http.HttpConnection+ChunkedEncodingReadStream+<ReadAsyncCore>d__3", Reading},
		{http, "System.Net.Http.HttpConnectionPool+<AddHttp11ConnectionAsync>d__7", NoRole},
		{http, "System.Net.Http.Http2Connection+<ProcessIncomingFramesAsync>d__7", NoRole},

		// methods that the runtime itself suspends
		{kestrel, kestrel + ".Internal.Http.HttpProtocol.ProcessRequests", Serving},
		{kestrel, kestrel + ".Internal.Http.HttpProtocol.ProcessRequestsAsync", NoRole},
		{http, "System.Net.Http.HttpConnectionPool.SendWithVersionDetectionAndRetryAsync", Sending},
		{http, "System.Net.Http.HttpConnectionPool.SendAsync", NoRole},
		{http, "System.Net.Http.HttpConnection.SendAsync", Exchanging},
		{http, "System.Net.Http.Http2Connection.SendAsync", Exchanging},
		{http, "System.Net.Http.HttpClient.<SendAsync>g__Core|83_0", Calling},
		{http, "System.Net.Http.HttpClientHandler.SendAsync", NoRole},
		{http, "System.Net.Http.HttpConnection.FillAsync", Reading},
		{http, "System.Net.Http.HttpConnection+ChunkedEncodingReadStream.CopyToAsyncCore", Reading},
		{http, "System.Net.Http.Http2Connection+Http2Stream.ReadDataAsync", Reading},
		{http, "System.Net.Http.DiagnosticsHandler.SendAsyncCore", Tracing},
	} {
		if got := RoleOf(test.assembly, test.machine); got != test.want {
			t.Errorf("%s: %d, want %d", test.machine, got, test.want)
		}
	}
}
