// Package report writes what a person reads in a terminal, and the same as JSON for
// programs. It is what the command clrsnap prints. The data model is that of package
// profile; package export writes recordings for other tools, and reads them back.
//
//   - a snapshot: [Text], [JSON], and [Summary] in one line
//   - a recording: [Top], [TopJSON], and [RecordingSummary] in a few lines
//   - who calls whom in a recording: [Calls], [CallsJSON]
//   - two recordings compared: [Diff], [DiffJSON]
//   - a list of processes: [Processes], [ProcessesJSON]
//   - checks of a process: [Checks]
//
// The schemas of the JSON are stable and described in docs/json.md.
//
// # Hostile input
//
// Names come from the observed program and can be hostile. What is written for a
// terminal never contains control characters from them (see [Clean]), and JSON is
// always valid.
package report
