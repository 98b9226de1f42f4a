// Package requests finds the HTTP requests that a process's web server is serving, and the calls of HttpClient in
// progress.
//
// Find captures the stacks of all threads, for requests that threads run, and then walks the heap: requests, pools and
// connections are objects, and the chains of async methods (tasks.Walk) say what each request waits for. A walk
// misses objects that the collector moves meanwhile, so several walks are taken, and each walk takes up the results of
// the walks before (look.go). FindInFlight is Find for callers that compare two moments.
package requests

// coreLib is the assembly of the classes that are known here by name.
const coreLib = "System.Private.CoreLib"
