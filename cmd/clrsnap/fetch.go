package main

import (
	"cmp"
	"context"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"os/exec"
	"os/signal"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"clrsnap/internal/confine"
	"clrsnap/symbols"

	"golang.org/x/sys/unix"
)

// A process of its own, the fetcher, fetches symbols. The fetcher has the network and the cache, and gives up all other
// rights before it asks any server. The command itself reads processes and dumps, and stays without a network. The
// fetcher passes open files to the command through a socket.

// fetcherVariable names the environment variable that makes clrsnap a fetcher. Its value is the descriptor of the
// socket.
const fetcherVariable = "CLRSNAP_FETCHER"

// serversVariable names the environment variable with symbol servers, separated by spaces. The variable counts if there
// is no --symbol-server.
const serversVariable = "CLRSNAP_SYMBOL_SERVER"

// debuginfodVariable is debuginfod's own: servers, separated by spaces. The variable counts only if somebody asks for
// "debuginfod".
const debuginfodVariable = "DEBUGINFOD_URLS"

// symbolServers returns the servers that the user names.
func symbolServers(given []string) (servers []string, err error) {
	what := "--symbol-server"
	if len(given) == 0 {
		given, what = strings.Fields(os.Getenv(serversVariable)), serversVariable
	}
	for _, g := range given {
		switch g {
		case "none":
			if len(given) > 1 {
				return nil, usagef("%s: none stands alone", what)
			}
			return nil, nil
		case "debuginfod":
			urls := strings.Fields(os.Getenv(debuginfodVariable))
			if len(urls) == 0 {
				return nil, usagef("%s: debuginfod stands for the servers in %s, which is not set",
					what, debuginfodVariable)
			}
			for _, u := range urls {
				servers = append(servers, symbols.Debuginfod+u)
			}
		default:
			servers = append(servers, g)
		}
	}
	for _, s := range servers {
		if err := symbols.CheckServer(s); err != nil {
			return nil, usagef("%s: %w", what, err)
		}
	}
	if len(servers) > 0 {
		if err := symbols.CheckProxies(); err != nil {
			return nil, usagef("%w", err)
		}
	}
	return servers, nil
}

// The messages through the socket, one message a packet.
type (
	// fetchOrder is the first message: whom to ask.
	fetchOrder struct {
		Servers []string
		Cache   string
	}
	// fetchWish asks for a file.
	fetchWish struct {
		Number int
		Key    symbols.Key
	}
	// fetchNews has the progress or, at the end, the result; the file comes along.
	fetchNews struct {
		Number   int
		Progress *symbols.Progress
		Missing  bool     // nobody has the file
		Error    string   // why the fetch failed
		Warnings []string // warnings for the user, so far
	}
)

const maxPacket = 64 << 10

// fetcher is the command's side. A fetcher is a symbols.Source.
type fetcher struct {
	ctx  context.Context // of the command
	conn *net.UnixConn
	cmd  *exec.Cmd
	tell func(symbols.Progress)

	mu       sync.Mutex
	number   int
	waiting  map[int]chan fetched
	ended    error // why nothing comes any more; nil: more may come
	warnings []string
}

type fetched struct {
	news fetchNews
	file *os.File
}

// startFetcher starts a process that asks the given servers. tell is called like symbols.Options.Progress.
func startFetcher(ctx context.Context, servers []string, tell func(symbols.Progress)) (*fetcher, error) {
	cache, err := symbols.DefaultCache()
	if err != nil {
		cache = "" // there is no home
	}
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	ours, theirs := os.NewFile(uintptr(pair[0]), "fetcher"), os.NewFile(uintptr(pair[1]), "fetcher")
	defer ours.Close()
	defer theirs.Close()
	conn, err := net.FileConn(ours)
	if err != nil {
		return nil, err
	}
	cmd := exec.Command("/proc/self/exe")
	cmd.Args[0] = os.Args[0]
	cmd.ExtraFiles = []*os.File{theirs}
	cmd.Env = append(os.Environ(), fetcherVariable+"=3")
	if err := cmd.Start(); err != nil {
		conn.Close()
		return nil, fmt.Errorf("cannot start a second clrsnap to fetch symbols: %w", err)
	}
	f := &fetcher{ctx: ctx, conn: conn.(*net.UnixConn), cmd: cmd, tell: tell, waiting: map[int]chan fetched{}}
	if err := f.send(fetchOrder{servers, cache}); err != nil {
		f.Close()
		return nil, err
	}
	go f.listen()
	return f, nil
}

func (f *fetcher) send(message any) error {
	b, err := json.Marshal(message)
	if err != nil {
		return err
	}
	if len(b) > maxPacket {
		return fmt.Errorf("a message of %d bytes", len(b))
	}
	_, err = f.conn.Write(b)
	return err
}

// listen passes on the fetcher's messages, until the fetcher ends.
func (f *fetcher) listen() {
	for {
		news, file, err := receive[fetchNews](f.conn)
		if err != nil {
			f.mu.Lock()
			f.ended = errors.New("the process that fetches symbols has ended")
			for n, c := range f.waiting {
				close(c)
				delete(f.waiting, n)
			}
			f.mu.Unlock()
			return
		}
		if news.Progress != nil {
			f.tell(*news.Progress)
			continue
		}
		f.mu.Lock()
		c := f.waiting[news.Number]
		delete(f.waiting, news.Number)
		f.warnings = news.Warnings
		f.mu.Unlock()
		switch {
		case c != nil:
			c <- fetched{news, file}
		case file != nil:
			file.Close()
		}
	}
}

