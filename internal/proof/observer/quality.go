package observer

import (
	"cmp"
	"os"

	"clrsnap/export"
	"clrsnap/profile"
	"clrsnap/snapshot"
)

// Quality counts an observer's findings, and rates them.
type Quality struct {
	profile.ModeStats
	Memory  int64 // most that the observer used, in bytes
	Bytes   int64 // of the file
	Managed Names // of managed frames
	Native  Names // of all other frames
	Whole   int   // samples with a stack down to the base

	Runtime   string             // version of .NET
	Recording *profile.Recording `json:"-"` // by clrsnap record; a role has none
}

// Names counts frames, and the frames with a name.
type Names struct{ Frames, Named int }

// Add counts a frame seen so many times.
func (n *Names) Add(named bool, times int) {
	n.Frames += times
	if named {
		n.Named += times
	}
}

// ReadQuality reads a recording from a file, and judges the recording.
func ReadQuality(file string) (*Quality, error) {
	f, err := os.Open(file)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	r, err := export.ReadRecording(f)
	if err != nil {
		return nil, err
	}
	q := judge(r)
	info, err := f.Stat()
	if err == nil {
		q.Bytes = info.Size()
	}
	return q, err
}

func judge(r *profile.Recording) *Quality {
	q := &Quality{Memory: r.Cost.OwnMemory, Recording: r}
	if len(r.Processes) > 0 {
		q.Runtime = r.Processes[0].Runtime.Version
	}
	for _, m := range r.Modes {
		q.addStats(&m)
	}
	for i := range r.Samples {
		x := &r.Samples[i]
		if !x.Incomplete {
			q.Whole += int(x.Count)
		}
		for l := range r.Stack(x.Node) {
			of := &q.Native
			f := &r.Functions[l.Function]
			if f.Kind == snapshot.Managed {
				of = &q.Managed
			}
			of.Add(f.Method != "", int(x.Count))
		}
	}
	return q
}

// Add adds the findings of another observer, or of the same observer at another
// time.
func (q *Quality) Add(o *Quality) {
	q.addStats(&o.ModeStats)
	q.Runtime = cmp.Or(q.Runtime, o.Runtime)
	q.Memory, q.Bytes, q.Whole = max(q.Memory, o.Memory), q.Bytes+o.Bytes, q.Whole+o.Whole
	q.Managed.Frames += o.Managed.Frames
	q.Managed.Named += o.Managed.Named
	q.Native.Frames += o.Native.Frames
	q.Native.Named += o.Native.Named
}

func (q *Quality) addStats(m *profile.ModeStats) {
	q.Samples += m.Samples
	q.Lost += m.Lost
	q.Late += m.Late
	q.Broken += m.Broken
	q.Repaired += m.Repaired
}
