package testenv

import (
	"fmt"
	"strconv"
	"strings"
)

// A Stack is a blocked scenario's description of its own stack, leaf first. The first method is the method that blocks;
// its callees are not listed.
type Stack struct {
	Scenario  string
	TID       int // of the operating system
	ManagedID int
	Lines     []string // of Environment.StackTrace, its own frames first
	Frames    []Frame  // of System.Diagnostics.StackTrace: nothing hidden or renamed
}

// A Frame is a managed frame of System.Diagnostics.StackTrace.
type Frame struct {
	Token        uint32 // of the method definition; 0 for a dynamic method
	MethodDesc   uint64 // the method handle; unreliable for generics
	NativeOffset int    // from the start of the method's code; the first frame's offset will have moved
	ILOffset     int    // -1 if unknown
	Line         int    // 0 if unknown
	File         string // - if unknown
	Kind         FrameKind
	Assembly     string // simple name; "-" for a dynamic method
	Method       string // Type.Method as reflection writes it: Ns.Outer+Inner`1[T].Method
}

// Exact is the frame's name in snapshot.Frame.Method: without type arguments.
func (f *Frame) Exact() string { return withoutBrackets(f.Method) }

// FrameKind says whether clrsnap's stack walk must show a frame too.
type FrameKind string

// The kinds of frames.
const (
	Shown  FrameKind = "shown"
	Hidden FrameKind = "hidden" // left out of Environment.StackTrace; a frame of its own
	// A DllImport method: a Frame or a stub, perhaps listed twice; or an abstract method, or a method that the runtime
	// implements.
	PInvoke FrameKind = "pinvoke"
	Dynamic FrameKind = "dynamic" // a DynamicMethod
)

// Name is Method in the spelling of MethodName: nested types after a dot,
// no type arguments.
func (f Frame) Name() string {
	return strings.ReplaceAll(withoutBrackets(f.Method), "+", ".")
}

// Methods are the names of the methods in Lines, without the methods of Environment.StackTrace itself.
func (s Stack) Methods() []string {
	var names []string
	for _, line := range s.Lines {
		name, ok := MethodName(line)
		if ok && !(len(names) == 0 && name == "System.Environment.get_StackTrace") {
			names = append(names, name)
		}
	}
	return names
}

// Names are the names of the frames of the given kinds; without kinds, of all frames.
func (s Stack) Names(kinds ...FrameKind) []string {
	var names []string
	for _, f := range s.Frames {
		wanted := len(kinds) == 0
		for _, k := range kinds {
			wanted = wanted || f.Kind == k
		}
		if wanted {
			names = append(names, f.Name())
		}
	}
	return names
}

// add parses a line inside a STACK block.
func (s *Stack) add(line string) error {
	if text, ok := strings.CutPrefix(line, "\t\t"); ok {
		f, err := parseFrame(text)
		if err != nil {
			return fmt.Errorf("%s: %q: %w", s.Scenario, line, err)
		}
		s.Frames = append(s.Frames, f)
		return nil
	}
	text, ok := strings.CutPrefix(line, "\t")
	if !ok {
		return fmt.Errorf("%s: unexpected line %q", s.Scenario, line)
	}
	s.Lines = append(s.Lines, text)
	return nil
}

func parseFrame(text string) (Frame, error) {
	words := strings.SplitN(text, " ", 9)
	if len(words) != 9 {
		return Frame{}, fmt.Errorf("%d words instead of 9", len(words))
	}
	f := Frame{File: words[5], Kind: FrameKind(words[6]), Assembly: words[7], Method: words[8]}
	token, err := strconv.ParseUint(words[0], 16, 32)
	if err != nil {
		return Frame{}, err
	}
	f.Token = uint32(token)
	if f.MethodDesc, err = strconv.ParseUint(words[1], 16, 64); err != nil {
		return Frame{}, err
	}
	if f.NativeOffset, err = strconv.Atoi(words[2]); err != nil {
		return Frame{}, err
	}
	if f.ILOffset, err = strconv.Atoi(words[3]); err != nil {
		return Frame{}, err
	}
	f.Line, err = strconv.Atoi(words[4])
	return f, err
}

// MethodName takes a line of Environment.StackTrace,
//
//	at Ns.Type.Method[T](Int32 n) in file:line 3
//
// and returns Ns.Type.Method: no arguments, no type arguments, nested types after a dot. Names from the compiler stay
// unchanged (Type.<Main>b__0, local functions Type.<Main>g__Local|0_0), an iterator's name ends in +MoveNext, and async
// methods have their name from the source already. ok is false for lines without a frame, such as lines that begin with
// "---".
func MethodName(line string) (name string, ok bool) {
	name, ok = strings.CutPrefix(strings.TrimSpace(line), "at ")
	if !ok {
		return "", false
	}
	before, after, ok := strings.Cut(name, "(")
	if !ok {
		return "", false
	}
	name = withoutBrackets(before)
	if strings.Contains(after, ")+MoveNext(") {
		name += "+MoveNext"
	}
	return name, name != ""
}

// withoutBrackets removes [...], also nested.
func withoutBrackets(s string) string {
	var b strings.Builder
	depth := 0
	for _, r := range s {
		switch {
		case r == '[':
			depth++
		case r == ']' && depth > 0:
			depth--
		case depth == 0:
			b.WriteRune(r)
		}
	}
	return b.String()
}
