// Package export writes what clrsnap collected, and reads recordings back. The data
// model is that of package profile; this package does not know where a snapshot or a
// recording comes from.
//
// A snapshot is written by [Text] for people and by [JSON] for programs.
//
// A recording is written by [Encode] in one of the formats that [Formats] lists: a
// flame graph for the browser or as a picture, pprof, speedscope, folded stacks,
// Chrome trace events, or clrsnap's own format. Only the last one and the flame graph
// for the browser keep everything. Each format also has a function of its own, such as
// [Pprof]. [Top] prints the hottest functions of a recording, and [Difference] compares
// two recordings; [TopJSON] and [DifferenceJSON] do the same for programs.
//
// [ReadRecording] reads a recording in any format that can be read back.
//
// # Hostile input
//
// Names come from the recorded program and can be hostile. Text for a terminal never
// contains control characters from them, and JSON is always valid. Files can be
// hostile too: ReadRecording bounds what it allocates, and checks what it returns.
package export
