package report

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strings"

	"clrsnap/internal/display"
	"clrsnap/profile"
	"clrsnap/snapshot"
)

// memoryPart is a named part of a process's memory.
type memoryPart struct {
	bytes int64
	name  string
}

func memoryParts(m *snapshot.Memory) []memoryPart {
	return []memoryPart{
		{m.Managed, "managed heap"}, {m.Native, "native"}, {m.Stacks, "stacks"}, {m.Code, "code"}, {m.Files, "files"},
		{m.Shared, "shared"},
	}
}

// memoryText says where the memory of a process is, the largest part first: "632 MiB in RAM: 600 MiB native, …".
func memoryText(m *snapshot.Memory) string {
	parts := memoryParts(m)
	slices.SortStableFunc(parts, func(a, b memoryPart) int { return cmp.Compare(b.bytes, a.bytes) })
	var words []string
	for _, x := range parts {
		if x.bytes > 0 {
			words = append(words, bytesText(uint64(x.bytes))+" "+x.name)
		}
	}
	return bytesText(uint64(m.RSS)) + " in RAM: " + strings.Join(words, ", ")
}

// leastChange is the least change of a part of the memory that is worth a word, in bytes.
const leastChange = 1 << 20

// grownText says by how much parts of the memory have changed, the largest growth first: "+12 MiB native". "": there is
// nothing to say.
func grownText(m *snapshot.Memory) string {
	if m == nil {
		return ""
	}
	parts := slices.DeleteFunc(memoryParts(m), func(x memoryPart) bool { return max(x.bytes, -x.bytes) < leastChange })
	slices.SortStableFunc(parts, func(a, b memoryPart) int { return cmp.Compare(b.bytes, a.bytes) })
	var words []string
	for _, x := range parts {
		sign := "+"
		if x.bytes < 0 {
			sign = "−"
		}
		words = append(words, sign+bytesText(uint64(max(x.bytes, -x.bytes)))+" "+x.name)
	}
	return strings.Join(words, ", ")
}

// tasksUseText says how many async methods are in flight and have ended: "Async methods: 120 in flight; of those 3.0 s
// before, at least 80 ended".
func tasksUseText(a *profile.Activity) string {
	text := "Async methods: " + display.Number(a.TasksInFlight) + " in flight"
	if a.TasksEnded < 0 || a.TasksEnded == 0 && !a.TasksExact {
		return text
	}
	least := "at least "
	if a.TasksExact {
		least = ""
	}
	return text + fmt.Sprintf("; of those in flight %.1f s before, %s%s ended", a.TasksOver.Seconds(), least,
		display.Number(a.TasksEnded))
}

// activityLines say what a process did, a line each.
func activityLines(a *profile.Activity) (lines []string) {
	if a.CPU != nil {
		lines = append(lines, cpuUseText(a.CPU))
		for i := range a.CPU.OfNote {
			lines = append(lines, "Of note: "+a.CPU.OfNote[i].Text)
		}
	}
	lines = append(lines, fmt.Sprintf("Threads: %d running, %d waiting, %d idle", a.Threads.Running, a.Threads.Waiting,
		a.Threads.Idle))
	if a.Host != "" {
		lines = append(lines, "Host: "+a.Host)
	}
	if a.RequestsInFlight > 0 || a.RequestsEnded > 0 {
		lines = append(lines, requestsUseText(a))
	}
	if a.TasksInFlight > 0 || a.TasksEnded > 0 {
		lines = append(lines, tasksUseText(a))
	}
	if a.Memory != nil {
		lines = append(lines, "Memory: "+memoryText(a.Memory))
	}
	if grown := grownText(a.MemoryGrown); grown != "" {
		lines = append(lines, fmt.Sprintf("Memory changed in %.1f s: %s", a.MemoryOver.Seconds(), grown))
	}
	if l := a.MemoryLimit; l != nil {
		lines = append(lines, fmt.Sprintf("Memory limit: the control group uses %s of %s (%s)",
			bytesText(uint64(max(l.Used, 0))), bytesText(uint64(l.Limit)),
			display.Percent(float64(l.Used)/float64(l.Limit))))
	}
	if a.GCShare >= 0 {
		lines = append(lines,
			"Garbage collections: the program stood still for "+display.Percent(a.GCShare)+" of the time")
	}
	if a.ExceptionsPerSecond >= 0 {
		text := "Exceptions: " + perSecond(a.ExceptionsPerSecond) + " a second"
		if a.RethrowsPerSecond > 0 {
			text += ", and thrown again " + perSecond(a.RethrowsPerSecond) + " times a second"
		}
		if a.MostExceptions != "" {
			text += "; most are " + a.MostExceptions
		}
		lines = append(lines, text)
	}
	if a.Descriptors >= 0 {
		text := "Descriptors: " + display.Number(a.Descriptors)
		if a.DescriptorsLimit > 0 {
			text += " of " + display.Number(a.DescriptorsLimit)
		}
		lines = append(lines, text)
	}
	return lines
}

