package distkv

import (
	"context"
	"sync"
	"time"
)

// Requests that may take long: how a node that works is told from one that is silent.

// isAlive asks a node whether it is alive, and waits until then; longer for what has to be sent before, and while a message
// arrives. Silent is one that has sent nothing at all meanwhile.
func (c *conn) isAlive(ctx context.Context, end instant) (isAnswered, isSilent bool) {
	since := now()
	t := whileArriving(end)
	c.mu.Lock()
	t.longest += sending(c.unanswered)
	c.mu.Unlock()
	_, err := c.requestOnce(ctx, appendGet(nil, Path{}, false), t, forQuestion)
	if err != nil && err.kind == tryBusy {
		// It cannot be asked. What it says to others meanwhile tells as well that it is alive.
		waitUntil(ctx, c.done, end-now())
	}
	isAnswered = err == nil || err.kind == tryServer
	return isAnswered, !isAnswered && ctx.Err() == nil && now() >= end && instant(c.heardAt.Load()) <= since
}

// longRequest is a request that takes as long as it takes, until the end of its time. Meanwhile the node is asked now and then
// whether it is alive: it is given up once it has been silent for about as long as `patience`.
func (c *conn) longRequest(ctx context.Context, body []byte, t tryTime, patience time.Duration) (message, *tryError) {
	var asking sync.WaitGroup
	defer asking.Wait()
	whole, cancel := context.WithCancel(ctx)
	defer cancel()
	replied := make(chan result, 1)
	asking.Go(func() {
		defer cancel() // Nobody needs to know any more whether it is alive.
		reply, err := c.request(whole, body, t)
		replied <- result{reply, err}
	})
	for {
		pause := time.NewTimer(patience / 2)
		select {
		case found := <-replied:
			pause.Stop()
			return found.message, found.err
		case <-pause.C:
		}
		if _, isSilent := c.isAlive(whole, min(now()+patience/2, t.end)); !isSilent {
			continue
		}
		cancel()
		found := <-replied
		if found.err != nil && found.err.kind == tryCanceled && ctx.Err() == nil {
			return nil, tryErrorf(tryTimedOut, "%s does not answer", c.name)
		}
		return found.message, found.err
	}
}
