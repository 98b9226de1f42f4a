// Package events delivers notifications of a .NET runtime: a thread allocates, throws an exception,
// waits for a lock, starts a thread or triggers a garbage collection. Subscribe loads a small agent
// into a running process. In each notification the agent has the CLR walk the thread's stack, and
// Notification.DoStackSnapshot passes the frames to the same callback as
// clrsnap.Process.DoStackSnapshot does:
//
//	s, err := events.Subscribe(ctx, p, events.Options{Monitor: events.MonitorExceptions})
//	if err != nil {
//		return err
//	}
//	defer s.Close()
//	for {
//		n, err := s.Next(ctx)
//		if err != nil {
//			return err // io.EOF when the process has exited
//		}
//		if err := n.DoStackSnapshot(callback, clrsnap.COR_PRF_SNAPSHOT_DEFAULT, nil); err != nil {
//			return err
//		}
//	}
//
// SubscribeCommand starts a program and subscribes from the start of its runtime. Package
// clrsnap/record turns notifications into samples.
package events
