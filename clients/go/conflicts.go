package distkv

import (
	"context"
	"iter"
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

// ConflictsList is the recent conflicts at and below a path that the live nodes have found.
func (c *Client) ConflictsList(ctx context.Context, path Path) (ConflictsFound, error) {
	caller := &c.caller
	if caller.isClosing.Load() {
		return ConflictsFound{}, closedError(1)
	}
	caller.calls.Add(1)
	defer caller.calls.Done()
	ctx, cancel := context.WithTimeout(ctx, caller.total(ctx, 0))
	defer cancel()
	live := liveTargets(caller.topology.routing())
	lists := make([][]Conflict, len(live))
	errs := make([]*tryError, len(live))
	var asked sync.WaitGroup
	for i, to := range live {
		asked.Go(func() {
			errs[i] = c.conflictsOf(ctx, to, path, func(one Conflict) bool {
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
	if len(found.Nodes) > 0 {
		return found, nil
	}
	for i, to := range live {
		if ctx.Err() != nil && errs[i].kind == tryCanceled {
			return found, canceledError(ctx, NotDone, to.name, 1)
		}
		return found, &Error{Code: "unavailable", text: "no node listed its conflicts: " + errs[i].text, kind: ErrUnavailable,
			Node: to.name, Attempts: 1, cause: errs[i]}
	}
	return found, &Error{Code: "unavailable", text: "no node is live", kind: ErrUnavailable, Attempts: 1}
}

// Conflicts is the same, one after the other as they come. An error comes last, where no node answered.
func (c *Client) Conflicts(ctx context.Context, path Path) iter.Seq2[Conflict, error] {
	return func(yield func(Conflict, error) bool) {
		caller := &c.caller
		if caller.isClosing.Load() {
			yield(Conflict{}, closedError(1))
			return
		}
		known := map[string]bool{}
		var failed *tryError
		isAnswered := false
		for _, to := range liveTargets(caller.topology.routing()) {
			isLeft := false
			err := c.conflictsOf(ctx, to, path, func(one Conflict) bool {
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
			if err != nil {
				failed = err
			} else {
				isAnswered = true
			}
		}
		if !isAnswered && failed != nil {
			yield(Conflict{}, streamError(ctx, failed, "", 1))
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
	connection, err := c.caller.pool.get(ctx, to.address, now()+patience)
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
