package distkv

import (
	"context"
	"log/slog"
	"time"
)

// Observer is told of calls. Its methods are called on the caller's goroutine, or on the client's own where the client asks by
// itself (for the table of shards), and must be quick and safe for many; what they panic with is logged and stops nothing. They
// are part of the call: one that closes the client waits for its own call, until the context ends. RefreshShards and PreferShard
// may wait for what the client is just telling of: with the context of its own list_shards they are refused, an [ErrUsage]; with
// another one without a deadline, an Observer waits there in vain as long as a call may take.
//
// The errors that it is told of have a code, but not the words of a node, which name paths and values: it may log all of them.
type Observer interface {
	// CallBegins: a call begins. The context that it returns is handed to the other three.
	CallBegins(ctx context.Context, action string) context.Context
	// TryBegins: a try goes to a node. A read of a majority has one per node in each round, of the same number; a call that asks
	// all nodes for conflicts one per node.
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
	Fate     Fate  // of a failed call; has no meaning if Err is nil
	Err      error // nil: it succeeded. If the call was given up: its context's error
}

// watched is one observed call.
type watched struct {
	observer Observer
	log      *slog.Logger
	ctx      context.Context
	action   string
	started  instant
	group    *group // of a call that the client makes by itself, on a goroutine of its own
}

// tell calls the observer. Who closes the client there does not wait for this goroutine of the client.
func (w *watched) tell(where string, call func()) {
	defer w.guard(where)
	if w.group == nil {
		call()
		return
	}
	w.group.outside(call)
}

func (w *watched) guard(where string) {
	if reason := recover(); reason != nil {
		w.log.Error("distkv: an observer failed "+where, "action", w.action, "panic", panicShown(reason))
	}
}

func watchCall(ctx context.Context, config *Config, action string, own *group) *watched {
	w := &watched{config.Observer, config.Logger, ctx, action, now(), own}
	w.tell("at the beginning of a call", func() {
		if told := w.observer.CallBegins(ctx, action); told != nil {
			w.ctx = told
		}
	})
	return w
}

// watch is what the observer is told of a call of a kind of its own; nil, of which nobody is told, where there is no observer. The
// call goes on with the observer's context.
func (c *caller) watch(ctx *context.Context, action string) *watched {
	if c.config.Observer == nil {
		return nil
	}
	w := watchCall(*ctx, c.config, action, nil)
	*ctx = w.ctx
	return w
}

func (w *watched) tries(node string, attempt int) {
	if w != nil {
		w.onTry(node, attempt)
	}
}

func (w *watched) failed(node string, attempt int, err *tryError) {
	if w != nil {
		w.onFailed(node, attempt, classOf(err, true), err)
	}
}

func (w *watched) ended(attempts int, err *Error) {
	if w != nil {
		w.onEnd(attempts, err)
	}
}

func (w *watched) onTry(node string, attempt int) {
	w.tell("at a try", func() { w.observer.TryBegins(w.ctx, node, attempt) })
}

func (w *watched) onFailed(node string, attempt int, kind class, err *tryError) {
	w.tell("at a failed try", func() { w.observer.TryFailed(w.ctx, node, attempt, kind.String(), err.withoutWords()) })
}

func (w *watched) onEnd(attempts int, failure *Error) {
	end := CallEnd{Action: w.action, Took: now() - w.started, Attempts: attempts}
	if failure != nil {
		end.Fate, end.Err, end.Attempts = failure.Fate, withoutWords(failure), failure.Attempts
	}
	w.tell("at the end of a call", func() { w.observer.CallEnds(w.ctx, end) })
}
