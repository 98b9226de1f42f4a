package record

import "time"

// ration bounds how often an action happens: once in some time on average, and a few times at once
// after a long time without the action. Each call says the time anew, because it may change.
type ration struct {
	used time.Duration // up to this time
}

// left reports whether the action may happen now. saved is how often at once.
func (r *ration) left(now, every time.Duration, saved int) bool {
	r.used = max(r.used, now-time.Duration(saved)*every)
	return now >= r.used+every
}

// take counts the action.
func (r *ration) take(every time.Duration) { r.used += every }
