package waits

import (
	"errors"
	"time"

	"clrsnap/internal/arch"
)

// queue is a list of threads that wait for one object, as last read.
type queue struct {
	list []arch.Addr
	next uint32        // the offset in an item of the next item's address
	read time.Time     // when the reading began
	took time.Duration // of the reading
}

// Each of a thousand threads that wait for one object asks how many wait. So a known queue is compared, with one system
// call. A queue longer than shortQueue is compared only once queuePause times the time of the last reading have passed:
// then the number may be some milliseconds old.
const (
	shortQueue = 32
	queuePause = 20
	maxQueues  = 1 << 8
)

var errLong = errors.New("the list is too long")

// waiters counts the items of a list, by the field with the next item. A list with more items than most is errLong.
func (r *Reader) waiters(head arch.Addr, field string, most int) (int, error) {
	if head == 0 {
		return 0, nil
	}
	q := r.queues[head]
	if len(q.list) > shortQueue && time.Since(q.read) < queuePause*q.took {
		return len(q.list), nil
	}
	begin := time.Now()
	if len(q.list) < 2 || !r.Managed.Seen.SameLinks(q.list, q.next) {
		q.list = nil
		for item := head; item != 0; {
			if len(q.list) == most {
				return 0, errLong
			}
			q.list = append(q.list, item)
			f := r.fields(item, "")
			next := f.pointer(field)
			if f.err == nil {
				q.next, f.err = r.Managed.Objects.Offset(f.class, field)
			}
			if item = next; f.err != nil || item == head {
				return 0, orChanging(f.err)
			}
		}
	}
	if r.queues == nil || len(r.queues) >= maxQueues {
		r.queues = map[arch.Addr]queue{}
	}
	q.read, q.took = begin, time.Since(begin)
	r.queues[head] = q
	return len(q.list), nil
}
