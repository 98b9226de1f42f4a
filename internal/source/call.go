package source

import (
	"strings"

	"clrsnap/internal/pdb"
)

// Site is an instruction of a method's IL with code that may call a managed method.
type Site struct {
	IL     uint32 // offset
	Method string // the name of the callee; empty: not known
}

// A Call is a call that has not returned yet, in a frame's code.
type Call struct {
	IL, Next  uint32 // the code is for the IL from IL up to Next
	Callee    string // the name of the called method, or of a method called by an inlined method
	Optimized bool   // statements may be merged, and callees be inlined
	Sites     []Site // all sites of the calling method, in the order of their offsets
}

// LastName is the last part of a method's name: the name of an explicit implementation begins with its
// interface's.
func LastName(method string) string { return method[strings.LastIndexByte(method, '.')+1:] }

// LineOfCall returns the line of a call, as Line does.
func (a *Assembly) LineOfCall(method uint32, c *Call) (Line, error) {
	if a.file == nil {
		return Line{}, a.err
	}
	at, exact, err := a.pointOfCall(method, c)
	if err != nil {
		return Line{}, err
	}
	return a.line(at, exact)
}

// PointOfCall is LineOfCall without the names.
func (a *Assembly) PointOfCall(method uint32, c *Call) (Point, error) {
	at, exact, err := a.pointOfCall(method, c)
	if err != nil {
		return Point{}, err
	}
	return a.pointOf(at, exact)
}

// pointOfCall returns the point of a call.
//
// The JIT keeps no point for a call while something is on IL's evaluation stack, and merges statements
// when it optimises. So a line is certain only if the sites of no other line explain the call. If the
// sites of another line explain the call better, pointOfCall returns the other line, as approximate.
func (a *Assembly) pointOfCall(method uint32, c *Call) (at pdb.Point, exact bool, err error) {
	points, err := a.file.Lines(method)
	if err != nil {
		return at, false, none("%v", err)
	}
	// the lines of sites from IL to Next, of sites among them with the callee's name, and of sites
	// elsewhere with the name
	var here, named, elsewhere oneLine
	text := textAt{points: points}
	explains := c.explains()
	for i := range c.Sites {
		s := &c.Sites[i]
		text.move(s.IL)
		in, does := s.IL >= c.IL && s.IL < c.Next, explains(s)
		switch {
		case in && does:
			named.add(&text)
			here.add(&text)
		case in:
			here.add(&text)
		case does:
			elsewhere.add(&text)
		}
	}
	switch {
	case here.lines == 1 && !c.Optimized && (named.lines == 1 || elsewhere.lines == 0):
		return here.at, here.exact, nil
	case here.lines == 1 && named.lines == 1: // equal calls of several lines may have been merged into one
		return here.at, here.exact && elsewhere.lines == 0, nil
	case named.lines == 1:
		return named.at, false, nil
	case named.lines == 0 && elsewhere.lines == 1:
		return elsewhere.at, false, nil
	case here.lines == 1:
		return here.at, false, nil
	}
	at, _, ok := a.file.LineIn(method, c.IL, c.Next)
	if !ok {
		return at, false, none("the method has none in its PDB")
	}
	return at, false, nil
}

// explains returns a function that reports whether a site leads to the callee, as far as names say:
// the site has the callee's name, or, if no site has that name, the site calls Invoke, as with
// delegates and function pointers.
func (c *Call) explains() func(s *Site) bool {
	for i := range c.Sites {
		if c.Sites[i].Method == c.Callee {
			return func(s *Site) bool { return s.Method == c.Callee }
		}
	}
	return func(s *Site) bool { return s.Method == "Invoke" }
}

// textAt is the source position of an IL offset that moves up.
type textAt struct {
	points []pdb.Point // points not passed yet
	at     pdb.Point   // the last visible point
	exact  bool        // no hidden point is behind it, except for an await
}

func (t *textAt) move(il uint32) {
	for len(t.points) > 0 && t.points[0].IL <= il {
		if p := t.points[0]; !p.Hidden {
			t.at, t.exact = p, true
		} else if !p.Await {
			t.exact = false
		}
		t.points = t.points[1:]
	}
}

// oneLine is a line, if there is only one.
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
