package remote

import (
	"fmt"
	"slices"
	"strings"

	"clrsnap/internal/gather"
	"clrsnap/internal/phrase"
	"clrsnap/profile"
	"clrsnap/snapshot"
)

// NameServers looks for names of hosts that are not resolved: threads wait for the answer of a name server in all
// looks. .NET resolves names on the calling thread, and for async callers on a worker of the pool.
func NameServers(of *gather.Evidence) []profile.Verdict {
	e := &evidence{of}
	if len(e.Looks) < 2 || e.Core() || e.Span() < gather.Enough {
		return nil
	}
	var list []*snapshot.Thread
	servers := gather.Tally{}
	threads := e.Threads()
	for i := range threads {
		if server := unanswered(&threads[i]); server != "" {
			list = append(list, threads[i].Last())
			servers[server]++
		}
	}
	if len(list) == 0 {
		return nil
	}
	n := len(list)
	v := profile.Verdict{
		Cause: profile.CauseRemoteCall, Certainty: profile.Likely,
		Text: fmt.Sprintf("Names of hosts are not resolved: %s for the answer of a name server (%s) in all looks, for "+
			"at least %s. The process's /etc/resolv.conf says which servers there are.", phrase.ThreadsWait(n),
			phrase.List(servers.Sorted()), phrase.Seconds(e.Span())),
		Commands: []string{"clrsnap stack " + e.Again()},
	}
	if n < fewWaiters {
		v.Certainty = profile.Possible
	}
	t := list[0]
	if i := slices.IndexFunc(list, func(t *snapshot.Thread) bool { return gather.OwnFrame(t.Frames) != nil }); i >= 0 {
		t = list[i]
		v.Text += fmt.Sprintf(" One thread is in %s.", gather.Place(t.Frames))
	}
	x := profile.Evidence{Text: fmt.Sprintf("%s %s:", phrase.ThreadName(gather.Ref(t)), phrase.Doing(t)),
		Frames: t.Frames}
	for _, t := range list {
		x.Threads = append(x.Threads, gather.Ref(t))
	}
	v.Evidence = append(v.Evidence, x)
	return []profile.Verdict{v}
}

// unanswered is the address of the name server for which a thread has waited in all looks; "": the thread has not. In
// two looks one after the other, the socket is the same: a socket serves for one question.
func unanswered(w *gather.Watched) (server string) {
	last, same := "", false
	for _, t := range w.Looks {
		if t.Wait == nil || t.Wait.Kind != snapshot.WaitIO || !resolves(t.Wait.Target) {
			return ""
		}
		same = same || t.Wait.Target == last
		last = t.Wait.Target
	}
	if !same {
		return ""
	}
	_, to := endsIn(last)
	return strings.TrimSuffix(to, ",") // the first of several sockets
}

// resolves reports whether a call for input belongs to a function of the C library that looks up names.
func resolves(target string) bool {
	return slices.ContainsFunc([]string{"getaddrinfo: ", "getnameinfo: ", "gethostbyname_r: "}, func(p string) bool {
		return strings.HasPrefix(target, p)
	})
}
