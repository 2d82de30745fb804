//go:build !unix

package distkv

import (
	"net"
	"syscall"
)

// tryWriter is not used here: a goroutine does all writing.
type tryWriter struct{}

func (*tryWriter) init() {}

func (*tryWriter) write(syscall.RawConn, []byte) (int, error) { return 0, nil }

func rawOf(net.Conn) syscall.RawConn { return nil }
