package why

import (
	"strings"
	"testing"

	"clrsnap/internal/gather"
	"clrsnap/internal/openfiles"
	"clrsnap/profile"
	"clrsnap/snapshot"
)

// pipeCall is a call of thread 1 of process 42 whose other end process 43 has.
func pipeCall(writes bool, ends ...gather.FarEnd) gather.BlockedCall {
	return gather.BlockedCall{
		Call: openfiles.Call{FD: 5, Writes: writes, Link: "pipe:[7]"}, Pid: 42, Own: true, What: "a pipe",
		Thread: snapshot.ThreadRef{OSThreadID: 1, Name: "log"}, Ends: ends,
	}
}

// TestBlockedIOVerdicts: a write that nobody reads is a finding; a read is one only if its writer waits for the reader,
// or if others wait for the reader; and an end that is about to be served is none.
func TestBlockedIOVerdicts(t *testing.T) {
	sleeps := gather.FarEnd{Pid: 43, Command: "sleep", Does: "is sleeping (nanosleep)"}
	ready := gather.FarEnd{Pid: 43, Command: "cat", Ready: true}
	full := pipeCall(true, gather.FarEnd{Pid: 42, Own: true})
	full.Own, full.Pid, full.Command = false, 43, "cat"
	circle := gather.FarEnd{Pid: 43, Command: "cat", Next: &full}
	child := full
	child.Awaited = true
	for _, tt := range []struct {
		name    string
		call    gather.BlockedCall
		waiters int // for a lock that the thread of the call holds
		says    string
	}{
		{"a write", pipeCall(true, sleeps), 0,
			"sleep (43), at the other end, does not read: it is sleeping (nanosleep)."},
		{"a write with waiters", pipeCall(true, sleeps), 3, "3 threads wait for log (1), directly or not."},
		{"a write that is read", pipeCall(true, ready), 3, ""},
		{"a read", pipeCall(false, sleeps), 0, ""},
		{"a read with one waiter", pipeCall(false, sleeps), 1, ""},
		{"a read with waiters", pipeCall(false, sleeps), 2, "sleep (43), at the other end, writes nothing"},
		{"a circle", pipeCall(false, circle), 0, "Each waits for the other."},
		{"nobody at the other end", pipeCall(true), 0, "Nobody reads what it writes, as far as can be seen from here."},
		{"a child that nobody waits for", child, 0, ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			threads := []snapshot.Thread{waiting(1, snapshot.Wait{Kind: snapshot.WaitIO}, "Shop.Log.Write")}
			lock := snapshot.Wait{Kind: snapshot.MonitorEnter, Object: 0x40, Owner: &snapshot.ThreadRef{OSThreadID: 1}}
			for id := range tt.waiters {
				threads = append(threads, waiting(10+id, lock, "Shop.Till.Pay"))
			}
			e := same(4, threads...)
			e.Process.PID, e.Blocked = 42, []gather.BlockedCall{tt.call}
			list := judgeBlockedIO(e)
			if tt.says == "" {
				if len(list) > 0 {
					t.Errorf("false: %s", list[0].Text)
				}
				return
			}
			if len(list) != 1 || !strings.Contains(list[0].Text, tt.says) {
				t.Errorf("%+v", list)
			}
		})
	}
}

// TestOuterType: the type of a member, whatever the compiler has nested into the type.
func TestOuterType(t *testing.T) {
	for member, want := range map[string]string{
		"Shop.Log.Write": "Shop.Log", "Shop.Log+<>c.<Run>b__0": "Shop.Log", "Shop.Log..ctor": "Shop.Log",
		"Main": "Main", "": "", "Shop.Log._queue": "Shop.Log",
	} {
		if got := gather.OuterType(member); got != want {
			t.Errorf("%q: %q", member, got)
		}
	}
}

// TestBlockedAlike: a verdict counts the threads that are blocked in the same calls as the caller.
func TestBlockedAlike(t *testing.T) {
	send := func(id int) snapshot.Thread {
		return waiting(id, snapshot.Wait{Kind: snapshot.WaitIO}, "libc.so!send", "System.Net.Sockets.Socket.Send",
			"Shop.Feed.Send")
	}
	receive := waiting(4, snapshot.Wait{Kind: snapshot.WaitIO}, "libc.so!recv", "System.Net.Sockets.Socket.Receive",
		"Shop.Feed.Send")
	e := same(4, send(1), send(2), send(3), receive)
	call := pipeCall(true)
	call.Stack = &e.Last().Snap.Threads[0]
	e.Process.PID, e.Blocked = 42, []gather.BlockedCall{call}
	verdict(t, judgeBlockedIO(e), profile.CauseBlockedIO, profile.Likely,
		"2 other threads are likewise blocked there.")
}
