package distkv

import (
	"context"
	"errors"
	"iter"
	"slices"
	"sync"

	"distkv.example/client/internal/msgpack"
)

// ConflictsFound is conflicts, and the nodes that reported them.
type ConflictsFound struct {
	// Conflicts: each once, however many nodes found it; of one node in the order in which it found them.
	Conflicts []Conflict
	// Nodes are those that answered.
	Nodes []string
	// Missing are live nodes that did not, and why, each an [*Error]: they may have found others.
	Missing map[string]error
}

// ConflictsList is the recent conflicts at and below a path that the live nodes have found. Whom the deadline has cut off is
// in Missing. An error: no node answered, or the context was cancelled before all had; an [ErrDenied]: this user may not.
func (c *Client) ConflictsList(ctx context.Context, path Path) (ConflictsFound, error) {
	caller := &c.caller
	if caller.isClosing.Load() {
		return ConflictsFound{}, closedError(0)
	}
	caller.calls.Add(1)
	defer caller.calls.Done()
	w := caller.watch(&ctx, "conflicts")
	found, asked, err := c.listConflicts(ctx, path, w)
	w.ended(asked, err)
	if err != nil {
		return found, err
	}
	return found, nil
}

func (c *Client) listConflicts(ctx context.Context, path Path, w *watched) (ConflictsFound, int, *Error) {
	caller := &c.caller
	total, refused := caller.total(ctx, 0)
	if refused != nil {
		return ConflictsFound{}, 0, refused
	}
	limited, cancel := context.WithTimeout(ctx, total)
	defer cancel()
	live := liveTargets(caller.topology.routing())
	lists := make([][]Conflict, len(live))
	errs := make([]*tryError, len(live))
	var asked sync.WaitGroup
	for i, to := range live {
		w.tries(to.name, i+1)
		asked.Go(func() {
			errs[i] = c.conflictsOf(limited, to, path, func(one Conflict) bool {
				lists[i] = append(lists[i], one)
				return true
			})
		})
	}
	asked.Wait()
	found := ConflictsFound{Missing: map[string]error{}}
	known := map[string]bool{}
	for i, to := range live {
		if errs[i] != nil {
			w.failed(to.name, i+1, errs[i])
			found.Missing[to.name] = missingError(errs[i], to.name)
			continue
		}
		found.Nodes = append(found.Nodes, to.name)
		for _, one := range lists[i] {
			if !known[one.key()] {
				known[one.key()] = true
				found.Conflicts = append(found.Conflicts, one)
			}
		}
	}
	switch {
	case len(found.Nodes) == 0:
		return found, len(live), caller.unlisted(ctx, limited.Err() != nil, live, errs)
	case len(found.Missing) > 0 && errors.Is(ctx.Err(), context.Canceled):
		return found, len(live), canceledError(ctx, NotDone, "", 1)
	}
	return found, len(live), nil
}

// missingError is why one node has not listed its conflicts.
func missingError(err *tryError, node string) *Error {
	switch {
	case err.kind == tryNoAccess:
		return noAccess(err, node, 1)
	case classOf(err, true) == classFinal:
		return finalError(err, NotDone, node, 1)
	}
	return &Error{Code: "unavailable", text: err.text, kind: ErrUnavailable, Node: node, Attempts: 1, cause: err}
}

// unlisted is the error where no node has listed its conflicts: a refusal counts more than what may pass. isLate: there was no
// more time.
func (c *caller) unlisted(ctx context.Context, isLate bool, asked []*target, errs []*tryError) *Error {
	if len(asked) == 0 {
		return &Error{Code: "unavailable", text: "no node is live", kind: ErrUnavailable}
	}
	worst := max(slices.IndexFunc(errs, func(err *tryError) bool { return classOf(err, true) == classFinal }), 0)
	why, node := errs[worst], asked[worst].name
	switch {
	case classOf(why, true) == classFinal:
		return finalError(why, NotDone, node, 1)
	case ctx.Err() != nil:
		return canceledError(ctx, NotDone, node, 1)
	case c.isClosing.Load():
		return closedError(1)
	}
	var refused refusers
	for i, to := range asked {
		refused.onFailure(to, errs[i])
	}
	if denied := refused.verdict(asked); denied != nil && !isLate {
		return denied.error(NotDone, 1)
	}
	for i, to := range asked {
		if errs[i].weight() > why.weight() {
			why, node = errs[i], to.name
		}
	}
	return &Error{Code: "unavailable", text: "no node listed its conflicts: " + why.text, kind: ErrUnavailable, Node: node,
		Attempts: 1, cause: why}
}

