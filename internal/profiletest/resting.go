package profiletest

import (
	"fmt"
	"time"

	"clrsnap/profile"
	"clrsnap/snapshot"
)

// RestingShop is BusyShop with a pool of workers and the runtime's own threads. Most of these threads wait
// for work.
func RestingShop() *profile.Recording {
	s := newShop()
	s.at = 0
	worker := func(i int) int32 {
		return s.Thread(profile.RecordedThread{OSThreadID: 4300 + i, ManagedThreadID: 20 + i,
			Name: ".NET TP Worker", Role: "ThreadPool worker"})
	}
	of := func(id int, name, role string) int32 {
		return s.Thread(profile.RecordedThread{OSThreadID: id, Name: name, Role: role})
	}
	add := func(n int, thread int32, m profile.Mode, state profile.State, names ...string) {
		s.add(n, thread, m, state, 10, s.stack(names...))
	}
	start, spin := coreMethod("PortableThreadPool+WorkerThread.WorkerThreadStart"),
		coreMethod("LowLevelLifoSemaphore.Wait")
	dispatch := coreMethod("ThreadPoolWorkQueue.Dispatch")
	for i := range 12 {
		w := worker(i)
		add(100, w, profile.Wall, profile.Waiting, runtimeName, start, spin, "libc.so.6!pthread_cond_timedwait")
		add(3, w, profile.CPU, profile.Running, runtimeName, start, spin, "libc.so.6!__sched_yield")
		add(1+i, w, profile.CPU, profile.Running, runtimeName, start, dispatch, submitName)
		add(1+i, w, profile.Wall, profile.Running, runtimeName, start, dispatch, submitName)
	}
	for i, role := range []string{"Signal handler", "EventPipe", "Finalizer", "Debugger"} {
		add(100, of(4400+i, ".NET "+role, role), profile.Wall, profile.Waiting,
			"libc.so.6!", runtimeName, "libc.so.6!__poll")
	}
	main := of(4242, "Shop", "Main")
	add(100, main, profile.Wall, profile.Waiting, MainName, waitName, "libc.so.6!pthread_cond_wait")
	add(9, main, profile.CPU, profile.Running, MainName, submitName, runtimeName, "libclrjit.so!", runtimeName)
	add(20, of(4500, ".NET Tiered Com", "Tiered compilation"), profile.CPU, profile.Running,
		"libc.so.6!", runtimeName, "libclrjit.so!")
	for i := range 2 {
		gc := of(4600+i, ".NET Server GC", "GC")
		add(30, gc, profile.CPU, profile.Running, "libc.so.6!", runtimeName)
		add(10, gc, profile.CPU, profile.Running)
		add(90, gc, profile.Wall, profile.Waiting, "libc.so.6!", runtimeName, "libc.so.6!pthread_cond_wait")
		add(10, gc, profile.Wall, profile.Running, "libc.so.6!", runtimeName)
	}
	r := s.Recording()
	r.Start, r.Duration = time.Date(2026, 3, 4, 5, 6, 7, 0, time.UTC), time.Second
	r.Processes = []snapshot.Process{{PID: 4242, Command: "dotnet Shop.dll --port 80"}}
	r.Modes = []profile.ModeStats{{Mode: profile.CPU, Rate: 99}, {Mode: profile.Wall, Rate: 99}}
	for i := range r.Modes {
		m := &r.Modes[i]
		for j := range r.Samples {
			if r.Samples[j].Mode == m.Mode {
				m.Samples++
			}
		}
	}
	r.Cost = profile.Cost{TargetCPU: 1500 * time.Millisecond, Processors: 4}
	return r
}

// coreMethod is the name of a method of .NET's threading.
func coreMethod(name string) string { return fmt.Sprintf("System.Threading.%s()", name) }
