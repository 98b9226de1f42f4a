package live

import (
	"errors"
	"fmt"
	"os"

	"clrsnap/internal/procfs"

	"golang.org/x/sys/unix"
)

// Finding is the outcome of one check before attaching.
type Finding struct {
	Check  string // what was looked at
	OK     bool   // no obstacle to attaching
	Detail string // what was found
	Remedy string // what helps; "" where OK, or where another finding has the remedy
}

// CheckAccess checks every condition for attaching to pid, one by one, and at last tries to
// attach. A check that our capabilities override is OK.
func CheckAccess(pid int) []Finding {
	if err := CheckProc(pid); err != nil {
		return []Finding{failed("process", err)}
	}
	out := []Finding{{Check: "process", OK: true, Detail: fmt.Sprintf("%d (%s)", pid, commOf(pid))}}
	dir, err := procfs.Open(pid)
	if pid <= 0 || err != nil {
		return []Finding{failed("process", missingError(pid))}
	}
	defer dir.Close()
	p := &Process{pid: pid, dir: dir.FD(), pidfd: -1, memFD: -1}
	st, su, err := p.readSelf()
	if err != nil {
		return []Finding{failed("process", p.unseen(err))}
	}
	if err := checkKind(pid, &st, &su); err != nil {
		return []Finding{failed("process", err)}
	}
	out = append(out, accessFindings(dir)...)
	if err := checkMachine(pid, dir.FD()); err != nil {
		out = append(out, failed("architecture", err))
	} else {
		out = append(out, Finding{Check: "architecture", OK: true, Detail: hostArch.Name})
	}
	q, err := OpenDir(dir)
	if err != nil {
		f := failed("memory", err)
		f.Remedy = "" // the causes above have their own remedies
		if errors.Is(err, ErrPermission) {
			f.Detail = ErrPermission.Error() // likewise
		}
		return append(out, f)
	}
	defer q.Close()
	how := "process_vm_readv"
	if q.noVM.Load() {
		how = "/proc/<pid>/mem (process_vm_readv is denied, probably by a seccomp filter: captures are a little slower)"
	}
	out = append(out, Finding{Check: "memory", OK: true, Detail: "can be read with " + how})
	return append(out, schedstatFinding(q))
}

func failed(check string, err error) Finding {
	f := Finding{Check: check, Detail: err.Error()}
	var ae *AttachError
	if errors.As(err, &ae) {
		f.Remedy, f.Detail = ae.Remedy, ae.Err.Error()
		if ae.Detail != "" {
			f.Detail += " (" + ae.Detail + ")"
		}
	}
	return f
}

// accessFindings are the checks of rights.
func accessFindings(dir procfs.Dir) []Finding {
	me := whoAmI()
	su, _ := dir.Status() // for an exited process nothing is known
	userNS, nsErr := dir.Readlink("ns/user")
	// The capability counts in the target's user namespace. If that namespace cannot be read
	// (reading takes the same right), assume ours.
	otherNS := nsErr == nil && userNS != me.userNS
	mighty := me.caps && (nsErr == nil || os.Geteuid() != 0)
	return saidOnce([]Finding{
		userFinding(&me, &su, mighty),
		namespaceFinding(&me, otherNS, nsErr),
		capabilityFinding(&me, &su, mighty),
		dumpableFinding(&me, &su, dir, mighty),
		yamaFinding(&me, mighty),
		tracerFinding(&su),
		seccompFinding(&me),
	})
}

// saidOnce removes a remedy that an earlier finding has.
func saidOnce(all []Finding) []Finding {
	said := map[string]bool{}
	for i := range all {
		if f := &all[i]; said[f.Remedy] {
			f.Remedy = ""
		} else {
			said[f.Remedy] = true
		}
	}
	return all
}

func userFinding(me *self, su *procfs.Status, mighty bool) Finding {
	f := Finding{Check: "user", OK: true, Detail: fmt.Sprintf("runs as uid %d, as we do", su.UID.Effective)}
	if sameIDs(su.UID, me.uid) && sameIDs(su.GID, me.gid) {
		return f
	}
	if su.UID.Effective < 0 {
		f.Detail = "cannot be told"
		return f
	}
	f.OK = mighty
	f.Detail = fmt.Sprintf("it runs as uid %d gid %d, we as uid %d gid %d",
		su.UID.Effective, su.GID.Effective, me.uid, me.gid)
	if !f.OK {
		f.Remedy = fmt.Sprintf("run as the same user (uid %d gid %d), or %s",
			su.UID.Effective, su.GID.Effective, me.rootAdvice())
	}
	return f
}

