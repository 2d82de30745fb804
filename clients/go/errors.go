package distkv

import (
	"context"
	"errors"
	"fmt"
	"strings"
)

// What errors are, for [errors.Is]. Each error of a call is an [*Error] and is one or more of these.
var (
	// ErrNotFound: a read found no value.
	ErrNotFound = errors.New("no value")
	// ErrRefused: a node refused it, and no other try can help. Code is the node's word.
	ErrRefused = errors.New("refused")
	// ErrDenied, an ErrRefused: the user may not do this, or no node lets the client in: each refused it, or could not be
	// reached, and its Code is "no_access"; or "plaintext_login", where the client itself sends no secret in plain text.
	ErrDenied = errors.New("denied")
	// ErrPrecondition, an ErrRefused: somebody was there first, or the node that was asked has not heard of that version yet (see
	// ErrChanged). If it is an ErrFateUnknown, too, it may have been an earlier try of this call: who reads anew and does it once
	// more then may do it twice. So ask for ErrFateUnknown first.
	ErrPrecondition = errors.New("a precondition did not hold")
	// ErrExists, an ErrPrecondition: IfNew, and there is a value.
	ErrExists = errors.New("there is a value")
	// ErrChanged, an ErrPrecondition: IfVersion, and it is another version or none. Somebody was there first, or the node that was
	// asked has not heard of that version yet (a split that has just begun: read again, and try again).
	ErrChanged = errors.New("it is another version")
	// ErrValueChanged, an ErrPrecondition: IfValue, and it is another value.
	ErrValueChanged = errors.New("it is another value")
	// ErrUnavailable: the deadline passed while no node could do it, or before anything was sent. It was not done.
	ErrUnavailable = errors.New("unavailable")
	// ErrFateUnknown: it may have been done, or a part of it, and another try could do it twice, or the deadline passed after it.
	// Any error whose Fate is not NotDone is one, also one of another kind, such as an ErrDenied of a tree that is deleted in part.
	ErrFateUnknown = errors.New("it may have been done")
	// ErrNoMajority: fewer than a majority of the nodes answered a read that needs one.
	ErrNoMajority = errors.New("no majority")
	// ErrBadValue: the value, read or to be written, is not of this type. A write was not sent.
	ErrBadValue = errors.New("bad value")
	// ErrUsage: the call cannot be made like that. Nothing was sent.
	ErrUsage = errors.New("usage")
	// ErrClosed: the client, or the watch, was closed. A write that this has cut off may be an ErrFateUnknown, too.
	ErrClosed = errors.New("closed")
)

// Fate is what became of what a call was to do.
type Fate uint8

// The fates.
const (
	// NotDone: it was not done, and will not be.
	NotDone Fate = iota
	// Unknown: it, or a part of it, may have been done, or may still be, once.
	Unknown
	// Unconfirmed: a node has made the change, but not as many others as were asked for have confirmed it.
	Unconfirmed
)

func (f Fate) String() string { return [...]string{"not_done", "unknown", "unconfirmed"}[min(f, 2)] }

// worse is what two tries together leave in doubt: a change that one node has made stays made.
func (f Fate) worse(other Fate) Fate { return max(f, other) }

// Error is how a call ended. It wraps the last try's failure, and the context's error where that ended the call.
type Error struct {
	// Code is the word for programs: a node's, or the kind's own, such as "unavailable".
	Code string
	// Fate is what is known of a write that failed.
	Fate Fate
	// Node is the node of the last try, if there was one.
	Node string
	// Attempts counts the tries, the last one included; 0: there was none, or a watch or monitor was open when the client was closed.
	Attempts int

	text  string
	kind  error
	cause error
}

func (e *Error) Error() string {
	text := "distkv: " + e.text
	if e.Attempts == 0 {
		return text
	}
	where, tries, fate := "", "1 try", ""
	if e.Node != "" {
		where = "at " + e.Node + ", "
	}
	if e.Attempts > 1 {
		tries = fmt.Sprintf("%d tries", e.Attempts)
	}
	switch e.Fate {
	case Unknown:
		fate = ", may have been done"
	case Unconfirmed:
		fate = ", done but not confirmed"
	}
	return text + " (" + where + tries + fate + ")"
}

