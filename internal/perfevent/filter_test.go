package perfevent

import (
	"maps"
	"slices"
	"testing"

	"golang.org/x/sys/unix"
)

// TestFilter: each time counts once.
func TestFilter(t *testing.T) {
	f := filter{pids: map[int]bool{10: true}}
	f.begin(&generation{firstID: 5, lateID: 8}, 100)
	f.begin(&generation{firstID: 20, lateID: 25}, 200)
	for i, tt := range []struct {
		r    Record
		want verdict
	}{
		{Record{Kind: Sampled, PID: 9, TID: 1, id: 5, Time: 150}, foreign},
		{Record{Kind: Sampled, PID: 10, TID: 1, id: 4, Time: 150}, repeated},
		{Record{Kind: Sampled, PID: 10, TID: 1, id: 5, Time: 99}, repeated},
		{Record{Kind: Sampled, PID: 10, TID: 1, id: 5, Time: 100}, good},
		{Record{Kind: Sampled, PID: 10, TID: 1, id: 5, Time: 199}, good},
		{Record{Kind: Sampled, PID: 10, TID: 1, id: 20, Time: 199}, repeated},
		{Record{Kind: Sampled, PID: 10, TID: 1, id: 19, Time: 200}, repeated},
		{Record{Kind: Sampled, PID: 10, TID: 1, id: 20, Time: 200}, good},
		{Record{Kind: Sampled, PID: 10, TID: 1, id: 25, Time: 201}, repeated},
		{Record{Kind: Sampled, PID: 10, TID: 1, CPU: 1, id: 25, Time: 201}, good},
		{Record{Kind: Sampled, PID: 10, TID: 1, CPU: 1, id: 20, Time: 202}, repeated},
		{Record{Kind: Sampled, PID: 10, TID: 2, id: 25, Time: 202}, good},
		{Record{Kind: Sampled, PID: 10, TID: 2, id: 5, Time: 198}, good},
		{Record{Kind: Sampled, PID: 10, TID: 2, id: 8, Time: 199}, repeated},
		{Record{Kind: Ended, PID: 10, TID: 1, id: 20, Time: 203}, good},
		{Record{Kind: Sampled, PID: 10, TID: 1, CPU: 1, id: 20, Time: 204}, good},
		{Record{Kind: Sampled, PID: 10, TID: 2, id: 20, Time: 204}, repeated},
	} {
		if got := f.judge(&tt.r); got != tt.want {
			t.Errorf("%d: %+v: %d, want %d", i, tt.r, got, tt.want)
		}
	}
	f.forget()
	if got := f.judge(&Record{Kind: Sampled, PID: 10, TID: 2, id: 20, Time: 205}); got != good {
		t.Error(got)
	}
}

func TestParseCPUs(t *testing.T) {
	for list, want := range map[string][]int{"0": {0}, "0-3,8": {0, 1, 2, 3, 8}, "": nil, "a": nil, "3-1": nil,
		"0-99999999": nil, "-1": nil} {
		if got, err := parseCPUs(list); !slices.Equal(got, want) || (err == nil) != (want != nil) {
			t.Errorf("%q: %v %v", list, got, err)
		}
	}
}

// TestOnlineCPUs: both files with the switched-on CPUs agree.
func TestOnlineCPUs(t *testing.T) {
	online, err := onlineCPUs()
	if stat := slices.Sorted(maps.Keys(readIdle())); err != nil || !slices.Equal(online, stat) {
		t.Errorf("%v, %v; /proc/stat: %v", online, err, stat)
	}
}

func TestRetry(t *testing.T) {
	f := features{kernel: true, inheritThread: true, formatLost: true}
	for i, tt := range []struct {
		err  error
		ok   bool
		want features
	}{
		{unix.EMFILE, false, features{true, true, true}},
		{unix.EINVAL, true, features{true, true, false}},
		{unix.EACCES, true, features{false, true, false}},
		{unix.EINVAL, true, features{false, false, false}},
		{unix.EINVAL, false, features{false, false, false}},
		{unix.EPERM, false, features{false, false, false}},
	} {
		if ok := f.retry(tt.err); ok != tt.ok || f != tt.want {
			t.Errorf("%d: %v: %v %+v", i, tt.err, ok, f)
		}
	}
}
