// Package shares proves that recordings have the right shares. Programs measure the time of
// their own methods, or count their own events, and the tests compare the recordings with the
// measurements. docs/correctness.md, Recordings over time and Notifications, has the method and
// the results.
package shares
