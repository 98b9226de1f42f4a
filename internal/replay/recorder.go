package replay

import (
	"io"

	"clrsnap/internal/arch"
	"clrsnap/internal/engine"
	"clrsnap/internal/target"
	"clrsnap/internal/target/live"
	"clrsnap/internal/walk"
)

// Capture records everything that walks of threads need. It opens a new engine on the source, so
// no cache holds anything yet, and walks each thread in every way. The threads' stacks are
// copies, or stand still. The results become the threads' Walks; an oracle with better knowledge
// replaces them by the truth.
func Capture(src engine.Source, threads []*Thread, note string) (*Corpus, error) {
	exe, err := src.Executable()
	if err != nil {
		return nil, err
	}
	m := &Moment{Note: note, Executable: exe, Memory: newPages(), Threads: threads}
	rec := &recorder{Source: src, m: m, r: &Corpus{Machine: src.Arch().Machine, Moments: []*Moment{m}}}
	e, err := engine.Open(rec)
	if err != nil {
		return nil, err
	}
	defer e.Close()
	for _, t := range threads {
		t.Walks = map[How]Walk{}
		for _, how := range Ways {
			t.Walks[how] = t.walk(e, how)
		}
	}
	rec.r.anonymise()
	return rec.r, nil
}

// recorder is a Source that records all reads.
type recorder struct {
	engine.Source
	r *Corpus
	m *Moment
}

func (r *recorder) ReadMemory(p []byte, addr arch.Addr) error {
	if err := r.Source.ReadMemory(p, addr); err != nil || len(p) == 0 {
		return err
	}
	last := uint64(addr) + uint64(len(p)-1)
	for n := uint64(addr) / PageSize; n <= last/PageSize; n++ {
		if r.m.Memory.has(n) {
			continue
		}
		page := make([]byte, PageSize)
		if r.Source.ReadMemory(page, arch.Addr(n*PageSize)) == nil {
			r.m.Memory.Data[n] = page
			continue
		}
		lo, hi := max(uint64(addr), n*PageSize), min(last, n*PageSize+PageSize-1)
		r.m.Fragments = append(r.m.Fragments, target.Region{
			Base: arch.Addr(lo), Data: append([]byte(nil), p[lo-uint64(addr):hi-uint64(addr)+1]...),
		})
	}
	return nil
}

func (r *recorder) Mappings() (target.Mappings, error) {
	maps, err := r.Source.Mappings()
	r.m.Mappings = maps
	return maps, err
}

func (r *recorder) OpenMapping(m *target.Mapping) (target.File, error) {
	f, err := r.Source.OpenMapping(m)
	kept := r.r.file(m.Path, m.Dev, m.Inode)
	if kept == nil {
		kept = &File{Path: m.Path, Dev: m.Dev, Inode: m.Inode, Pages: newPages()}
		r.r.Files = append(r.r.Files, kept)
	}
	if err != nil {
		kept.Error = err.Error()
		return nil, err
	}
	return &fileRecorder{File: f, kept: kept}, nil
}

// file returns the recorded part of a file.
func (r *Corpus) file(path string, dev, inode uint64) *File {
	for _, f := range r.Files {
		if f.Path == path && f.Dev == dev && f.Inode == inode {
			return f
		}
	}
	return nil
}

type fileRecorder struct {
	target.File
	kept *File
}

func (f *fileRecorder) ReadAt(p []byte, at int64) (int, error) {
	n, err := f.File.ReadAt(p, at)
	if n > 0 {
		f.keep(uint64(at), uint64(at)+uint64(n-1))
	}
	if err == io.EOF {
		f.kept.Size = at + int64(n)
	}
	return n, err
}

func (f *fileRecorder) keep(first, last uint64) {
	for n := first / PageSize; n <= last/PageSize; n++ {
		if f.kept.Pages.has(n) {
			continue
		}
		page := make([]byte, PageSize)
		k, _ := f.File.ReadAt(page, int64(n*PageSize)) // the last page is short
		f.kept.Pages.Data[n] = page[:k]
	}
}

// walk walks the thread one way.
func (t *Thread) walk(e *engine.Engine, how How) (out Walk) {
	c := engine.Captured{Object: t.Object, OSID: t.OSID, Context: t.Context, Head: t.Head, Stack: t.stack()}
	wt, _ := e.Thread(&c)
	ctx, sp := wt.Context, e.Arch.SP
	visit := func(f *walk.Frame) bool {
		fr := Frame{Kind: Kind(f.Kind), IP: f.IP(), SP: arch.Addr(f.Context.Regs[sp])}
		if f.Kind == walk.Managed {
			fr.MethodDesc = f.Code.MethodDesc
		}
		out.Frames = append(out.Frames, fr)
		return true
	}
	var r walk.Result
	switch how {
	case Unwind:
		r = e.Walker.Unwind(&wt, &ctx, walk.ByUnwindInfo, visit)
	case Fold:
		r = e.Walker.Walk(&wt, &ctx, walk.ByUnwindInfo, visit)
	default:
		mode, seed := walk.AsDocumented, e.Walker.Seed
		if how == CoreCLR {
			if mode = walk.AsCoreCLR; !wt.Info.Cooperative {
				seed = e.Walker.FrameSeed
			}
		}
		start, ok, err := seed(&wt)
		if err != nil || !ok {
			return Walk{Complete: err == nil, Error: text(err)}
		}
		r = e.Walker.DoStackSnapshot(&wt, &start, mode, func(run walk.Run) bool { return visit(run.Frame) })
	}
	out.Complete, out.Error = r.Complete, text(r.Err)
	return out
}

func text(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}

func (t *Thread) stack() *target.Stack {
	s := &target.Stack{}
	if len(t.Stack) > 0 {
		s.Region, s.Extra = t.Stack[0], t.Stack[1:]
	}
	return s
}

// CaptureThread copies thread tid of a live process, with head bytes of the Thread object at
// object (0 for a native thread).
func CaptureThread(p *live.Process, tid int, object arch.Addr, head int) (*Thread, error) {
	req := target.Request{TID: tid, StackLimit: stackLimit}
	if object != 0 {
		req.Head, req.HeadLen = object, head
	}
	var c target.Capture
	if err := p.Capture(&req, &c); err != nil {
		return nil, err
	}
	ns, err := p.NSTid(tid)
	if err != nil {
		return nil, err
	}
	return &Thread{
		Object: object, OSID: ns, Context: c.Context, Head: c.Head,
		Stack: append([]target.Region{c.Stack.Region}, c.Stack.Extra...),
	}, nil
}

const stackLimit = 1 << 20
