package main

import (
	"clrsnap/internal/confine"

	"golang.org/x/sys/unix"
)

// confine drops all rights of this process except the rights to write the output file, to read the files read, and to
// use the given capabilities.
func (p *pendingFile) confine(read []string, capabilities ...int) error {
	r := confine.Rights{Read: read, Capabilities: capabilities}
	if p.place == nil { // standard output is open already
		return confine.To(r)
	}
	if p.direct {
		there, err := p.place.open(unix.O_PATH)
		if err != nil {
			return err
		}
		defer there.Close()
		r.Write = there
	} else {
		t, err := p.take()
		if err != nil {
			return err
		}
		// A new file, without a file to replace, needs fewer rights.
		t.fresh = t.name == "" && p.place.st == nil
		p.temp = t
		r.Make, r.Replace = p.place.dir, !t.fresh
	}
	if !p.place.isOwn(p.direct) {
		r.Capabilities = append(r.Capabilities, unix.CAP_DAC_OVERRIDE, unix.CAP_FOWNER)
	}
	return confine.To(r)
}
