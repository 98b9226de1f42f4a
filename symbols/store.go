package symbols

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"net/url"
	"os"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// Options say where a Store looks. Without a server the Store finds only the files in its cache.
type Options struct {
	// Servers are addresses of SSQP symbol servers, such as https://msdl.microsoft.com/download/symbols, or, after
	// "debuginfod+", of debuginfod servers. The Store asks one server after the other.
	Servers []string
	// Cache is the directory for fetched files, an absolute path. "": no file is kept.
	Cache string
	// Progress is called from time to time while a file is fetched, and at the end of the fetch; nil: never. Several
	// goroutines may call Progress at once.
	Progress func(Progress)
	// Limits of one file; 0 stands for the values below.
	Connect time.Duration // until there is a connection: 10 s
	Stall   time.Duration // without a byte: 20 s
	Whole   time.Duration // for the whole file: 10 min
}

// Progress says how far a file has been fetched.
type Progress struct {
	Name  string // of the file; the name may come from a target: clean the name before a terminal sees it
	Host  string // that the file is fetched from
	Bytes int64  // so far
	Total int64  // 0: not known
	Done  bool   // the file is there, or nobody has the file
}

// Store is a Source that asks servers and keeps the files. A Store is safe for concurrent use.
type Store struct {
	options  Options
	servers  []*server
	client   *http.Client
	cache    *cache // nil: there is none
	uncached error  // why there is no cache, although Options asked for a cache

	mu      sync.Mutex
	nowhere map[string]error // files that nobody has, by the names in the cache
	room    int64            // bytes that files without a cache may still take
}

// server is a symbol server.
type server struct {
	base       *url.URL
	debuginfod bool

	mu     sync.Mutex
	failed error // why the server is not asked any more
	faults int   // answers without a file, one after the other
}

// Debuginfod begins the address of a debuginfod server in Options.Servers.
const Debuginfod = "debuginfod+"

// Limits.
const (
	defaultConnect = 10 * time.Second
	defaultStall   = 20 * time.Second
	defaultWhole   = 10 * time.Minute

	maxServers   = 32
	maxRedirects = 5
	maxFaults    = 3 // answers without a file, before a server is left alone
	maxHeader    = 64 << 10
	maxNowhere   = 1 << 14
	maxInMemory  = 256 << 20 // bytes of all files of a Store without a cache
	progressStep = 200 * time.Millisecond
)

// New returns a Store. An unusable cache is no error: see Uncached.
func New(o Options) (*Store, error) {
	if len(o.Servers) > maxServers {
		return nil, fmt.Errorf("%d symbol servers: at most %d can be asked", len(o.Servers), maxServers)
	}
	if o.Connect <= 0 {
		o.Connect = defaultConnect
	}
	if o.Stall <= 0 {
		o.Stall = defaultStall
	}
	if o.Whole <= 0 {
		o.Whole = defaultWhole
	}
	s := &Store{options: o, nowhere: map[string]error{}, room: maxInMemory}
	for _, text := range o.Servers {
		one, err := parseServer(text)
		if err != nil {
			return nil, err
		}
		s.servers = append(s.servers, one)
	}
	s.client = newClient(&o)
	if o.Cache != "" {
		s.cache, s.uncached = openCache(o.Cache)
	}
	return s, nil
}

// CheckServer returns an error unless text can be one of Options.Servers.
func CheckServer(text string) error {
	_, err := parseServer(text)
	return err
}

func parseServer(text string) (*server, error) {
	address, isDebuginfod := strings.CutPrefix(text, Debuginfod)
	u, err := url.Parse(address)
	switch {
	case err != nil:
		return nil, fmt.Errorf("%q is not the address of a symbol server: %w", text, errors.Unwrap(err))
	case u.Scheme != "https" && u.Scheme != "http" || u.Host == "":
		return nil, fmt.Errorf("%q is not the address of a symbol server: give an address that begins with https:// "+
			"or http://", text)
	case u.Fragment != "":
		return nil, fmt.Errorf("%q is not the address of a symbol server: give an address without #", text)
	}
	return &server{base: u, debuginfod: isDebuginfod}, nil
}

// name is the server's name for people, without password and token.
func (s *server) name() string { return s.base.Scheme + "://" + s.base.Host + s.base.Path }

// Uncached returns why there is no cache although Options ask for a cache; nil: there is a cache.
func (s *Store) Uncached() error { return s.uncached }

// CacheDir is the cache's directory, open; nil: there is none.
func (s *Store) CacheDir() *os.File {
	if s.cache == nil {
		return nil
	}
	return s.cache.dir
}

