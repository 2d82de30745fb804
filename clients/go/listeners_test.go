package distkv

import (
	"context"
	"testing"
	"time"
)

// Listeners and observers that use the client, and close it.

func TestAListenerMayUseTheClient(t *testing.T) {
	client, one, _, path := pair(t, quick(), always(writtenReply))
	results := make(chan error, 8)
	goOn := make(chan struct{})
	stop := must[func()](t)(client.OnTopologyChange(func(TopologyChange) {
		ctx := context.Background()
		_, err := client.ListShards(ctx)
		results <- err
		results <- client.RefreshShards(ctx)
		results <- client.PreferShard(ctx, path.Shard(), "s1")
		_, err = client.Put(ctx, path, 1, nil)
		results <- err
		<-goOn
	}))
	defer stop()
	one.tellDown("s2")
	for range 4 {
		select {
		case err := <-results:
			if err != nil {
				t.Error(err)
			}
		case <-time.After(time.Minute):
			t.Fatal("the listener waits for itself")
		}
	}
	// The view goes on while the listener is busy.
	one.tell(func() { one.states["s2"] = "up" })
	allLive(t, client, 2)
	stop()
	close(goOn)
}

func TestAListenerMayCloseTheClient(t *testing.T) {
	client, one, _, _ := pair(t, quick(), nil)
	closed := make(chan error, 1)
	must[func()](t)(client.OnTopologyChange(func(TopologyChange) { closed <- client.Close(context.Background()) }))
	one.tellDown("s2")
	wantClosed(t, closed)
}

func wantClosed(t *testing.T, closed chan error) {
	t.Helper()
	select {
	case err := <-closed:
		if err != nil {
			t.Error(err)
		}
	case <-time.After(time.Minute):
		t.Fatal("it is not closed")
	}
}

// closingObserver closes the client, where it is told of this action.
type closingObserver struct {
	noisyObserver
	action string
	client chan *Client
	closed chan error
}

func (o *closingObserver) CallBegins(ctx context.Context, action string) context.Context {
	if action == o.action {
		select {
		case client := <-o.client:
			o.closed <- client.Close(context.Background())
		case <-time.After(time.Minute):
		}
	}
	return ctx
}

func TestAnObserverMayCloseTheClient(t *testing.T) {
	for _, action := range []string{"get_value", "list_shards"} {
		config := quick()
		observer := &closingObserver{action: action, client: make(chan *Client, 1), closed: make(chan error, 1)}
		config.Observer, config.CloseGrace = observer, 20*time.Millisecond
		one := &scripted{name: "s1"}
		config.Seeds = startScripted(t, one)
		client := connect(t, config)
		observer.client <- client
		if action == "get_value" {
			_, err := client.Get(t.Context(), PathOf("a"), nil)
			wantError(t, err, ErrClosed)
		}
		wantClosed(t, observer.closed)
	}
}

func TestOpenCallsOfTheClientItselfDoNotHoldUpItsEnd(t *testing.T) {
	config := quick()
	config.CloseGrace = time.Hour
	observer := &closingObserver{action: "list_shards", client: make(chan *Client, 1), closed: make(chan error, 1)}
	config.Observer = observer
	client, _, _, _ := pair(t, config, nil)
	observer.client <- client
	wantClosed(t, observer.closed)
}

func TestAListenerThatIsBusyIsToldOfSeveralChangesInOne(t *testing.T) {
	client, one, _, _ := pair(t, quick(), nil)
	goOn := make(chan struct{})
	var told []TopologyChange
	done := make(chan struct{})
	last := client.ClusterView().Epoch + 3*changesMax + 1
	must[func()](t)(client.OnTopologyChange(func(change TopologyChange) {
		<-goOn
		if told = append(told, change); change.Epoch == last {
			close(done)
		}
	}))
	first := client.ClusterView().Epoch
	for number := range 3 * changesMax {
		one.tell(func() { one.states["s2"] = []string{"down", "up"}[number%2] })
	}
	one.tell(func() { one.states["s2"] = "left" }) // Another one than before, whichever are told in one.
	until(t, func() bool { return client.ClusterView().Epoch == last })
	close(goOn)
	select {
	case <-done:
	case <-time.After(time.Minute):
		t.Fatal("the last change is not told")
	}
	for _, change := range told {
		if change.PreviousEpoch != first {
			t.Fatal("a change is missing:", first, change.PreviousEpoch)
		}
		first = change.Epoch
	}
	if len(told) > 2*changesMax || len(told) < changesMax {
		t.Error(len(told))
	}
}

func TestTheObserverIsToldOfEachNodeThatIsAsked(t *testing.T) {
	config := quick()
	observer := &noisyObserver{}
	config.Observer = observer
	client, _, _, _ := pair(t, config, func(request message) any {
		if request.text("action") == "conflicts" {
			return errorReply("bad_request")
		}
		return with(writtenReply, "value", "one")
	})
	allLive(t, client, 2)
	calls := map[string]func(){
		"get_value": func() {
			_ = must[Value](t)(client.Get(t.Context(), PathOf("a"), &GetOptions{Read: Freshest}))
		},
		"conflicts": func() { _, _ = client.ConflictsList(t.Context(), Path{}) },
	}
	for action, call := range calls {
		call()
		for _, event := range []string{"begin " + action, "try s1 1"} {
			if !observer.has(event) {
				t.Error(action, event, observer.events)
			}
		}
		if second := map[string]string{"get_value": "try s2 1", "conflicts": "try s2 2"}[action]; !observer.has(second) {
			t.Error(action, second, observer.events)
		}
	}
	for range client.Conflicts(t.Context(), Path{}) {
	}
	observer.mu.Lock()
	defer observer.mu.Unlock()
	count := map[string]int{}
	for _, event := range observer.events {
		count[event]++
	}
	if count["begin conflicts"] != 2 || count["failed s1 1 final"] != 2 || count["end get_value 1 <nil> token"] != 1 {
		t.Error(observer.events)
	}
}
