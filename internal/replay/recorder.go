package replay

import (
	"clrsnap/internal/arch"
	"clrsnap/internal/engine"
	"clrsnap/internal/target"
	"clrsnap/internal/target/live"
	"clrsnap/internal/target/recorded"
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
	m := &Moment{Note: note, Executable: exe, Memory: recorded.NewPages(), Threads: threads}
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
	err := r.Source.ReadMemory(p, addr)
	if err == nil {
		recorded.Memory{Pages: &r.m.Memory, Fragments: &r.m.Fragments}.Keep(r.Source, p, addr)
	}
	return err
}

func (r *recorder) Mappings() (target.Mappings, error) {
	maps, err := r.Source.Mappings()
	r.m.Mappings = maps
	return maps, err
}

func (r *recorder) OpenMapping(m *target.Mapping) (target.File, error) {
	kept := recorded.FindFile(r.r.Files, m.Path, m.Dev, m.Inode)
	if kept == nil {
		kept = recorded.NewFile(m.Path, m.Dev, m.Inode)
		r.r.Files = append(r.r.Files, kept)
	}
	return kept.Record(r.Source.OpenMapping(m))
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
