package main

import (
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"clrsnap/events"
	"clrsnap/profile"
)

// eventFlags choose the notifications to record.
type eventFlags struct {
	events         []string
	allocEvery     string
	everyObject    bool
	exceptionEvery int64
	contentionMin  time.Duration
	waitMin        time.Duration
	noMessages     bool
	live           bool
	gc             bool

	allocBytes int64
}

func (f *eventFlags) register(cmd *cobra.Command) {
	fs := cmd.Flags()
	fs.StringSliceVarP(&f.events, "event", "e", nil,
		"record `events`, with stacks: alloc, exception, contention, thread, gc, wait, or all")
	fs.StringVar(&f.allocEvery, "alloc-every", "512KB",
		"the allocated `bytes` for each recorded allocation; without --every-object 100KB or more")
	fs.BoolVar(&f.everyObject, "every-object", false,
		"have the runtime report every object to the agent; only for a COMMAND, and slow")
	fs.BoolVar(&f.live, "live", false,
		"with --event alloc: also the sampled objects that are still alive at the end, by allocating code")
	fs.BoolVar(&f.gc, "gc", false,
		"with --live: a full garbage collection at the end; the program is stopped meanwhile")
	fs.Int64Var(&f.exceptionEvery, "exception-every", 1, "the `number` of exceptions for each recorded exception")
	fs.BoolVar(&f.noMessages, "no-messages", false, "do not record the messages of exceptions")
	fs.DurationVar(&f.contentionMin, "contention-min", 0, "record only waits for locks of at least a `time`")
	fs.DurationVar(&f.waitMin, "wait-min", defaultWaitMin,
		"with --event wait: record only waits of at least a `time`")
	complete(cmd, "event", append(eventNames(), "all")...)
}

// defaultWaitMin is the shortest recorded wait. Shorter waits are many, and together the short waits seldom take much
// of the time.
const defaultWaitMin = time.Millisecond

func eventNames() []string {
	var out []string
	for _, m := range profile.Modes {
		if m.OfEvents() && m != profile.Live { // live objects have --live
			out = append(out, m.String())
		}
	}
	return out
}

// check refuses flags that make no sense.
func (f *eventFlags) check(cmd *cobra.Command) error {
	for _, e := range f.events {
		if err := oneOf("event", e, append(eventNames(), "all")...); err != nil {
			return err
		}
	}
	if len(f.events) == 0 {
		for _, name := range []string{
			"alloc-every", "every-object", "exception-every", "no-messages", "contention-min", "wait-min",
		} {
			if cmd.Flags().Changed(name) {
				return usagef("--%s is for --event", name)
			}
		}
	}
	if err := f.checkLive(cmd); err != nil {
		return err
	}
	var err error
	if f.allocBytes, err = parseBytes(f.allocEvery); err != nil {
		return err
	}
	if native, _ := cmd.Flags().GetBool("native"); native && len(f.events) > 0 {
		return usagef("--native and --event exclude each other: events come from a .NET runtime")
	}
	if f.everyObject && cmd.ArgsLenAtDash() != 0 {
		return usagef("--every-object is for a COMMAND, for example "+
			"%s --event alloc --every-object -- dotnet MyService.dll: "+
			"the runtime reports every object only to an agent that is loaded at the start", cmd.CommandPath())
	}
	if f.exceptionEvery < 1 {
		return usagef("--exception-every %d: give 1 for each, or a larger number", f.exceptionEvery)
	}
	if f.contentionMin < 0 {
		return usagef("--contention-min %v: give a positive time, for example 1ms, or 0 for all", f.contentionMin)
	}
	if f.waitMin < 0 {
		return usagef("--wait-min %v: give a positive time, for example 1ms, or 0 for all", f.waitMin)
	}
	return nil
}

// checkLive refuses --live and --gc where the flags make no sense.
func (f *eventFlags) checkLive(cmd *cobra.Command) error {
	allocations := slices.Contains(f.events, "alloc") || slices.Contains(f.events, "all")
	switch {
	case f.live && !allocations:
		return usagef("--live is for --event alloc, such as %s 4242 --event alloc --live: "+
			"--live shows the sampled allocations that are still alive at the end", cmd.CommandPath())
	case f.gc && !f.live:
		return usagef("--gc is for --live, such as %s 4242 --event alloc --live --gc: "+
			"--gc collects garbage before clrsnap looks for live allocations", cmd.CommandPath())
	}
	return nil
}

// byteUnits are the units of --alloc-every. KB and KiB are the same, as in most tools for memory.
var byteUnits = map[string]float64{
	"": 1, "b": 1, "k": 1 << 10, "kb": 1 << 10, "kib": 1 << 10, "m": 1 << 20, "mb": 1 << 20, "mib": 1 << 20,
}

func parseBytes(s string) (int64, error) {
	n := strings.TrimRight(strings.ToLower(s), "bikm ")
	unit, ok := byteUnits[strings.TrimSpace(strings.ToLower(s)[len(n):])]
	v, err := strconv.ParseFloat(n, 64)
	if err != nil || !ok || !(v*unit >= 1) || v*unit > 1<<40 {
		return 0, usagef("--alloc-every %q: give a number of bytes such as 512KB or 1MB", s)
	}
	return int64(v * unit), nil
}

// options returns the options of the flags. Monitor is 0 if there is no --event.
func (f *eventFlags) options() events.Options {
	o := events.Options{
		AllocationBytes: f.allocBytes, EveryObject: f.everyObject,
		ExceptionEvery: f.exceptionEvery, NoMessages: f.noMessages, ContentionMin: f.contentionMin,
		WaitMin: f.waitMin,
	}
	bits := map[string]events.Monitor{
		"alloc": events.MonitorAllocations, "exception": events.MonitorExceptions,
		"contention": events.MonitorContention, "thread": events.MonitorThreads, "gc": events.MonitorGC,
		"wait": events.MonitorWaits, "all": events.MonitorAll,
	}
	for _, e := range f.events {
		o.Monitor |= bits[e]
	}
	return o
}
