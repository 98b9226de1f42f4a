package livetest

import "time"

// GoOn returns a function that reports whether to look on: for d from now, and for up to longer after
// that as long as few is true, because beside other programs it takes longer to see enough.
func GoOn(d, longer time.Duration, few func() bool) func() bool {
	end := time.Now().Add(d)
	return func() bool {
		now := time.Now()
		return now.Before(end) || now.Before(end.Add(longer)) && few()
	}
}