// receive reads a message, and the file of the message, if any.
func receive[T any](conn *net.UnixConn) (message T, file *os.File, err error) {
	b, oob := make([]byte, maxPacket), make([]byte, unix.CmsgSpace(4))
	n, oobn, _, _, err := conn.ReadMsgUnix(b, oob)
	if err != nil {
		return message, nil, err
	}
	if controls, err := unix.ParseSocketControlMessage(oob[:oobn]); err == nil && len(controls) == 1 {
		if fds, err := unix.ParseUnixRights(&controls[0]); err == nil && len(fds) == 1 {
			unix.CloseOnExec(fds[0])
			file = os.NewFile(uintptr(fds[0]), "symbols")
		}
	}
	if err = json.Unmarshal(b[:n], &message); err != nil && file != nil {
		file.Close()
		file = nil
	}
	return message, file, err
}

// Open implements symbols.Source.
func (f *fetcher) Open(ctx context.Context, k symbols.Key) (symbols.File, error) {
	answer := make(chan fetched, 1)
	f.mu.Lock()
	if f.ended != nil {
		defer f.mu.Unlock()
		return nil, f.ended
	}
	f.number++
	wish := fetchWish{f.number, k}
	f.waiting[wish.Number] = answer
	f.mu.Unlock()
	if err := f.send(wish); err != nil {
		return nil, err
	}
	select {
	case <-f.ctx.Done():
		return nil, context.Cause(f.ctx)
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	case got, ok := <-answer:
		switch {
		case !ok:
			return nil, f.ended
		case got.file != nil:
			return got.file, nil
		case got.news.Missing:
			return nil, fmt.Errorf("%s: %w", k.Name, fs.ErrNotExist)
		}
		return nil, errors.New(got.news.Error)
	}
}

// Warnings are messages for the user.
func (f *fetcher) Warnings() []string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.warnings
}

// Close ends the fetcher.
func (f *fetcher) Close() {
	f.conn.Close()
	ended := make(chan bool)
	go func() { _ = f.cmd.Wait(); close(ended) }()
	select {
	case <-ended:
	case <-time.After(endsWithin):
		_ = f.cmd.Process.Kill()
	}
}

// fetcherOf returns the socket of a fetcher; nil: the process is no fetcher.
func fetcherOf() *net.UnixConn {
	fd, err := strconv.Atoi(os.Getenv(fetcherVariable))
	if err != nil {
		return nil
	}
	os.Unsetenv(fetcherVariable)
	file := os.NewFile(uintptr(fd), "command")
	if file == nil {
		return nil
	}
	defer file.Close()
	conn, err := net.FileConn(file)
	if err != nil {
		return nil
	}
	u, _ := conn.(*net.UnixConn)
	return u
}

// runFetcher obeys the command at the other end of a socket, until the command ends.
func runFetcher(conn *net.UnixConn) int {
	signal.Ignore(syscall.SIGINT, syscall.SIGTERM, syscall.SIGPIPE) // the command decides
	order, _, err := receive[fetchOrder](conn)
	if err != nil {
		return exitFailure
	}
	s := &serving{conn: conn}
	store, err := symbols.New(symbols.Options{Servers: order.Servers, Cache: order.Cache, Progress: s.progress})
	if err == nil {
		err = confineFetcher(store)
	}
	if err != nil {
		s.fatal = fmt.Sprintf("no symbols can be fetched: %v", err)
	}
	s.store = store
	for {
		wish, _, err := receive[fetchWish](conn)
		if err != nil {
			return exitOK
		}
		go s.serve(wish)
	}
}

// confineFetcher gives up all rights except the network, the files for host names and certificates, and the cache.
func confineFetcher(store *symbols.Store) error {
	_, _ = x509.SystemCertPool() // reads the pool, and keeps the pool
	return confine.To(confine.Rights{Network: true, Folder: store.CacheDir(), Read: []string{
		"/etc/resolv.conf", "/etc/hosts", "/etc/nsswitch.conf", "/etc/gai.conf", "/etc/services",
	}})
}

// serving is the fetcher at work.
type serving struct {
	conn  *net.UnixConn
	store *symbols.Store
	fatal string // why the fetcher does not work; "": the fetcher works
}

func (s *serving) progress(p symbols.Progress) { s.send(fetchNews{Progress: &p}, nil) }

func (s *serving) serve(wish fetchWish) {
	news := fetchNews{Number: wish.Number}
	if s.fatal != "" {
		news.Error, news.Warnings = s.fatal, []string{s.fatal}
		s.send(news, nil)
		return
	}
	file, err := s.store.Open(context.Background(), wish.Key)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		news.Missing = true
	case err != nil:
		news.Error = cmp.Or(err.Error(), "the file cannot be read")
	default:
		defer file.Close()
	}
	if err := s.store.Uncached(); err != nil {
		news.Warnings = append(news.Warnings, fmt.Sprintf("symbols are not kept for the next time: %v", err))
	}
	for _, err := range s.store.Failures() {
		news.Warnings = append(news.Warnings, fmt.Sprintf("a symbol server cannot be asked: %v", err))
	}
	s.send(news, file)
}

// send sends a message, with an open file if file is not nil.
func (s *serving) send(news fetchNews, file symbols.File) {
	b, err := json.Marshal(news)
	if err != nil || len(b) > maxPacket {
		b, _ = json.Marshal(fetchNews{Number: news.Number, Error: "the answer is too long"})
	}
	var rights []byte
	if f, ok := file.(*os.File); ok {
		rights = unix.UnixRights(int(f.Fd()))
	}
	_, _, _ = s.conn.WriteMsgUnix(b, rights, nil)
}
