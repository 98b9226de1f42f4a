package diagnose

import (
	"fmt"
	"os"

	"clrsnap/internal/confine"
	"clrsnap/internal/perfevent"
	"clrsnap/internal/target/live"
	"clrsnap/snapshot"
)

// Self lists the rights of this process, and the functions of clrsnap for which the rights are enough, with any
// target. Process is about a single target.
func Self() []snapshot.Check {
	var c checks
	for _, f := range live.CheckSelf() {
		v := snapshot.Fine
		if !f.OK {
			v = snapshot.Degraded
		}
		c.add(f.Check, v, f.Detail, f.Remedy)
	}
	c.ownSamples()
	c.confinement()
	return c
}

// ownSamples says which of three kinds of CPU samples are possible, by sampling this process.
func (c *checks) ownSamples() {
	const name = "record"
	e, err := perfevent.Open(perfevent.Options{PID: os.Getpid(), Kernel: true})
	if err != nil {
		what, remedy := samplesError(err)
		c.add(name, snapshot.Degraded, "by the clock only (--mode wall): "+what, remedy)
		return
	}
	defer e.Close()
	var detail, remedy string
	switch s, why := e.Scope(); s {
	case perfevent.Filtered:
		detail = "CPU samples of each CPU, those of other programs are dropped in the kernel: the best of three ways"
	case perfevent.Unfiltered:
		detail = fmt.Sprintf("CPU samples of each CPU, those of other programs are dropped by clrsnap: "+
			"the second of three ways, because %v", why)
		remedy = samplesRemedy
	default:
		detail = fmt.Sprintf("CPU samples of each thread: the last of three ways, because %v", why)
		remedy = samplesRemedy
	}
	if e.KernelExcluded() {
		detail += "; without time in the kernel"
	}
	v := snapshot.Fine
	if remedy != "" {
		v = snapshot.Degraded
	}
	c.add(name, v, detail, remedy)
}

// confinement names the rights that view and stack --core give up before a file is read.
func (c *checks) confinement() {
	const name = "view, stack --core"
	abi := confine.LandlockABI()
	const first = "capabilities and some system calls are given up before a file is read"
	switch {
	case abi == 0:
		c.add(name, snapshot.Degraded, first+
			"; access to files, signals and abstract sockets is not, because the kernel has no Landlock",
			"have the kernel start with landlock in lsm=")
	case abi < confine.WholeABI:
		c.add(name, snapshot.Fine, fmt.Sprintf("%s, and what version %d of Landlock's interface can deny; "+
			"a newer kernel denies signals and abstract sockets, too", first, abi), "")
	default:
		c.add(name, snapshot.Fine, fmt.Sprintf("%s, and by Landlock (version %d of its interface) access to files, "+
			"TCP, signals and abstract sockets", first, abi), "")
	}
}
