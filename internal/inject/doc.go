// Package inject brings the in-process agent into programs. It unpacks the library, which is
// embedded in our program, where the target can load it. Then it tells the runtime to load the
// library, and hands over the agent's connection. internal/agent has the protocol of that
// connection.
//
// # Where the library goes
//
// A new folder holds the library and the socket that the agent connects to. The folder is in the
// first usable directory of this list, in the target's mount namespace: $TMPDIR, /tmp, /var/tmp,
// /dev/shm, /run, the working directory, the directory of the program. A directory is not usable
// if it is read-only, mounted noexec, or its path is too long for the address of a socket.
//
// The target is not trusted, and we may be root. So everything in the target's file system is
// done with the rights of the target's user (setfsuid(2), on a separate thread) and without the
// capabilities that the target lacks. So root of a container is not root of the host: where the
// target could not write, we do not write on its behalf, whatever its TMPDIR and its links are.
// Names are resolved below the target's root directory. The folder belongs to the target's user,
// with mode 0700; nobody else can write anything in it. A connection is accepted
// only from the target's own process.
//
// # What stays behind
//
// In the file system nothing. The folder is removed as soon as the agent has connected, or has
// failed to connect: the library stays mapped without its file. If our program is killed in
// between, it leaves a folder behind. The next clrsnap that unpacks for the same user in the same
// directory removes the old folder. A process that uses a folder holds a lock on the folder
// (flock(2)), until the end of the process: a folder without a lock is unused. In the target's
// memory the library stays mapped, about 40 KB for each time that the library was loaded, or
// refused because another profiler is there: agent/README.md explains why the library is never
// unloaded.
//
// # Programs that are started
//
// A Listener provides the environment with which a program loads the agent by itself. The
// program's children inherit the environment, and their agents connect, too. Accept returns the
// process of each agent, and closing the connection makes the agent leave. A program without a
// listener runs without the agent.
package inject
