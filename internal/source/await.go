package source

// AwaitLine returns the line of the await at which a suspended async method waits. method is the row
// of its MoveNext, and stores are where the IL of MoveNext sets the state of the state machine: the
// await belongs to the last state set before the await.
func (a *Assembly) AwaitLine(method uint32, stores []StateStore, state int32) (Line, error) {
	if a.file == nil {
		return Line{}, a.err
	}
	steps, ok, err := a.file.Async(method)
	if err != nil || !ok {
		return Line{}, none("the PDB does not have the method's awaits")
	}
	found := -1
	for i := range steps.Steps {
		s := &steps.Steps[i]
		if s.Method != method || stateBefore(stores, s.Yield) != state {
			continue
		}
		if found >= 0 {
			return Line{}, none("several awaits have this state")
		}
		found = i
	}
	if found < 0 {
		return Line{}, none("no await has this state")
	}
	return a.Line(method, steps.Steps[found].Yield)
}

// StateStore is where IL sets the state of a state machine.
type StateStore struct {
	IL    uint32 // offset
	State int32
}

// noState is not the state of a waiting method.
const noState = -1

// stateBefore is the last state set before an offset; stores are in the order of their offsets.
func stateBefore(stores []StateStore, il uint32) int32 {
	state := int32(noState)
	for _, s := range stores {
		if s.IL >= il {
			break
		}
		state = s.State
	}
	return state
}
