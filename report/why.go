package report

import (
	"bufio"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"time"

	"clrsnap/internal/display"
	"clrsnap/internal/jsonwriter"
	"clrsnap/profile"
	"clrsnap/snapshot"
)

// WhyOptions are the options of Why. The zero value has no colours.
type WhyOptions struct {
	Terminal
	Full bool // whole stacks, with native frames and framework frames
	// Link is as in TextOptions.
	Link func(*snapshot.SourceLine) string
}

// Bounds of the text: columns if the terminal's are not known, and frames of a stack.
const (
	whyWidth  = 100
	whyFrames = 12
	whyLeaf   = 3 // of these, from the leaf on, if the program's own frames come later

	coreLibrary = "System.Private.CoreLib"
)

// Why writes a diagnosis for people: the verdicts, the gravest first, and beneath each verdict the evidence and the
// commands that show more.
func Why(w io.Writer, d *profile.Findings, o WhyOptions) error {
	p := whyPrinter{printer: printer{w: bufio.NewWriter(w), o: TextOptions{
		Terminal: o.Terminal, Full: o.Full, Link: o.Link,
	}}, width: o.Width}
	if p.width <= 0 {
		p.width = whyWidth
	}
	p.process(&snapshot.Snapshot{Process: d.Process, CapturedAt: d.At})
	if len(d.Verdicts) == 0 {
		switch {
		case d.Incomplete && d.Process.Core != nil:
			p.paint(yellow, "Nothing wrong found in what the dump has: not all could be looked at.")
		case d.Incomplete:
			p.paint(yellow, "Nothing wrong found so far: the look was not completed.")
		default:
			p.paint(green, "Nothing wrong found.")
		}
		p.end()
		p.end()
		p.waits(d)
	}
	for i := range d.Verdicts {
		p.verdict(&d.Verdicts[i])
	}
	p.faultsAndThrows(d)
	p.activity(d)
	p.looked(d)
	return p.printer.w.Flush()
}

// waits prints the waits that lasted the whole time. Without a verdict, these waits are the only clue.
func (p *whyPrinter) waits(d *profile.Findings) {
	if len(d.Waits) == 0 {
		return
	}
	p.paragraph(plain, "", "If the program should be doing something: these were found waiting in each look, or in "+
		"the last one. That need not be wrong.")
	p.end()
	for i := range d.Waits {
		p.paragraph(plain, "  ", d.Waits[i].Text)
	}
	p.end()
	var commands []string
	verbs := []string{"stack", "locks", "tasks", "requests"}
	if a := d.Activity; a != nil && a.RequestsInFlight <= 0 && a.RequestsEnded <= 0 {
		verbs = verbs[:3]
	}
	for _, verb := range verbs {
		commands = append(commands, fmt.Sprintf("clrsnap %s %d", verb, d.Process.PID))
	}
	p.more(commands)
}

// faultsAndThrows tells of exceptions that may be a clue.
func (p *whyPrinter) faultsAndThrows(d *profile.Findings) {
	if len(d.Exceptions) == 0 {
		return
	}
	p.paint(bold, "Exceptions, which need not be wrong:")
	p.end()
	for i := range d.Exceptions {
		p.evidence(&d.Exceptions[i])
	}
}

// activity says what the process did, with or without a verdict.
func (p *whyPrinter) activity(d *profile.Findings) {
	if d.Activity == nil {
		return
	}
	p.paint(bold, "What the process did:")
	p.end()
	for _, line := range activityLines(d.Activity) {
		p.paragraph(plain, "  ", line)
	}
	p.end()
}

type whyPrinter struct {
	printer
	width int
}

var certaintyStyles = map[profile.Certainty]style{
	profile.Certain: red, profile.Likely: yellow, profile.Possible: dim,
}

func (p *whyPrinter) verdict(v *profile.Verdict) {
	p.paint(certaintyStyles[v.Certainty], string(v.Cause)+" · "+string(v.Certainty))
	p.end()
	p.paragraph(bold, "", v.Text)
	p.end()
	for i := range v.Evidence {
		p.evidence(&v.Evidence[i])
	}
	p.more(v.Commands)
}

// more lists the commands that show more.
func (p *whyPrinter) more(commands []string) {
	for i, c := range commands {
		head := "  more: "
		if i > 0 {
			head = strings.Repeat(" ", len(head))
		}
		p.paint(dim, head)
		p.text(display.OneLine(c))
		p.end()
	}
	if len(commands) > 0 {
		p.end()
	}
}

func (p *whyPrinter) evidence(e *profile.Evidence) {
	p.paragraph(plain, "  ", e.Text)
	for _, part := range p.shown(e.Frames) {
		p.chainStack(part.frames)
		if part.left > 0 {
			p.paint(dim, fmt.Sprintf("    … %d more (--full shows all)", part.left))
			p.end()
		}
	}
	if n := len(e.Threads); n > 1 {
		ids := make([]string, min(n, listMost))
		for i := range ids {
			ids[i] = strconv.Itoa(e.Threads[i].OSThreadID)
		}
		text := "threads " + strings.Join(ids, " ")
		if n > len(ids) {
			text += fmt.Sprintf(" and %d more", n-len(ids))
		}
		p.paragraph(dim, "    ", text)
	}
	p.end()
}

// stackPart is a part of a stack, and the number of frames that are left out below the part.
type stackPart struct {
	frames []snapshot.Frame
	left   int
}

