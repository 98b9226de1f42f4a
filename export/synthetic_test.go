package export_test

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"time"

	"clrsnap/profile"
	"clrsnap/snapshot"
)

// A web service as seen by a sampling profiler: deep asynchronous stacks, generics, recursion, runs of
// native frames without names, the kernel.

// parts are parts of stacks, base first. The first letter of a frame says its kind: u user code, f
// framework, n native, x native without a name, k kernel.
var parts = map[string]string{
	"thread": "n libc.so.6!start_thread; x libcoreclr.so; x libcoreclr.so; " +
		"f System.Private.CoreLib!System.Threading.Thread.StartCallback()",
	"pool": "f System.Private.CoreLib!System.Threading.PortableThreadPool+WorkerThread.WorkerThreadStart(); " +
		"f System.Private.CoreLib!System.Threading.ThreadPoolWorkQueue.Dispatch()",
	"async": "f System.Private.CoreLib!System.Runtime.CompilerServices." +
		"AsyncTaskMethodBuilder<System.Threading.Tasks.VoidTaskResult>+AsyncStateMachineBox<T>" +
		".ExecutionContextCallback(object); " +
		"f System.Private.CoreLib!System.Threading.ExecutionContext.RunInternal(ExecutionContext, ContextCallback, " +
		"object)",
	"kestrel": "f Microsoft.AspNetCore.Server.Kestrel.Core!" +
		"Microsoft.AspNetCore.Server.Kestrel.Core.Internal.Http.HttpProtocol.ProcessRequests{async}(" +
		"IHttpApplication<T>); " +
		"f Microsoft.AspNetCore.Hosting!" +
		"Microsoft.AspNetCore.Hosting.HostingApplication.ProcessRequestAsync(Context); " +
		"f Microsoft.AspNetCore.Routing!Microsoft.AspNetCore.Routing.EndpointMiddleware.Invoke(HttpContext); " +
		"u Shop.Api!Shop.Api.Middleware.Tracing.Invoke{async}(HttpContext)",
	"orders": "u Shop.Api!Shop.Api.Controllers.OrdersController.Post{async}(OrderRequest, CancellationToken)",
	"search": "u Shop.Api!Shop.Api.Controllers.SearchController.Get{async}(string, int)",
	"price": "u Shop.Domain!Shop.Domain.Pricing.PriceEngine.Quote(Basket, ref Discounts); " +
		"u Shop.Domain!Shop.Domain.Pricing.RuleTree.Apply(Node, decimal)",
	"rule": "u Shop.Domain!Shop.Domain.Pricing.RuleTree.Apply(Node, decimal)",
	"linq": "f System.Linq!System.Linq.Enumerable+ListSelectIterator<Shop.Domain.Line, decimal>.MoveNext(); " +
		"u Shop.Domain!Shop.Domain.Pricing.RuleTree.Apply{lambda 7_0}(Line)",
	"json": "f System.Text.Json!" +
		"System.Text.Json.JsonSerializer.SerializeAsync<Shop.Api.OrderReply>(Stream, OrderReply); " +
		"f System.Text.Json!" +
		"System.Text.Json.Serialization.Converters.ObjectDefaultConverter<Shop.Api.OrderReply>.OnTryWrite(" +
		"Utf8JsonWriter, OrderReply, JsonSerializerOptions, ref WriteStack)",
	"string": "f System.Private.CoreLib!System.Text.Unicode.Utf8Utility.TranscodeToUtf8(char*, int, byte*, int, ref " +
		"char*, ref byte*)",
	"dict": "f System.Private.CoreLib!System.Collections.Generic.Dictionary<string, " +
		"System.Collections.Generic.List<Shop.Domain.Product>>.FindValue(string)",
	"alloc": "x libcoreclr.so; x libcoreclr.so; x libcoreclr.so; " +
		"n libclrgc.so!SVR::gc_heap::allocate_more_space(alloc_context*, size_t); n libc.so.6!memset",
	"sql": "u Shop.Data!Shop.Data.Repository<Shop.Domain.Order>.Find{async}(Guid, CancellationToken); " +
		"f System.Data.Common!System.Data.Common.DbCommand.ExecuteReaderAsync(CommandBehavior, CancellationToken)",
	"socket": "f System.Net.Sockets!System.Net.Sockets.Socket.Receive(Span<byte>, SocketFlags); " +
		"f System.Net.Sockets![IL stub: P/Invoke](SafeHandle, byte*, int); " +
		"n libSystem.Native.so!SystemNative_Receive; n libc.so.6!recv",
	"recv": "k kernel!entry_SYSCALL_64_after_hwframe; k kernel!do_syscall_64; k kernel!__sys_recvfrom; " +
		"k kernel!tcp_recvmsg",
	"lock": "u Shop.Domain!Shop.Domain.Stock.StockCache.Reserve(Guid, int); " +
		"f System.Private.CoreLib!System.Threading.Monitor.Enter(object); x libcoreclr.so; x libcoreclr.so; " +
		"n libc.so.6!pthread_cond_wait",
	"crypt": "u Shop.Api!Shop.Api.Security.Signer.Sign(ReadOnlySpan<byte>); " +
		"f System.Security.Cryptography!System.Security.Cryptography.HMACSHA256.HashData(ReadOnlySpan<byte>, " +
		"ReadOnlySpan<byte>, Span<byte>); x libcrypto.so.3; x libcrypto.so.3",
	"idle": "f System.Private.CoreLib!System.Threading.LowLevelLifoSemaphore.WaitNative(SafeWaitHandle, int); " +
		"x libcoreclr.so; n libc.so.6!pthread_cond_timedwait",
	"final": "n libc.so.6!start_thread; x libcoreclr.so; x libcoreclr.so; n libc.so.6!pthread_cond_wait",
	"epoll": "f System.Net.Sockets!System.Net.Sockets.SocketAsyncEngine.EventLoop(); " +
		"n libSystem.Native.so!SystemNative_WaitForSocketEvents; n libc.so.6!epoll_wait",
	"gc": "n libc.so.6!start_thread; n libclrgc.so!SVR::gc_heap::gc_thread_function(); " +
		"n libclrgc.so!SVR::gc_heap::mark_phase(int)",
	"main": "n libc.so.6!__libc_start_main; x dotnet; x libhostfxr.so; x libcoreclr.so; " +
		"u Shop.Api!Program.<Main>$(string[]); " +
		"f Microsoft.Extensions.Hosting.Abstractions!" +
		"Microsoft.Extensions.Hosting.HostingAbstractionsHostExtensions.Run(IHost); " +
		"f System.Private.CoreLib!System.Threading.ManualResetEventSlim.Wait(int, CancellationToken)",
	"flush": "u Shop.Telemetry!Shop.Telemetry.Batcher.Flush{lambda 3_1}(); " +
		"f System.IO.Compression!System.IO.Compression.GZipStream.Write(ReadOnlySpan<byte>); " +
		"x libSystem.IO.Compression.Native.so; x libSystem.IO.Compression.Native.so",
}

