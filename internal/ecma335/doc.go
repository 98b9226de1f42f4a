// Package ecma335 reads CLI metadata: the tables in which an assembly names its
// types, methods, parameters and signatures. Facts about the layout come from
// ECMA-335, 6th edition; comments name the section (II.24.2.1 is partition II,
// section 24.2.1). Portable PDBs use the same container, so the package also
// reads their tables.
//
// The bytes usually come out of another process and are hostile. A wrong
// offset, a loop among the rows or an endless signature is an error, never a
// panic and never a plausible zero. Constants of the package or the size of the
// input bound the allocations of each accessor.
//
// Parse looks at the headers only. Accessors decode rows on demand; nothing is
// indexed in advance, because a snapshot of one stack needs a few dozen of the
// several hundred thousand rows of System.Private.CoreLib.
//
// Known gaps: rows added by a hot reload live in the runtime's own copy of the
// metadata and are absent here (ErrNoRow), and in/out/ref parameters are all
// shown as "ref", because the signature alone does not distinguish them.
package ecma335