// perSecond is a rate as text: "0.25", "4,050".
func perSecond(v float64) string {
	if v < 10 {
		return fmt.Sprintf("%.2g", v)
	}
	return display.Number(int(math.Round(v)))
}

// requestsUseText says how many requests are in flight and have ended: "Requests: 40 in flight, 812 ended in 2.9 s".
func requestsUseText(a *profile.Activity) string {
	text := "Requests: " + display.Number(a.RequestsInFlight) + " in flight"
	if a.RequestsEnded >= 0 {
		text += fmt.Sprintf(", %s ended in %.1f s", display.Number(a.RequestsEnded), a.RequestsOver.Seconds())
	}
	return text
}

// cpuKinds are the words for kinds of CPU time.
var cpuKinds = map[profile.CPUKind]string{
	profile.CPUOwn: "own code", profile.CPUPackages: "packages", profile.CPUFramework: "framework",
	profile.CPUNative: "native code", profile.CPUGC: "garbage collector", profile.CPUJIT: "JIT compiler",
	profile.CPURuntime: "other work of the runtime", profile.CPUKernel: "kernel",
}

// leastShown is the least share of the CPU time worth a word.
const leastShown = 0.01

func cpuUseText(c *profile.ActivityCPU) string {
	text := fmt.Sprintf("CPU: %.2f of %.3g CPUs", c.Used, c.May)
	kinds := slices.SortedFunc(slices.Values(profile.CPUKinds[:]), func(a, b profile.CPUKind) int {
		return cmp.Compare(c.ByKind[b], c.ByKind[a])
	})
	sep := ": "
	for _, k := range kinds {
		if share := c.ByKind[k]; share >= leastShown {
			text += sep + display.Percent(share) + " " + cpuKinds[k]
			sep = ", "
			if k == profile.CPUNative && c.NativeLibrary != "" {
				text += " (most in " + display.Library(c.NativeLibrary) + ")"
			}
		}
	}
	if c.Own != "" && c.PathShare >= leastShown {
		text += "; " + display.Percent(c.PathShare) + " in " + c.Own + ", with the called code of .NET and packages"
	}
	return text
}

type jsonActivity struct {
	CPU                 *jsonCPU    `json:"cpu,omitempty"`
	Memory              *jsonUse    `json:"memory,omitempty"`
	GCShare             *float64    `json:"gcShare,omitempty"`
	ExceptionsPerSecond *float64    `json:"exceptionsPerSecond,omitempty"`
	RethrowsPerSecond   float64     `json:"rethrowsPerSecond,omitempty"`
	MostExceptions      string      `json:"mostExceptions,omitempty"`
	Descriptors         *int        `json:"descriptors,omitempty"`
	DescriptorsLimit    int         `json:"descriptorsLimit,omitempty"`
	Threads             jsonThreads `json:"threads"`
	Host                string      `json:"host,omitempty"`
	RequestsInFlight    *int        `json:"requestsInFlight,omitempty"`
	RequestsEnded       *int        `json:"requestsEnded,omitempty"`
	RequestsOver        float64     `json:"requestsOverSeconds,omitempty"`
	TasksInFlight       *int        `json:"tasksInFlight,omitempty"`
	TasksEnded          *int        `json:"tasksEnded,omitempty"`
	TasksExact          bool        `json:"tasksExact,omitempty"`
	TasksOver           float64     `json:"tasksOverSeconds,omitempty"`
}

