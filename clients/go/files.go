package distkv

import (
	"errors"
	"net"
	"strings"
	"syscall"
)

// This machine, or this process, has no free file descriptor: that says nothing of the node that was to be reached.

// outOfFiles is the error of a socket that could not be made for that reason. It is a [syscall.EMFILE], or a [syscall.ENFILE].
type outOfFiles struct{ error }

func (o outOfFiles) Unwrap() error { return o.error }

func (o outOfFiles) Is(target error) bool {
	return target == syscall.EMFILE && !errors.Is(o.error, syscall.ENFILE) || target == syscall.ENFILE && errors.Is(o.error, syscall.ENFILE)
}

// isOutOfFiles tells whether that is why a socket could not be made, or a name not be looked up.
func isOutOfFiles(err error) bool {
	if errors.Is(err, syscall.EMFILE) || errors.Is(err, syscall.ENFILE) {
		return true
	}
	var name *net.DNSError // It keeps the text alone.
	return errors.As(err, &name) && strings.Contains(name.Err, syscall.EMFILE.Error())
}

// outOfFiles tells whether it is one of those that have not reached the node for that reason.
func (e *tryError) outOfFiles() bool { return e != nil && errors.As(e.cause, new(outOfFiles)) }
