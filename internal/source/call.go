package source

import "clrsnap/internal/pdb"

// Site is an instruction of a method's IL whose code may call a managed method.
type Site struct {
	IL     uint32 // offset
	Method string // the name of what it calls; empty: that is not known
}

// LineOfCall is LineIn for code that is in a call of a method whose name is callee, or of another one that was
// inlined and has led to it. sites are all of the calling method, in the order of their offsets.
//
// The JIT keeps no point for a call while something is on IL's evaluation stack, and it merges statements
// when it optimises. So a line is certain only if the sites of no other line explain the call. If those
// of another line explain it better, that is the line; it is approximate.
func (a *Assembly) LineOfCall(method, il, next uint32, sites []Site, callee string) (Line, error) {
	points, err := a.file.Lines(method)
	if err != nil {
		return Line{}, none("%v", err)
	}
	var here, named, elsewhere oneLine // the lines of sites from il to next, of those with the name, and of others with it
	text := textAt{points: points}
	for _, s := range sites {
		text.move(s.IL)
		in, same := s.IL >= il && s.IL < next, s.Method == callee
		if in {
			here.add(&text)
		}
		if in && same {
			named.add(&text)
		}
		if !in && same {
			elsewhere.add(&text)
		}
	}
	if here.lines == 1 && (named.lines == 1 || elsewhere.lines == 0) {
		return a.line(here.at, here.exact)
	}
	switch {
	case named.lines == 1:
		return a.line(named.at, false)
	case named.lines == 0 && elsewhere.lines == 1:
		return a.line(elsewhere.at, false)
	}
	l, err := a.LineIn(method, il, next)
	l.Approximate = true
	return l, err
}

// textAt is the text of an IL offset that moves up.
type textAt struct {
	points []pdb.Point // those not passed yet
	at     pdb.Point   // the last one that is not hidden
	exact  bool        // no hidden one is behind it
}

func (t *textAt) move(il uint32) {
	for len(t.points) > 0 && t.points[0].IL <= il {
		if t.exact = !t.points[0].Hidden; t.exact {
			t.at = t.points[0]
		}
		t.points = t.points[1:]
	}
}

// oneLine is a line, if it is only one.
type oneLine struct {
	lines int // 2: several
	at    pdb.Point
	exact bool
}

func (o *oneLine) add(t *textAt) {
	if o.lines == 0 {
		*o = oneLine{1, t.at, t.exact}
	} else if t.at.Line != o.at.Line || t.at.Document != o.at.Document {
		o.lines = 2
	} else {
		o.exact = o.exact && t.exact
	}
}
