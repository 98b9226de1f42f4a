package live

import (
	"cmp"
	"errors"
	"fmt"
	"math/bits"
	"os"
	"slices"
	"strings"

	"clrsnap/internal/procfs"
	"clrsnap/internal/target/iter"

	"golang.org/x/sys/unix"
)

// useful lists the capabilities that clrsnap can use.
var useful = []int{
	unix.CAP_SYS_PTRACE,
	unix.CAP_PERFMON,
	unix.CAP_BPF,
	unix.CAP_DAC_READ_SEARCH,
	unix.CAP_DAC_OVERRIDE,
	unix.CAP_SETUID,
	unix.CAP_SETGID,
	unix.CAP_CHECKPOINT_RESTORE,
	unix.CAP_SYS_NICE,
	unix.CAP_SYS_ADMIN,
}

// capabilityNames are the names of capabilities, by number (capabilities(7), linux/capability.h).
var capabilityNames = strings.Fields(`CHOWN DAC_OVERRIDE DAC_READ_SEARCH FOWNER FSETID KILL SETGID SETUID SETPCAP
	LINUX_IMMUTABLE NET_BIND_SERVICE NET_BROADCAST NET_ADMIN NET_RAW IPC_LOCK IPC_OWNER SYS_MODULE SYS_RAWIO SYS_CHROOT
	SYS_PTRACE SYS_PACCT SYS_ADMIN SYS_BOOT SYS_NICE SYS_RESOURCE SYS_TIME SYS_TTY_CONFIG MKNOD LEASE AUDIT_WRITE
	AUDIT_CONTROL SETFCAP MAC_OVERRIDE MAC_ADMIN SYSLOG WAKE_ALARM BLOCK_SUSPEND AUDIT_READ PERFMON BPF
	CHECKPOINT_RESTORE`)

// capabilityName is the name of a capability, or the number of a capability newer than the list.
func capabilityName(number int) string {
	if number < len(capabilityNames) {
		return "CAP_" + capabilityNames[number]
	}
	return fmt.Sprintf("capability %d", number)
}

// capabilities lists the names of a set of capabilities.
func capabilities(set uint64) string {
	var out []string
	for n := range 64 {
		if set&(1<<n) != 0 {
			out = append(out, capabilityName(n))
		}
	}
	return strings.Join(out, ", ")
}

// ForOthers are the capabilities, as bits, for acting on behalf of another user. Only that user
// may read the environment and use the diagnostics socket of the user's processes, and the
// agent's folder is made with the user's rights. forEvents are the capabilities for loading the
// agent into another user's programs.
const (
	ForOthers uint64 = 1<<unix.CAP_DAC_OVERRIDE | 1<<unix.CAP_SETUID | 1<<unix.CAP_SETGID
	forEvents        = ForOthers | 1<<unix.CAP_SYS_PTRACE
)

// CheckSelf reports the rights of our process, and which processes we may therefore look at.
func CheckSelf() []Finding {
	me := whoAmI()
	reads := me.readsFinding()
	return []Finding{
		{Check: "user", OK: true, Detail: fmt.Sprintf("uid %d gid %d, %s", me.uid, me.gid, me.namespaceText())},
		me.capabilitiesFinding(),
		{Check: "no_new_privs", OK: true, Detail: noNewPrivs()},
		ownSeccomp(&me),
		{Check: "kernel.yama.ptrace_scope", OK: true, Detail: yamaText(me.yama)},
		{Check: "kernel.perf_event_paranoid", OK: true,
			Detail: cmp.Or(procfs.Sysctl("kernel/perf_event_paranoid"), "not in this kernel")},
		reads,
		registersFinding(),
		me.eventsFinding(&reads),
	}
}

// namespaceText describes our user namespace (user_namespaces(7)).
func (s *self) namespaceText() string {
	if inFirstNamespace() {
		return "in the user namespace of the machine"
	}
	return "in a user namespace of its own: capabilities count for what belongs to that one"
}

// inFirstNamespace reports whether we are in the initial user namespace.
func inFirstNamespace() bool {
	dir, err := procfs.Self()
	if err != nil {
		return false
	}
	defer dir.Close()
	ids, err := dir.UIDMap()
	return err == nil && slices.Equal(ids, []procfs.IDRange{{Inside: 0, Outside: 0, Count: 1<<32 - 1}})
}

