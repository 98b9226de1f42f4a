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
// The result is a profile.Diagnosis, which clrsnap/report shows. It has no verdicts if nothing wrong was found.
//
// # How it works
//
// Evidence comes first: several snapshots of all threads with what they wait for and what they hold, how much each
// has run in between, the thread pool, a short recording, and what the kernel says of the process and its control
// groups. Then judges look at it, one for each cause. They are functions of the evidence and nothing else. At last
// what only follows from something else is left out: threads that wait for a lock that is part of a deadlock are
// victims of that.
//
// A judge says nothing rather than something that a healthy program under load could be accused of, too.
package why