type jsonThreads struct {
	Running int `json:"running"`
	Waiting int `json:"waiting"`
	Idle    int `json:"idle"`
}

type jsonCPU struct {
	Share     float64                     `json:"share"`
	Used      float64                     `json:"used"`
	May       float64                     `json:"may"`
	ByKind    map[profile.CPUKind]float64 `json:"byKind,omitempty"`
	Native    string                      `json:"nativeLibrary,omitempty"`
	Path      []*jsonFrame                `json:"path,omitempty"`
	PathShare float64                     `json:"pathShare,omitempty"`
	OfNote    []jsonEvidence              `json:"ofNote,omitempty"`
}

// jsonUse is the memory of an activity.
type jsonUse struct {
	*jsonMemory
	Grown     *jsonMemory `json:"grown,omitempty"`
	GrownOver float64     `json:"grownOverSeconds,omitempty"`
	Limit     int64       `json:"limit,omitempty"`
	GroupUsed int64       `json:"groupUsed,omitempty"`
}

func jsonUseOf(a *profile.Activity) *jsonUse {
	if a.Memory == nil {
		return nil
	}
	out := &jsonUse{jsonMemory: jsonMemoryOf(a.Memory), Grown: jsonMemoryOf(a.MemoryGrown),
		GrownOver: a.MemoryOver.Seconds()}
	if l := a.MemoryLimit; l != nil {
		out.Limit, out.GroupUsed = l.Limit, l.Used
	}
	return out
}

type jsonMemory struct {
	RSS     int64 `json:"rss"`
	Managed int64 `json:"managed"`
	Native  int64 `json:"native"`
	Stacks  int64 `json:"stacks"`
	Code    int64 `json:"code"`
	Files   int64 `json:"files"`
	Shared  int64 `json:"shared"`
}

func jsonMemoryOf(m *snapshot.Memory) *jsonMemory {
	if m == nil {
		return nil
	}
	return &jsonMemory{
		RSS: m.RSS, Managed: m.Managed, Native: m.Native, Stacks: m.Stacks, Code: m.Code, Files: m.Files,
		Shared: m.Shared,
	}
}

func jsonActivityOf(a *profile.Activity) *jsonActivity {
	if a == nil {
		return nil
	}
	out := &jsonActivity{
		Memory: jsonUseOf(a), DescriptorsLimit: max(a.DescriptorsLimit, 0), Threads: jsonThreads(a.Threads),
		RethrowsPerSecond: a.RethrowsPerSecond, MostExceptions: a.MostExceptions, Host: a.Host,
	}
	if a.GCShare >= 0 {
		out.GCShare = &a.GCShare
	}
	if a.ExceptionsPerSecond >= 0 {
		out.ExceptionsPerSecond = &a.ExceptionsPerSecond
	}
	if a.Descriptors >= 0 {
		out.Descriptors = &a.Descriptors
	}
	if a.RequestsInFlight >= 0 {
		out.RequestsInFlight = &a.RequestsInFlight
	}
	if a.RequestsEnded >= 0 {
		out.RequestsEnded, out.RequestsOver = &a.RequestsEnded, a.RequestsOver.Seconds()
	}
	if a.TasksInFlight >= 0 {
		out.TasksInFlight = &a.TasksInFlight
	}
	if a.TasksEnded >= 0 {
		out.TasksEnded, out.TasksExact, out.TasksOver = &a.TasksEnded, a.TasksExact, a.TasksOver.Seconds()
	}
	if c := a.CPU; c != nil {
		out.CPU = &jsonCPU{Share: c.Share(), Used: c.Used, May: c.May, ByKind: c.ByKind, PathShare: c.PathShare,
			Native: c.NativeLibrary}
		for i := range c.Path {
			out.CPU.Path = append(out.CPU.Path, jsonFrameOf(&c.Path[i]))
		}
		for i := range c.OfNote {
			out.CPU.OfNote = append(out.CPU.OfNote, jsonEvidenceOf(&c.OfNote[i]))
		}
	}
	return out
}
