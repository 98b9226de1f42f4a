package main

import (
	"context"
	"fmt"
	"os"
	"regexp"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"clrsnap"
)

// threadFilter has the values of --thread or --threads.
type threadFilter struct {
	flag  string
	text  []string
	ids   map[int]bool
	names []*regexp.Regexp
}

func parseThreads(flag string, values []string) (*threadFilter, error) {
	f := &threadFilter{flag: "--" + flag, text: values, ids: map[int]bool{}}
	for _, v := range values {
		if id, err := strconv.Atoi(v); err == nil {
			f.ids[id] = true
			continue
		}
		if v == "" {
			return nil, usagef("%s is empty: give a thread id, or a regular expression for names", f.flag)
		}
		re, err := regexp.Compile(v)
		if err != nil {
			return nil, usagef("%s %q is neither a thread id nor a regular expression for names: %w", f.flag, v, err)
		}
		f.names = append(f.names, re)
	}
	return f, nil
}

// matches reports whether a thread is chosen, by its name or by its id. The id may be the id inside the thread's
// container.
func (f *threadFilter) matches(t *clrsnap.Thread) bool {
	if len(f.text) == 0 || f.ids[t.OSThreadID] || f.ids[t.NSThreadID] {
		return true
	}
	for _, re := range f.names {
		if re.MatchString(t.Name) {
			return true
		}
	}
	return false
}

func (f *threadFilter) String() string {
	if len(f.text) == 0 {
		return "any"
	}
	return f.flag + " " + strings.Join(f.text, " "+f.flag+" ")
}

// After quietFor a snapshot shows its progress, and updates it every tick.
const (
	quietFor = 2 * time.Second
	tick     = 500 * time.Millisecond
)

// watch chooses the threads of a snapshot. Once ctx has ended, watch chooses no more threads, so that the finished
// stacks can be printed. On a terminal watch shows the progress of a long snapshot.
type watch struct {
	ctx    context.Context
	chosen *threadFilter
	seen   atomic.Int64
	stop   chan struct{}
	ended  chan struct{}
}

func (a *app) watch(ctx context.Context, chosen *threadFilter) *watch {
	w := &watch{ctx: ctx, chosen: chosen, stop: make(chan struct{}), ended: make(chan struct{})}
	if !isTerminal(a.stderr) {
		close(w.ended)
		return w
	}
	go w.progress(a.stderr, &a.fetching)
	return w
}

func (w *watch) filter(t *clrsnap.Thread) bool {
	if w.ctx.Err() != nil || !w.chosen.matches(t) {
		return false
	}
	w.seen.Add(1)
	return true
}

func (w *watch) progress(f *os.File, fetching *atomic.Pointer[string]) {
	defer close(w.ended)
	wait := time.NewTimer(quietFor)
	defer wait.Stop()
	shown := false
	for {
		select {
		case <-w.stop:
			if shown {
				fmt.Fprint(f, "\r\x1b[K")
			}
			return
		case <-wait.C:
			what := fmt.Sprintf("thread %d", w.seen.Load())
			if text := fetching.Load(); text != nil && *text != "" {
				what = *text
			}
			fmt.Fprintf(f, "\r\x1b[Kclrsnap: %s …", what)
			shown = true
			wait.Reset(tick)
		}
	}
}

// done ends the progress line.
func (w *watch) done() {
	close(w.stop)
	<-w.ended
}
