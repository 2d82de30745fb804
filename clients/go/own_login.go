package distkv

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"sync"
	"time"
)

// ticketReadEvery: behind the last read for one refusal, a ticket's file is read no sooner again.
const ticketReadEvery = time.Second

// ticketReadPauses is how long it is waited before each further read for one refusal, where a node had taken the secret before.
var ticketReadPauses = [...]time.Duration{100 * time.Millisecond, 200 * time.Millisecond, 300 * time.Millisecond, 400 * time.Millisecond}

// ownLogin is as whom a client logs in, where its ticket is in a file: that may get another secret while the client runs. It is
// read again when a node does not take the secret that it had before, and only then.
//
// Whoever replaces a secret may end the user's connections first, and put the ticket in its place a moment later. So where a node
// had taken the secret before, the file is read several times before the client counts as refused.
type ownLogin struct {
	file          string
	network, user string
	caHash        []byte
	hasItsCA      bool // the ticket's CA is the client's

	turn chan struct{} // Who reads the file holds it, so that others that were refused meanwhile get the same.

	mu     sync.Mutex // Not while the file is read, or anything is waited for.
	login  *Login
	since  instant // the client has this login since then; 0: from the beginning
	isGood bool    // a node has taken it, and the file was not read in vain since then
	readAt instant
	pauses []time.Duration // ticketReadPauses; tests have others
	reread func() *Login   // read; tests look on
}

// ownLoginOf is for what was read from this ticket, which is "@" and a file's name.
func ownLoginOf(file string, ticket Ticket, login *Login, hasItsCA bool) *ownLogin {
	if whole, err := filepath.Abs(file); err == nil {
		file = whole // The program may change its working directory.
	}
	o := &ownLogin{file: file, network: ticket.Network, user: ticket.User, caHash: ticket.CAHash, hasItsCA: hasItsCA, login: login,
		turn: make(chan struct{}, 1), readAt: -ticketReadEvery, pauses: ticketReadPauses[:]}
	o.reread = o.read
	return o
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

// onTaken: a node has taken this login.
func (o *ownLogin) onTaken(login *Login) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.isGood = o.isGood || o.login.isSameAs(login)
}

// otherThan is what to log in with instead, where a node has not taken this login; nil: there is nothing else. ctx: how long the
// login may take. At most half of that is spent here: the rest is for a login with what is found.
func (o *ownLogin) otherThan(ctx context.Context, refused *Login) *Login {
	if end, isBounded := ctx.Deadline(); isBounded {
		half, cancel := context.WithTimeout(ctx, time.Until(end)/2)
		defer cancel()
		ctx = half
	}
	select {
	case o.turn <- struct{}{}:
		o.readFor(ctx, refused)
		<-o.turn
	case <-ctx.Done():
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	if !o.login.isSameAs(refused) {
		return o.login
	}
	o.isGood = false // So whoever is refused next is told at once.
	return nil
}

// readFor reads the file for one refusal, and for all that wait for their turn meanwhile.
func (o *ownLogin) readFor(ctx context.Context, refused *Login) {
	o.mu.Lock()
	before, isGood, pauses, reread := o.readAt, o.isGood, o.pauses, o.reread
	o.mu.Unlock()
	if !isGood {
		pauses = nil
	}
	for round := 0; ; round++ {
		o.mu.Lock()
		isOther := !o.login.isSameAs(refused)
		moment := now()
		isDue := !isOther && moment-before >= ticketReadEvery
		if isDue {
			o.readAt = moment
		}
		o.mu.Unlock()
		if isOther {
			return
		}
		if isDue {
			if found := reread(); found != nil && !found.isSameAs(refused) {
				o.mu.Lock()
				o.login, o.since, o.isGood = found, now(), false
				o.mu.Unlock()
				return
			}
		}
		if round == len(pauses) || !wait(ctx, pauses[round]) {
			return
		}
	}
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
