package distkv

import (
	"context"
	"iter"

	"distkv.example/client/internal/msgpack"
)

// MonitorEvent is what a monitor reports: [TopicMessage] or [Gap].
type MonitorEvent interface{ isMonitorEvent() }

// TopicMessage is one message.
type TopicMessage struct {
	Topic Path
	// Data is its value; none if it is no MessagePack: then Raw has its bytes.
	Data Value
	Raw  []byte
	// Dropped counts messages that were lost just before it, since this monitor did not keep up.
	Dropped int64
}

// Gap: its node was lost, and it continues at another one: messages may have been lost in between.
type Gap struct{ Node string }

func (TopicMessage) isMonitorEvent() {}
func (Gap) isMonitorEvent()          {}

// Monitor delivers messages that are not stored, as they come. One goroutine reads it; any may close it, and somebody must.
type Monitor struct{ *subscription }

// Send sends a message to all that monitor its topic at present. It is not stored, and sent at most once.
func (c *Client) Send(ctx context.Context, topic Path, data any) error {
	value, err := Encode(data)
	if err != nil {
		return err
	}
	p := plan{action: "msg_send", shard: topic.Shard(), idempotency: unguarded}
	if _, failed := c.caller.call(ctx, &p, newBody("msg_send").path("topic", topic).raw("data", value).head(), nil); failed != nil {
		return failed
	}
	return nil
}

// Monitor reports the messages of a topic, in which "+" stands for one element and "#", at the end, for one or more. Leaving
// the loop ends it; an error comes last.
func (c *Client) Monitor(ctx context.Context, topic Path) iter.Seq2[MonitorEvent, error] {
	return func(yield func(MonitorEvent, error) bool) {
		m, err := c.OpenMonitor(ctx, topic)
		if err != nil {
			yield(nil, err)
			return
		}
		defer m.Close()
		for {
			event, err := m.Next(ctx)
			if !yield(event, err) || err != nil {
				return
			}
		}
	}
}

// OpenMonitor is for who wants to wait for events one by one, with Next. It must be closed.
func (c *Client) OpenMonitor(ctx context.Context, topic Path) (*Monitor, error) {
	m := &Monitor{newSubscription(&c.caller, "monitor", "msg_monitor", topic, newBody("msg_monitor").path("topic", topic).head())}
	if err := m.begin(ctx, m); err != nil {
		return nil, err
	}
	return m, nil
}

// Next is the next event; it waits as long as necessary. Giving up to wait loses nothing.
func (m *Monitor) Next(ctx context.Context) (MonitorEvent, error) {
	for {
		from, ended := m.now()
		if ended != nil {
			return nil, ended
		}
		if ctx.Err() != nil {
			return nil, canceledError(ctx, NotDone, "", 0)
		}
		if from == nil {
			found, isDone := m.find(ctx)
			switch {
			case isDone && found.err != nil:
				m.end(found.err)
			case isDone:
				return Gap{found.opened.conn.name}, nil
			}
			continue
		}
		found, err := from.stream.next(ctx, exactly(never))
		switch {
		case err != nil && ctx.Err() != nil && (err.kind == tryCanceled || err.kind == tryTimedOut):
		case err != nil:
			if _, ended := m.now(); ended == nil && m.onError(err, from) {
				m.drop()
			}
		case found == nil:
			if _, ended := m.now(); ended == nil {
				m.drop()
			}
		case found.state == "":
			if message, ok := topicMessage(found.message); ok {
				return message, nil
			}
		}
	}
}

func topicMessage(m message) (TopicMessage, bool) {
	topic, err := pathOfValue(m.get("topic"))
	if err != nil {
		return TopicMessage{}, false
	}
	raw, _ := msgpack.Bytes(m.get("raw"))
	return TopicMessage{topic, Value(m.get("data")), raw, m.integer("dropped", 0)}, true
}
