package awaits

import (
	"encoding/binary"

	"clrsnap/internal/arch"
	"clrsnap/internal/clr/async"
	"clrsnap/internal/clr/thread"
	"clrsnap/internal/target"
)

// In a native AOT program the static fields of a thread have no names. The field with the address of the thread's
// newest structure (resuming.go) is found by the structure: the field refers to a structure on the thread's own stack,
// and the structure has a task. A program without a running method that was resumed has no such field, and needs none.

// maxBlockBytes bounds the static fields of threads that one search reads.
const maxBlockBytes = 4 << 20

// dispatcherFields are the places of the structure's fields in our description.
type dispatcherFields struct {
	Next         uint32 `clr:"System.Runtime.CompilerServices.AsyncDispatcherInfo.Next"`
	Continuation uint32 `clr:"System.Runtime.CompilerServices.AsyncDispatcherInfo.NextContinuation"`
	Task         uint32 `clr:"System.Runtime.CompilerServices.AsyncDispatcherInfo.CurrentTask"`
}

// findDispatcherAhead is findDispatcher for a native AOT program.
func (p *Program) findDispatcherAhead() (d dispatcher, err error) {
	var l dispatcherFields
	if err := p.engine.Layout.Bind(&l); err != nil {
		return d, err
	}
	d.layout = async.DispatcherLayout(l)
	list, err := p.managed.Threads.List()
	left := maxBlockBytes
	for i := range list {
		b, ok := p.managed.Threads.Block(list[i].Address)
		if !ok {
			continue
		}
		if left -= int(b.Size); left < 0 {
			break
		}
		if d.field, ok = p.dispatcherIn(&b, d.layout); ok {
			return d, nil
		}
	}
	if err == nil {
		err = async.ErrNotDispatching
	}
	return d, err
}

// dispatcherIn finds the field among the static fields of a thread.
func (p *Program) dispatcherIn(b *thread.Block, l async.DispatcherLayout) (field uint32, ok bool) {
	data, err := target.NewReader(p.engine.Cache).Bytes(b.At, int(b.Size))
	if err != nil {
		return 0, false
	}
	for off := objectHeader; off+8 <= len(data); off += 8 {
		at := arch.Addr(binary.LittleEndian.Uint64(data[off:]))
		if at.In(b.Low, b.High) && at%8 == 0 && p.AsyncReader().IsDispatching(at, b.High, l) {
			return uint32(off), true
		}
	}
	return 0, false
}

// Dispatching reads all structures of a thread about tasks with running methods, the newest first; none: the place of
// the newest is not known. CanResume has found the dispatcher.
func (p *Program) Dispatching(thread arch.Addr) ([]async.Dispatching, error) {
	newest, ok := p.newestDispatcher(thread)
	if !ok {
		return nil, nil
	}
	return p.AsyncReader().AllDispatching(newest, p.dispatcher.layout)
}

// newestDispatcher is the place of the address of a thread's newest structure; false: not known. In a native AOT
// program the place moves with the static fields.
func (p *Program) newestDispatcher(thread arch.Addr) (arch.Addr, bool) {
	if p.runtime == nil {
		b, ok := p.managed.Threads.Block(thread)
		return b.At + arch.Addr(p.dispatcher.field), ok && p.dispatcher.field <= b.Size-8
	}
	data := p.managed.Threads.LocalData(thread)
	return data + arch.Addr(p.dispatcher.field), data != 0
}
