// Start prints the nice values of its threads: the main thread's, and those of the threads that Go itself has started.
package main

import (
	"fmt"
	"os"
	"strconv"
	"syscall"

	"clrsnap/internal/priority/early"
)

func main() {
	tasks, err := os.ReadDir("/proc/self/task")
	if err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
	fmt.Print(early.Begun())
	for _, t := range tasks {
		tid, _ := strconv.Atoi(t.Name())
		if p, err := syscall.Getpriority(syscall.PRIO_PROCESS, tid); err == nil {
			fmt.Print(" ", 20-p)
		}
	}
	fmt.Println()
}
