package record

import (
	"cmp"
	"slices"

	"clrsnap/profile"
)

// messageTable counts the messages of exceptions by their text. A program can throw any number of
// different messages.
type messageTable struct {
	counts map[messageKey]int64
	others int64 // exceptions without room for their message
}

type messageKey struct {
	class, module, text string
	cut                 bool
}

// maxMessages bounds the different messages of a recording: 256 characters each, at most.
const maxMessages = 1000

// add counts the message of an exception.
func (t *messageTable) add(class profile.Function, n *notification) {
	if !n.record.HasMessage {
		return
	}
	key := messageKey{class.Display, class.Module, n.Message, n.MessageCut}
	if _, ok := t.counts[key]; !ok && len(t.counts) >= maxMessages {
		t.others += n.Count
		return
	}
	if t.counts == nil {
		t.counts = map[messageKey]int64{}
	}
	t.counts[key] += n.Count
}

// messages returns the counts, the most frequent messages first.
func (t *messageTable) messages() profile.Messages {
	out := profile.Messages{Others: t.others}
	for k, n := range t.counts {
		out.Counts = append(out.Counts, profile.MessageCount{
			Type: k.class, Module: k.module, Text: k.text, Cut: k.cut, Count: n,
		})
	}
	slices.SortFunc(out.Counts, func(a, b profile.MessageCount) int {
		return cmp.Or(cmp.Compare(b.Count, a.Count), cmp.Compare(a.Type, b.Type), cmp.Compare(a.Module, b.Module),
			cmp.Compare(a.Text, b.Text))
	})
	return out
}