// Unwrap returns the failure of the last try, or the context's error.
func (e *Error) Unwrap() error { return e.cause }

// Is tells whether it is one of the package's kinds of errors.
func (e *Error) Is(target error) bool {
	if e.kind == target {
		return true
	}
	switch target {
	case ErrPrecondition:
		return e.kind == ErrExists || e.kind == ErrChanged || e.kind == ErrValueChanged
	case ErrRefused:
		return e.kind == ErrDenied || e.Is(ErrPrecondition)
	case ErrFateUnknown:
		// Also a call that its caller gave up, or that the client's end has cut off, and a refusal by a node that has made a part.
		return e.Fate != NotDone
	}
	return false
}

// because adds to what no node could do in time why nodes did not let this client in; nil: nothing is known of that.
func (e *Error) because(why *tryError) *Error {
	if why != nil && e.kind == ErrUnavailable {
		e.text += "; " + why.text
	}
	return e
}

func usage(text string) *Error { return &Error{Code: "usage", text: text, kind: ErrUsage} }

func badValue(text string) *Error { return &Error{Code: "bad_value", text: text, kind: ErrBadValue} }

func notFound(path Path, node string, attempts int) *Error {
	return &Error{Code: "key_not_found", text: "there is no value at " + path.String(), kind: ErrNotFound,
		Node: node, Attempts: attempts}
}

func closedError(attempts int) *Error {
	return &Error{Code: "closed", text: "the client was closed", kind: ErrClosed, Attempts: attempts}
}

// refusals are the kinds for a node's word; any other word is a plain ErrRefused.
var refusals = map[string]error{
	"already_exists": ErrExists,
	"is_new":         ErrChanged,
	"chain_mismatch": ErrChanged,
	"data_mismatch":  ErrValueChanged,
	"denied":         ErrDenied,
	"auth_required":  ErrDenied,
	"auth_failed":    ErrDenied,
}

// refusal is the error of what a node refuses. It knows of no try but that one, so that its "nothing was changed" says
// nothing of an earlier one.
func refusal(e *tryError, fate Fate, node string, attempts int) *Error {
	kind, text := refusals[e.code], e.text
	if kind == nil {
		kind = ErrRefused
	}
	// Of another kind of error, the doubt may be its own.
	if fate != NotDone && !e.made && classOfCode(e.code) == classFinal {
		text = "an earlier try may have done it; the last one was refused: " + strings.ReplaceAll(text, "; nothing was changed", "")
	}
	return &Error{Code: e.code, text: text, kind: kind, Fate: fate, Node: node, Attempts: attempts, cause: e}
}

// tryKind is how one try failed. Such errors leave the client only as the cause of an Error.
type tryKind uint8

const (
	tryServer   tryKind = iota // the node's own error; the connection stays usable
	tryConnect                 // no connection came about; nothing was sent
	tryNoAccess                // no TLS came about, or the node does not know the user; nothing was sent
	tryLost                    // the connection ended
	tryProtocol                // the other side does not keep to the protocol
	tryTooLarge                // the request is longer than any node takes; nothing was sent
	tryBusy                    // too many requests are open on this connection; nothing was sent
	tryFull                    // the client has no room for another stream to this node, which is fine; nothing was sent
	tryTimedOut                // no answer within the time of one try
	tryCanceled                // the caller gave up
)

type tryError struct {
	kind  tryKind
	text  string
	code  string
	made  bool // the node says that it has made the change, or part of it
	other bool // the node is of another network (tryConnect): for calls, it is like one that cannot be reached
	// Where the view has the node that was meant, another one answers (tryConnect).
	misplaced bool
	// No TLS came about (tryNoAccess), so that no greeting could be believed: the node may be of any network.
	notMet bool
	// The node makes this client's login wait (tryConnect), since too many have failed: it has not looked at the secret.
	waits bool
	// The node has answered so to a login (tryNoAccess): it may know another secret.
	isOfSecret bool
	// How the attempt before had failed, where a caller could wait no longer for a connection (tryConnect).
	before *tryError
	cause  error
	// The node's clock is ahead of what was counted (tryServer): the same may come in time when it is sent once more.
	isBehind bool
}

