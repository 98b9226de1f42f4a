// Package shares proves that recordings have the right shares: it records programs that measure
// how they spend their time, and programs that count their events, and compares.
// docs/correctness.md, Recordings over time and Notifications, has the method and the results.
package shares
