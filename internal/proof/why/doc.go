// Package why tries "clrsnap why" and "clrsnap locks" on programs in a known state: a web service with one of many
// diseases (testdata/apps/shop), and healthy programs under load (testdata/apps/workloads). The first verdict on a
// sick program must be its disease, with the code at fault, and nothing false may stand beside the verdict. A
// healthy program gets no verdict. docs/correctness.md, Why it is stuck, has the results.
//
// The service has controllers, services beneath the controllers, and storage beneath the services. Clients ask for the
// pages that the disease needs, and for healthy pages; the answers tell whether the service is ill at all. Some
// diseases come from outside: a signal, a debugger, a control group. "clrsnap why --json" looks at each disease
// with the agent, without the agent, and again.
package why
