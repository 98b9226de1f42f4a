package main

import (
	"fmt"
	"strings"
	"sync"
	"time"

	"clrsnap/report"
	"clrsnap/symbols"
)

// fetchProgress tells the user which file is being fetched, if that takes long. On a terminal that is in the
// line of a.watch, elsewhere it is said once.
type fetchProgress struct {
	a *app

	mu    sync.Mutex
	busy  map[string]time.Time // when it began, by file and host
	order []string
	said  bool
}

func (p *fetchProgress) tell(now symbols.Progress) {
	p.mu.Lock()
	defer p.mu.Unlock()
	what := now.Name + " from " + now.Host
	if now.Done {
		delete(p.busy, what)
	} else if _, ok := p.busy[what]; !ok {
		if p.busy == nil {
			p.busy = map[string]time.Time{}
		}
		p.busy[what] = time.Now()
	}
	text := ""
	if len(p.busy) > 0 {
		if _, ok := p.busy[what]; !ok { // another one
			for what = range p.busy {
				break
			}
			now = symbols.Progress{}
		}
		text = "fetching " + what + amount(now)
		if n := len(p.busy) - 1; n > 0 {
			text += fmt.Sprintf(" and %d more", n)
		}
		text = report.Clean(text)
	}
	p.a.fetching.Store(&text)
	if begun, ok := p.busy[what]; ok && !p.said && time.Since(begun) > quietFor && !isTerminal(p.a.stderr) {
		p.said = true
		say(p.a.stderr, "%s …", strings.TrimSpace(text))
	}
}

// amount says how much of a file is there.
func amount(p symbols.Progress) string {
	const mega = 1 << 20
	switch {
	case p.Bytes == 0:
		return ""
	case p.Total > 0:
		return fmt.Sprintf(", %d of %d MB", p.Bytes/mega, p.Total/mega)
	}
	return fmt.Sprintf(", %d MB", p.Bytes/mega)
}
