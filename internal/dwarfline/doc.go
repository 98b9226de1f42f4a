// Package dwarfline finds the source line of an address of native code by the line tables of DWARF, versions 2
// to 5.
//
// A table is read once, to find out which of its sequences cover which addresses. Of these an index is kept; a
// sequence is run again when an address in it is asked for. The other sections are read only where a table does not
// name a file by itself.
//
// Go's own debug/dwarf wants all sections in memory, also those of a gigabyte, and is not made for hostile files.
//
// Sources: DWARF Debugging Information Format, versions 4 and 5 (dwarfstd.org), chapter 6.2 and, for the
// names of a compilation unit's directory, chapters 7.5 and 7.26.
//
// A file may be anybody's, and is hostile: what breaks the format's rules has no line, and what a lookup reads,
// keeps and does is bounded. Names are UTF-8, but may contain anything else: they are to be cleaned before a
// terminal sees them.
package dwarfline
