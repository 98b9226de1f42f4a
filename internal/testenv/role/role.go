// Package role lets a test start its own binary again, as a program with another role: a reader that is killed, a
// process that lies about itself, another user.
//
//	var liar = role.New("liar", func(a role.Args) error { … })
//
//	func TestMain(m *testing.M) { role.Main(m) }
//
//	func TestLies(t *testing.T) {
//		cmd := liar.Command(4242)
//		…
package role

import (
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"testing"
)

// variable is the environment variable with the name of the role.
const variable = "CLRSNAP_TEST_ROLE"

var (
	roles = map[string]func(Args) error{}
	ready bool // this process plays no role, but its children would
)

// A Role is a program in the test binary besides the tests.
type Role struct{ name string }

// New makes a role, as a variable of a package. The process ends when play returns: with the status 1 and a printed
// message if there is an error.
func New(name string, play func(Args) error) *Role {
	if roles[name] != nil {
		panic("there are two roles " + name)
	}
	roles[name] = play
	return &Role{name}
}

// String is the role's name.
func (r *Role) String() string { return r.name }

// Command starts the test binary in the role. Each argument is printed as fmt.Print does.
func (r *Role) Command(args ...any) *exec.Cmd {
	if !ready {
		panic("TestMain plays no roles: the tests would start themselves")
	}
	cmd := exec.Command("/proc/self/exe")
	for _, a := range args {
		cmd.Args = append(cmd.Args, fmt.Sprint(a))
	}
	cmd.Env = append(os.Environ(), variable+"="+r.name)
	return cmd
}

// Args are the arguments of Command.
type Args []string

// Int is an argument as a number, such as a PID.
func (a Args) Int(i int) int {
	n, err := strconv.Atoi(a[i])
	if err != nil {
		panic(err)
	}
	return n
}

// Main is a TestMain.
func Main(m *testing.M) {
	Play()
	os.Exit(m.Run())
}

// Play is the beginning of any other TestMain. Play does not return if the process was started in a role.
func Play() {
	name := os.Getenv(variable)
	if name == "" {
		ready = true
		return
	}
	os.Unsetenv(variable) // the role's children are not in the role
	play := roles[name]
	if play == nil {
		fmt.Println("there is no role", name)
		os.Exit(1)
	}
	if err := play(os.Args[1:]); err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
	os.Exit(0)
}

// Copy copies the test binary to a file that everybody may execute.
func Copy(to string) error {
	self, err := os.Executable()
	if err != nil {
		return err
	}
	// Another process writes the file. If this process wrote the file, a fork for another test could inherit the open
	// file, and a file that is open for writing cannot be executed.
	if out, err := exec.Command("cp", self, to).CombinedOutput(); err != nil {
		return fmt.Errorf("%w: %s", err, out)
	}
	return os.Chmod(to, 0o755)
}
