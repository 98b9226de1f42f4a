// Package export writes snapshots and recordings: as text for people, as JSON and
// in the formats of other tools for programs, as pictures; and it reads recordings
// back. Each encoder is a function that takes an io.Writer; the model is that of
// package profile, and nothing here knows where a snapshot or recording comes from.
//
// Names come from the target and are hostile: text for a terminal never lets a
// control character through, JSON is always valid. Files that are read are hostile
// too: ReadRecording bounds what it allocates, and what it returns is sound.
package export
