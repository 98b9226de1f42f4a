package display

import "strconv"

// Plumbing returns the name of a run of framework frames, given the parts of .NET in the run, and its
// least and most frames: "[pool → Kestrel: 14 frames]".
func Plumbing(parts string, least, most int) string {
	n := strconv.Itoa(least)
	if most != least {
		n += "–" + strconv.Itoa(most)
	}
	return "[" + parts + ": " + n + " frames]"
}
