package contract

import (
	"fmt"
	"strings"
)

// MissingError lists everything that the caller asked for and the runtime's descriptor lacks.
type MissingError struct {
	Missing []string // "field Thread.Id", "size of MethodTable", "global ThreadStore", "contract Thread"
	Runtime string   // version, if known
}

func (e *MissingError) Error() string {
	return fmt.Sprintf("the data descriptor of %s lacks %s", runtimeName(e.Runtime), strings.Join(e.Missing, ", "))
}

// UnknownVersionError: the runtime follows a version of a contract that clrsnap does not know.
type UnknownVersionError struct {
	Contract   string
	Found      Version
	Understood []Version
	Runtime    string // version, if known
}

// Remedy returns the remedy. The error's text ends with the remedy.
func (e *UnknownVersionError) Remedy() string { return "update clrsnap" }

func (e *UnknownVersionError) Error() string {
	known := make([]string, len(e.Understood))
	for i, v := range e.Understood {
		known[i] = string(v)
	}
	return fmt.Sprintf("%s follows version %s of the contract %s; this clrsnap understands %s: %s",
		runtimeName(e.Runtime), e.Found, e.Contract, strings.Join(known, ", "), e.Remedy())
}

// UnknownFormatError: the runtime's descriptor has a format that clrsnap does not know. An UnknownFormatError is an
// ErrFormat.
type UnknownFormatError struct {
	Detail string // the unknown part
	Remedy string // advice for the user
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
