// Package export writes recordings in formats for other tools and for the browser, and reads them
// back. The data model is in package profile; this package does not know where a recording comes from.
// Package report has the tables for a terminal, and everything about snapshots.
//
// [Encode] writes a recording in one of the [Formats]: a flame graph for the browser or as a picture,
// pprof, speedscope, folded stacks, Chrome trace events, or clrsnap's own format. Only the last one
// and the flame graph for the browser keep everything. [FormatOf] knows the format by the file
// extension. Each format also has its own function, for example [Pprof].
//
// [ReadRecording] reads a recording in any readable format.
//
// # Hostile input
//
// Names come from the recorded program and can be hostile: each format escapes names in its own way.
// Files can be hostile too: ReadRecording bounds its memory, and checks its result.
package export
