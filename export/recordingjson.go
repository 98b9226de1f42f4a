package export

import (
	"fmt"
	"time"

	"clrsnap/profile"
	"clrsnap/snapshot"
)

// The small objects of a recording's file. Every field is always written.

type fileProcess struct {
	PID     int         `json:"pid"`
	Command string      `json:"command"`
	Runtime fileRuntime `json:"runtime"`
}

type fileRuntime struct {
	Version string `json:"version"`
	Path    string `json:"path"`
	Shape   string `json:"shape"`
}

type fileThread struct {
	Process         int32  `json:"process"`
	OSThreadID      int    `json:"osThreadId"`
	ManagedThreadID int    `json:"managedThreadId"`
	Name            string `json:"name"`
	Role            string `json:"role"`
}

type fileMode struct {
	Mode     string     `json:"mode"`
	Unit     string     `json:"unit"`
	Rate     float64    `json:"rate"`
	Got      float64    `json:"got"`
	Source   string     `json:"source"`
	Samples  int        `json:"samples"`
	Lost     int        `json:"lost"`
	Missed   int        `json:"missed"`
	Late     int        `json:"late"`
	Broken   int        `json:"broken"`
	Repaired int        `json:"repaired"`
	Pauses   filePauses `json:"pauses"`
	Released int        `json:"released"`
	Seen     int64      `json:"seen"`
	Rethrown int64      `json:"rethrown"`
	Every    int64      `json:"every"`
}

// filePauses are in nanoseconds, but for the count.
type filePauses struct {
	Count int           `json:"count"`
	P50   time.Duration `json:"p50"`
	P99   time.Duration `json:"p99"`
	Max   time.Duration `json:"max"`
}

type fileCost struct {
	TargetCPU  time.Duration `json:"targetCpu"`
	OwnCPU     time.Duration `json:"ownCpu"`
	OwnMemory  int64         `json:"ownMemory"`
	Processors int           `json:"processors"`
}

func processesOut(list []snapshot.Process) []fileProcess {
	out := make([]fileProcess, len(list))
	for i, p := range list {
		out[i] = fileProcess{p.PID, p.Command, fileRuntime(p.Runtime)}
	}
	return out
}

func threadsOut(list []profile.RecordedThread) []fileThread {
	out := make([]fileThread, len(list))
	for i, t := range list {
		out[i] = fileThread(t)
	}
	return out
}

func modesOut(list []profile.ModeStats) []fileMode {
	out := make([]fileMode, len(list))
	for i, m := range list {
		out[i] = fileMode{
			m.Mode.String(), m.Mode.Unit().String(), m.Rate, m.Got, string(m.Source),
			m.Samples, m.Lost, m.Missed, m.Late, m.Broken, m.Repaired,
			filePauses(m.Pauses), m.Released, m.Seen, m.Rethrown, m.Every,
		}
	}
	return out
}

// fileMessage is a profile.MessageCount.
type fileMessage struct {
	Type   string `json:"type"`
	Module string `json:"module"`
	Text   string `json:"text"`
	Cut    bool   `json:"cut"`
	Count  int64  `json:"count"`
}

func messagesOut(list []profile.MessageCount) []fileMessage {
	out := make([]fileMessage, len(list))
	for i, m := range list {
		out[i] = fileMessage(m)
	}
	return out
}

func costOut(c profile.Cost) fileCost { return fileCost(c) }

func (m *fileMode) stats() (profile.ModeStats, error) {
	mode, ok := profile.ModeNamed(m.Mode)
	if !ok {
		return profile.ModeStats{}, fmt.Errorf("there is no mode %s", clip(m.Mode))
	}
	if unit := mode.Unit().String(); m.Unit != unit && m.Unit != "" { // version 1 has none
		return profile.ModeStats{}, fmt.Errorf("the unit of mode %s is %s, not %s", mode, unit, clip(m.Unit))
	}
	return profile.ModeStats{
		Mode: mode, Rate: m.Rate, Got: m.Got, Source: profile.SourceNamed(m.Source),
		Samples: m.Samples, Lost: m.Lost, Missed: m.Missed, Late: m.Late, Broken: m.Broken, Repaired: m.Repaired,
		Pauses: snapshot.Pauses(m.Pauses), Released: m.Released, Seen: m.Seen, Rethrown: m.Rethrown,
		Every: m.Every,
	}, nil
}
