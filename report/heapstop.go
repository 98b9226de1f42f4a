package report

import (
	"time"

	"clrsnap/internal/display"
	"clrsnap/snapshot"
)

// heapStopNotes say what the stop of the program achieved. partial: the walk ended early, perhaps during the stop.
func heapStopNotes(s *snapshot.HeapStop, partial bool) (notes []string) {
	if s == nil {
		return nil
	}
	advice := ""
	if s.Needed > 0 {
		advice = " --max-pause " + s.Needed.String() + " should be enough."
	}
	pause := s.Pause.Round(10 * time.Microsecond).String()
	switch {
	case !s.Exact && s.Stops > 0:
		then := ", and the heap was then read while the program ran."
		if partial {
			then = "."
		}
		notes = append(notes,
			"This is not the heap of one moment: "+display.Clean(s.Reason)+". The program stood still for "+
				pause+then+advice)
	case !s.Exact:
		notes = append(notes, "This is not the heap of one moment, and the program was not stopped: "+
			display.Clean(s.Reason)+".")
	case s.Unfinished > 0:
		notes = append(notes,
			countText(uint64(s.Unfinished))+display.Plural(s.Unfinished, " thread was", " threads were")+
				" stopped in the middle of an allocation: "+
				display.Plural(s.Unfinished, "that object", "those objects")+" may be missing.")
	}
	return notes
}

// restNotes say what a stop of all threads achieved for tasks, requests or waits, or what a stop would be for.
// looked says how often clrsnap has looked in vain; "": nothing is missing.
func restNotes(s *snapshot.HeapStop, looked string) []string {
	switch {
	case s == nil && looked == "":
		return nil
	case s == nil:
		return []string{looked + "; --stop looks once more, with all threads stopped"}
	case s.Exact:
		return []string{"All of one moment: all threads were " + heapStopText(s)}
	case s.Stops > 0:
		return []string{"Not of one moment: " + display.Clean(s.Reason) + ". The program stood still for " +
			s.Pause.Round(10*time.Microsecond).String() + ", and was read while it ran"}
	}
	return []string{"Not of one moment, and the program was not stopped: " + display.Clean(s.Reason)}
}

// rest prints restNotes.
func (p *printer) rest(s *snapshot.HeapStop, looked string) {
	for _, note := range restNotes(s, looked) {
		p.paint(dim, note)
		p.end()
	}
}

// atOnceHint says how to read a heap without these doubts.
func atOnceHint(h *snapshot.Heap) string {
	if h.Stop != nil || h.Process.Core != nil {
		return ""
	}
	return "; --stop reads the whole heap at one moment"
}

// heapStopText is how long the program stood still.
func heapStopText(s *snapshot.HeapStop) string {
	return "stopped for " + s.Pause.Round(10*time.Microsecond).String()
}

type jsonHeapStop struct {
	Exact      bool    `json:"exact"`
	Reason     string  `json:"reason,omitempty"`
	Pause      float64 `json:"pauseMilliseconds"`
	Stops      int     `json:"stops"`
	Threads    int     `json:"threads"`
	Unfinished int     `json:"unfinishedAllocations"`
	Needed     float64 `json:"neededMilliseconds,omitempty"`
}

func jsonHeapStopOf(s *snapshot.HeapStop) *jsonHeapStop {
	if s == nil {
		return nil
	}
	return &jsonHeapStop{
		Exact: s.Exact, Reason: s.Reason, Pause: float64(s.Pause.Microseconds()) / 1e3, Stops: s.Stops,
		Threads: s.Threads, Unfinished: s.Unfinished, Needed: float64(s.Needed.Microseconds()) / 1e3,
	}
}
