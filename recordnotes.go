package clrsnap

import (
	"fmt"
	"time"
)

// remarks are what whoever reads the recording has to know.
func (r *recorder) remarks() []string {
	out := r.notes
	if r.wall != nil {
		if s := r.wall.figures(); s.Got > 0 {
			out = append(out, fmt.Sprintf("Every thread was sampled %.3g times a second instead of %g: more would have taken more than %.0f %% of a processor, or time that there was not.", s.Got, s.Rate, 100*r.o.MaxCPU))
		}
	}
	if d := r.b.Bin(); d > 0 {
		out = append(out, fmt.Sprintf("There are so many samples that equal ones within %v were put together.", d.Round(time.Millisecond)))
	}
	if n := r.b.Cut(); n > 0 {
		out = append(out, fmt.Sprintf("There are so many different stacks that %d samples have shortened ones: their frames near the leaf are missing.", n))
	}
	return out
}
