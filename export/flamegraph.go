package export

import (
	"cmp"
	"crypto/sha256"
	"embed"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"html"
	"io"
	"strings"

	"clrsnap/internal/display"
	"clrsnap/profile"
	"clrsnap/snapshot"
)

// FlameOptions are the options of FlameGraph. The zero value works.
type FlameOptions struct {
	Title string             // of the page; empty: the program and the time of the recording
	Base  *profile.Recording // the recording to compare with; nil: none
	Waits bool               // at first waiting time is grouped by the awaited object; the page has a switch
	Idle  bool               // idle threads are shown at first; a switch of the page hides them
}

// FlameGraph writes a recording as an HTML page with an interactive flame graph. The page contains the
// whole recording, so its reader can choose modes, threads and times. The page loads and sends
// nothing; its content security policy enforces the isolation.
func FlameGraph(w io.Writer, r *profile.Recording, o FlameOptions) error {
	style, script := pageFile("page.css"), pageScript()
	values := map[string]func(io.Writer) error{
		"policy": pageText("default-src 'none'; img-src data: blob:; style-src " + sourceHash(style) +
			"; script-src " + sourceHash(script) + "; base-uri 'none'; form-action 'none'"),
		"creator":   pageText("clrsnap " + r.Version),
		"title":     pageText(cmp.Or(o.Title, flameTitle(r))),
		"idle":      pageText(map[bool]string{true: "shown", false: "hidden"}[o.Idle]),
		"waits":     pageText(map[bool]string{true: "grouped", false: "together"}[o.Waits]),
		"heading":   pageText(cmp.Or(o.Title, flameProgram(r))),
		"style":     pageSource(style),
		"script":    pageSource(script),
		"recording": func(w io.Writer) error { return writeBase64(w, r) },
		"plumbing":  func(w io.Writer) error { return writePlumbing(w, r, o.Base) },
		"base": func(w io.Writer) error {
			if o.Base == nil {
				return nil
			}
			_, err1 := io.WriteString(w, `<script type="application/octet-stream" id="base">`)
			err2 := writeBase64(w, o.Base)
			_, err3 := io.WriteString(w, "</script>\n")
			return errors.Join(err1, err2, err3)
		},
	}
	return fillPage(w, pageFile("page.html"), values)
}

//go:embed flamegraph/page.html flamegraph/page.css flamegraph/*.js
var pageFiles embed.FS

// pageScripts are the files of the page's script, in order. They share one scope.
var pageScripts = []string{
	"numbers.js", "modes.js", "dom.js", "data.js", "plumbing.js", "tree.js", "colors.js", "flame.js",
	"strip.js", "input.js", "panels.js", "source.js", "page.js", "controls.js",
}

func pageFile(name string) string {
	b, err := pageFiles.ReadFile("flamegraph/" + name)
	if err != nil {
		panic(err) // the file is embedded
	}
	return string(b)
}

func pageScript() string {
	var b strings.Builder
	b.WriteString("(() => {\n\"use strict\";\n")
	for _, name := range pageScripts {
		b.WriteString(pageFile(name))
	}
	b.WriteString("})();\n")
	return b.String()
}

// sourceHash names a script or style in a content security policy.
func sourceHash(source string) string {
	sum := sha256.Sum256([]byte(source))
	return "'sha256-" + base64.StdEncoding.EncodeToString(sum[:]) + "'"
}

// fillPage writes a page. In place of each {{name}} it writes the value with the name.
func fillPage(w io.Writer, page string, values map[string]func(io.Writer) error) error {
	for {
		before, rest, found := strings.Cut(page, "{{")
		if _, err := io.WriteString(w, before); err != nil || !found {
			return err
		}
		name, after, _ := strings.Cut(rest, "}}")
		if err := values[name](w); err != nil {
			return err
		}
		page = after
	}
}

func pageText(s string) func(io.Writer) error { return pageSource(html.EscapeString(display.Clean(s))) }

func pageSource(s string) func(io.Writer) error {
	return func(w io.Writer) error {
		_, err := io.WriteString(w, s)
		return err
	}
}

func writeBase64(w io.Writer, r *profile.Recording) error {
	enc := base64.NewEncoder(base64.StdEncoding, w)
	return errors.Join(WriteRecording(enc, r), enc.Close())
}

// pagePlumbing says which functions of a page's recordings are framework frames. Recordings do not say
// so.
type pagePlumbing struct {
	Parts     []pagePart `json:"parts"`
	MinFold   int        `json:"minFold"`
	Recording []int32    `json:"recording"` // functions of the recording, each followed by its index in Parts
	Base      []int32    `json:"base"`
}

type pagePart struct {
	Name    string   `json:"name"`
	Implied []string `json:"implied"`
}

func writePlumbing(w io.Writer, r, base *profile.Recording) error {
	out := pagePlumbing{MinFold: snapshot.MinFold, Recording: []int32{}, Base: []int32{}}
	index := map[string]int32{}
	for i, p := range snapshot.FrameworkParts() {
		index[p.Name] = int32(i)
		out.Parts = append(out.Parts, pagePart{p.Name, append([]string{}, p.Implied...)})
	}
	of := func(r *profile.Recording) []int32 {
		pairs := []int32{}
		for i := range r.Functions {
			if p := r.Functions[i].FrameworkPart(); p != "" {
				pairs = append(pairs, int32(i), index[p])
			}
		}
		return pairs
	}
	out.Recording = of(r)
	if base != nil {
		out.Base = of(base)
	}
	return json.NewEncoder(w).Encode(&out) // numbers, and names of ours
}

// flameTitle names a recording by its program and its time.
func flameTitle(r *profile.Recording) string {
	if r.Start.IsZero() {
		return flameProgram(r)
	}
	return flameProgram(r) + ", " + r.Start.Format("2006-01-02 15:04:05")
}

func flameProgram(r *profile.Recording) string {
	if len(r.Processes) == 0 {
		return "recording"
	}
	return cmp.Or(r.Processes[0].Program(), fmt.Sprintf("process %d", r.Processes[0].PID))
}
