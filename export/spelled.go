package export

import (
	"fmt"

	"clrsnap/profile"
)

// maxOutput is how many bytes formats become that name each frame of each stack, more or less.
const maxOutput = 1 << 30

// spelled are the frames that a format writes which has each stack as a whole. Of a tree in
// which each of many nodes has a sample these are far more than there are nodes.
type spelled struct {
	depth  []int32 // of each node
	frames int
}

func newSpelled(r *profile.Recording) *spelled {
	s := &spelled{depth: make([]int32, len(r.Nodes))}
	for n := 1; n < len(r.Nodes); n++ {
		s.depth[n] = s.depth[r.Nodes[n].Parent] + 1
	}
	return s
}

// add adds the stack of a node.
func (s *spelled) add(node int32, f Format) error {
	if s.frames += int(s.depth[node]) + 1; s.frames > maxEntered {
		return outputTooLarge(f)
	}
	return nil
}

// addAll adds the stacks of all samples.
func (s *spelled) addAll(r *profile.Recording, f Format) error {
	for i := range r.Samples {
		if err := s.add(r.Samples[i].Node, f); err != nil {
			return err
		}
	}
	return nil
}

func outputTooLarge(f Format) error {
	return fmt.Errorf("a %s file of this would have more than a gigabyte: choose one mode, fewer threads or a shorter time, or another format", f)
}
