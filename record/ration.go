package record

import "time"

// ration bounds how often something is done: once in so much time on average, and a few times at once if it was not
// done for long. The time is given anew each time, because it may change.
type ration struct {
	used time.Duration // up to this time
}

// left reports whether it may be done now. saved is how often at once.
func (r *ration) left(now, every time.Duration, saved int) bool {
	r.used = max(r.used, now-time.Duration(saved)*every)
	return now >= r.used+every
}

// take counts that it is done.
func (r *ration) take(every time.Duration) { r.used += every }
