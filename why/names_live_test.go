package why_test

import (
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"clrsnap/internal/testenv"
	"clrsnap/internal/testenv/layer"
	"clrsnap/profile"
	"clrsnap/why"
)

// TestNames: the program's name server says nothing.
func TestNames(t *testing.T) {
	layer.Live(t)
	if os.Geteuid() != 0 {
		t.Skip("SKIPPED, NOTHING WAS TESTED: only root can give a program a name server")
	}
	const server = "127.0.0.77"
	c, err := net.ListenUDP("udp", &net.UDPAddr{IP: net.ParseIP(server), Port: 53})
	if err != nil {
		layer.Lacking(t, "a port for a name server: "+err.Error())
	}
	defer c.Close()
	conf := filepath.Join(t.TempDir(), "resolv.conf")
	if err := os.WriteFile(conf, []byte("nameserver "+server+"\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	testenv.EachOf(t, testenv.Supported(), func(t *testing.T, runtime string) {
		a := testenv.Start(t, "ailing", testenv.Options{Runtime: runtime, Args: []string{"--of", "names"},
			Prepare: func(cmd *exec.Cmd) {
				cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNS}
				const script = `mount --make-rprivate / && mount --bind "$0" /etc/resolv.conf && exec "$@"`
				cmd.Args = append([]string{"sh", "-c", script, conf, cmd.Path}, cmd.Args[1:]...)
				cmd.Path = "/bin/sh"
			}})
		testenv.UntilSeen(t, func() string {
			r := look(t, a, why.Options{For: 2 * time.Second, NoAgent: true})
			for i := range r.Verdicts {
				v := &r.Verdicts[i]
				checkVerdict(t, v, v.Cause == profile.CauseRemoteCall, []string{"Names of hosts are not resolved",
					"(" + server + ":53)", "Shop.Outside.Look"})
				if strings.Contains(v.Text, "4 threads wait") && v.Certainty == profile.Likely {
					return ""
				}
			}
			return "a verdict on all four threads" // a thread may just ask again
		})
	})
}
