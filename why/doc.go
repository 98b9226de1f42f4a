// Package why answers why a .NET program is stuck, or slow.
//
// Look looks at a running process for some seconds, LookCore at a core dump:
//
//	d, err := why.Look(ctx, pid, why.Options{})
//	if err != nil {
//		return err // says what is wrong and what to do
//	}
//	for _, v := range d.Verdicts {
//		fmt.Println(v.Cause, v.Certainty, v.Text)
//	}
//
// The result is profile.Findings for clrsnap/report. Findings without verdicts mean that nothing wrong was
// found.
//
// # How it works
//
// Evidence comes first: several snapshots of all threads with their waits and holds, each thread's running time in
// between, the thread pool, a short recording, and the kernel's view of the process and its control groups. Then
// the judges look at the evidence, one judge for each cause. A judge is a function of the evidence and nothing
// else. At last, consequences are left out: threads that wait for a lock of a deadlock, for example, are victims
// of the deadlock.
//
// A judge stays silent if a healthy program under load could look the same.
package why
