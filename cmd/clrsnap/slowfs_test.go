package main

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"sync/atomic"
	"syscall"
	"testing"
	"time"
	"unsafe"

	"github.com/hanwen/go-fuse/v2/fs"
	"github.com/hanwen/go-fuse/v2/fuse"
	"golang.org/x/sys/unix"
)

// slowFS is the command "slowfs FROM PLACE": a file system in user space that shows the folder FROM at PLACE. On an
// order on its standard input the file system stops answering, and readers block until slowFS is killed.
func slowFS() {
	lower, err := fs.NewLoopbackRoot(os.Args[1])
	if err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
	server, err := fs.Mount(os.Args[2], &slowNode{lower.(*fs.LoopbackNode)},
		&fs.Options{MountOptions: fuse.MountOptions{
			DirectMountStrict: true, AllowOther: true, FsName: "slowfs", Name: "slow",
			SyncRead: true, // otherwise only the page waits, and SIGKILL ends such waits
		}})
	if err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
	fmt.Println("READY")
	in := bufio.NewScanner(os.Stdin)
	for in.Scan() {
		silent.Store(in.Text() == "silent")
		fmt.Println("OK")
	}
	silent.Store(false)
	_ = server.Unmount()
}

var silent atomic.Bool

func obey() {
	for silent.Load() {
		time.Sleep(10 * time.Millisecond)
	}
}

// slowNode is a file or a folder of the file system.
type slowNode struct{ *fs.LoopbackNode }

// WrapChild makes a slowNode of each node below.
func (n *slowNode) WrapChild(_ context.Context, child fs.InodeEmbedder) fs.InodeEmbedder {
	return &slowNode{child.(*fs.LoopbackNode)}
}

func (n *slowNode) Open(ctx context.Context, flags uint32) (fs.FileHandle, uint32, syscall.Errno) {
	obey()
	h, f, errno := n.LoopbackNode.Open(ctx, flags)
	return slowFile{h}, f, errno
}

func (n *slowNode) Lookup(ctx context.Context, name string, out *fuse.EntryOut) (*fs.Inode, syscall.Errno) {
	obey()
	return n.LoopbackNode.Lookup(ctx, name, out)
}

func (n *slowNode) Getattr(ctx context.Context, f fs.FileHandle, out *fuse.AttrOut) syscall.Errno {
	obey()
	if s, ok := f.(slowFile); ok {
		f = s.FileHandle
	}
	return n.LoopbackNode.Getattr(ctx, f, out)
}

// slowFile is an open file.
type slowFile struct{ fs.FileHandle }

func (f slowFile) Read(ctx context.Context, dest []byte, off int64) (fuse.ReadResult, syscall.Errno) {
	obey()
	return f.FileHandle.(fs.FileReader).Read(ctx, dest, off)
}

func (f slowFile) Release(ctx context.Context) syscall.Errno {
	return f.FileHandle.(fs.FileReleaser).Release(ctx)
}

// helper starts a command of this test binary and waits for the word READY.
func helper(t *testing.T, attr *syscall.SysProcAttr, args ...string) (pid int, order func(string)) {
	t.Helper()
	c := exec.Command(args[0], args[1:]...)
	c.SysProcAttr = attr
	in, err := c.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := c.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	c.Stderr = os.Stderr
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		in.Close()
		_ = c.Process.Kill()
		_ = c.Wait()
	})
	said := bufio.NewReader(out)
	expect := func(want string) {
		if line, err := said.ReadString('\n'); err != nil || line != want+"\n" {
			t.Fatalf("%v said %q, %v, not %s", args, line, err, want)
		}
	}
	expect("READY")
	return c.Process.Pid, func(s string) {
		if _, err := io.WriteString(in, s+"\n"); err != nil {
			t.Fatal(err)
		}
		expect("OK")
	}
}

// slowFolder shows a folder through a file system in user space.
func slowFolder(t *testing.T, from string) (place string, order func(string)) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("SKIPPED, NOTHING WAS TESTED: only root can mount a file system in user space without help")
	}
	if fd, err := unix.Open("/dev/fuse", unix.O_RDWR|unix.O_CLOEXEC, 0); err != nil {
		t.Skipf("SKIPPED, NOTHING WAS TESTED: /dev/fuse: %v", err)
	} else {
		unix.Close(fd)
	}
	place = t.TempDir()
	// This runs last: killing the server gives an error to everybody who waits for the server.
	t.Cleanup(func() { _ = unix.Unmount(place, unix.MNT_DETACH) })
	_, order = helper(t, nil, "slowfs", from, place)
	return place, order
}

// victim is the command "victim KIND FILE": a process that blocks its readers.
func victim() {
	kind, file := os.Args[1], os.Args[2]
	f, err := os.Open(file)
	if err == nil {
		_, err = unix.Mmap(int(f.Fd()), 0, mapped, unix.PROT_READ|unix.PROT_EXEC, unix.MAP_PRIVATE)
	}
	if err == nil && kind == "detached" {
		err = unix.Unmount(filepath.Dir(file), unix.MNT_DETACH)
	}
	if err == nil && kind == "fault" {
		err = faultsOn(file)
	}
	if err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
	fmt.Println("READY")
	_, _ = io.Copy(io.Discard, os.Stdin)
}

const mapped = 1 << 20

// faultsOn maps a file of a tmpfs. This process must provide the file's pages (userfaultfd), but never does.
func faultsOn(file string) error {
	fd, _, errno := unix.Syscall(unix.SYS_USERFAULTFD, unix.O_CLOEXEC, 0, 0)
	if errno != 0 {
		return fmt.Errorf("userfaultfd: %w", errno)
	}
	api := struct{ api, features, ioctls uint64 }{api: 0xAA}
	if _, _, errno := unix.Syscall(unix.SYS_IOCTL, fd, 0xc018aa3f, uintptr(unsafe.Pointer(&api))); errno != 0 {
		return fmt.Errorf("UFFDIO_API: %w", errno)
	}
	f, err := os.OpenFile(file, os.O_RDWR, 0)
	if err != nil {
		return err
	}
	mem, err := unix.Mmap(int(f.Fd()), 0, mapped, unix.PROT_READ|unix.PROT_EXEC, unix.MAP_SHARED)
	if err != nil {
		return err
	}
	const missing = 1
	register := struct{ start, len, mode, ioctls uint64 }{uint64(uintptr(unsafe.Pointer(&mem[0]))), mapped, missing, 0}
	if _, _, errno := unix.Syscall(unix.SYS_IOCTL, fd, 0xc020aa00, uintptr(unsafe.Pointer(&register))); errno != 0 {
		return fmt.Errorf("UFFDIO_REGISTER: %w", errno)
	}
	return nil
}
