// Package remote has the judges of what comes from other programs, or does not come: remote addresses and name servers
// that do not answer, calls of HttpClient that queue for connections, and clients that nobody accepts. Each judge
// returns nothing if a healthy program could look the same.
package remote

import "clrsnap/internal/gather"

// evidence is the input of the judges.
type evidence struct{ *gather.Evidence }