// Failures returns why servers could not be asked, an error for each server.
func (s *Store) Failures() []error {
	var out []error
	for _, one := range s.servers {
		one.mu.Lock()
		if one.failed != nil {
			out = append(out, fmt.Errorf("%s: %w", one.name(), one.failed))
		}
		one.mu.Unlock()
	}
	return out
}

// Close releases the Store's resources. Files from Open stay open.
func (s *Store) Close() error {
	s.client.CloseIdleConnections()
	if s.cache == nil {
		return nil
	}
	return s.cache.dir.Close()
}

// Open implements Source. Open remembers the files that nobody has.
func (s *Store) Open(ctx context.Context, k Key) (File, error) {
	if err := k.valid(); err != nil {
		return nil, fmt.Errorf("%w: symbols cannot be asked for by %w", fs.ErrNotExist, err)
	}
	name := k.cached()
	s.mu.Lock()
	if err := s.nowhere[name]; err != nil {
		s.mu.Unlock()
		return nil, err
	}
	s.mu.Unlock()
	if f := s.fromCache(&k); f != nil {
		return f, nil
	}
	f, err := s.fetch(ctx, &k)
	if err != nil && ctx.Err() == nil {
		s.mu.Lock()
		if len(s.nowhere) >= maxNowhere {
			clear(s.nowhere)
		}
		s.nowhere[name] = err
		s.mu.Unlock()
	}
	return f, err
}

// fromCache opens a whole file of the cache, and removes a broken file.
func (s *Store) fromCache(k *Key) File {
	if s.cache == nil {
		return nil
	}
	f, err := s.cache.open(k.cached())
	if err != nil {
		return nil
	}
	st, err := f.Stat()
	if err == nil {
		err = k.Verify(f, st.Size())
	}
	if err != nil {
		f.Close()
		if errors.Is(err, errWrong) {
			s.cache.remove(k.cached())
		}
		return nil
	}
	return f
}

// fetch asks the servers.
func (s *Store) fetch(ctx context.Context, k *Key) (File, error) {
	var why error
	for _, one := range s.servers {
		f, err := s.fetchFrom(ctx, one, k)
		if err == nil {
			return f, nil
		}
		if ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
		if why == nil && !errors.Is(err, fs.ErrNotExist) {
			why = fmt.Errorf("%s: %w", one.name(), err)
		}
	}
	if why == nil {
		why = notFound(k)
	}
	return nil, why
}

// fetchFrom asks a single server.
func (s *Store) fetchFrom(ctx context.Context, from *server, k *Key) (File, error) {
	address, ok := from.address(k)
	if !ok {
		return nil, fs.ErrNotExist
	}
	from.mu.Lock()
	failed := from.failed
	from.mu.Unlock()
	if failed != nil {
		return nil, failed
	}
	f, err := s.get(ctx, address, k)
	if ctx.Err() == nil {
		from.note(err)
	}
	return f, err
}

// note remembers a failed request to a server.
func (s *server) note(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	var fault *faultError
	switch {
	case !errors.As(err, &fault):
		s.faults = 0
	case s.failed == nil:
		if s.faults++; fault.fatal || s.faults >= maxFaults {
			s.failed = fault.err
		}
	}
}

// faultError says that a server did not answer, or answered without a file.
type faultError struct {
	err   error
	fatal bool // the server is not asked again
}

func (f *faultError) Error() string { return f.err.Error() }
func (f *faultError) Unwrap() error { return f.err }

// address is where a server has a file; false: the server has no files of this kind.
func (s *server) address(k *Key) (string, bool) {
	var path []string
	if s.debuginfod {
		path = k.debuginfod()
	} else {
		ssqp := k.ssqp()
		path = ssqp[:]
	}
	if path == nil {
		return "", false
	}
	escaped := make([]string, len(path))
	for i, p := range path {
		escaped[i] = url.PathEscape(p)
	}
	return s.base.JoinPath(escaped...).String(), true
}

