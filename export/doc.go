// Package export writes recordings in formats for other tools and for the browser, and
// reads them back. The data model is that of package profile; this package does not know
// where a recording comes from. Package report has the tables for a terminal, and
// everything about snapshots.
//
// [Encode] writes a recording in one of the formats that [Formats] lists: a flame graph
// for the browser or as a picture, pprof, speedscope, folded stacks, Chrome trace events,
// or clrsnap's own format. Only the last one and the flame graph for the browser keep
// everything. [FormatOf] knows the format by the file extension. Each format also has a
// function of its own, such as [Pprof].
//
// [ReadRecording] reads a recording in any format that can be read back.
//
// # Hostile input
//
// Names come from the recorded program and can be hostile: they are escaped as each format
// needs it. Files can be hostile too: ReadRecording bounds what it allocates, and checks
// what it returns.
package export