// all describes the processes of all users that our capabilities cover.
func all() string {
	if inFirstNamespace() {
		return "processes of all users"
	}
	return "processes of all users of our user namespace"
}

// CapabilityNames returns the names of the useful capabilities in a set, and the number of other
// capabilities.
func CapabilityNames(set uint64) (names []string, others int) {
	others = bits.OnesCount64(set)
	for _, c := range useful {
		if set&(1<<c) != 0 {
			names = append(names, capabilityName(c))
			others--
		}
	}
	return names, others
}

func (s *self) capabilitiesFinding() Finding {
	f := Finding{Check: "capabilities", OK: true, Detail: "none"}
	names, others := CapabilityNames(s.CapEff)
	if len(names) > 0 {
		f.Detail = strings.Join(names, ", ")
	}
	if others > 0 {
		f.Detail += fmt.Sprintf(", and %d that serve for nothing here", others)
		f.Remedy = "fewer do: an ordinary user can run a clrsnap with setcap cap_sys_ptrace,cap_perfmon,cap_bpf+ep; " +
			"for --event with programs of others also cap_dac_override,cap_setuid,cap_setgid"
	}
	return f
}

func noNewPrivs() string {
	if set, err := unix.PrctlRetInt(unix.PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0); err == nil && set != 0 {
		return "set: sudo and setcap give nothing more"
	}
	return "not set"
}

// ownSeccomp reports whether a seccomp filter is set on us.
func ownSeccomp(me *self) Finding {
	f := seccompFinding(me)
	if me.Seccomp != 0 && f.OK {
		f.Detail += ", which allows ptrace"
	}
	return f
}

func yamaText(scope string) string {
	switch scope {
	case "":
		return "not in this kernel"
	case "0":
		return "0: a user's processes may be looked at by that user"
	case "1":
		return "1: without CAP_SYS_PTRACE only what clrsnap has started may be looked at"
	case "2":
		return "2: without CAP_SYS_PTRACE nothing may be looked at"
	}
	return scope + ": nobody may look at anything until the machine is restarted"
}

// readsFinding reports whose processes can be looked at.
func (s *self) readsFinding() Finding {
	f := Finding{Check: "ps, stack", OK: true, Detail: fmt.Sprintf("processes of user %d", s.uid)}
	switch {
	case s.yama == "3":
		f.OK, f.Detail, f.Remedy = false, "no process",
			"set kernel.yama.ptrace_scope below 3 in /etc/sysctl.d and restart the machine"
	case s.caps:
		f.Detail = all()
		if s.CapEff&(1<<unix.CAP_DAC_READ_SEARCH|1<<unix.CAP_DAC_OVERRIDE) == 0 {
			f.Detail += "; names only from files that everybody may read (CAP_DAC_READ_SEARCH reads the others)"
		}
	case s.yama == "2":
		f.OK, f.Detail, f.Remedy = false, "no process", s.rootAdvice()
	case s.yama == "1":
		f.OK, f.Detail, f.Remedy = false, "only programs that clrsnap record starts", s.rootAdvice()
	}
	return f
}

// registersFinding reports whether Look works, or threads that are not blocked must be stopped.
func registersFinding() Finding {
	f := Finding{Check: "registers", OK: true,
		Detail: "told by the kernel: only a thread that keeps a CPU for 20 ms is stopped for its stack"}
	it, err := iter.New(os.Getpid())
	if err == nil {
		it.Close()
		return f
	}
	f.OK, f.Detail = false, "threads that are not blocked are stopped for their stacks: "+err.Error()
	var unavailable *iter.Error
	if errors.As(err, &unavailable) {
		f.Remedy = unavailable.Remedy
	}
	return f
}

// eventsFinding reports which of the readable processes can load the agent.
func (s *self) eventsFinding(reads *Finding) Finding {
	f := Finding{Check: "record --event", OK: true, Detail: fmt.Sprintf("processes of user %d", os.Geteuid())}
	switch lacks, _ := CapabilityNames(forEvents &^ s.CapEff); {
	case !reads.OK:
		f.OK, f.Detail = false, reads.Detail
	case len(lacks) == 0:
		f.Detail = all()
	default:
		f.Detail += "; those of others take " + strings.Join(lacks, ", ")
	}
	return f
}
