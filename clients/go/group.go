package distkv

import "sync"

// group counts goroutines. Unlike a sync.WaitGroup it may grow from nothing while somebody waits.
type group struct {
	mu    sync.Mutex
	count int
	idle  chan struct{} // closed when there are none; nil while nobody waits
}

func (g *group) Add(n int) {
	g.mu.Lock()
	g.count += n
	if g.count == 0 && g.idle != nil {
		close(g.idle)
		g.idle = nil
	}
	g.mu.Unlock()
}

func (g *group) Done() { g.Add(-1) }

// outside calls a function of the program on a goroutine of the group, which does not count meanwhile: whoever waits for the
// group does not wait for that, which may itself be what waits.
func (g *group) outside(call func()) {
	g.Done()
	defer g.Add(1)
	call()
}

// none is closed when there are none.
func (g *group) none() <-chan struct{} {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.count == 0 {
		done := make(chan struct{})
		close(done)
		return done
	}
	if g.idle == nil {
		g.idle = make(chan struct{})
	}
	return g.idle
}
