//go:build unix && !linux

package distkvtest

import "os/exec"

// start starts a process. Here, one is left behind where a test panics.
func start(process *exec.Cmd) error { return process.Start() }
