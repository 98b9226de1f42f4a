package export

import "strings"

// incompleteFrame is the first frame of a stack without its frames near the base, in formats that have
// no other place to say so.
const incompleteFrame = "[incomplete stack]"

// baseName returns the last element of a path.
func baseName(path string) string { return path[strings.LastIndexByte(path, '/')+1:] }
