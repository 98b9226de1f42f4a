// Package shares proves that recordings have the right shares: programs that measure themselves
// what they spend their time with, and that count their events, are recorded and compared.
// docs/correctness.md, Recordings over time and Notifications, has the method and the results.
package shares
