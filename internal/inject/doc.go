// Package inject brings the in-process agent into programs: the library, which
// this program carries inside itself, is unpacked where the target can load it, the
// runtime is told to load it, and the agent's connection is handed over. What is
// said over it is internal/agent's business.
//
// # Where the library goes
//
// A folder of its own, with the library and the socket that the agent connects to,
// in the first of these directories of the target's mount namespace that will take
// it: $TMPDIR, /tmp, /var/tmp, /dev/shm, /run, the working directory, the directory of
// the program. A directory that is read-only, mounted noexec, or too deep for the
// address of a socket will not.
//
// The target is not trusted, and we may be root. So everything that is done in its
// file system is done with the rights of the target's user (setfsuid(2), on a thread
// of its own) and without the capabilities that the target lacks, so root of a container
// is not root of the host: where the target could not write, we do not write for it, whatever its
// TMPDIR says and whatever links it has laid. Names are resolved below its root
// directory. The folder is its user's, with mode 0700; nothing in it can be written to
// by others. A connection counts only if it comes from the process that was meant.
//
// # What stays behind
//
// In the file system nothing. The folder is removed as soon as the agent has connected, or has failed
// to: the library stays mapped without its file. A folder that is left behind because
// this program was killed in between is removed by the next one that unpacks for the
// same user in the same directory. Whoever uses a folder holds a lock on it
// (flock(2)), which ends with the process: one that is not locked is nobody's. In the
// target's memory the library stays mapped, about 40 KB for each time that it was loaded,
// or refused because another profiler is there: see agent/README.md for why it is never
// unloaded.
//
// # Programs that are started
//
// A Listener gives the environment with which a program loads the agent by itself. Programs
// that this one starts inherit it, and their agents connect, too: Accept tells which
// process each belongs to, and hanging up has the agent leave. A program that finds
// nobody listening runs as if nothing had happened.
package inject