// isRefusal: the node does not let this client in, or is none of its network, and would say so again in a moment.
func (e *tryError) isRefusal() bool { return e.kind == tryNoAccess || e.other }

// isFull: the node has too many clients. Once it has room, it may let this one in.
func (e *tryError) isFull() bool {
	return (e.kind == tryConnect || e.kind == tryLost) && e.code == "too_many" && !e.waits
}

// weight is how much it says, for the text of an error, of why this client is not let in: a refusal the most. Nil: nothing.
func (e *tryError) weight() int {
	switch {
	case e == nil:
		return 0
	case e.isRefusal():
		return 3
	case e.waits:
		return 2
	case e.isFull(), e.outOfFiles():
		return 1
	}
	return e.before.weight()
}

func (e *tryError) Error() string { return e.text }

func (e *tryError) Unwrap() error {
	if e.before.outOfFiles() { // That its time was over says less.
		return errors.Join(e.cause, e.before.cause)
	}
	return e.cause
}

func tryErrorf(kind tryKind, format string, args ...any) *tryError {
	return &tryError{kind: kind, text: fmt.Sprintf(format, args...)}
}

// noAccess is the error of what ends since no node lets this client in.
func noAccess(e *tryError, node string, attempts int) *Error {
	code := "no_access"
	if e.code == plaintextLogin && !e.notMet { // Else it is not the client's own word.
		code = e.code
	}
	return &Error{Code: code, text: e.text, kind: ErrDenied, Node: node, Attempts: attempts, cause: e}
}

// finalError is the error of a call that ends with this one.
func finalError(e *tryError, fate Fate, node string, attempts int) *Error {
	switch {
	case e.kind == tryTooLarge:
		// It is as long at any node: none was asked.
		return &Error{Code: "usage", text: e.text, kind: ErrUsage, cause: e}
	case e.kind == tryServer && classOfCode(e.code) == classFinal:
		// A refusal after a try of unknown fate may be that try's doing: the fate says so.
		return refusal(e, fate, node, attempts)
	case e.kind == tryFull:
		// Nodes are fine, and no time has passed.
		return &Error{Code: e.code, text: e.text, kind: ErrUnavailable, Node: node, Attempts: attempts, cause: e}
	}
	code := ""
	if e.kind == tryServer {
		code = e.code
	}
	if fate != NotDone {
		if code == "" {
			code = "fate_unknown"
		}
		text := "it may have been done: " + e.text
		if e.kind == tryConnect || e.kind == tryNoAccess || e.kind == tryBusy {
			text = "it may have been done, by an earlier try; the last one was not sent: " + e.text
		}
		return &Error{Code: code, text: text, kind: ErrFateUnknown, Fate: fate,
			Node: node, Attempts: attempts, cause: e}
	}
	return &Error{Code: "unavailable", text: "no node could do it in time; the last try: " + e.text,
		kind: ErrUnavailable, Node: node, Attempts: attempts, cause: e}
}

// canceledError is the error of a call that its caller gave up.
func canceledError(ctx context.Context, fate Fate, node string, attempts int) *Error {
	cause := ctx.Err()
	if cause == nil {
		cause = context.Canceled
	}
	return contextError(cause, "the caller gave up", fate, node, attempts)
}

// notBegun is the error of a call whose context has ended, or which has no time, before its first try.
func notBegun(cause error) *Error { return contextError(cause, "nothing was sent", NotDone, "", 0) }

func contextError(cause error, text string, fate Fate, node string, attempts int) *Error {
	code, kind := "canceled", context.Canceled
	if errors.Is(cause, context.DeadlineExceeded) {
		code, kind = "deadline", context.DeadlineExceeded
		if fate == NotDone {
			code, kind = "unavailable", ErrUnavailable
		}
	}
	return &Error{Code: code, text: text + ": " + cause.Error(), kind: kind, Fate: fate, Node: node, Attempts: attempts,
		cause: cause}
}
