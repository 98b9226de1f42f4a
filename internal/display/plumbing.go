package display

import "strconv"

// Plumbing returns the name of a run of plumbing, which leads through some parts of .NET and has from
// least to most frames: "[pool → Kestrel: 14 frames]".
func Plumbing(parts string, least, most int) string {
	n := strconv.Itoa(least)
	if most != least {
		n += "–" + strconv.Itoa(most)
	}
	return "[" + parts + ": " + n + " frames]"
}