// shown returns the parts of a stack to show. The leaf frames say how a thread waits. The frames from the first frame
// of the program itself on say for what. What .NET's core has inlined into itself says nothing.
func (p *whyPrinter) shown(frames []snapshot.Frame) []stackPart {
	switch {
	case len(frames) == 0:
		return nil
	case p.o.Full:
		return []stackPart{{frames: frames}}
	}
	var shown []snapshot.Frame
	for i := range frames {
		f := &frames[i]
		if f.Kind != snapshot.Native && f.Kind != snapshot.Kernel && (!f.Inlined || f.Module != coreLibrary) {
			shown = append(shown, frames[i])
		}
	}
	if len(shown) == 0 {
		shown = frames
	}
	if len(p.lines(nil, shown)) <= whyFrames {
		return []stackPart{{frames: shown}}
	}
	var parts []stackPart
	own := slices.IndexFunc(shown, func(f snapshot.Frame) bool { return f.Origin() == snapshot.OfUser })
	most := whyFrames
	if own >= whyFrames {
		parts = []stackPart{{shown[:whyLeaf], own - whyLeaf}}
		shown, most = shown[own:], whyFrames-whyLeaf
	}
	most = min(most, len(shown))
	return append(parts, stackPart{shown[:most], len(shown) - most})
}

// paragraph prints a text on as many lines as necessary.
func (p *whyPrinter) paragraph(st style, indent, text string) {
	line := ""
	flush := func() {
		if line != "" {
			p.text(indent)
			p.paint(st, line)
			p.end()
		}
		line = ""
	}
	for _, word := range strings.Fields(text) {
		word = display.Clean(word)
		if line != "" && len(indent)+display.Width(line)+1+display.Width(word) > p.width {
			flush()
		}
		if line != "" {
			line += " "
		}
		line += word
	}
	flush()
}

// looked prints what was looked at, and what could not be.
func (p *whyPrinter) looked(d *profile.Findings) {
	what := "Looked at: "
	if d.Took > 0 {
		what = fmt.Sprintf("Looked for %.1f s at: ", d.Took.Seconds())
	}
	p.paragraph(dim, "", what+strings.Join(d.Looked, "; ")+".")
	for _, m := range d.Missing {
		p.paragraph(yellow, "", m)
	}
	if d.Process.Core != nil {
		for _, m := range d.Process.Core.Missing {
			p.paragraph(yellow, "", "missing: "+m)
		}
	}
}

type jsonDiagnosis struct {
	Process  jsonProcess    `json:"process"`
	LookedAt string         `json:"lookedAt"`
	Seconds  float64        `json:"seconds,omitempty"`
	Stops    *int           `json:"stops,omitempty"`
	Looked   []string       `json:"looked"`
	Missing  []string       `json:"missing,omitempty"`
	Partial  bool           `json:"partial,omitempty"`
	Verdicts []jsonVerdict  `json:"verdicts"`
	Waits    []jsonEvidence `json:"waits,omitempty"`
	Thrown   []jsonEvidence `json:"exceptions,omitempty"`
	Activity *jsonActivity  `json:"activity,omitempty"`
}

type jsonVerdict struct {
	Cause     profile.Cause     `json:"cause"`
	Certainty profile.Certainty `json:"certainty"`
	Text      string            `json:"text"`
	Evidence  []jsonEvidence    `json:"evidence"`
	Commands  []string          `json:"commands,omitempty"`
}

type jsonEvidence struct {
	Text    string       `json:"text"`
	Frames  []*jsonFrame `json:"frames,omitempty"`
	Threads []jsonOwner  `json:"threads,omitempty"`
}

// WhyJSON writes a diagnosis as one JSON document and a newline. The schema is stable and described in docs/json.md.
func WhyJSON(w io.Writer, d *profile.Findings) error {
	out := jsonDiagnosis{
		Process: jsonProcess{
			PID: d.Process.PID, Command: d.Process.Command,
			Runtime: jsonRuntimeOf(&d.Process.Runtime), Core: jsonCoreOf(d.Process.Core),
		},
		LookedAt: d.At.UTC().Format(time.RFC3339Nano), Seconds: d.Took.Seconds(),
		Looked: append([]string{}, d.Looked...), Missing: d.Missing, Partial: d.Incomplete,
		Verdicts: []jsonVerdict{}, Activity: jsonActivityOf(d.Activity),
	}
	if d.Process.Core == nil {
		out.Stops = &d.Stops
	}
	for i := range d.Verdicts {
		out.Verdicts = append(out.Verdicts, jsonVerdictOf(&d.Verdicts[i]))
	}
	for i := range d.Waits {
		out.Waits = append(out.Waits, jsonEvidenceOf(&d.Waits[i]))
	}
	for i := range d.Exceptions {
		out.Thrown = append(out.Thrown, jsonEvidenceOf(&d.Exceptions[i]))
	}
	c := jsonwriter.New(w)
	c.Value(out)
	c.Text("\n")
	return c.Flush()
}

func jsonVerdictOf(v *profile.Verdict) jsonVerdict {
	out := jsonVerdict{
		Cause: v.Cause, Certainty: v.Certainty, Text: v.Text, Commands: v.Commands, Evidence: []jsonEvidence{},
	}
	for i := range v.Evidence {
		out.Evidence = append(out.Evidence, jsonEvidenceOf(&v.Evidence[i]))
	}
	return out
}

func jsonEvidenceOf(e *profile.Evidence) jsonEvidence {
	j := jsonEvidence{Text: e.Text}
	for k := range e.Frames {
		f := jsonFrameOf(&e.Frames[k])
		f.IP, f.SP = address(e.Frames[k].IP), address(e.Frames[k].SP)
		j.Frames = append(j.Frames, f)
	}
	j.Threads = jsonOwnersOf(e.Threads)
	return j
}
