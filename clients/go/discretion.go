package distkv

import (
	"errors"
	"strings"
	"syscall"
)

// What logs and observers are told of errors: neither paths nor values, which the words of nodes name. Whoever made the call has
// those in its error.

// codeShownMax is the longest word of a node that is shown; those that nodes have are shorter.
const codeShownMax = 32

// withoutWords is an error of this package as it is shown: kind, code, node, tries and fate are there, and what the system and
// the contexts say; texts that may be a node's are not. Nil: nil.
func withoutWords(err error) error {
	switch e := err.(type) {
	case *Error:
		shown := *e
		shown.Code = codeShown(e.Code)
		shown.text = e.kind.Error()
		shown.cause = withoutWords(e.cause)
		return &shown
	case *tryError:
		return e.withoutWords()
	case interface{ Unwrap() []error }:
		var all []error
		for _, one := range e.Unwrap() {
			all = append(all, withoutWords(one))
		}
		return errors.Join(all...)
	}
	return err
}

// kindsShown are the texts of how a try fails; "": its own text is the client's.
var kindsShown = [...]string{tryServer: "the node's answer is an error", tryConnect: "no connection", tryNoAccess: "no access",
	tryLost: "the connection is lost", tryProtocol: "the node does not keep to the protocol", tryTooLarge: "", tryBusy: "",
	tryTimedOut: "", tryCanceled: ""}

func (e *tryError) withoutWords() *tryError {
	shown := *e
	shown.code = codeShown(e.code)
	shown.before = nil
	shown.cause = withoutWords(e.cause)
	text := kindsShown[e.kind]
	if text == "" {
		return &shown
	}
	if shown.code != "" {
		text += " (" + shown.code + ")"
	}
	var said syscall.Errno
	if errors.As(e.cause, &said) {
		text += ": " + said.Error()
	}
	shown.text = text
	return &shown
}

// codeShown is a node's word for programs, if it looks like one.
func codeShown(code string) string {
	isWord := !strings.ContainsFunc(code, func(c rune) bool { return c != '_' && (c < 'a' || c > 'z') })
	if len(code) > codeShownMax || !isWord {
		return "unknown"
	}
	return code
}

// panicShown is what a function of the program has panicked with; of an error of this package, what may be shown.
func panicShown(reason any) any {
	err, isError := reason.(error)
	if !isError {
		return reason
	}
	var ended *Error
	if errors.As(err, &ended) {
		return withoutWords(ended)
	}
	var failed *tryError
	if errors.As(err, &failed) {
		return withoutWords(failed)
	}
	return reason
}
