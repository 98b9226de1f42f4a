// Package export writes snapshots: as text for people, as JSON for programs.
// Each encoder is a function that takes an io.Writer; the model is that of
// package profile, and nothing here knows where a snapshot comes from.
//
// Names come from the target and are hostile: text for a terminal never lets a
// control character through, JSON is always valid.
package export