// get fetches a file, and keeps the file if it is the right file.
func (s *Store) get(ctx context.Context, address string, k *Key) (_ File, err error) {
	ctx, cancel := context.WithTimeoutCause(ctx, s.options.Whole,
		fmt.Errorf("the file takes longer than %v", s.options.Whole))
	defer cancel()
	stop, stalled := stallTimer(ctx, s.options.Stall)
	defer stop()
	ctx = stalled.ctx
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, address, nil)
	if err != nil {
		return nil, &faultError{err: err}
	}
	req.Header.Set("User-Agent", "clrsnap")
	if sums := k.checksumHeader(); sums != "" {
		req.Header.Set("SymbolChecksum", sums)
	}
	host := req.URL.Hostname()
	s.progress(Progress{Name: k.title(), Host: host})
	defer s.progress(Progress{Name: k.title(), Host: host, Done: true})
	r, err := s.client.Do(req)
	if err != nil {
		return nil, &faultError{err: reason(ctx, err), fatal: true}
	}
	defer r.Body.Close()
	if err := status(r); err != nil {
		return nil, err
	}
	told := time.Now()
	return s.store(r.Body, k, func(n int64) {
		stalled.alive()
		if now := time.Now(); now.Sub(told) > progressStep {
			told = now
			s.progress(Progress{Name: k.title(), Host: host, Bytes: n, Total: max(0, r.ContentLength)})
		}
	}, func(err error) error { return &faultError{err: reason(ctx, err)} })
}

// status judges an answer. A server that forbids a file (403) has no file for us: file stores answer so for missing
// files. A server that asks for credentials is at fault, and is not asked again.
func status(r *http.Response) error {
	switch r.StatusCode {
	case http.StatusOK:
		return nil
	case http.StatusNotFound, http.StatusGone, http.StatusForbidden:
		return fs.ErrNotExist
	case http.StatusUnauthorized, http.StatusProxyAuthRequired:
		return &faultError{err: fmt.Errorf("the server wants a login (status %d)", r.StatusCode), fatal: true}
	}
	return &faultError{err: fmt.Errorf("the server answers with status %d", r.StatusCode)}
}

func (s *Store) progress(p Progress) {
	if s.options.Progress != nil {
		s.options.Progress(p)
	}
}

// store keeps the body of an answer, if the body is the requested file.
func (s *Store) store(body io.Reader, k *Key, alive func(int64), broken func(error) error) (File, error) {
	f, temp, err := s.temp()
	if err != nil {
		return nil, err
	}
	var to io.Writer = f
	inMemory := &inMemory{of: s, file: f}
	if temp == "" {
		to = inMemory
	}
	size, err := copyUpTo(to, body, k.most(), alive)
	switch {
	case errors.As(err, new(*keepError)):
		err = fmt.Errorf("the file cannot be kept: %w", err)
	case err != nil && !errors.Is(err, errWrong):
		err = broken(err)
	case err == nil:
		err = k.Verify(f, size)
	}
	if err == nil && temp != "" {
		s.cache.room(size)
		err = s.cache.settle(temp, k.cached())
	}
	if err != nil {
		f.Close()
		if temp != "" {
			s.cache.remove(temp)
		}
		inMemory.giveBack()
		return nil, err
	}
	return f, nil
}

// inMemory writes a file outside any cache. The file's memory is in use as long as anybody has the file open, perhaps
// another process. The memory therefore counts until the Store ends.
type inMemory struct {
	of    *Store
	file  *os.File
	taken int64
}

func (m *inMemory) Write(p []byte) (int, error) {
	n := int64(len(p))
	m.of.mu.Lock()
	fits := n <= m.of.room
	if fits {
		m.of.room -= n
		m.taken += n
	}
	m.of.mu.Unlock()
	if !fits {
		return 0, fmt.Errorf("without a cache there is memory for %d MB of symbols", maxInMemory>>20)
	}
	return m.file.Write(p)
}

// giveBack returns the memory of a file that nobody has got.
func (m *inMemory) giveBack() {
	m.of.mu.Lock()
	m.of.room += m.taken
	m.of.mu.Unlock()
}

// temp makes a file: in the cache, else in memory, and then without a name.
func (s *Store) temp() (f *os.File, name string, err error) {
	if s.cache != nil {
		return s.cache.temp()
	}
	fd, err := unix.MemfdCreate("clrsnap-symbols", unix.MFD_CLOEXEC)
	if err != nil {
		return nil, "", err
	}
	return os.NewFile(uintptr(fd), "symbols"), "", nil
}

// keepError says that a fetched file could not be written.
type keepError struct{ error }

func (e *keepError) Unwrap() error { return e.error }

// copyUpTo copies most bytes at most. More are an errWrong.
func copyUpTo(to io.Writer, from io.Reader, most int64, alive func(int64)) (n int64, err error) {
	buf := make([]byte, 64<<10)
	for {
		got, err := from.Read(buf)
		if n += int64(got); n > most {
			return n, fmt.Errorf("%w: more than %d bytes", errWrong, most)
		}
		if _, err := to.Write(buf[:got]); err != nil {
			return n, &keepError{err}
		}
		if err == io.EOF {
			return n, nil
		}
		if err != nil {
			return n, err
		}
		alive(n)
	}
}
