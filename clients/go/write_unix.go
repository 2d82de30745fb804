//go:build unix

package distkv

import (
	"errors"
	"net"
	"syscall"
)

// tryWriter writes to a socket as much as that takes at once: no goroutine is needed for it.
type tryWriter struct {
	data  []byte
	count int
	err   error
	do    func(descriptor uintptr) bool
}

func (t *tryWriter) init() {
	t.do = func(descriptor uintptr) bool {
		for {
			t.count, t.err = syscall.Write(int(descriptor), t.data)
			if t.err != syscall.EINTR {
				return true
			}
		}
	}
}

func (t *tryWriter) write(raw syscall.RawConn, data []byte) (int, error) {
	t.data = data
	err := raw.Write(t.do)
	t.data = nil
	if err != nil {
		return 0, err
	}
	if errors.Is(t.err, syscall.EAGAIN) {
		return 0, nil
	}
	return max(t.count, 0), t.err
}

// rawOf is the socket itself; nil where something is in between.
func rawOf(socket net.Conn) syscall.RawConn {
	tcp, ok := socket.(*net.TCPConn)
	if !ok {
		return nil
	}
	raw, err := tcp.SyscallConn()
	if err != nil {
		return nil
	}
	return raw
}
