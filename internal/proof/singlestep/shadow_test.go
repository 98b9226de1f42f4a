package singlestep

import (
	"testing"

	"golang.org/x/sys/unix"
)

// script is a thread driven by the test: a memory of words, two stacks.
type script struct {
	t     *testing.T
	s     shadow
	regs  unix.PtraceRegs
	words map[uint64]uint64
}

const (
	ordinary = 0x10000 // the stacks' ends
	signalTo = 0x30000
)

func (m *script) word(addr uint64) (uint64, bool) { v, ok := m.words[addr]; return v, ok }
func (m *script) returns(ip uint64) bool          { return ip&0xf000 == 0xf000 }
func (m *script) stackOf(sp uint64) int {
	if sp > 0x20000 {
		return 1
	}
	return 0
}

func newScript(t *testing.T) *script {
	m := &script{t: t, words: map[uint64]uint64{}}
	m.regs.Rip, m.regs.Rsp = 0x1000, ordinary
	return m
}

// do executes an instruction with these registers as its result.
func (m *script) do(in insn, rip, rsp uint64, delivered int) {
	before := m.regs
	m.regs.Rip, m.regs.Rsp = rip, rsp
	m.s.update(&transition{in: in, before: &before, after: &m.regs, delivered: delivered}, m)
}

func (m *script) call(to uint64) {
	back := m.regs.Rip + 5
	m.words[m.regs.Rsp-8] = back
	m.do(insn{class: call, length: 5}, to, m.regs.Rsp-8, 0)
}

func (m *script) plain(rip, rsp uint64) { m.do(insn{}, rip, rsp, 0) }
func (m *script) ret() {
	m.do(insn{class: ret}, m.words[m.regs.Rsp], m.regs.Rsp+8, 0)
}

// want checks the callers' instruction pointers, newest first.
func (m *script) want(what string, ips ...uint64) {
	m.t.Helper()
	f := m.s.frames
	ok := len(f) == len(ips)
	for i := range ips {
		ok = ok && f[len(f)-1-i].ip == ips[i]
	}
	if !ok {
		m.t.Errorf("%s: %+v, want %#x", what, f, ips)
	}
}

func TestCallsAndReturns(t *testing.T) {
	m := newScript(t)
	m.call(0x2000)
	m.plain(0x2001, m.regs.Rsp-0x20) // sub rsp
	m.call(0x3000)
	m.want("two calls", 0x2006, 0x1005)
	m.ret()
	m.want("one returned", 0x1005)
	m.plain(0x2010, m.regs.Rsp+0x20)
	m.ret()
	m.want("both returned")
	if m.s.count.rets != 2 || m.s.count.calls != 2 {
		t.Errorf("%+v", m.s.count)
	}
}

func TestTailCallAndPushRet(t *testing.T) {
	m := newScript(t)
	m.call(0x2000)
	m.plain(0x5000, m.regs.Rsp) // jmp
	m.want("tail call", 0x1005)
	m.words[m.regs.Rsp-8] = 0x6000
	m.plain(0x5001, m.regs.Rsp-8) // push
	m.ret()                       // to the pushed address
	m.want("push and ret", 0x1005)
	if m.s.count.jumps != 1 {
		t.Errorf("%+v", m.s.count)
	}
	m.ret()
	m.want("returned")
}

func TestLongJumpDropsFrames(t *testing.T) {
	m := newScript(t)
	for range 4 {
		m.plain(m.regs.Rip, m.regs.Rsp-0x40)
		m.call(m.regs.Rip + 0x1000)
	}
	m.plain(0x9000, ordinary-0x40) // rsp and rip at once
	m.want("all but the first frame's caller are gone")
	if m.s.count.dropped != 4 || m.s.leaving {
		t.Errorf("%+v, leaving %v", m.s.count, m.s.leaving)
	}
}

func TestHijackedReturn(t *testing.T) {
	m := newScript(t)
	m.call(0x2000)
	m.words[m.regs.Rsp] = 0x8000 // the runtime's helper
	m.ret()
	m.want("in the helper", 0x1005)
	m.plain(0x8001, m.regs.Rsp-8) // push rax
	m.words[m.regs.Rsp] = 0x1005
	m.call(0x9000)
	m.want("the helper calls", 0x8006, 0x1005)
	m.ret()
	m.ret()
	m.want("back where the call came from")
	if m.s.count.hijacks != 1 {
		t.Errorf("%+v", m.s.count)
	}
}

