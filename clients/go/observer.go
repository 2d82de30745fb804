package distkv

import (
	"context"
	"log/slog"
	"time"
)

// Observer is told of calls. Its methods are called on the caller's goroutine and must be quick and safe for many; what
// they panic with is logged and stops nothing.
type Observer interface {
	// CallBegins: a call begins. The context that it returns is handed to the other three.
	CallBegins(ctx context.Context, action string) context.Context
	// TryBegins: a try goes to a node.
	TryBegins(ctx context.Context, node string, attempt int)
	// TryFailed: a try has failed; class is "unavailable", "overload", "aborted", "try_deadline", "fate_unknown",
	// "unknown_there", "busy" or "final".
	TryFailed(ctx context.Context, node string, attempt int, class string, err error)
	// CallEnds: the call has ended.
	CallEnds(ctx context.Context, end CallEnd)
}

// CallEnd is how a call ended.
type CallEnd struct {
	Action   string
	Took     time.Duration
	Attempts int
	Fate     Fate
	Err      error // nil: it succeeded
}

// watched is one observed call.
type watched struct {
	observer Observer
	log      *slog.Logger
	ctx      context.Context
	action   string
	started  instant
}

func (w *watched) guard(where string) {
	if reason := recover(); reason != nil {
		w.log.Error("distkv: an observer failed "+where, "action", w.action, "panic", reason)
	}
}

func watchCall(ctx context.Context, config *Config, action string) *watched {
	w := &watched{config.Observer, config.Logger, ctx, action, now()}
	func() {
		defer w.guard("at the beginning of a call")
		if told := w.observer.CallBegins(ctx, action); told != nil {
			w.ctx = told
		}
	}()
	return w
}

func (w *watched) onTry(node string, attempt int) {
	defer w.guard("at a try")
	w.observer.TryBegins(w.ctx, node, attempt)
}

func (w *watched) onFailed(node string, attempt int, kind class, err error) {
	defer w.guard("at a failed try")
	w.observer.TryFailed(w.ctx, node, attempt, kind.String(), err)
}

func (w *watched) onEnd(attempts int, failure *Error) {
	defer w.guard("at the end of a call")
	end := CallEnd{Action: w.action, Took: now() - w.started, Attempts: attempts}
	if failure != nil {
		end.Fate, end.Err, end.Attempts = failure.Fate, failure, failure.Attempts
	}
	w.observer.CallEnds(w.ctx, end)
}
