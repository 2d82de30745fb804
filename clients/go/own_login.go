package distkv

import (
	"bytes"
	"os"
	"path/filepath"
	"sync"
	"time"
)

// ticketReadEvery: a ticket's file is read again no sooner.
const ticketReadEvery = time.Second

// ownLogin is as whom a client logs in, where its ticket is in a file: that may get another secret while the client runs. It is
// read again when a node does not take the secret that it had before, and only then.
type ownLogin struct {
	file          string
	network, user string
	caHash        []byte
	hasItsCA      bool // the ticket's CA is the client's

	mu     sync.Mutex // Who reads the file holds it, so that others that were refused meanwhile get the same.
	login  *Login
	since  instant // the client has this login since then; 0: from the beginning
	readAt instant
}

// ownLoginOf is for what was read from this ticket, which is "@" and a file's name.
func ownLoginOf(file string, ticket Ticket, login *Login, hasItsCA bool) *ownLogin {
	if whole, err := filepath.Abs(file); err == nil {
		file = whole // The program may change its working directory.
	}
	return &ownLogin{file: file, network: ticket.Network, user: ticket.User, caHash: ticket.CAHash, hasItsCA: hasItsCA, login: login,
		readAt: -ticketReadEvery}
}

// now is the login that the file said last.
func (o *ownLogin) now() *Login {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.login
}

// changedAt is since when it is that one.
func (o *ownLogin) changedAt() instant {
	if o == nil {
		return 0
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.since
}

// otherThan is what to log in with instead, where a node has not taken this login; nil: there is nothing else.
func (o *ownLogin) otherThan(refused *Login) *Login {
	o.mu.Lock()
	defer o.mu.Unlock()
	if moment := now(); o.login.isSameAs(refused) && moment-o.readAt >= ticketReadEvery {
		o.readAt = moment
		if found := o.read(); found != nil && !found.isSameAs(refused) {
			o.login, o.since = found, now()
		}
	}
	if o.login.isSameAs(refused) {
		return nil
	}
	return o.login
}

// read is the login of the ticket that the file has now, if that is of the same network, CA and user. Nothing else of it is looked
// at. Nil also where the file is gone, or is being written.
func (o *ownLogin) read() *Login {
	// Nobody may write into a pipe any more.
	if found, err := os.Stat(o.file); err != nil || !found.Mode().IsRegular() {
		return nil
	}
	ticket, err := ReadTicket("@" + o.file)
	if err != nil || ticket.Network != o.network || ticket.User != o.user || o.hasItsCA && !bytes.Equal(ticket.CAHash, o.caHash) {
		return nil
	}
	login := ticket.login()
	if login.check() != nil {
		return nil
	}
	return login
}

// login is that of the ticket's user.
func (t Ticket) login() *Login { return &Login{User: t.User, Method: t.Method, hidden: t.secret} }

func (l *Login) isSameAs(other *Login) bool {
	return l.User == other.User && l.Method == other.Method && l.secret() == other.secret()
}
