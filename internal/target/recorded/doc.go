// Package recorded is a target in a file: a process at one moment, with the pages of memory and of files that a
// reader has read once, and the threads with their registers. A recorded process can be read again anywhere, without
// the process and without .NET, and every read gives the same bytes. Memory that was not recorded cannot be read: the
// error names the address, and nothing reads as zeros.
//
// A Recorder stands between a reader and a target, and keeps each page that the reader reads. The target holds still:
// it is a core dump.
//
// A recording has memory and files of the process, byte for byte, except for the names of folders and of the machine
// (Moment.Neutral). Do not hand around recordings of programs with secrets.
package recorded
