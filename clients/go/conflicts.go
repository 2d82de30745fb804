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
	// Missing are live nodes that did not, and why: they may have found others.
	Missing map[string]error
}

// ConflictsList is the recent conflicts at and below a path that the live nodes have found. Whom the deadline has cut off is
// in Missing. An error: no node answered, or the context was cancelled before all had; an [ErrDenied]: this user may not.
func (c *Client) ConflictsList(ctx context.Context, path Path) (ConflictsFound, error) {
	caller := &c.caller
	if caller.isClosing.Load() {
		return ConflictsFound{}, closedError(1)
	}
	caller.calls.Add(1)
	defer caller.calls.Done()
	total, refused := caller.total(ctx, 0)
	if refused != nil {
		return ConflictsFound{}, refused
	}
	limited, cancel := context.WithTimeout(ctx, total)
	defer cancel()
	live := liveTargets(caller.topology.routing())
	lists := make([][]Conflict, len(live))
	errs := make([]*tryError, len(live))
	var asked sync.WaitGroup
	for i, to := range live {
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
			found.Missing[to.name] = errs[i]
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
		return found, caller.unlisted(ctx, limited.Err() != nil, live, errs)
	case len(found.Missing) > 0 && errors.Is(ctx.Err(), context.Canceled):
		return found, canceledError(ctx, NotDone, "", 1)
	}
	return found, nil
}

// unlisted is the error where no node has listed its conflicts: a refusal counts more than what may pass. isLate: there was no
// more time.
func (c *caller) unlisted(ctx context.Context, isLate bool, asked []*target, errs []*tryError) *Error {
	if len(asked) == 0 {
		return &Error{Code: "unavailable", text: "no node is live", kind: ErrUnavailable, Attempts: 1}
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
			yield(Conflict{}, closedError(1))
			return
		}
		if _, refused := caller.total(ctx, 0); refused != nil {
			yield(Conflict{}, refused)
			return
		}
		known := map[string]bool{}
		isAnswered := false
		live := liveTargets(caller.topology.routing())
		errs := make([]*tryError, len(live))
		for i, to := range live {
			isLeft := false
			errs[i] = c.conflictsOf(ctx, to, path, func(one Conflict) bool {
				if known[one.key()] {
					return true
				}
				known[one.key()] = true
				isLeft = !yield(one, nil)
				return !isLeft
			})
			if isLeft {
				return
			}
			if errs[i] != nil && ctx.Err() != nil {
				yield(Conflict{}, canceledError(ctx, NotDone, to.name, 1))
				return
			}
			isAnswered = isAnswered || errs[i] == nil
		}
		if !isAnswered {
			yield(Conflict{}, caller.unlisted(ctx, false, live, errs))
		}
	}
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
	connection, err := c.caller.pool.getAt(ctx, to.place(), now()+patience)
	if err != nil {
		return err
	}
	s, err := connection.stream(ctx, pathBody("conflicts", path).integer("nchain", 1).head(), now()+patience)
	if err != nil {
		return err
	}
	defer s.close()
	for {
		found, err := s.next(ctx, now()+patience)
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
