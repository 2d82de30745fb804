package distkvtest

import (
	"os/exec"
	"runtime"
	"sync"
	"syscall"
)

// starts hands processes over to the goroutine that starts them all.
var starts = sync.OnceValue(func() chan<- func() {
	all := make(chan func())
	go func() {
		// The system ends a process with the thread that started it, not only with this process: so this thread lasts.
		runtime.LockOSThread()
		for start := range all {
			start()
		}
	}()
	return all
})

// start starts a process that ends with this one, however that ends: a test's panic leaves no node behind.
func start(process *exec.Cmd) (err error) {
	process.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	done := make(chan struct{})
	starts() <- func() {
		defer close(done)
		err = process.Start()
	}
	<-done
	return err
}
