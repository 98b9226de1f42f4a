// Package web reads the objects of ASP.NET Core's server and of HttpClient: the requests that Kestrel is serving, and
// the calls of SocketsHttpHandler in progress, with the pools of connections.
//
// Kestrel has an object for each connection of HTTP/1, for one request after the other, and an object for each stream
// of HTTP/2 and HTTP/3, kept for further streams. So an object is no proof of a request. The proof is the
// HttpContext: while a request is served, the HttpContext is active, and its features are Kestrel's object.
//
// An outgoing call is an async method, suspended until the head of the response is there. Until the body is read as
// well, the connection, or the stream of HTTP/2, has the request.
//
// Only the names of these classes' fields are known, and are read from metadata. A version without a field leaves a
// blank. The names are those of .NET 8 to 11.
//
// Sources, in dotnet/aspnetcore (src): Servers/Kestrel/Core/src/Internal/Http/HttpProtocol.cs, Http1Connection.cs,
// Http1ConnectionOfT.cs; Internal/Http2/Http2Stream.cs, Http2StreamOfT.cs;
// Hosting/Hosting/src/Internal/HostingApplication.cs, HostingApplicationDiagnostics.cs;
// Http/Http/src/DefaultHttpContext.cs. In dotnet/runtime (src/libraries/System.Net.Http/src/System/Net/Http):
// HttpClient.cs, DiagnosticsHandler.cs; SocketsHttpHandler/HttpConnection.cs, Http2Connection.cs, Http2Stream.cs;
// SocketsHttpHandler/ConnectionPool/HttpConnectionPool.cs, HttpConnectionPool.Http1.cs, RequestQueue.cs,
// HttpConnectionWaiter.cs.
package web
