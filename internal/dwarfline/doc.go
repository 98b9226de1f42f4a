// Package dwarfline finds the source line of an address of native code by the line tables of DWARF, versions 2 to
// 5.
//
// The package reads a table once, to find the address ranges of the table's sequences, and keeps an index of the
// sequences. A lookup runs the program of its sequence again. Other sections are read only where a table does not
// name a file by itself.
//
// Go's own debug/dwarf wants all sections in memory, also sections of a gigabyte, and is not made for hostile
// files.
//
// Sources: DWARF Debugging Information Format, versions 4 and 5 (dwarfstd.org), chapter 6.2 and, for the names of a
// compilation unit's directory, chapters 7.5 and 7.26.
//
// A file may be anybody's, and is hostile: data that break the format's rules have no line, and a lookup's reads,
// memory and work are bounded. Names are UTF-8, but may contain anything else: clean names before a terminal sees
// them.
package dwarfline
