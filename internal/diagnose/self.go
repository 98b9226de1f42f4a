package diagnose

import (
	"fmt"
	"os"

	"clrsnap/internal/confine"
	"clrsnap/internal/perfevent"
	"clrsnap/internal/target/live"
)

// Self tells what this process is allowed, and what can be done with that,
// whatever process is going to be looked at. Process is about one process.
func Self() []Check {
	var d diagnosis
	for _, f := range live.CheckSelf() {
		v := Fine
		if !f.OK {
			v = Degraded
		}
		d.add(f.Check, v, f.Detail, f.Remedy)
	}
	d.ownSamples()
	d.confinement()
	return d.checks
}

// ownSamples tells in which of three ways the use of processors can be sampled, by
// sampling this process.
func (d *diagnosis) ownSamples() {
	const name = "record"
	e, err := perfevent.Open(perfevent.Options{PID: os.Getpid(), Kernel: true})
	if err != nil {
		what, remedy, _ := cutRemedy(err.Error())
		d.add(name, Degraded, "by the clock only (--mode wall): "+what, remedy)
		return
	}
	defer e.Close()
	var detail, remedy string
	switch s, why := e.Scope(); s {
	case perfevent.Filtered:
		detail = "CPU samples of each processor, what others do is dropped in the kernel: the best of three ways"
	case perfevent.Unfiltered:
		detail, remedy = fmt.Sprintf("CPU samples of each processor, what others do is dropped here: the second of three ways, because %v", why), samplesRemedy
	default:
		detail, remedy = fmt.Sprintf("CPU samples of each thread: the last of three ways, because %v", why), samplesRemedy
	}
	if e.KernelExcluded() {
		detail += "; without time in the kernel"
	}
	v := Fine
	if remedy != "" {
		v = Degraded
	}
	d.add(name, v, detail, remedy)
}

// confinement tells what view and stack --core deny themselves.
func (d *diagnosis) confinement() {
	const name = "view, stack --core"
	abi := confine.LandlockABI()
	const first = "capabilities and some system calls are given up before a file is read"
	switch {
	case abi == 0:
		d.add(name, Degraded, first+"; the kernel has no Landlock, so files, signals and abstract sockets are not", "have the kernel start with landlock in lsm=")
	case abi < confine.WholeABI:
		d.add(name, Fine, fmt.Sprintf("%s, and what Landlock knows of in version %d of its interface; a newer kernel denies signals and abstract sockets, too", first, abi), "")
	default:
		d.add(name, Fine, fmt.Sprintf("%s, and by Landlock (version %d of its interface) files, TCP, signals and abstract sockets", first, abi), "")
	}
}
