package distkv

import (
	"runtime"
	"strings"
	"testing"
)

// Nodes that do not answer, or with garbage: what a call that was sent to one says, and which node it goes to then.

// mayBeDone does it until it says that the first node may have done it: a slow machine may use up the time of a try before
// anything is sent. But whatever has reached the node may have been done.
func mayBeDone(t *testing.T, client *Client, node *scripted, action string, do func() (isSaid bool)) {
	t.Helper()
	where := client.topology.routing().byName[node.name].address
	until(t, func() bool {
		until(t, func() bool { return !client.pool.isFailing(where) })
		before := len(node.actions(action))
		isSaid := do()
		if !isSaid && len(node.actions(action)) > before {
			t.Error(action, "has reached the node, and that is not said")
		}
		return isSaid
	})
}

func TestNoAnswerToAReadAGuardedAndAnUnguardedWrite(t *testing.T) {
	for name, answer := range map[string]any{"silence": silence{}, "reset": reset{}} {
		t.Run(name, func(t *testing.T) {
			client, one, two, path := pair(t, shortTries(), always(answer))
			if found := get[string](t, client, path); found != "two" {
				t.Error(found)
			}
			mayBeDone(t, client, one, "set_value", func() bool { return put(t, client, path, 1, nil).Repeated == Maybe })
			isUnknown := func(err error) bool {
				if err == nil {
					return false
				}
				if failed := wantError(t, err, ErrFateUnknown); failed.Fate != Unknown || failed.Node != "s1" {
					t.Errorf("%+v", failed)
				}
				return true
			}
			mayBeDone(t, client, one, "set_value", func() bool {
				_, err := client.Put(t.Context(), path, 1, &PutOptions{WriteID: NoWriteID})
				return isUnknown(err)
			})
			calls := 0
			mayBeDone(t, client, one, "msg_send", func() bool {
				calls++
				return isUnknown(client.Send(t.Context(), path, 1))
			})
			if sent := len(one.actions("msg_send")) + len(two.actions("msg_send")); sent > calls {
				t.Error("a message was sent more than once")
			}
		})
	}
}

func TestGarbageEndsTheConnectionAndAnotherNodeAnswers(t *testing.T) {
	for name, bad := range map[string]string{
		"no MessagePack": "\xc1\xc1", "no map": "\x93\x01\x02\x03", "a number": "\x05",
		"deep nesting": strings.Repeat("\x91", 5000) + "\xc0", "cut off": "\x82\xa3seq", "a stream": "\x82\xa3seq\x03\xa5state\xa5start",
	} {
		t.Run(name, func(t *testing.T) {
			client, one, _, path := pair(t, shortTries(), always(garbage(bad)))
			if found := get[string](t, client, path); found != "two" {
				t.Error(found)
			}
			mayBeDone(t, client, one, "set_value", func() bool {
				written := put(t, client, path, 1, nil)
				if written.Node != "s2" {
					t.Errorf("%+v", written)
				}
				return written.Repeated == Maybe
			})
		})
	}
}

func TestALengthBombAllocatesNothingAndIsLeft(t *testing.T) {
	client, _, _, path := pair(t, shortTries(), always(garbage("\x81\xa1x\xc6\xff\xff\xff\xff")))
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	if found := get[string](t, client, path); found != "two" {
		t.Error(found)
	}
	runtime.ReadMemStats(&after)
	if allocated := after.TotalAlloc - before.TotalAlloc; allocated > 16<<20 {
		t.Errorf("it allocates %d bytes", allocated)
	}
	until(t, func() bool { return client.Stats().Pool.Lost >= 1 })
}
