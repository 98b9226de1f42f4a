// Package events has the notifications of a .NET runtime: who allocates, throws, waits for a
// lock, starts a thread, brings a garbage collection about. Subscribe has a small agent loaded
// into the process, which has the CLR walk the thread's stack in the notification. Each
// Notification has the stack of its moment, for the same callback as
// clrsnap.Process.DoStackSnapshot:
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
// SubscribeCommand does so for a program from its start. clrsnap/record makes samples of
// notifications.
package events
