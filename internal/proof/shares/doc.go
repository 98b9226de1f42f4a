// Package shares proves that recordings have the right shares. Programs measure the time of
// their own methods, or count their own events, and the tests compare the recordings with the
// measurements. docs/correctness.md, Recordings over time, The live heap and Notifications, has the
// results.
//
// The program "shares" spends its time in known methods: eight threads and a pool, managed code, native
// code called by P/Invoke and calling back, exceptions, locks, sleeps, pipes, sockets and tasks. Slices of
// time have random lengths and end by the clock; the program adds up the CPU time and the wall-clock
// time of every method. "brief" does all work in threads of 1 to 5 ms. "events" allocates, throws, contends,
// starts threads and collects in known proportions. "survivors" allocates at ten sites, a little at a time and in
// a random order. Six sites keep all objects or every second object: small objects, blocks, large arrays, pinned
// arrays, and the listeners of an event. Four sites drop their objects.
package shares