// way is a kind of stack: its parts, its frequency among workers, and the workers' state then.
type way struct {
	parts  string
	weight int
	state  profile.State
}

const request = "thread pool async kestrel "

var busy = []way{
	{request + "orders price rule rule linq", 19, profile.Running}, {request + "orders price rule", 9, profile.Running},
	{request + "orders price", 4, profile.Running},
	{request + "orders price rule rule rule dict", 6, profile.Running},
	{request + "orders json string", 12, profile.Running}, {request + "orders json alloc", 7, profile.Running},
	{request + "orders json", 5, profile.Running}, {request + "search dict", 8, profile.Running},
	{request + "search json string", 5, profile.Running},
	{request + "orders crypt", 6, profile.Running}, {request + "orders sql socket recv", 4, profile.Running},
	{request + "search alloc", 3, profile.Running},
	{"thread pool async flush", 3, profile.Running}, {"thread pool", 2, profile.Running},
}

var blocked = []way{
	{"thread pool idle", 46, profile.Waiting}, {request + "orders sql socket recv", 22, profile.Waiting},
	{request + "orders lock", 15, profile.Waiting}, {request + "search sql socket recv", 8, profile.Waiting},
}

type service struct {
	b      *profile.Builder
	rng    *rand.Rand
	counts [2]int // samples by mode
}

// synthetic is a recording of a web service, both modes. factor makes one part of the service slower:
// 1 is a good day.
func synthetic(seconds int, factor int) *profile.Recording {
	s := sampledService(seconds, factor)
	return s.finish(seconds)
}

