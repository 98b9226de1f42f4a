package main

import (
	"time"

	"clrsnap"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// heapStopFlags are the flags for a heap of one moment.
type heapStopFlags struct {
	stop     bool
	maxPause time.Duration
	anyCPU   bool // --max-cpu was not given
}

func (f *heapStopFlags) register(fs *pflag.FlagSet, what string) {
	fs.BoolVar(&f.stop, "stop", false,
		"stop all threads while "+what+" read, so that everything is of one moment")
	fs.DurationVar(&f.maxPause, "max-pause", 2*time.Second,
		"with --stop: the longest stop; what takes longer is read without a stop. From 10ms to 1m")
}

// check refuses flags that make no sense. maxCPU is the number of CPUs that may be used.
func (f *heapStopFlags) check(cmd *cobra.Command, maxCPU float64) error {
	given := cmd.Flags().Changed
	f.anyCPU = !given("max-cpu")
	switch {
	case !f.stop && given("max-pause"):
		return usagef("--max-pause is for how long --stop may stop the program: give --stop as well")
	case f.stop && (f.maxPause < 10*time.Millisecond || f.maxPause > time.Minute):
		return usagef("--max-pause %v: give a time from 10ms to 1m", f.maxPause)
	case f.stop && maxCPU < 1:
		return usagef("--max-cpu %g would make the pause of --stop longer: give 1 or more, or leave out --max-cpu",
			maxCPU)
	}
	return nil
}

// apply sets the options of the flags.
func (f *heapStopFlags) apply(o *clrsnap.HeapOptions) {
	o.Stop, o.MaxPause = f.stop, f.maxPause
	if f.stop && f.anyCPU {
		o.MaxCPU = 0
	}
}
