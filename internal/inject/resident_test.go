package inject

import (
	"context"
	"fmt"
	"os"
	"strings"
	"testing"

	"clrsnap/internal/agent"
	"clrsnap/internal/testenv"
)

// TestResident: however often the agent is attached and detached, its library is mapped in the
// process once.
func TestResident(t *testing.T) {
	app := testenv.Start(t, "idle", testenv.Options{})
	for i := range 4 {
		was := resident(dirOf(t, app.PID), library(t))
		if (was != "") != (i > 0) {
			t.Errorf("round %d: resident as %q", i, was)
		}
		a, err := Attach(context.Background(), dirOf(t, app.PID))
		if err != nil {
			t.Fatal(err)
		}
		c, err := agent.NewConn(a.Conn)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := c.Begin(agent.Subscription{Events: agent.GC}); err != nil {
			t.Fatal(err)
		}
		if err := a.Loaded(); err != nil {
			t.Fatal(err)
		}
		if err := c.Detach(); err != nil {
			t.Fatal(err)
		}
		c.Close()
	}
	maps, err := os.ReadFile(fmt.Sprintf("/proc/%d/maps", app.PID))
	if err != nil {
		t.Fatal(err)
	}
	if n := strings.Count(string(maps), libraryName+" (deleted)\n"); n == 0 || n > 8 {
		t.Errorf("%d mappings of the library, as of several copies:\n%s", n, maps)
	}
	if resident(dirOf(t, app.PID), []byte("another library")) != "" {
		t.Error("another library is resident")
	}
	if result, code := app.Stop(); result != "OK" || code != 0 {
		t.Errorf("the program ended with result %q and exit code %d", result, code)
	}
}
