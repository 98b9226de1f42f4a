package contract

import (
	"fmt"
	"strings"
)

// MissingError lists everything that was asked for and that the runtime's
// descriptor does not have.
type MissingError struct {
	Missing []string // "field Thread.Id", "size of MethodTable", "global ThreadStore", "contract Thread"
	Runtime string   // version, where it is known
}

func (e *MissingError) Error() string {
	return fmt.Sprintf("the data descriptor of %s lacks %s", runtimeName(e.Runtime), strings.Join(e.Missing, ", "))
}

// UnknownVersionError: the runtime follows a version of a contract that this
// program does not know.
type UnknownVersionError struct {
	Contract   string
	Found      Version
	Understood []Version
	Runtime    string // version, where it is known
}

// Remedy says what to do. It ends the error's text.
func (e *UnknownVersionError) Remedy() string { return "update clrsnap" }

func (e *UnknownVersionError) Error() string {
	known := make([]string, len(e.Understood))
	for i, v := range e.Understood {
		known[i] = string(v)
	}
	return fmt.Sprintf("%s follows version %s of the contract %s; this clrsnap understands %s: %s",
		runtimeName(e.Runtime), e.Found, e.Contract, strings.Join(known, ", "), e.Remedy())
}

// UnknownFormatError: the runtime's descriptor has a format that this program does not know. It is
// an ErrFormat.
type UnknownFormatError struct {
	Detail string // what is not known
	Remedy string // what to do
}

func (e *UnknownFormatError) Error() string {
	return fmt.Sprintf("%v: %s: %s", ErrFormat, e.Detail, e.Remedy)
}

// Unwrap returns ErrFormat.
func (e *UnknownFormatError) Unwrap() error { return ErrFormat }

func runtimeName(v string) string {
	if v == "" {
		return "this .NET runtime"
	}
	return ".NET " + v
}
