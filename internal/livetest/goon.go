package livetest

import "time"

// GoOn returns a function that reports whether to look on: for d from now, and after that as long as few is true,
// because beside other programs it takes longer to see enough. Hang bounds the second time.
func GoOn(d time.Duration, few func() bool) func() bool {
	end := time.Now().Add(d)
	return func() bool {
		now := time.Now()
		return now.Before(end) || now.Before(end.Add(Hang)) && few()
	}
}