func sampledService(seconds int, factor int) *service {
	s := &service{b: profile.NewBuilder(profile.Limits{}), rng: rand.New(rand.NewPCG(7, uint64(factor)))}
	threads := []profile.RecordedThread{
		{OSThreadID: 4242, ManagedThreadID: 1, Role: "Main"}, {OSThreadID: 4250, ManagedThreadID: 2, Role: "Finalizer"},
		{OSThreadID: 4251, ManagedThreadID: 4, Name: ".NET Sockets"}, {OSThreadID: 4247, Role: "GC"},
		{Role: "ThreadPool worker"},
	}
	for i := range 7 {
		threads = append(threads, profile.RecordedThread{
			OSThreadID: 4260 + i, ManagedThreadID: 6 + i, Name: ".NET TP Worker", Role: "ThreadPool worker",
		})
	}
	for _, t := range threads {
		s.b.Thread(t)
	}
	ways := func(list []way) []way {
		out := append([]way(nil), list...)
		for i := range out {
			if strings.Contains(out[i].parts, "price") || strings.Contains(out[i].parts, "lock") {
				out[i].weight *= factor
			}
		}
		return out
	}
	period := time.Second / 99
	for at := time.Duration(0); at < time.Duration(seconds)*time.Second; at += period {
		load := 0.35 + 0.3*float64((at/time.Second*7)%5)/5
		for thread := range threads {
			s.counts[profile.Wall]++
			w := s.threadWay(thread, load, ways)
			s.add(at, period, profile.Wall, thread, w)
			if w.state == profile.Running {
				s.counts[profile.CPU]++
				s.add(at, period, profile.CPU, thread, w)
			}
		}
	}
	return s
}

func (s *service) threadWay(thread int, load float64, ways func([]way) []way) way {
	switch {
	case thread == 0:
		return way{"main", 1, profile.Waiting}
	case thread == 1:
		return way{"final", 1, profile.Waiting}
	case thread == 2:
		return way{"thread epoll", 1, profile.State(min(1, s.rng.IntN(20)))}
	case thread == 3 && s.rng.IntN(12) == 0:
		return way{"gc", 1, profile.Running}
	case thread == 3:
		return way{"final", 1, profile.Waiting}
	case thread == 4 && s.rng.IntN(40) > 0:
		return way{"thread pool idle", 1, profile.Waiting}
	case s.rng.Float64() < load/2:
		return s.pick(ways(busy))
	}
	return s.pick(ways(blocked))
}

func (s *service) pick(list []way) way {
	sum := 0
	for _, w := range list {
		sum += w.weight
	}
	at := s.rng.IntN(sum)
	for _, w := range list {
		if at -= w.weight; at < 0 {
			return w
		}
	}
	panic("weights")
}

func (s *service) add(at, period time.Duration, m profile.Mode, thread int, w way) {
	text := stackText(w.parts)
	broken := m == profile.CPU && s.rng.IntN(150) == 0
	if broken {
		text = text[len(text)/2:]
	}
	s.b.Add(profile.Sample{
		At: at, Weight: int64(period), Thread: int32(thread), Node: s.node(text), Mode: m, State: w.state,
		Incomplete: broken,
	})
}

func stackText(names string) []string {
	var out []string
	for _, p := range strings.Fields(names) {
		out = append(out, strings.Split(parts[p], "; ")...)
	}
	return out
}

func (s *service) node(frames []string) int32 {
	var leafFirst []int32
	for i := len(frames) - 1; i >= 0; i-- {
		f := functionOf(frames[i])
		l := profile.Location{Function: s.b.Function(f), Offset: uint64(s.rng.IntN(3) * 16)}
		if f.Kind == snapshot.Managed {
			l.Tier = [...]string{"tier-1", "tier-1", "tier-0"}[s.rng.IntN(3)]
			if snapshot.Framework(f.Module) {
				l.Tier = "ReadyToRun"
			}
		}
		leafFirst = append(leafFirst, s.b.Location(l))
	}
	return s.b.Stack(leafFirst)
}

