// Package report writes text for people in a terminal, and the same information as
// JSON for programs. The command clrsnap prints with this package. Package profile
// has the data model; package export writes recordings for other tools, and reads
// them back.
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
// Names come from the observed program and can be hostile. Text for a terminal never
// contains control characters from names (see [Clean]), and JSON is always valid.
package report