func TestSignalOnItsOwnStack(t *testing.T) {
	m := newScript(t)
	m.call(0x2000)
	m.signal(signalTo - 0x1000)
	m.want("in the handler", 0xf777, 0x2000, 0x1005)
	m.call(0x5000)
	m.want("the handler calls", 0x4005, 0xf777, 0x2000, 0x1005)
	m.ret()
	m.ret()
	m.regs.Rax = unix.SYS_RT_SIGRETURN
	m.do(insn{class: enter}, 0x2000, ordinary-8, 0)
	m.want("returned from the handler", 0x1005)
	if m.s.count.signals != 1 || m.s.count.sigreturns != 1 {
		t.Errorf("%+v", m.s.count)
	}
}

// signal delivers a signal whose handler is at 0x4000.
func (m *script) signal(sp uint64) {
	context := sp + frameContext + contextRegs
	m.words[context+8*regRip], m.words[context+8*regRsp] = m.regs.Rip, m.regs.Rsp
	m.words[sp] = 0xf777
	m.do(insn{}, 0x4000, sp, int(unix.SIGSEGV))
}

func TestFaultHandledOnTheOrdinaryStack(t *testing.T) {
	m := newScript(t)
	m.call(0x2000)
	m.signal(signalTo - 0x1000)
	m.call(0x5000)
	m.words[ordinary-0x200] = 0xf123 // built by hand
	m.plain(0x6000, ordinary-0x200)  // iretq
	m.want("on the ordinary stack", 0xf123, 0x2000, 0x1005)
	m.plain(0x5001, signalTo-0x1008) // iretq back
	m.want("back on the signal stack", 0x4005, 0xf777, 0x2000, 0x1005)
	if m.s.count.switches != 1 || m.s.count.backs != 1 {
		t.Errorf("%+v", m.s.count)
	}
}

func TestLeaving(t *testing.T) {
	m := newScript(t)
	m.plain(0x1000, ordinary-0x40)
	m.call(0x2000)
	m.plain(0x2007, ordinary-0x40) // mov rsp, [r10+98h]
	if !m.s.leaving {
		t.Fatal("a leaf without a frame of its own is not noticed")
	}
	m.plain(0x99000, ordinary-0x40) // jmp rax
	if m.s.leaving {
		t.Fatal("it has left")
	}
	m.want("resumed")
}

// A walk with fewer frames is incomplete only if the walk says so and tells no
// lies.
func TestJudge(t *testing.T) {
	tr := truth{leaf: frame{ip: 1, sp: 8}, below: []frame{{ip: 3, sp: 24}, {ip: 2, sp: 16}}}
	all := []seen{{ip: 1, sp: 8}, {ip: 2, sp: 16}, {ip: 3, sp: 24}}
	for _, tt := range []struct {
		name     string
		got      []seen
		complete bool
		want     Verdict
	}{
		{"all", all, true, equal},
		{"all, unsure", all, false, unsure},
		{"a prefix that claims to be all", all[:2], true, wrong},
		{"a prefix", all[:2], false, incomplete},
		{"a gap", []seen{all[0], all[2]}, false, incomplete},
		{"another ip", []seen{all[0], {ip: 9, sp: 16}, all[2]}, true, wrong},
		{"another sp, unsure", []seen{all[0], {ip: 2, sp: 15}}, false, wrong},
		{"one too many", append(all[:3:3], seen{ip: 4, sp: 32}), true, wrong},
		{"out of order", []seen{all[0], all[2], all[1]}, false, wrong},
	} {
		if v := tr.judge(tt.got, walkResult(tt.complete)); v != tt.want {
			t.Errorf("%s: %v, want %v", tt.name, v, tt.want)
		}
	}
	tr.below[1].saved, tr.below[1].savedKnown = [6]uint64{7}, true
	lies := append([]seen(nil), all...)
	lies[1].valid[0] = true
	if v := tr.judge(lies, walkResult(true)); v != registers {
		t.Errorf("a register that is 0 instead of 7: %v", v)
	}
}

// On-stack replacement is a jump, with the stack pointer at the slot of a call that
// never returns; the runner, which knows methods, takes the call's frame away.
func TestLeavingToASlot(t *testing.T) {
	m := newScript(t)
	m.call(0x2000)
	slot := m.regs.Rsp
	m.plain(0x2001, slot-0x40)
	m.call(0x3000)
	m.plain(0x3007, slot) // mov rsp, [r10+98h]
	m.want("the helper's own frame is gone", 0x1005)
	if !m.s.leaving {
		t.Error("not noticed")
	}
}
