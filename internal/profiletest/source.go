package profiletest

import (
	"clrsnap/profile"
	"clrsnap/snapshot"
)

// SourceShop is a recording of functions with source lines: several lines of one function, with recursion, a line
// that is only the nearest before, a line with hostile text, and a line without text; and allocations.
func SourceShop() *profile.Recording {
	s := newShop()
	tree := s.Sources().File(profile.SourceFile{
		Name: "/build/src/Shop/Tree.cs", URL: "https://example.org/raw/0123/Shop/Tree.cs",
		Text: []profile.Excerpt{{First: 20, Lines: []string{
			"    void Visit(Node node)", "    {", "\t\tforeach (Node child in node.Children)",
			"            Visit(child); // \x1b[2J", "    }",
		}}},
	})
	program := s.Sources().File(profile.SourceFile{Name: `C:\src\Shop\Program.cs`, Path: "/home/me/Shop/Program.cs"})
	at := func(name string, offset uint64, l profile.Line) int32 {
		return s.Location(profile.Location{
			Function: s.Function(shopFunction(name)), Offset: offset, Tier: "tier-1", Line: s.Sources().Line(l),
		})
	}
	start, startLater := at(MainName, 7, profile.Line{File: program, Line: 12, Column: 9}),
		at(MainName, 19, profile.Line{File: program, Line: 14, Column: 9, Approximate: true})
	loop := at(VisitName, 31, profile.Line{File: tree, Line: 22, Column: 18})
	loopAgain := at(VisitName, 33, profile.Line{File: tree, Line: 22, Column: 27, Approximate: true})
	visit := at(VisitName, 40, profile.Line{File: tree, Line: 23, Column: 13})
	lost := s.Location(profile.Location{Function: s.Function(shopFunction(VisitName)), Offset: 99})
	stack := func(locations ...int32) int32 { // base first
		node := int32(0)
		for _, l := range locations {
			node = s.Child(node, l)
		}
		return node
	}
	s.add(6, 0, profile.CPU, profile.Running, 10, stack(start, visit, visit, loop))
	s.add(2, 0, profile.CPU, profile.Running, 10, stack(start, visit, loopAgain))
	s.add(1, 0, profile.CPU, profile.Running, 10, stack(startLater, visit, lost))
	s.add(1, 1, profile.CPU, profile.Running, 10, stack(startLater))
	array := s.Location(profile.Location{Function: s.Function(profile.Function{
		Kind: snapshot.Event, Display: "System.Byte[]", Short: "Byte[]", Module: CoreLib,
	})})
	s.Add(profile.Sample{
		At: s.at, Weight: 1 << 20, Events: 16, Mode: profile.Alloc, Node: stack(start, visit, array),
	})
	r := s.Recording()
	r.Processes = []snapshot.Process{{PID: 4242, Command: "dotnet Shop.dll"}}
	r.Duration = s.at
	r.Modes = []profile.ModeStats{{Mode: profile.CPU, Rate: 100, Samples: 10}, {Mode: profile.Alloc, Samples: 1}}
	return r
}