func functionOf(text string) profile.Function {
	kind, rest := text[0], text[2:]
	if kind == 'x' {
		return profile.Function{Kind: snapshot.Native, Display: "[" + rest + "]", Short: "[" + rest + "]", Module: rest}
	}
	module, name, _ := strings.Cut(rest, "!")
	f := profile.Function{Kind: snapshot.Managed, Module: module, Method: name, Display: name}
	if at := strings.LastIndexByte(name, '('); at > 0 && kind != 'k' && kind != 'n' {
		f.Display, f.Signature = name[:at], name[at:]
	}
	f.Short = shortName(f.Display)
	switch kind {
	case 'n':
		f.Kind, f.Short = snapshot.Native, name
	case 'k':
		f.Kind, f.Short = snapshot.Kernel, name
	}
	return f
}

// shortName keeps the type and the method.
func shortName(name string) string {
	depth, dots := 0, 0
	for i := len(name) - 1; i >= 0; i-- {
		switch name[i] {
		case '>', ')', '}', ']':
			depth++
		case '<', '(', '{', '[':
			depth--
		case '.':
			if depth == 0 {
				if dots++; dots == 2 {
					return name[i+1:]
				}
			}
		}
	}
	return name
}

func (s *service) finish(seconds int) *profile.Recording {
	r := s.b.Recording()
	broken := 0
	for _, x := range r.Samples {
		if x.Incomplete {
			broken++
		}
	}
	r.Version = "1.0.0"
	r.Start = time.Date(2026, 11, 21, 3, 4, 5, 0, time.UTC)
	r.Duration = time.Duration(seconds) * time.Second
	r.Processes = []snapshot.Process{{
		PID: 4242, Command: "/usr/bin/dotnet /app/Shop.Api.dll --urls http://0.0.0.0:8080", Runtime: snapshot.Runtime{
			Version: "10.0.12", Path: "/usr/share/dotnet/libcoreclr.so", Shape: "shared",
		},
	}}
	r.Modes = []profile.ModeStats{
		{Mode: profile.CPU, Rate: 99, Samples: s.counts[profile.CPU], Lost: 3, Broken: broken, Repaired: 12},
		{Mode: profile.Wall, Rate: 99, Samples: s.counts[profile.Wall]},
	}
	r.Cost = profile.Cost{
		TargetCPU: time.Duration(r.Weight(profile.CPU)), OwnCPU: 300 * time.Millisecond, OwnMemory: 48 << 20,
		Processors: 4,
	}
	r.Notes = []string{"12 stacks were longer than what the kernel copied; they were completed from live memory."}
	return r
}

// wide is a recording with a tree of about n nodes.
func wide(n int) *profile.Recording {
	b, rng := profile.NewBuilder(profile.Limits{}), rand.New(rand.NewPCG(3, 4))
	b.Thread(profile.RecordedThread{OSThreadID: 1, Name: "main"})
	locations := make([]int32, 4000)
	for i := range locations {
		module := []string{"Shop.Api", "System.Private.CoreLib", "Shop.Domain", "System.Text.Json"}[i%4]
		name := fmt.Sprintf("%s.Area%d.Type%d<Shop.Domain.Item%d>.Method%d", module, i%9, i%301, i%17, i)
		f := profile.Function{
			Kind: snapshot.Managed, Method: name, Display: name, Short: shortName(name), Signature: "(int, string)",
			Module: module,
		}
		locations[i] = b.Location(profile.Location{Function: b.Function(f), Tier: "tier-1"})
	}
	nodes := []int32{0}
	at := time.Duration(0)
	for len(nodes) < n {
		// Mostly deeper, from a recent node: stacks get about a hundred deep.
		from := nodes[max(0, len(nodes)-1-int(rng.ExpFloat64()*40))]
		c := b.Child(from, locations[rng.IntN(len(locations))])
		nodes = append(nodes, c)
		at += 400 * time.Microsecond
		b.Add(profile.Sample{At: at, Weight: int64(1+rng.IntN(20)) * 1e6, Node: c})
	}
	r := b.Recording()
	r.Version, r.Duration, r.Start = "1.0.0", at, time.Date(2026, 11, 21, 3, 4, 5, 0, time.UTC)
	r.Processes = []snapshot.Process{{PID: 77, Command: "/app/wide"}}
	r.Modes = []profile.ModeStats{{Mode: profile.CPU, Rate: 999, Samples: len(r.Samples)}}
	return r
}
