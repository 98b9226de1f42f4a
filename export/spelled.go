package export

import (
	"errors"

	"clrsnap/profile"
)

// MaxOutput is how many bytes an output may have, about. Formats with every frame of every stack
// refuse to write more. Their files can be far larger than the recording, which stores common callers
// and names once.
const MaxOutput = 1 << 30

// ErrTooLarge is the error of an output larger than MaxOutput.
var ErrTooLarge = errors.New("the output would be larger than a gigabyte: " +
	"choose one mode, fewer threads, a shorter time, or another format")

// spelled counts the frames of a format that writes each stack as a whole. If many nodes of a tree
// have samples, there are far more frames than nodes.
type spelled struct {
	depth  []int32 // of each node
	frames int     // so far
}

func newSpelled(r *profile.Recording) *spelled {
	s := &spelled{depth: make([]int32, len(r.Nodes))}
	for n := 1; n < len(r.Nodes); n++ {
		s.depth[n] = s.depth[r.Nodes[n].Parent] + 1
	}
	return s
}

// add adds the stack of a node.
func (s *spelled) add(node int32) error {
	if s.frames += int(s.depth[node]) + 1; s.frames > maxEntered {
		return ErrTooLarge
	}
	return nil
}

// addAll adds the stacks of all samples.
func (s *spelled) addAll(r *profile.Recording) error {
	for i := range r.Samples {
		if err := s.add(r.Samples[i].Node); err != nil {
			return err
		}
	}
	return nil
}
