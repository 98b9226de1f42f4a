// Package web reads the objects of ASP.NET Core's server and of HttpClient: the requests that Kestrel is serving, and
// the calls that SocketsHttpHandler has under way, with its pools of connections.
//
// Kestrel has one object for each connection of HTTP/1, which it uses for one request after the other, and one for each
// stream of HTTP/2 and HTTP/3, which it keeps for further streams. So an object is no proof of a request. What proves
// it is the HttpContext: while a request is served, it is active, and its features are that object.
//
// An outgoing call is an async method, which is suspended until the head of the response is there. Until its body is
// read as well, the connection, or the stream of HTTP/2, has the request.
//
// Nothing is known of these classes but the names of their fields, which are read from metadata. A version that lacks
// a field leaves a blank. The names are those of .NET 8 to 10.
//
// Sources, in dotnet/aspnetcore (src): Servers/Kestrel/Core/src/Internal/Http/HttpProtocol.cs, Http1Connection.cs,
// Http1ConnectionOfT.cs; Internal/Http2/Http2Stream.cs, Http2StreamOfT.cs; Hosting/Hosting/src/Internal/
// HostingApplication.cs, HostingApplicationDiagnostics.cs; Http/Http/src/DefaultHttpContext.cs. In dotnet/runtime
// (src/libraries/System.Net.Http/src/System/Net/Http): HttpClient.cs, DiagnosticsHandler.cs; SocketsHttpHandler/
// HttpConnection.cs, Http2Connection.cs, Http2Stream.cs; SocketsHttpHandler/ConnectionPool/HttpConnectionPool.cs,
// HttpConnectionPool.Http1.cs, RequestQueue.cs, HttpConnectionWaiter.cs.
package web