func namespaceFinding(me *self, other bool, err error) Finding {
	f := Finding{Check: "user namespace", OK: true, Detail: "the same as ours"}
	switch {
	case err != nil && me.caps:
		f.OK = false
		f.Detail = "the process belongs to a user namespace where we have no rights"
		f.Remedy = me.rootAdvice()
	case err != nil:
		f.Detail = "not known"
	case other:
		f.Detail = "not the same as ours"
	}
	return f
}

func capabilityFinding(me *self, su *procfs.Status, mighty bool) Finding {
	f := Finding{Check: "capabilities", OK: true, Detail: "CAP_SYS_PTRACE is not needed"}
	switch extra := su.CapPrm &^ me.CapPrm; {
	case me.caps:
		f.Detail = "we have CAP_SYS_PTRACE"
	case !sameIDs(su.UID, me.uid): // the user finding names the cause and the remedy
	case extra != 0 && !mighty:
		f.OK = false
		f.Detail = "the process has capabilities that we lack: " + capabilities(extra)
		f.Remedy = me.rootAdvice()
	}
	return f
}

func dumpableFinding(me *self, su *procfs.Status, dir procfs.Dir, mighty bool) Finding {
	f := Finding{Check: "dumpable", OK: true, Detail: "yes"}
	if dumpable(dir, su) {
		return f
	}
	f.OK = mighty
	f.Detail = "it is not dumpable (a program with set-user-id or file capabilities, " +
		"or one that its user cannot read, or prctl(PR_SET_DUMPABLE))"
	if !f.OK {
		f.Remedy = me.rootAdvice()
	}
	return f
}

func yamaFinding(me *self, mighty bool) Finding {
	f := Finding{Check: "kernel.yama.ptrace_scope", OK: true, Detail: me.yama}
	switch me.yama {
	case "":
		f.Detail = "not in this kernel"
	case "0":
	case "3":
		f.OK = false
		f.Detail = "kernel.yama.ptrace_scope is 3: nobody may attach, and this lasts until the next start of " +
			"the machine"
		f.Remedy = "set kernel.yama.ptrace_scope below 3 in /etc/sysctl.d and restart the machine"
	case "2":
		f.OK = mighty
		f.Detail = "kernel.yama.ptrace_scope is 2: only root may attach"
	default:
		f.OK = mighty
		f.Detail = "kernel.yama.ptrace_scope is " + me.yama + ": only a parent may attach"
	}
	if !f.OK && f.Remedy == "" {
		f.Remedy = me.rootAdvice() + ", or set kernel.yama.ptrace_scope=0 (sysctl)"
	}
	return f
}

func tracerFinding(su *procfs.Status) Finding {
	f := Finding{Check: "tracer", OK: true, Detail: "none"}
	if su.TracerPID != 0 {
		f.OK = false
		f.Detail = fmt.Sprintf("process %d (%s) traces it: threads cannot be stopped", su.TracerPID,
			commOf(su.TracerPID))
		f.Remedy = "end that debugger or tracer"
	}
	return f
}

func seccompFinding(me *self) Finding {
	f := Finding{Check: "seccomp", OK: true, Detail: "no filter on us"}
	if me.Seccomp == 0 {
		return f
	}
	f.Detail = "a filter is set on us"
	if _, _, e := unix.RawSyscall6(unix.SYS_PTRACE, unix.PTRACE_INTERRUPT, 0, 0, 0, 0, 0); e != unix.ESRCH {
		f.OK = false
		f.Detail = "a filter denies ptrace to us"
		f.Remedy = "add --cap-add=SYS_PTRACE to the container (container engines allow ptrace with it), " +
			"or --security-opt seccomp=unconfined"
	}
	return f
}

func schedstatFinding(p *Process) Finding {
	f := Finding{Check: "schedstat", OK: true, Detail: "blocked threads can be captured without stopping them"}
	if w, err := p.ThreadWait(int(p.lead.Load())); err != nil || w.Runs == 0 {
		f.Detail = "this kernel does not count the runs of threads: blocked threads are stopped like others"
	}
	return f
}