// Conflicts is the same, one after the other as they come. An error comes last, where no node answered, or the context has
// ended.
func (c *Client) Conflicts(ctx context.Context, path Path) iter.Seq2[Conflict, error] {
	return func(yield func(Conflict, error) bool) {
		caller := &c.caller
		if caller.isClosing.Load() {
			yield(Conflict{}, closedError(0))
			return
		}
		err := c.conflictsCall(ctx, path, yield)
		if err != nil {
			yield(Conflict{}, err)
		}
	}
}

// conflictsCall is all that is one call: when an error is yielded, it has ended.
func (c *Client) conflictsCall(ctx context.Context, path Path, yield func(Conflict, error) bool) *Error {
	c.caller.calls.Add(1)
	defer c.caller.calls.Done()
	w := c.caller.watch(&ctx, "conflicts")
	asked, err := c.tellConflicts(ctx, path, w, yield)
	w.ended(asked, err)
	return err
}

// tellConflicts yields them, and returns how many nodes were asked.
func (c *Client) tellConflicts(ctx context.Context, path Path, w *watched, yield func(Conflict, error) bool) (int, *Error) {
	caller := &c.caller
	if _, refused := caller.total(ctx, 0); refused != nil {
		return 0, refused
	}
	known := map[string]bool{}
	isAnswered := false
	live := liveTargets(caller.topology.routing())
	errs := make([]*tryError, len(live))
	for i, to := range live {
		isLeft := false
		w.tries(to.name, i+1)
		errs[i] = c.conflictsOf(ctx, to, path, func(one Conflict) bool {
			if known[one.key()] {
				return true
			}
			known[one.key()] = true
			isLeft = !yield(one, nil)
			return !isLeft
		})
		if isLeft {
			return i + 1, nil
		}
		if errs[i] != nil {
			w.failed(to.name, i+1, errs[i])
			if ctx.Err() != nil {
				return i + 1, canceledError(ctx, NotDone, to.name, i+1)
			}
			if caller.pool.closed() {
				return i + 1, closedError(i + 1)
			}
		}
		isAnswered = isAnswered || errs[i] == nil
	}
	if !isAnswered {
		return len(live), caller.unlisted(ctx, false, live, errs)
	}
	return len(live), nil
}

func liveTargets(r *routing) []*target {
	var live []*target
	for _, one := range r.targets {
		if one.isLive {
			live = append(live, one)
		}
	}
	return live
}

// conflictsOf is what one node lists: a bounded number.
func (c *Client) conflictsOf(ctx context.Context, to *target, path Path, yield func(Conflict) bool) *tryError {
	patience := c.config.Retry.TryDeadline
	connection, err := c.caller.pool.getAt(ctx, to.place(), now()+patience, forStream)
	if err != nil {
		return err
	}
	sent := now()
	s, err := connection.stream(ctx, pathBody("conflicts", path).integer("nchain", 1).head(), whileArriving(sent+patience))
	if err != nil {
		if err.kind == tryTimedOut && ctx.Err() == nil {
			c.caller.pool.onTimeout(to.address, connection, sent)
		}
		return err
	}
	defer s.close()
	for {
		found, err := s.next(ctx, whileArriving(now()+patience))
		if err != nil || found == nil {
			return err
		}
		if !found.hasPath || found.state != "" {
			continue
		}
		both := message(found.message.get("conflict"))
		if head, _ := msgpack.ReadHead(both); both == nil || head.Kind != msgpack.Map {
			return &tryError{kind: tryProtocol, text: "a conflict is none"}
		}
		where, wrong := path.behind(found.path)
		if wrong != nil {
			return &tryError{kind: tryProtocol, text: "a path is none: " + wrong.Error()}
		}
		winner, err := message(both.get("winner")).entry(to.name)
		if err != nil {
			return err
		}
		loser, err := message(both.get("loser")).entry(to.name)
		if err != nil {
			return err
		}
		if !yield(Conflict{where, winner, loser, to.name}) {
			return nil
		}
	}
}
