package main

import (
	"fmt"
	"slices"
	"sync"
	"time"

	"clrsnap/internal/display"
	"clrsnap/report"
	"clrsnap/symbols"
)

// fetchProgress tells the user which file is being fetched, if the fetch takes long. On a terminal the text is in the
// line of a.watch; elsewhere the text is printed once.
type fetchProgress struct {
	a     *app
	alone bool // there is no a.watch

	mu    sync.Mutex
	busy  []symbols.Progress // in the order of their beginnings
	timer *time.Timer
	since time.Time // when the present fetches began
	shown bool      // there is a line on the terminal
}

// tell takes note of how far a file is.
func (p *fetchProgress) tell(now symbols.Progress) {
	p.mu.Lock()
	defer p.mu.Unlock()
	i := slices.IndexFunc(p.busy, func(b symbols.Progress) bool { return b.Name == now.Name && b.Host == now.Host })
	switch {
	case now.Done && i >= 0:
		p.busy = slices.Delete(p.busy, i, i+1)
	case now.Done:
	case i >= 0:
		p.busy[i] = now
	default:
		p.busy = append(p.busy, now)
	}
	text := p.text()
	p.a.fetching.Store(&text)
	if isTerminal(p.a.stderr) {
		if p.alone {
			p.show(text)
		}
	} else if p.timer == nil {
		p.timer = time.AfterFunc(quietFor, p.say)
	}
}

// show updates the line on a terminal.
func (p *fetchProgress) show(text string) {
	switch now := time.Now(); {
	case text == "" && p.shown:
		fmt.Fprint(p.a.stderr, "\r\x1b[K")
		p.shown, p.since = false, time.Time{}
	case text == "":
		p.since = time.Time{}
	case p.since.IsZero():
		p.since = now
	case p.shown || now.Sub(p.since) >= quietFor:
		fmt.Fprintf(p.a.stderr, "\r\x1b[K%s", display.Clip("clrsnap: "+text+" …", terminalWidth(p.a.stderr)-1))
		p.shown = true
	}
}

func (p *fetchProgress) say() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if text := p.text(); text != "" {
		say(p.a.stderr, "%s …", text)
	} else {
		p.timer = nil // the next fetch may take long
	}
}

// text names the file that is being fetched; "": no file.
func (p *fetchProgress) text() string {
	if len(p.busy) == 0 {
		return ""
	}
	first := p.busy[0]
	text := "fetching " + first.Name + " from " + first.Host + amount(first)
	if n := len(p.busy) - 1; n > 0 {
		text += fmt.Sprintf(" and %d more", n)
	}
	return report.Clean(text)
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
