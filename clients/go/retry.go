package distkv

import "time"

// Whether a failed try is repeated, when, and at which node: pure decisions; time and chance are passed in.

// class is what an error means for trying again.
type class uint8

const (
	classUnavailable  class = iota // that node cannot do it now, and did not; another one can
	classOverload                  // the node has too much to do, and did not do it
	classAborted                   // it was ended in its middle, and can be started anew
	classTryDeadline               // one try has used up its time; whether it was carried out is unknown
	classFateUnknown               // whether it was carried out is not known
	classUnknownThere              // the same, but the node that was asked knows more than others: it is asked again
	classBusy                      // this connection has too many open requests; nothing was sent
	classFinal                     // the answer would be the same at every node, at any time
)

func (c class) String() string {
	return [...]string{"unavailable", "overload", "aborted", "try_deadline", "fate_unknown", "unknown_there", "busy",
		"final"}[min(c, classFinal)]
}

// isUncertain: the request may have been carried out.
func (c class) isUncertain() bool {
	return c == classTryDeadline || c == classFateUnknown || c == classUnknownThere
}

// isSameNode: the same node is asked again.
func (c class) isSameNode() bool {
	return (c == classUnknownThere && planted != plantElsewhere) || c == classBusy
}

// idempotency is what happens if a request is carried out twice.
type idempotency uint8

const (
	reading   idempotency = iota // it changes nothing
	guarded                      // a version precondition, a write id, or idempotent: the second one changes nothing
	unguarded                    // a write that would be made twice
)

// codes is what a node's word means. A word that is not here, or none, is final.
var codes = map[string]class{
	"not_ready":      classUnavailable,
	"read_only":      classUnavailable,
	"no_event":       classUnavailable,
	tooLate:          classUnavailable,
	"too_many":       classOverload,
	"too_slow":       classAborted,
	"unknown_fate":   classUnknownThere,
	"storage_failed": classUnavailable,
	"internal":       classFateUnknown,
	"bad_request":    classFinal, "bad_message": classFinal, "unknown_action": classFinal,
	"not_implemented": classFinal, "too_large": classFinal, "wid_reused": classFinal, "given_up": classFinal, "denied": classFinal,
	"auth_required": classFinal, "auth_failed": classFinal, "is_root": classFinal, "not_found": classFinal,
	"already_exists": classFinal, "is_new": classFinal, "chain_mismatch": classFinal, "data_mismatch": classFinal,
	"type_mismatch": classFinal, "in_use": classFinal, "memory_full": classFinal,
}

// classOfCode is what a node's word means where it does not say that the change is made.
func classOfCode(code string) class {
	if planted == plantNotReady && code == "not_ready" {
		return classFinal
	}
	if planted == plantTooSlow && code == "too_slow" {
		return classFinal
	}
	if found, ok := codes[code]; ok {
		return found
	}
	return classFinal
}

// classOf is what an error means; maybeSent: some or all of the request may have left.
func classOf(e *tryError, maybeSent bool) class {
	switch e.kind {
	case tryServer:
		found := classOfCode(e.code)
		switch found {
		case classUnavailable, classOverload, classAborted:
			if e.made {
				return classFateUnknown // it did it, or part of it: another node would do it again
			}
		}
		return found
	case tryConnect, tryNoAccess, tryFull:
		return classUnavailable
	case tryLost, tryProtocol:
		if maybeSent {
			return classFateUnknown
		}
		return classUnavailable
	case tryTimedOut, tryCanceled:
		return classTryDeadline
	case tryBusy:
		return classBusy
	}
	return classFinal
}

// fateOf is what a failed try leaves in doubt. isMade: the node says that it has made it, or a part of it; then it is not left
// undone, whatever its word for the rest is.
func fateOf(kind class, isMade bool, what idempotency) Fate {
	switch {
	case what == reading:
		return NotDone
	case kind == classUnknownThere:
		return Unconfirmed
	case isMade || kind == classTryDeadline || kind == classFateUnknown || kind == classAborted:
		return Unknown
	}
	return NotDone
}

// refusers is what each node said last, in one call, or in one search of a stream, as far as it stands in the way of letting
// this client in, or of a stream. That one refuses it is not final: another one may have heard of its user already, or have a certificate that
// is believed. It is once no node is left of which there is hope.
type refusers struct {
	// Of those that refuse it (tryNoAccess), cannot be reached, make its login wait, or are full, or to which there is no room for
	// another stream.
	out map[place]*tryError
}

func (r *refusers) onFailure(at *target, err *tryError) {
	switch err.kind {
	case tryNoAccess, tryConnect, tryLost, tryFull:
		if r.out == nil {
			r.out = map[place]*tryError{}
		}
		r.out[at.place()] = err
	default:
		delete(r.out, at.place()) // It has let the client in.
	}
}

