package gather

import "time"

// amountGap is the time between two readings of the memory.
const amountGap = 50 * time.Millisecond

// watchMemory reads the amount of anonymous memory again and again, until end is called.
func (g *Gatherer) watchMemory() (end func()) {
	stop, done := make(chan struct{}), make(chan struct{})
	var list []Amount
	go func() {
		defer close(done)
		tick := time.NewTicker(max(amountGap, g.o.For/1000))
		defer tick.Stop()
		for {
			if s, err := g.dir.Status(); err == nil {
				list = append(list, Amount{time.Since(g.start), s.Anonymous})
			}
			select {
			case <-stop:
				return
			case <-tick.C:
			}
		}
	}()
	return func() {
		close(stop)
		<-done
		g.Anonymous = list
	}
}
