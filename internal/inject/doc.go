// Package inject brings the in-process agent into programs: the library, which
// this program carries inside itself, is unpacked where the target can load it, the
// runtime is told to load it, and the agent's connection is handed over. internal/agent
// has the protocol of that connection.
//
// # Where the library goes
//
// A folder of its own, with the library and the socket that the agent connects to,
// in the first usable one of these directories of the target's mount namespace: $TMPDIR,
// /tmp, /var/tmp, /dev/shm, /run, the working directory, the directory of the program. A
// directory is not usable if it is read-only, mounted noexec, or its path is too long for
// the address of a socket.
//
// The target is not trusted, and we may be root. So everything in its file system is
// done with the rights of the target's user (setfsuid(2), on a thread of its own) and
// without the capabilities that the target lacks, so root of a container is not root of
// the host: where the target could not write, we do not write for it, whatever its TMPDIR
// and its links are. Names are resolved below its root directory. The folder belongs to
// its user, with mode 0700; others can write to nothing in it. A connection is accepted
// only from the target's own process.
//
// # What stays behind
//
// In the file system nothing. The folder is removed as soon as the agent has connected,
// or has failed to: the library stays mapped without its file. A folder that is left
// behind because this program was killed in between is removed by the next one that
// unpacks for the same user in the same directory. A process that uses a folder holds a
// lock on it (flock(2)), which ends with the process: a folder without a lock is unused. In the
// target's memory the library stays mapped, about 40 KB for each time that it was loaded,
// or refused because another profiler is there: see agent/README.md for why it is never
// unloaded.
//
// # Programs that are started
//
// A Listener provides the environment with which a program loads the agent by itself.
// Programs that this one starts inherit it, and their agents connect, too: Accept returns
// the process of each, and closing the connection makes the agent leave. A program that
// finds nobody listening runs without the agent.
package inject