// of is what came of this node. A seed may have become a node of a view meanwhile.
func (r *refusers) of(one *target) *tryError {
	if err := r.out[one.place()]; err != nil {
		return err
	}
	return r.out[place{address: one.address}]
}

// refuser is a node that does not let this client in, and why.
type refuser struct {
	why  *tryError
	node string
}

// reason is what says most of why one of these nodes does not let this client in; nil: none does so.
func (r *refusers) reason(nodes []*target) *tryError {
	var told *tryError
	for _, one := range nodes {
		if err := r.of(one); err.weight() > told.weight() {
			told = err
		}
	}
	return told
}

// verdict is one that refuses the client, where none of these nodes is left that may let it in; nil: there is hope, or none
// refuses it. One that makes a login wait has not looked at it: of that there is no hope, and it is no refusal. One that was not
// met may be of another network: that it refuses the client counts only where all do.
func (r *refusers) verdict(nodes []*target) *refuser {
	var told *refuser
	doAll := true
	for _, one := range nodes {
		err := r.of(one)
		if err == nil || err.isFull() || err.kind == tryFull {
			return nil
		}
		if err.kind != tryNoAccess {
			doAll = false
		} else if told == nil || (told.why.notMet && !err.notMet) {
			told = &refuser{err, one.name}
		}
	}
	if told != nil && told.why.notMet && !doAll {
		return nil
	}
	return told
}

// noRoom is one to which the client has no room for another stream, where each of these nodes was tried, and is like that, or
// cannot be reached, or does not let the client in; nil: there is hope, or room is not what is missing.
func (r *refusers) noRoom(nodes []*target) *refuser {
	var told *refuser
	for _, one := range nodes {
		err := r.of(one)
		if err == nil || err.isFull() {
			return nil
		}
		if told == nil && err.kind == tryFull {
			told = &refuser{err, one.name}
		}
	}
	return told
}

// error is that of what ends with it.
func (r *refuser) error(fate Fate, attempts int) *Error {
	if fate != NotDone || r.why.kind == tryFull {
		return finalError(r.why, fate, r.node, attempts)
	}
	return noAccess(r.why, r.node, attempts)
}

// RetryPolicy says when a request is tried again, and for how long in all. Fields that are zero have their defaults.
type RetryPolicy struct {
	InitialDelay  time.Duration // before the second try: 10 ms
	Factor        int           // by how much each delay is longer than the one before it: 2
	DelayMax      time.Duration // no delay is longer: 1 s
	TotalDeadline time.Duration // for all tries and delays together: 10 s
	// TryDeadline is for one try: 2 s. A try lasts 2 s more for each 1,000,000 bytes that its connection has sent and that have no
	// answer yet, and as long as an answer is still arriving, but not beyond TotalDeadline.
	TryDeadline time.Duration
	AttemptsMax int // most tries of a call; 0: only deadlines count
}

func (p *RetryPolicy) fill() {
	setDefault(&p.InitialDelay, 10*time.Millisecond)
	setDefault(&p.Factor, 2)
	setDefault(&p.DelayMax, time.Second)
	setDefault(&p.TotalDeadline, 10*time.Second)
	setDefault(&p.TryDeadline, 2*time.Second)
}

// verdict is what to do after a failed try.
type verdict uint8

const (
	tryAgain verdict = iota
	giveUpFinal
	giveUpFate
	giveUpDeadline
)

// decide says what to do when try number `attempt` (the first is 1) has failed, `elapsed` after the beginning, and how
// long to wait.
func (p *RetryPolicy) decide(kind class, attempt int, elapsed, total time.Duration, what idempotency, random float64) (verdict, time.Duration) {
	if planted == plantUnguarded && what == unguarded {
		what = guarded
	}
	if kind == classFinal {
		return giveUpFinal, 0
	}
	if kind.isUncertain() && what == unguarded {
		return giveUpFate, 0
	}
	delay := p.delay(attempt, random)
	if elapsed+delay >= total || (p.AttemptsMax > 0 && attempt >= p.AttemptsMax) {
		return giveUpDeadline, 0
	}
	return tryAgain, delay
}

// delay is how long to wait after try number `attempt` has failed.
func (p *RetryPolicy) delay(attempt int, random float64) time.Duration {
	return backoff(p.InitialDelay, p.Factor, p.DelayMax, attempt, random)
}

// backoff is first * factor^(failures-1), at most `longest`, of which a random part between half and all.
func backoff(first time.Duration, factor int, longest time.Duration, failures int, random float64) time.Duration {
	whole := float64(first)
	for i := 1; i < min(failures, 64) && whole < float64(longest); i++ {
		whole *= float64(max(factor, 1))
	}
	whole = min(whole, float64(longest))
	return time.Duration(whole/2 + whole/2*random)
}

func setDefault[T comparable](field *T, value T) {
	var zero T
	if *field == zero {
		*field = value
	}
}
