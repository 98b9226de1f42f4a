package live

import (
	"fmt"

	"clrsnap/internal/procfs"
	"clrsnap/internal/target"

	"golang.org/x/sys/unix"
)

// Mappings returns the target's current mappings. Later captures use them to find the end of a
// stack.
func (p *Process) Mappings() (target.Mappings, error) {
	p.mapsMu.Lock()
	defer p.mapsMu.Unlock()
	ms, _, err := p.readMappings()
	return ms, err
}

// readMappings also returns the text of maps, valid until the next call.
func (p *Process) readMappings() (target.Mappings, []byte, error) {
	b, err := p.Dir().ReadInto("maps", p.mapsBuf)
	if err != nil {
		return nil, nil, fmt.Errorf("its mappings cannot be read: %w", p.explain(err))
	}
	if p.mapsBuf = b; cap(b) > 1<<20 {
		p.mapsBuf = nil // so much is seldom needed
	}
	if len(b) == 0 {
		return nil, nil, p.explain(unix.ESRCH) // an exiting process has no memory
	}
	ms, err := procfs.ParseMaps(b)
	if err != nil {
		return nil, nil, err
	}
	p.setSpans(ms)
	return ms, b, nil
}

// span is a readable mapping, reduced to the part that a capture needs during a stop.
type span struct{ start, end uint64 }

func (p *Process) setSpans(ms target.Mappings) {
	spans := make([]span, 0, len(ms))
	for i := range ms {
		if ms[i].Perm&target.PermRead != 0 {
			spans = append(spans, span{uint64(ms[i].Start), uint64(ms[i].End)})
		}
	}
	p.spans.Store(&spans)
}
